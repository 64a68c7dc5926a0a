"""Evaluates one policy in Python: the numbers of a comparison for a name, a controller object or a trained model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from kvgym.config.loader import load_config, mistakes_in
from kvgym.config.names import table
from kvgym.errors import ConfigError
from kvgym.harness.compare.cell import Cell, StoredCell
from kvgym.harness.compare.grid import load_compare
from kvgym.harness.compare.plan import make_plan
from kvgym.harness.compare.run import run
from kvgym.harness.compare.summary import Summary, summarize_grid


def evaluate(policy: Any, config: str | Mapping[str, Any], seeds: int | Sequence[int] | None = None) -> Summary:
    """Return what a comparison says of `policy`, paired with its baseline over the same seeds.

    Runs in this process and writes nothing. The policy meets every workload, fleet and eviction policy of the
    comparison; its other routers are not run, except the baseline's.

    >>> import kvgym
    >>> grid = {"name": "mine", "workloads": ["gsp_small"], "routing": ["round_robin"], "eviction": ["lru"]}
    >>> results = kvgym.evaluate("lbgr", grid, seeds=2)
    >>> [cell.labels for cell in results.cells]
    [('gsp_small', 'l40x4', 'round_robin', 'lru'), ('gsp_small', 'l40x4', 'lbgr', 'lru')]
    >>> mine = results.cells[1]
    >>> mine.mean("hit_rate") > results.cells[0].mean("hit_rate")
    True
    >>> ratio, low, high = mine.ratios["p50_latency_s"]
    >>> ratio < 1.0
    True

    Args:
        policy: name of a routing controller or ``module:attr``; or an object with `reset`, `act` and `observe` (see
            `kvgym.control.Controller`), reset before every run; or a trained model with stable-baselines3's
            `predict`, also one that was trained with the work rows, or behind gymnasium's ``FlattenObservation``.
        config: a comparison as for ``kvgym compare``: a name, a YAML file or plain data.
        seeds: number of seeds (0, 1, ...) or the seeds; none: the configuration's.

    Returns:
        `Summary`: per cell ``per_seed`` metrics, ``metrics`` (mean, smallest, largest) and ``ratios`` to the baseline
        with 95 % intervals, exactly as ``kvgym compare`` gives them.

    Raises:
        KVGymError: the configuration or the policy is not acceptable, or a run fails.
    """
    data = dict(load_config("compare", config))
    if seeds is not None:
        data["seeds"] = _plain_seeds(seeds)
    with mistakes_in(config):
        grid = load_compare(data)
    baseline, (rule, controller) = grid.baseline_pair, _controller(policy)
    name = policy if isinstance(policy, str) else type(policy).__name__
    label = name if name != baseline.labels[0] else f"{name} (policy)"
    plan = make_plan(dataclasses.replace(grid, cells=(baseline,), routing=(), eviction=()))
    runs, stored = _Runs(), []
    oracles = {pair.eviction: table("eviction").load(pair.eviction).oracle for pair in grid.pairs}
    ours: dict[str, Any] = {"routing": label, "controller": name, "options": {}, "published": {}}
    ours["concentrates"] = getattr(rule, "concentrates", "")
    if hasattr(controller, "check_workers"):  # a model may be made for one size of fleet: say so before anything runs
        for base in plan.cells:
            controller.check_workers(base.fleet.workers)
    for base in plan.cells:
        cells = [dataclasses.replace(base, eviction=each, oracle=oracle, **ours) for each, oracle in oracles.items()]
        for cell, router in ((base, None), *((cell, controller) for cell in cells)):
            stored.append(cell.stored)
            for seed in grid.seed_list:
                runs.add(cell, seed, router)
    return summarize_grid(stored, grid.seed_list, baseline.labels, runs, grid.warmup_s, grid.slo)


def _plain_seeds(seeds: Any) -> Any:
    """Return seeds (numbers of numpy, too) as a configuration has them; what makes no sense there is reported there."""
    if isinstance(seeds, int | np.integer):
        return int(seeds)
    return (
        [_plain_seeds(seed) for seed in seeds] if isinstance(seeds, Iterable) and not isinstance(seeds, str) else seeds
    )


class _Runs:
    """Finished runs in memory."""

    def __init__(self) -> None:
        self._runs: dict[tuple[tuple[str, ...], int], tuple[np.ndarray, dict[str, Any]]] = {}

    def add(self, cell: Cell, seed: int, controller: Any) -> None:
        """Run `cell` with `seed`; `controller` none: a new one by the cell's name."""
        result = run(cell, seed, controller=controller)
        self._runs[cell.labels, seed] = result.records, result.facts

    def has(self, cell: StoredCell, seed: int) -> bool:
        """Return whether the run is there."""
        return (cell.labels, seed) in self._runs

    def load(self, cell: StoredCell, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
        """Return its records and facts."""
        return self._runs[cell.labels, seed]


def _controller(policy: Any) -> tuple[Any, Any]:
    """Return (the rule, the object that routes; None for a name, of which every run makes a new one).

    Raises:
        ConfigError: `policy` can neither act nor predict.
        UnknownNameError: no such name.
    """
    if isinstance(policy, str):
        return table("routing").load(policy), None
    if isinstance(policy, type):
        raise ConfigError(f"a policy must be an object, got the class {policy.__name__}; give {policy.__name__}()")
    if all(hasattr(policy, name) for name in ("reset", "act", "observe")):
        return policy, policy
    if hasattr(policy, "predict"):
        model = _player(policy)
        return model, model
    raise ConfigError(
        f"a policy must be a name, have reset(), act() and observe(), or have predict(); got {type(policy).__name__}"
    )


def _player(model: Any) -> Any:
    """Return what lets a trained model route; one of stable-baselines3 gets the observations it was trained with."""
    space = getattr(getattr(model, "policy", None), "observation_space", None)
    if isinstance(space, spaces.Dict) and {"request", "workers"} <= set(space.spaces):
        learned: Any = table("routing").load("controllers.learned.model:Learned")
        return learned.of(model)
    return table("routing").load("kvgym.control:ModelController")(model)
