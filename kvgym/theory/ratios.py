"""Measures competitive ratios of eviction policies with the engine's own cache, against the offline optimum.

Model: one prompt after the other (or batches), no answers, pages of one token; a policy pays for *loads*, the prompt
tokens that are not resident on arrival. The ratio is a policy's loads to those of the offline optimum on the same
queries, both counted after the first cycle. The optimum is computed exactly, by farthest next use on tokens
(`kvgym.engine.offline`); on the cyclic star that is one load per n queries.

n = B - L + 1 is the number of leaf tokens that fit beside the stem, L the length of a prompt. A batch that fits is in
memory as a whole, so what a policy can choose from is n = (B - batch x L) / L + 1 prompts. One that does not fit is
loaded in parts; the optimum then serves the same queries one by one, which is never worse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from kvgym.config.names import table
from kvgym.engine.cache.binding import bind
from kvgym.engine.engine import default_options
from kvgym.engine.state import new_cache
from kvgym.harness.measure.statistics import t_interval
from kvgym.jit.door import as_records
from kvgym.seeding import stream, stream_seed
from kvgym.theory.instances import Instance, batches, hot_sets, star, unbalanced

SIZES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
POLICIES = ("lru", "rlt", "random_leaf", "reuse")
"""What is measured everywhere."""
DETERMINISTIC = ("lru", "lfu", "fifo", "slru", "mru", "filo")
"""What the adversary is set on: it asks for the next leaf that is not there."""
SEEDS = 5
CYCLES, DEFIED_CYCLES = 500, 20
HOT_ROUNDS, HOT_TURNS = 20, 24
PROMPT_TOKENS, FITTING, BATCHES = 8, 64, (1, 8, 16, 32, 48, 60, 64, 65)
"""Batches: length of the prompts, how many fit into the pool, batch sizes; the last one violates the condition."""

Maker = Callable[[np.random.Generator], Instance]


@dataclass(frozen=True)
class Ratio:
    """One measured ratio: the mean over seeds with its 95 % interval, which deterministic cases do not need.

    None: unbounded, the optimum loads nothing after the first cycle.
    """

    instance: str
    policy: str
    n: int
    batch: int
    ratio: float | None
    low: float | None
    high: float | None


def play(instance: Instance, policy: str, seed: int, defied: bool = False) -> tuple[int, np.ndarray]:
    """Serve the queries of `instance` (with `defied` those that the policy has to load); return (loads, queries)."""
    from kvgym.engine.serial import defy, serve

    hooks = table("eviction").load(policy)
    nodes = as_records(np.ascontiguousarray(instance.forest.nodes))
    pool = np.array([instance.capacity], np.int64)
    room = 2 * (len(nodes) + instance.capacity + instance.batch) + 64
    cache = new_cache(nodes, pool, default_options(), seed, slots=room, leaves=room, memory=hooks.memory)
    queries, bound = instance.queries.copy(), bind(hooks)
    loads, space = np.zeros((2, len(queries)), np.int64)
    if defied:
        defy(cache, queries, instance.nodes, instance.tokens, loads, space, bound)
    else:
        serve(cache, queries, instance.nodes, instance.tokens, instance.batch, loads, space, bound)
    return int(loads[instance.dropped :].sum()), queries


def optimal_loads(instance: Instance, queries: np.ndarray) -> int:
    """Return the loads of the offline optimum after the dropped queries; batches that do not fit: one by one."""
    from kvgym.engine.offline import ADMIT, END, HOLD, find_intervals, most_hits, tokens_in_use

    count, batch = len(queries), instance.batch if instance.fits else 1
    number, stage = np.tile(np.arange(count), 3), np.repeat(np.arange(3), count)
    order = np.lexsort((stage, number // batch))
    number, kinds = number[order], np.array([ADMIT, HOLD, END], np.int64)[stage[order]]
    nodes = as_records(np.ascontiguousarray(instance.forest.nodes))
    where, tokens = instance.nodes[queries], instance.tokens[queries]
    hits, found = np.zeros(count, np.int64), np.zeros((2 * count, 3), np.int64)
    events = np.ascontiguousarray(np.stack([kinds, number], axis=1))
    found = found[: find_intervals(nodes, events, where, where, tokens, hits, found)]
    found = np.ascontiguousarray(found[np.argsort(found[:, 0], kind="stable")])
    used = np.zeros(3 * count, np.int64)
    tokens_in_use(nodes, events, where, np.ones(count, np.int64), used)
    most_hits(events, instance.capacity - used, found, instance.capacity, hits)
    return int((tokens - hits)[instance.dropped :].sum())


def measure(sizes: tuple[int, ...] = SIZES, seeds: int = SEEDS, cycles: int = CYCLES) -> dict[str, Any]:
    """Return every ratio, the fits and the settings, as plain data."""
    ratios = list(_single(sizes, seeds, cycles)) + list(_batched(seeds, cycles))
    settings = {"sizes": list(sizes), "seeds": seeds, "cycles": cycles, "hot_rounds": HOT_ROUNDS}
    return {"settings": settings, "ratios": [asdict(each) for each in ratios], "fits": fits(ratios)}


def _single(sizes: tuple[int, ...], seeds: int, cycles: int) -> Iterator[Ratio]:
    for n in sizes:
        makers: dict[str, Maker] = {
            "cyclic star": partial(star, n, "cyclic", cycles),
            "random star": partial(star, n, "random", cycles),
            "hot sets": partial(hot_sets, n, HOT_ROUNDS, HOT_TURNS),
            "unbalanced": partial(unbalanced, n, cycles),
        }
        for name, make in makers.items():
            yield from _ratios(name, n, seeds, make)
        for policy in DETERMINISTIC:
            instance = star(n, "cyclic", DEFIED_CYCLES, stream(0, "workload"))
            loads, queries = play(instance, policy, 0, defied=True)
            yield _ratio("adversary", policy, n, 1, [(loads, optimal_loads(instance, queries))])


def _batched(seeds: int, cycles: int) -> Iterator[Ratio]:
    for batch in BATCHES:
        make = partial(batches, FITTING, PROMPT_TOKENS, batch, cycles)
        kept = "kept" if make(stream(0, "workload")).fits else "violated"
        yield from _ratios(f"batches, condition {kept}", max(FITTING - batch + 1, 0), seeds, make)


def _ratios(name: str, n: int, seeds: int, make: Maker) -> Iterator[Ratio]:
    """Measure `POLICIES` on the instances of all seeds; the optimum is the same for each of them."""
    instances = [make(stream(seed, "workload")) for seed in range(seeds)]
    best = [optimal_loads(instance, instance.queries) for instance in instances]
    for policy in POLICIES:
        loads = [play(instance, policy, stream_seed(i, "engine"))[0] for i, instance in enumerate(instances)]
        yield _ratio(name, policy, n, instances[0].batch, list(zip(loads, best, strict=True)))


def _ratio(name: str, policy: str, n: int, batch: int, pairs: list[tuple[int, int]]) -> Ratio:
    """Make the ratio of (loads, loads of the optimum) per seed."""
    if any(best == 0 for _, best in pairs):
        return Ratio(name, policy, n, batch, None, None, None)
    values = [loads / best for loads, best in pairs]
    mean = math.fsum(values) / len(values)
    low, high = t_interval(values, mean) if len(values) > 1 else (mean, mean)
    return Ratio(name, policy, n, batch, mean, low, high)


def fits(ratios: list[Ratio]) -> dict[str, dict[str, float]]:
    """Return how the ratios on the cyclic star grow: rlt as a + b ln n, lru as a + b n, each with its R^2."""
    result = {}
    for policy, grows in (("rlt", math.log), ("lru", float)):
        own = [each for each in ratios if (each.instance, each.policy) == ("cyclic star", policy)]
        x, y = np.array([grows(each.n) for each in own]), np.array([each.ratio for each in own], np.float64)
        slope, offset = np.polyfit(x, y, 1)
        rest = float(((y - offset - slope * x) ** 2).sum() / ((y - y.mean()) ** 2).sum())
        result[policy] = {"slope": float(slope), "offset": float(offset), "r_squared": 1.0 - rest}
    return result
