from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controllers.eviction import EVICTION
from controllers.eviction.learned import COLUMNS, FORMAT, PER_UNIT, load, make_policy
from kvgym.backends.sglang.plugin import FILE_VARIABLE, policy_name, short_name
from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import resolve_cluster
from kvgym.config.loader import resolve_workload
from kvgym.encoding.offers import encode_eviction
from kvgym.engine.handle import CacheHandle
from kvgym.engine.mirror import ROOT, MirrorCache
from kvgym.envs.eviction import EvictionEnv
from kvgym.errors import ConfigError, PluginError

WORKLOAD = {"source": "gsp", "groups": 8, "prompts_per_group": 16, "lens": [64, 128], "rate_rps": 10.0}
CLUSTER = {"workers": 2, "capacity_tokens": 600}
NUMBERS = np.random.default_rng(5).normal(size=(4, PER_UNIT)).round(3)


def scorer(**changes: Any) -> dict[str, Any]:
    linear = NUMBERS[0, : len(COLUMNS)].tolist()
    own = {"recent": 4, "random": 4, "tail_tokens": 0, "linear": linear, "units": NUMBERS[1:].tolist()}
    return {"format": FORMAT, "columns": list(COLUMNS), **own, **changes}


@pytest.fixture
def write(tmp_path: Path):
    def write(**changes: Any) -> str:
        path = tmp_path / "scorer.json"
        path.write_text(json.dumps(scorer(**changes)))
        return str(path)

    return write


def simulate(policy: str, seed: int = 1, cluster: Any = CLUSTER) -> SimulatedBackend:
    load = resolve_workload(WORKLOAD).generate(seed, 1)
    return SimulatedBackend(load, resolve_cluster(cluster), policy, seed)


def drain(backend: SimulatedBackend) -> list[Any]:
    turn = len(backend.records())
    while (decision := backend.run_to_decision()) is not None:
        up = np.flatnonzero(decision.mask)
        backend.apply(int(up[turn % len(up)]))
        turn += 1
    return backend.records().tolist()


@pytest.mark.parametrize("tail", [0, 24])
def test_scorer__evicts_what_its_argmax_evicts_in_the_environment(write, tail):
    data = scorer(tail_tokens=tail)
    backend = simulate(write(tail_tokens=tail))
    env = EvictionEnv(WORKLOAD, CLUSTER, routing="round_robin", candidates=8, offered="both", tail_tokens=tail or None)
    env.reset(options={"seed": 1})
    done = False
    while not done:
        n = len(env.decision.candidates)
        x = encode_eviction(env.decision)["candidates"][:n, : len(COLUMNS)].astype(float)
        units = np.array(data["units"])
        hidden = np.maximum(units[:, 0] + x @ units[:, 1:-1].T, 0.0)
        _, _, done, _, _ = env.step(int(np.argmax(x @ data["linear"] + hidden @ units[:, -1])))
    assert drain(backend) == env.records().tolist()
    assert backend.stats() == env.backend.stats() and backend.engine.cache.workers["evicted"].min() > 1000


def test_linear_scorer__on_idle_time_is_lru(write):
    linear = [float(name == "idle") for name in COLUMNS]
    path = write(recent=1, random=0, linear=linear, units=[])
    assert drain(simulate(path)) == drain(simulate("lru"))
    wide = write(recent=0, random=500, linear=linear, units=[])  # features are logarithms: still in order
    assert drain(simulate(wide)) == drain(simulate("lru"))


def test_policy__survives_a_restart_a_fork_and_a_pickle(write):
    import pickle

    faults = [{"time_s": 3.0, "worker": 1, "event": "fail"}, {"time_s": 5.0, "worker": 1, "event": "recover"}]
    backend = simulate(write(), cluster=CLUSTER | {"schedule": faults})
    constants = EVICTION.load(write()).constants
    for _ in range(60):
        decision = backend.run_to_decision()
        backend.apply(int(np.flatnonzero(decision.mask)[-1]))
    assert decision.incarnation.tolist() == [0, 1]
    twins = backend.fork(), pickle.loads(pickle.dumps(backend))
    expected = drain(backend)
    assert all(drain(twin) == expected for twin in twins)
    assert (backend.engine.cache.memory[:, : len(constants)] == constants).all()


def test_policy__runs_in_a_mirror_as_in_a_server_and_keeps_the_invariants():
    linear = [float(name == "children") * -5 + float(name == "idle") for name in COLUMNS]
    tree = MirrorCache(make_policy(4, 4, 0, linear, []), 1000)
    stem = tree.add(ROOT, 100)
    tree.insert(stem)
    first = tree.add(stem, 50)
    tree.insert(first)
    other = tree.add(ROOT, 80)
    tree.insert(other)
    assert tree.evict(40) == [(first, 0)]  # the longest idle leaf
    tree.insert(other)
    tree.check()
    assert tree.evict(10) == [(other, 0)]  # `stem` has been idle for longer, but once had a child
    assert tree.evict(10) == [(stem, 0)]
    tree.check()


def test_rlt_marks_and_children__stay_right_under_every_operation(write):
    rng = np.random.default_rng(0)
    load = resolve_workload(WORKLOAD).generate(0, 1)
    handle = CacheHandle(load.forest.nodes, EVICTION.load(write()), 2000)
    for row in load.requests:
        node, tokens = int(row["prompt_node"]), int(row["prompt_tokens"])
        matched, slot = handle.match(0, node, tokens)
        handle.lock(0, slot)
        handle.evict(0, max(0, tokens - matched - handle.free_tokens(0)))
        handle.insert(0, node, tokens)
        handle.unlock(0, slot)
        if rng.random() < 0.2:
            handle.evict(0, int(rng.integers(1, 200)))
        handle.check()
        cache = handle.cache
        leaves = cache.order[0, : cache.workers["leaves"][0]]
        marked = (cache.slots["epoch"][leaves] == cache.workers["epoch"][0]) & (
            cache.slots["mark"][leaves] < cache.slots["d1"][leaves]
        )
        assert cache.workers["unmarked"][0] == (~marked).sum()
        assert (cache.slots["key"][leaves] >> 20 == cache.slots["access"][leaves]).all()


def test_name__a_file_is_a_policy_in_registry_and_server(write, monkeypatch):
    path = write()
    assert EVICTION.path(path) == "controllers.eviction.learned:load" and EVICTION.path("lru").endswith("lru:POLICY")
    assert short_name(path) == "learned" and short_name("rlt") == policy_name("rlt") == "rlt"
    monkeypatch.setenv(FILE_VARIABLE, path)
    assert policy_name("learned") == path
    monkeypatch.delenv(FILE_VARIABLE)
    with pytest.raises(ConfigError, match=f"set {FILE_VARIABLE} to the .json file"):
        policy_name("learned")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "its format must be"),
        ({"columns": ["idle"]}, "scores other features"),
        ({"recent": 0, "random": 0}, "must not both be 0"),
        ({"recent": -1}, "recent must be a whole number"),
        ({"random": True}, "random must be a whole number"),
        ({"tail_tokens": None}, "tail_tokens must be a whole number"),
        ({"linear": [1.0]}, "linear must be 9 finite numbers"),
        ({"units": [[float("nan")] * PER_UNIT]}, "a unit must be 11 finite numbers"),
        ({"units": 3}, "units must be a list"),
        ({"columns": 3}, "scores other features"),
        ({"linear": [10**400] * 9}, "linear must be 9 finite numbers"),
    ],
)
def test_file__mistakes_are_explained(write, changes, message):
    with pytest.raises(ConfigError, match=message):
        EVICTION.load(write(**changes))


def test_file__absent_or_no_json(tmp_path):
    with pytest.raises(ConfigError, match="no eviction policy file"):
        EVICTION.load(str(tmp_path / "absent.json"))
    (tmp_path / "text.json").write_text("not json")
    with pytest.raises(ConfigError, match="is no eviction policy file"):
        EVICTION.load(str(tmp_path / "text.json"))
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises((ConfigError, PluginError), match="its format must be"):
        EVICTION.load(str(tmp_path / "list.json"))


def test_run__takes_a_file_on_the_command_line(write, kvgym):
    code, out, err = kvgym("run", "--workload", "gsp_small", "--eviction", write(), "--seed", "1", "--json")
    assert code == 0, err
    assert json.loads(out)["completed"] == 768
    code, _, err = kvgym("run", "--workload", "gsp_small", "--eviction", "absent.json")
    assert code == 2 and "no eviction policy file absent.json" in err and err.count("\n") == 1


def test_load__nesting_without_end_is_explained(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 200_000)
    with pytest.raises(ConfigError, match=r"deep\.json is no eviction policy file"):
        load(tmp_path / "deep.json")
