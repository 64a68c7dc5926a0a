"""Without the JIT the same code gives the same numbers (NUMBA_DISABLE_JIT=1, in a process of its own)."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controllers.eviction import EVICTION
from kvgym.engine.handle import CacheHandle
from kvgym.engine.state import DECIDE
from kvgym.forest.forest import Forest
from kvgym.harness.measure.bounds import hit_bound
from kvgym.theory import ratios
from kvgym.theory.instances import batches, star
from kvgym.theory.ratios import optimal_loads
from kvgym.workloads.fixed import Fixed

HERE = Path(__file__).resolve()


def rows() -> list[dict[str, Any]]:
    """Sessions of two turns over five shared prefixes, long enough to chunk, evict and retract."""
    made = []
    for i in range(16):
        shared = [[i % 5, 5 + i % 5], ["q", 3]] if i % 3 else [[i % 5, 5 + i % 5]]
        made.append(
            {"path": shared, "session": i, "output_tokens": 9 + i % 11, "answer": f"r{i}", "arrival_s": i * 0.7}
        )
        path = [*shared, [f"r{i}", 9 + i % 11], ["more", 2 + i % 3]]
        made.append({"path": path, "session": i, "output_tokens": 2 + i % 5, "think_s": 0.3, "priority": i % 3})
    return made


def episodes(folder: Path) -> None:
    """Run every policy at both page sizes; write one file of records each."""
    tools = runpy.run_path(str(HERE.parent / "conftest.py"))
    for page, capacity in ((1, [70, 90]), (16, [160, 192])):
        for policy in EVICTION:
            # 1/7: costs whose sums are rounded
            options = {"check": 0, "page": page, "chunk": page * 8, "ignore_eos": 0, "p_quad": 1 / 7, "d_kvtok": 1 / 70}
            engine = tools["make_engine"](rows(), policy, capacity, **options)
            engine.cache.workers["ratio"] = 0.1
            records = tools["finish"](engine, lambda request: request % 2)
            np.save(folder / f"{policy}-{page}.npy", records)
            np.save(folder / f"{policy}-{page}-workers.npy", np.asarray(engine.cache.workers))


def faulty(folder: Path) -> None:
    """Workers that join, fail and come back across a network, of SGLang and vLLM; write the records and the workers."""
    tools = runpy.run_path(str(HERE.parent / "conftest.py"))
    schedule = [(2.0, 1, "join"), (9.3, 0, "fail"), (14.0, 0, "recover"), (30.1, 1, "fail"), (90.0, 1, "recover")]
    for policy, blocked in (("lru", 0), ("rlt", 0), ("lru", 1)):
        options = {"check": 0, "chunk": 8, "ignore_eos": 0, "d_kvtok": 1 / 70, "retry_s": 0.3, "blocked": blocked}
        fleet = {"schedule": schedule, "detect_s": 1.5, "network_s": [[0.1, 0.7]]}
        engine = tools["make_engine"](rows(), policy, [70, 90], **options, **fleet)
        visible = engine.cache.workers["visible"]
        records = tools["finish"](
            engine, lambda request, up=visible: request % 2 if up[request % 2] else 1 - request % 2
        )
        assert (records["attempts"] > 1).any()
        np.save(folder / f"{policy}-{blocked}-faulty.npy", records)
        np.save(folder / f"{policy}-{blocked}-faulty-workers.npy", np.asarray(engine.cache.workers))


def by_hand(folder: Path) -> None:
    """Drive a cache operation by operation, and read a decision's signals; write what was found."""
    forest = Forest()
    nodes = [forest.insert([i % 3, i % 2, *([i] * (3 + i % 4))]) for i in range(12)]
    found = []
    for policy in EVICTION:
        cache = CacheHandle(forest.nodes, EVICTION.load(policy), 40, seed=3)
        for i in range(60):
            node = nodes[i * 7 % 12]
            tokens = int(forest.nodes["end"][node])
            matched, slot = cache.match(0, node, tokens)
            cache.lock(0, slot)
            found += [matched, cache.evict(0, tokens - matched - cache.free_tokens(0)), cache.insert(0, node, tokens)]
            cache.unlock(0, slot)
            found.append(cache.peek(0, nodes[i % 12], 5))
        cache.check()
    engine = runpy.run_path(str(HERE.parent / "conftest.py"))["make_engine"](rows(), "lru", [100, 100])
    for worker in (0, 1, 0):
        engine.run()
        found += engine.signals(exact=True)[0].ravel().tolist()
        engine.route(worker)
    np.save(folder / "by-hand.npy", np.array(found, [("found", np.int64)]))


def offline(folder: Path) -> None:
    """Serve without a scheduler, with its optimum; let an oracle play an episode, with its bound."""
    found = []
    for order in ("cyclic", "random"):
        instance = star(6, order, 4, np.random.default_rng(2))
        found.append(optimal_loads(instance, instance.queries))
        found += [ratios.play(instance, policy, 3)[0] for policy in ratios.POLICIES]
        found += ratios.play(instance, "lru", 3, defied=True)[1].tolist()
    batched = batches(4, 3, 2, 6, np.random.default_rng(2))
    found += [optimal_loads(batched, batched.queries), ratios.play(batched, "rlt", 3)[0]]
    workload = Fixed(tuple(rows()), clients=1).generate(0)
    engine = runpy.run_path(str(HERE.parent / "conftest.py"))["make_engine"](workload, "belady", 60, oracle=True)
    while engine.run() == DECIDE:
        engine.route(0)
    records = engine.records()
    np.save(folder / "belady.npy", records)
    np.save(folder / "offline.npy", np.array([*found, hit_bound(workload, records, [60])], [("found", np.int64)]))


def play(folder: Path) -> None:
    """What both processes do."""
    episodes(folder)
    faulty(folder)
    by_hand(folder)
    offline(folder)


@pytest.mark.slow
def test_jit_off__gives_the_same_integers(repo_root: Path, tmp_path: Path) -> None:
    on, off = tmp_path / "on", tmp_path / "off"
    on.mkdir()
    off.mkdir()
    code = f"import runpy, pathlib; runpy.run_path({str(HERE)!r})['play'](pathlib.Path({str(off)!r}))"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(repo_root)}
    subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, cwd=repo_root, check=True, timeout=200)
    play(on)
    names = sorted(path.name for path in on.iterdir())
    assert len(names) == 4 * len(EVICTION) + 9
    evicted = retracted = 0
    for name in names:
        ours, plain = np.load(on / name), np.load(off / name)
        for field in ours.dtype.names:
            if np.issubdtype(ours[field].dtype, np.floating):
                np.testing.assert_allclose(plain[field], ours[field], rtol=1e-9, err_msg=f"{name}: {field}")
            else:
                np.testing.assert_array_equal(plain[field], ours[field], err_msg=f"{name}: {field}")
        if name.endswith("workers.npy"):
            evicted += ours["evicted"].sum()
            retracted += ours["retractions"].sum()
    assert evicted > 0 and retracted > 0
