"""Tunes a router's options on half of the sessions of given workloads, and judges them on the other half."""

from __future__ import annotations

import dataclasses
import functools
import math
import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml
from rich.console import Console

from kvgym.backends.batch import cpus
from kvgym.config.loader import load_config
from kvgym.config.names import table
from kvgym.errors import ConfigError, KVGymError, MissingDependencyError
from kvgym.harness.compare.cell import Cell
from kvgym.harness.compare.grid import load_compare
from kvgym.harness.compare.plan import make_plan
from kvgym.harness.compare.run import run
from kvgym.harness.compare.summary import CellSummary
from kvgym.harness.measure.statistics import summarize
from kvgym.harness.report.tuned import METRICS, TUNED, UNTUNED, Tuned
from kvgym.harness.tools.comparison import compare

_REACH = 8.0
"""A number is sought between an eighth and eight times its default, within its range."""
_TEST_SEEDS = (1000, 1001, 1002, 1003, 1004)


@dataclass(frozen=True)
class Space:
    """Where one option is sought: numbers between low and high, or one of some choices."""

    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    log: bool = False
    choices: tuple[Any, ...] = ()


def spaces(routing: str, given: Sequence[str] = ()) -> dict[str, Space]:
    """Return option -> where it is sought: those that `given` names as NAME=LOW:HIGH or NAME, none: all of the router.

    Raises:
        ConfigError: the router has no such option, or none that can be sought.
    """
    cls = table("routing").load(routing)
    known = {spec.name: spec for spec in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
    hints = get_type_hints(cls) if known else {}
    found = {name: space for name, spec in known.items() if (space := _space(spec, hints[name])) is not None}
    if not given:
        found = {name: space for name, space in found.items() if not name.startswith("max_")}
        if not found:
            raise ConfigError(f"routing controller {routing!r} has no option that can be tuned")
        return found
    chosen = {}
    for text in given:
        name, _, limits = text.partition("=")
        if name not in found:
            raise ConfigError(f"{routing} has no tunable option {name!r}; there are: {', '.join(found) or 'none'}")
        chosen[name] = _limited(found[name], text, limits) if limits else found[name]
    return chosen


def tune(
    data: Mapping[str, Any],
    routing: str,
    out: Path,
    given: Sequence[str] = (),
    trials: int = 60,
    timeout_s: float | None = None,
    jobs: int | None = None,
    console: Console | None = None,
) -> Tuned:
    """Tune `routing` on the comparison's workloads, fleets and seeds, and write `out`, which `kvgym route` takes.

    Each workload's sessions are halved (`kvgym.workloads.part`). The study lies beside `out` and is continued by the
    next call.

    Args:
        data: a comparison; its routers are not used, of its eviction policies the first.
        routing: the router.
        out: YAML file with the best options.
        given: which options, see `spaces`.
        trials: how many more to try.
        timeout_s: ends the search earlier.
        jobs: processes.
        console: where progress goes.

    Raises:
        MissingDependencyError: optuna is absent.
        KVGymError: the comparison is wrong, or a run fails.
    """
    try:
        import optuna
    except ImportError as error:
        raise MissingDependencyError("kvgym tune needs optuna: pip install 'kvgym[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    console, sought = console or Console(quiet=True), spaces(routing, given)
    out.parent.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name=f"{routing} on {data.get('name', 'workloads')}",
        storage=f"sqlite:///{out.with_suffix('.study.db').absolute()}",
        sampler=optuna.samplers.TPESampler(seed=0, multivariate=True),
        load_if_exists=True,
    )
    with ProcessPoolExecutor(jobs or cpus(), multiprocessing.get_context("spawn")) as pool:
        measure = functools.partial(_measure, _halved(data, 0), routing, pool)
        base = measure({})
        if not study.trials:
            study.enqueue_trial({name: _default(routing, name) for name in sought})

        def objective(trial: Any) -> float:
            options = {name: _suggest(trial, name, space) for name, space in sought.items()}
            try:
                value = _worse(measure(options), base)
            except KVGymError as error:
                raise optuna.TrialPruned(str(error)) from error  # options that contradict each other
            if len(study.trials) % 10 == 0:
                best = math.exp(min(value, _best(study)))
                console.print(f"trial {len(study.trials)}: best {best:.3f} of the untuned", highlight=False)
            return value

        study.optimize(objective, n_trials=trials, timeout=timeout_s)
    options = {name: study.best_params[name] for name in sought}
    text = yaml.safe_dump({"routing": routing, "options": options}, sort_keys=False)
    out.write_text(f"# {routing} tuned by `kvgym tune`; kvgym route takes this file.\n{text}", encoding="utf-8")
    judged = _judge(_halved(data, 1), routing, options, jobs, console)
    return Tuned(routing, options, len(study.trials), math.exp(study.best_value), judged)


def _best(study: Any) -> float:
    try:
        return float(study.best_value)
    except ValueError:
        return math.inf


def _space(spec: dataclasses.Field[Any], hint: Any) -> Space | None:
    default, meta = spec.default, spec.metadata
    if get_origin(hint) is Literal:
        return Space(choices=get_args(hint))
    if isinstance(default, bool):
        return Space(choices=(False, True))
    if not isinstance(default, int | float):
        return None
    least = meta.get("low") if meta.get("low") is not None else meta.get("above")
    low, high = (float("-inf") if least is None else float(least)), float(meta.get("high") or math.inf)
    whole = isinstance(default, int) and hint is int
    if default > 0:
        bounds = max(low, default / _REACH), min(high, default * _REACH)
        if whole:
            bounds = max(1.0, math.ceil(bounds[0])), math.floor(bounds[1])
        return Space(*bounds, whole=whole, log=True) if bounds[0] < bounds[1] else None
    if math.isinf(low):
        return None
    return Space(low, min(high, low + 1.0) if math.isinf(high) else high, whole=whole)


def _limited(space: Space, text: str, limits: str) -> Space:
    low, colon, high = limits.partition(":")
    try:
        bounds = float(low), float(high)
    except ValueError:
        bounds = 0.0, 0.0
    if not colon or not bounds[0] < bounds[1] or space.choices:
        raise ConfigError(f"--option must be NAME or NAME=LOW:HIGH with numbers, got {text!r}")
    return dataclasses.replace(space, low=bounds[0], high=bounds[1], log=bounds[0] > 0)


def _suggest(trial: Any, name: str, space: Space) -> Any:
    if space.choices:
        return trial.suggest_categorical(name, list(space.choices))
    if space.whole:
        return trial.suggest_int(name, int(space.low), int(space.high), log=space.log)
    return trial.suggest_float(name, space.low, space.high, log=space.log)


def _default(routing: str, name: str) -> Any:
    return next(spec.default for spec in dataclasses.fields(table("routing").load(routing)) if spec.name == name)


def _halved(data: Mapping[str, Any], part: int) -> dict[str, Any]:
    """Return the comparison with half of each workload's sessions, and without its routers."""
    config = load_compare(data)
    workloads = []
    for workload, clusters in config.grid:
        use = workload.use if isinstance(workload.use, str) else dict(workload.use)
        fleets = [{"use": fleet.use if isinstance(fleet.use, str) else dict(fleet.use), "name": fleet.label}
                  for fleet in clusters]  # fmt: skip
        load_config("workloads", use)
        workloads.append({"use": {"source": "part", "of": use, "part": part}, "name": workload.label,
                          "optional": workload.optional, "clusters": fleets})  # fmt: skip
    kept = {name: value for name, value in data.items() if name in ("slo", "signals", "warmup_s", "seeds")}
    return {**kept, "name": str(data.get("name", "tune")), "workloads": workloads, "eviction": config.pairs[0].eviction}


def _grid(data: Mapping[str, Any], routing: str, choices: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    cells = [{"routing": {"use": routing, "name": name, "options": dict(options)}, "eviction": data["eviction"]}
             for name, options in choices.items()]  # fmt: skip
    return {name: value for name, value in data.items() if name != "eviction"} | {"cells": cells}


def _measure(
    data: Mapping[str, Any], routing: str, pool: ProcessPoolExecutor, options: Mapping[str, Any]
) -> list[dict[str, float]]:
    """Return the metrics of every workload, fleet and seed."""
    config = load_compare(_grid(data, routing, {TUNED: options}))
    plan = make_plan(config)
    plan.check()
    tasks = [(cell, seed) for cell in plan.cells for seed in config.seed_list]
    return list(pool.map(_one, *zip(*tasks, strict=True)))


def _one(cell: Cell, seed: int) -> dict[str, float]:
    result = run(cell, seed)
    found = summarize(result.records, result.totals)
    return {name: float(value) for name in METRICS if (value := found[name]) is not None}


def _worse(found: list[dict[str, float]], base: list[dict[str, float]]) -> float:
    """Return the mean logarithm of all metrics' ratios; below 0 is better."""
    logs = [math.log(own[name] / other[name]) for own, other in zip(found, base, strict=True) for name in METRICS
            if name in own and name in other]  # fmt: skip
    return math.fsum(logs) / len(logs) if logs else math.inf


def _judge(
    data: Mapping[str, Any], routing: str, options: Mapping[str, Any], jobs: int | None, console: Console
) -> list[CellSummary]:
    judged = {**data, "seeds": list(_TEST_SEEDS), "name": f"{data['name']}-judged"}
    return compare(_grid(judged, routing, {UNTUNED: {}, TUNED: options}), None, jobs, console).summary.cells
