"""A measured run says what was measured and what was assumed, and has the simulator's figures beside that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.config.contracts import make_controller
from kvgym.config.signals import SignalsConfig
from kvgym.workloads.base import Workload


@dataclass(frozen=True)
class Figure:
    """One number of a run, measured and simulated.

    Attributes:
        arm: whose it is, for example the router; empty: there is one.
        load: requests/s at which it was measured; 0: there is one load.
        name: what it is, with its unit.
        measured: the published value.
        simulated: the simulator's.
    """

    arm: str
    load: float
    name: str
    measured: float
    simulated: float

    @property
    def error(self) -> float:
        """Simulated over measured, less 1."""
        return self.simulated / self.measured - 1.0


@dataclass(frozen=True)
class MeasuredRun:
    """A run of real engines that can be replayed.

    Attributes:
        title: what was measured.
        source: who published it, under which licence, and the data file.
        assumed: what the simulation takes for granted; each a sentence.
        fitted: what was fitted to this run; empty: nothing.
        replay: replays it and returns the figures.
    """

    title: str
    source: str
    assumed: tuple[str, ...]
    replay: Callable[[], list[Figure]]
    fitted: str = ""


def not_a_run(value: Any) -> str | None:
    """Return what a measured run has to be if `value` is none (the name table checks plug-ins with it)."""
    return None if isinstance(value, MeasuredRun) else "a kvgym.validation.base.MeasuredRun"


def serve(
    load: Workload, cluster: ClusterConfig, routing: Any, signals: SignalsConfig | None = None, seed: int = 0
) -> np.ndarray:
    """Return the RECORD rows of an episode by request, evicted by LRU.

    `routing` is a controller's name, or a map ``{"use": name, "options": {...}}``.
    """
    backend = SimulatedBackend(load, cluster, "lru", seed, signals or SignalsConfig())
    seat: Mapping[str, Any] = {"use": routing, "options": {}} if isinstance(routing, str) else routing
    router = make_controller(seat["use"], seat["options"], cluster.workers)
    router.reset(backend.spec, seed)
    while (decision := backend.run_to_decision()) is not None:
        backend.apply(router.act(decision))
        router.observe(backend.completions())
    return np.sort(backend.records(), order="request")


def kendall_tau(first: np.ndarray, second: np.ndarray) -> float:
    """Return the rank agreement of two lists of values (tau-b): 1 the same order, -1 the reverse."""
    a, b = (np.sign(values[:, None] - values[None, :]) for values in (np.asarray(first), np.asarray(second)))
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def rank_agreement(figures: list[Figure], name: str) -> float:
    """Return Kendall's tau over all arms and loads of the figure `name`."""
    chosen = [figure for figure in figures if figure.name == name]
    return kendall_tau(np.array([f.measured for f in chosen]), np.array([f.simulated for f in chosen]))


def wrong_winners(figures: list[Figure], name: str, least: float = 0.2) -> list[str]:
    """Return the loads at which two arms differ by more than `least` as measured, and the simulator swaps them."""
    wrong = []
    chosen = [figure for figure in figures if figure.name == name]
    for i, one in enumerate(chosen):
        for other in chosen[i + 1 :]:
            if one.load == other.load and abs(np.log(one.measured / other.measured)) > np.log(1.0 + least):
                if (one.measured > other.measured) != (one.simulated > other.simulated):
                    wrong.append(f"{one.arm} against {other.arm} at {one.load:g}/s")
    return wrong
