from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from controllers.routing.cache_aware import CacheAware
from controllers.routing.random import Random
from kvgym.control import ControllerPolicy
from kvgym.encoding.decisions import WORKER_FEATURES, feature_table
from kvgym.envs.routing import RoutingEnv
from kvgym.errors import ConfigError, SimulationError, UnknownNameError
from kvgym.types import DONE, FAILED, REJECTED

WORKLOAD = {"source": "gsp", "groups": 6, "prompts_per_group": 5, "lens": [64, 128], "rate_rps": 30.0}
CLUSTER = {"workers": 3, "capacity_tokens": 600}
CHAT = str(Path(__file__).with_name("chat.yaml"))
ONE_AT_A_TIME = {"cost": {"model": "analytic", "cached_ms": 0.0, "miss_ms": 1.0}, "one_at_a_time": True}
"""A missed token costs one millisecond, a cached one nothing, an answer of one token nothing."""


def play(env: RoutingEnv, seed: int = 0) -> tuple[float, list[dict]]:
    """Route in turn until the end; return the undiscounted return and all infos."""
    env.reset(seed=seed)
    total, infos, done = 0.0, [], False
    while not done:
        _, reward, done, _, info = env.step(len(infos) % env.action_space.n)
        total += reward
        infos.append(info)
    return total, infos


@pytest.mark.parametrize("workload", [WORKLOAD, WORKLOAD | {"rate_rps": None}, CHAT], ids=["open", "burst", "chat"])
def test_return__equals_the_metric(workload):
    env = RoutingEnv(workload, CLUSTER, reward={"latency": 1.0, "ttft": 1.0, "makespan": 1.0})
    total, infos = play(env)
    records, sums = env.records(), {name: sum(i["rewards"][name] for i in infos) for name in infos[0]["rewards"]}
    assert (records["status"] == DONE).all()
    assert sums["latency"] == pytest.approx(-(records["finish_s"] - records["arrival_s"]).sum())
    assert sums["ttft"] == pytest.approx(-(records["first_token_s"] - records["arrival_s"]).sum())
    assert sums["makespan"] == pytest.approx(-env._backend.stats()["makespan_load_s"])
    assert total == pytest.approx(sum(sums.values()))
    assert infos[-1]["time_s"] == records["finish_s"].max()


@pytest.mark.parametrize("workload", [WORKLOAD, CHAT], ids=["open", "chat"])
def test_return__equals_goodput_and_saved_tokens(workload):
    reward = {"slo": {"weight": 10.0, "ttft_s": 0.07, "latency_s": 0.17}, "cache": 0.001}
    env = RoutingEnv(workload, CLUSTER, reward=reward)
    total, infos = play(env)
    records, sums = env.records(), {name: sum(i["rewards"][name] for i in infos) for name in infos[0]["rewards"]}
    latency_s, ttft_s = (records[name] - records["arrival_s"] for name in ("finish_s", "first_token_s"))
    good = ((latency_s <= 0.17) & (ttft_s <= 0.07)).sum()
    assert 0 < good < len(records)
    assert sums == {"slo": good, "cache": records["hit_tokens"].sum()}
    assert total == pytest.approx(10.0 * good + 0.001 * records["hit_tokens"].sum())


def test_reward__may_be_a_callable_that_does_not_survive_json():
    def answers(before, after, records):
        return float(len(records))

    env = gymnasium.make("kvgym/Routing-v0", workload=WORKLOAD, cluster=CLUSTER, reward=answers)
    total, infos = play(env.unwrapped)
    assert total == 30 == sum(info["rewards"]["answers"] for info in infos)
    with pytest.raises((TypeError, ValueError), match=r"function|callable"):
        env.spec.to_json()


FAULTS = [
    {"time_s": 0.4, "worker": 0, "event": "join"},
    {"time_s": 0.3, "worker": 1, "event": "fail"},
    {"time_s": 0.9, "worker": 1, "event": "recover"},
    {"time_s": 0.6, "worker": 2, "event": "fail"},
]


@pytest.mark.parametrize("workload", [WORKLOAD, CHAT], ids=["open", "chat"])
@pytest.mark.parametrize(
    "more", [{}, {"detect_s": 0.25}, {"network_s": {"a": [0.0, 0.1, 0.2], "b": 0.05}}, {"retries": 0}]
)
def test_return__equals_the_metric_with_failures_and_delays(workload, more):
    """Failed requests count until they have failed, in both terms."""
    env = RoutingEnv(
        workload, CLUSTER | {"schedule": FAULTS} | more, reward={"latency": 1.0, "ttft": 1.0, "makespan": 1}
    )
    _, infos = play(env)
    records, sums = env.records(), {name: sum(i["rewards"][name] for i in infos) for name in infos[0]["rewards"]}
    assert len(records) == len(set(records["request"].tolist())) == len(env._backend.workload.requests)
    if workload is WORKLOAD:  # enough of it for the failures to hit something
        assert (records["status"] == FAILED).any() if "retries" in more else (records["attempts"] > 1).any()
    first_s = np.where(records["first_token_s"] >= 0, records["first_token_s"], records["finish_s"])
    assert sums["latency"] == pytest.approx(-(records["finish_s"] - records["arrival_s"]).sum())
    assert sums["ttft"] == pytest.approx(-(first_s - records["arrival_s"]).sum())
    assert sums["makespan"] == pytest.approx(-env._backend.stats()["makespan_load_s"])
    assert len(infos) == records["attempts"].sum()


def test_masks__follow_the_schedule_and_are_never_empty():
    env = RoutingEnv(WORKLOAD, CLUSTER | {"schedule": FAULTS})
    env.reset(seed=0)
    seen, done = [], False
    while not done:
        mask = env.action_masks()
        assert mask.any() and (mask == env.decision.mask).all()
        time_s = env.decision.time_s
        assert mask.tolist() == [time_s >= 0.4, not 0.3 <= time_s < 0.9, time_s < 0.6]
        seen.append(mask.tolist())
        wrong = int(np.argmin(mask))
        _, _, done, _, info = env.step(wrong)
        assert (env.records()["worker"] >= 0).all()
    assert len({tuple(mask) for mask in seen}) >= 4
    assert info["invalid_actions"] == sum(not all(mask) for mask in seen) == len(seen)


def test_reset__an_episode_in_which_no_worker_is_ever_up_is_an_error():
    never = [{"time_s": 0.0, "worker": w, "event": "fail"} for w in range(3)]
    with pytest.raises(SimulationError, match="no worker is up for any request"):
        RoutingEnv(WORKLOAD, CLUSTER | {"schedule": never}).reset(seed=0)


def test_rejected_request__ends_at_once_and_costs_nothing():
    rows = [{"path": [["long", 700]]}, {"path": [["short", 10]], "arrival_s": 1.0}]
    env = RoutingEnv({"source": "fixed", "rows": rows}, {"workers": 2, "capacity_tokens": 600})
    total, infos = play(env)
    assert [i["completed"] for i in infos] == [1, 1]
    assert env.records()["status"].tolist() == [REJECTED, DONE]
    assert total == pytest.approx(-(env.records()["finish_s"] - env.records()["arrival_s"])[1])


@pytest.mark.parametrize(("second", "latency_s"), [(0, 0.1 + 0.01), (1, 0.1 + 0.11)])
def test_two_workers__the_one_with_the_prefix_is_better(second, latency_s):
    rows = [{"path": [["a", 100]]}, {"path": [["a", 100], ["b", 10]], "arrival_s": 1.0}]
    cluster = {"workers": 2, "capacity_tokens": 1000, **ONE_AT_A_TIME}
    env = RoutingEnv({"source": "fixed", "rows": rows}, cluster)
    env.reset(seed=0)
    first = env.step(0)
    hit = first[0]["workers"][:, [name for name, *_ in WORKER_FEATURES].index("hit")]
    assert hit == pytest.approx([100 / 110, 0])
    assert first[1] == pytest.approx(-0.1)
    assert first[1] + env.step(second)[1] == pytest.approx(-latency_s)


@pytest.mark.parametrize(("second", "latency_s"), [(0, 0.1 + 0.2), (1, 0.1 + 0.1)])
def test_two_workers__the_idle_one_is_better_for_strangers(second, latency_s):
    rows = [{"path": [["a", 100]]}, {"path": [["b", 100]]}]
    cluster = {"workers": 2, "capacity_tokens": 1000, **ONE_AT_A_TIME}
    env = RoutingEnv({"source": "fixed", "rows": rows}, cluster)
    env.reset(seed=0)
    _, reward, done, _, info = env.step(0)
    assert (reward, done, info["dt_s"]) == (0.0, False, 0.0)
    assert env.step(second)[1] == pytest.approx(-latency_s)


def test_observability__the_router_does_not_see_evictions():
    rows = [{"path": [[key, 100]], "arrival_s": float(i)} for i, key in enumerate("aba")]
    cluster = {"workers": 1, "capacity_tokens": 120, **ONE_AT_A_TIME}
    seen = {}
    for name in ("router", "exact"):
        signals = {"index_tokens": 1000}  # more than the cache holds
        env = RoutingEnv({"source": "fixed", "rows": rows}, cluster, observability=name, signals=signals)
        env.reset(seed=0)
        hits = [env.decision.hit_tokens.tolist()]
        for _ in range(2):
            env.step(0)
            hits.append(env.decision.hit_tokens.tolist())
        seen[name] = hits
    assert seen["router"] == [[0], [0], [99]]  # one token is always computed
    assert seen["exact"] == [[0], [0], [0]]  # "b" has displaced it


def test_observation__stays_in_its_space_in_overload_and_at_the_end():
    env = RoutingEnv(WORKLOAD | {"groups": 40, "prompts_per_group": 30, "rate_rps": None}, CLUSTER | {"workers": 2})
    observation, _ = env.reset(seed=0)
    done = False
    while not done:
        assert env.observation_space.contains(observation)
        observation, _, done, _, _ = env.step(0)
    assert all((array == 0).all() for array in observation.values())
    assert env.observation_space.contains(observation)


@pytest.mark.parametrize("action", [-1, 3, 99, np.int64(7), 10**30, None, "x", float("nan"), 1.9])
def test_invalid_action__goes_to_the_first_allowed_worker_and_is_counted(action):
    env = RoutingEnv(WORKLOAD, CLUSTER)
    env.reset(seed=0)
    assert env.action_masks().tolist() == [True] * 3
    _, _, _, _, info = env.step(action)
    assert (info["invalid_actions"], env.decision.inflight.tolist()) == (1, [1, 0, 0])
    assert env.step(1)[4]["invalid_actions"] == 1
    env.reset()
    assert env.step(2)[4]["invalid_actions"] == 0


def test_masked_action__goes_to_the_first_allowed_worker_and_is_counted():
    env = RoutingEnv(WORKLOAD, CLUSTER)
    env.reset(seed=0)
    env._backend._mask = np.array([False, True, True])
    env.step(2)
    assert env.action_masks().tolist() == [False, True, True]
    _, _, _, _, info = env.step(0)
    assert info["invalid_actions"] == 1
    while env.decision is not None:
        env.step(2)
    assert np.bincount(env.records()["worker"])[:2].tolist() == [0, 1]


def test_action_masks__can_be_written_without_harm():
    env = RoutingEnv(WORKLOAD, CLUSTER)
    env.reset(seed=0)
    env.action_masks()[:] = False
    assert env.action_masks().all()


def test_fork__has_the_same_future_and_is_independent():
    env, undisturbed = RoutingEnv(WORKLOAD, CLUSTER), RoutingEnv(WORKLOAD, CLUSTER)
    env.action_space.seed(1)
    for each in (env, undisturbed):
        each.reset(seed=8)
        for i in range(9):
            each.step(i % 3)
    twin, other = env.fork(), env.fork()
    while other.decision is not None:  # a different future must not touch the others
        other.step(0)
    other.reset()
    for each in (env, twin, undisturbed):
        while each.decision is not None:
            each.step(each.decision.request % 3)
    assert (env.records() == undisturbed.records()).all()
    assert (twin.records() == env.records()).all()
    assert not np.array_equal(other.records()["worker"], env.records()["worker"])
    assert repr(twin.reset()[1]) == repr(env.reset()[1])
    assert [twin.action_space.sample() for _ in range(9)] == [env.action_space.sample() for _ in range(9)]


def test_episode_seed__can_be_given_and_makes_the_workload():
    env = RoutingEnv(WORKLOAD, CLUSTER)
    _, info = env.reset(seed=1, options={"seed": 42})
    assert (info["episode_seed"], env.episode_seed) == (42, 42)
    first = env.decision
    env.reset(seed=2, options={"seed": 42})
    assert (env.decision.time_s, env.decision.prompt_chars) == (first.time_s, first.prompt_chars)


@pytest.mark.parametrize("options", [{"seeds": 1}, {"seed": -1}, {"seed": "1"}, {"seed": True}, 3, "seed"])
def test_reset__wrong_options_are_errors(options):
    with pytest.raises(ConfigError, match="option"):
        RoutingEnv(WORKLOAD, CLUSTER).reset(options=options)


def test_step__without_a_waiting_request_is_an_error():
    env = RoutingEnv(WORKLOAD, CLUSTER)
    for call in (lambda: env.step(0), env.records, env.fork):
        with pytest.raises(SimulationError, match="call reset"):
            call()
    play(env)
    assert env.action_masks().tolist() == [True] * 3
    with pytest.raises(SimulationError, match="call reset"):
        env.step(0)


@pytest.mark.parametrize(
    ("argument", "error", "message"),
    [
        ({"workload": "gsp_smal"}, UnknownNameError, "did you mean 'gsp_small'"),
        ({"cluster": {"worker": 2}}, ConfigError, "did you mean 'workers'"),
        ({"reward": "ttfd"}, UnknownNameError, "did you mean 'ttft'"),
        ({"backend": "simulate"}, UnknownNameError, "did you mean 'simulated'"),
        ({"observability": "exakt"}, ConfigError, "did you mean 'exact'"),
        ({"eviction": "lruu"}, UnknownNameError, "did you mean 'lru'"),
        ({"render_mode": "ansy"}, ConfigError, "one of ansi, rgb_array or None, got .ansy.; did you mean .ansi."),
        ({"render_mode": 3}, ConfigError, "got 3"),
    ],
)
def test_wrong_argument__is_reported_when_the_env_is_made(argument, error, message):
    with pytest.raises(error, match=message):
        RoutingEnv(**argument)


def test_render__draws_what_the_mode_says():
    env = RoutingEnv(WORKLOAD, CLUSTER, render_mode="ansi")
    with pytest.raises(SimulationError, match="call reset"):
        env.render()
    env.reset(seed=0)
    assert "nothing routed yet" in env.render()
    env.step(2)
    assert "request 0 with" in env.render() and "to worker 2" in env.render()
    env.reset()
    assert "nothing routed yet" in env.render()
    play(env)
    assert "routed 30/30  done 30" in env.render()


def test_render__without_a_mode_warns_and_draws_nothing():
    env = RoutingEnv(WORKLOAD, CLUSTER)
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None


def test_docstring__shows_the_features_of_the_encoder():
    table = "\n".join(line.strip() for line in (RoutingEnv.__doc__ or "").splitlines())
    assert feature_table() in table


def test_controller_policy__plays_through_evaluate_policy():
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    from stable_baselines3.common.monitor import Monitor

    env = gymnasium.make("kvgym/Routing-v0", workload=WORKLOAD, cluster=CLUSTER)
    env.reset(seed=0)
    policy = ControllerPolicy(CacheAware(), env)
    returns, lengths = evaluation.evaluate_policy(policy, Monitor(env), n_eval_episodes=2, return_episode_rewards=True)
    assert lengths == [30, 30]
    # the same two episodes, driven by hand
    alone = RoutingEnv(WORKLOAD, CLUSTER)
    alone.reset(seed=0)
    for expected in returns:
        alone.reset()
        controller, total = CacheAware(), 0.0
        controller.reset(alone.fleet, alone.episode_seed)
        while alone.decision is not None:
            total += alone.step(controller.act(alone.decision))[1]
            controller.observe(alone.completed)
        assert total == pytest.approx(expected, abs=1e-4)  # Monitor rounds to six digits


@pytest.fixture
def one_thread():
    """Run torch on one thread: its threads wait for each other longer than so small a network computes."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_ppo__learns_which_worker_holds_the_prefix():
    """Two prefixes, two workers with room for one each: affinity wins fourfold, and no plain heuristic finds it."""
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    two_prefixes = {"groups": 2, "prompts_per_group": 32, "lens": [400], "prefix_ratio": 0.9, "rate_rps": 2.0}
    workload = {"source": "gsp", "shared_literal": False, **two_prefixes}
    cluster = {"workers": 2, "capacity_tokens": 800, **ONE_AT_A_TIME}

    def mean_return(make_policy: Callable[[gymnasium.Env], Any]) -> float:
        env = Monitor(RoutingEnv(workload, cluster))
        env.reset(seed=123)
        return evaluate_policy(make_policy(env), env, n_eval_episodes=4)[0]

    env = Monitor(RoutingEnv(workload, cluster))
    env.reset(seed=0)
    model = sb3.PPO("MultiInputPolicy", env, n_steps=256, gamma=0.9, learning_rate=2e-3, seed=0, device="cpu")
    model.learn(8192)
    learned, chance = mean_return(lambda env: model), mean_return(lambda env: ControllerPolicy(Random(), env))
    assert learned > 0.5 * chance
