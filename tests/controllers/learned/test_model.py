from __future__ import annotations

import json
import zipfile

import gymnasium
import numpy as np
import pytest
import torch

from controllers.learned.model import Learned
from controllers.routing import ROUTING
from kvgym.backends.simulated import SimulatedBackend
from kvgym.config.cluster import ClusterConfig
from kvgym.config.loader import resolve_workload
from kvgym.errors import ConfigError, MissingDependencyError

WORKLOAD = {"source": "gsp", "groups": 6, "prompts_per_group": 5, "lens": [64, 128], "rate_rps": 30.0}


def play(controller, workers):
    """Return the workers chosen in one episode."""
    cluster = ClusterConfig(workers=workers, capacity_tokens=600)
    backend = SimulatedBackend(resolve_workload(WORKLOAD).generate(0), cluster, "lru", 0)
    controller.reset(backend.spec, 0)
    choices = []
    while (decision := backend.run_to_decision()) is not None:
        controller.observe(backend.completions())
        choices.append(controller.act(decision))
        backend.apply(choices[-1])
    return choices


@pytest.mark.parametrize("work_rows", [True, False])
def test_set_policy__plays_as_in_its_environment(save, make, work_rows):
    """Workers that look alike tie in a set policy, up to rounding: any of them is its choice."""
    from stable_baselines3 import PPO

    path = save(3, work_rows)
    model, env = PPO.load(path), make(3, work_rows)
    observation, _ = env.reset(options={"seed": 0})
    spread = []
    for worker in play(Learned(path), 3):
        with torch.no_grad():
            logits = model.policy.get_distribution(model.policy.obs_to_tensor(observation)[0]).distribution.logits[0]
        assert logits[worker] > logits.max() - 1e-5
        spread.append(float(logits.max() - logits.min()))
        observation, _, over, _, _ = env.step(worker)
    assert over and max(spread) > 1e-3
    assert torch.get_num_threads() == 1


def test_set_policy__trained_on_three_workers_plays_on_ten(save):
    controller = Learned(save(3, residual_per_s=5.0))
    controller.check_workers(10)
    assert len(set(play(controller, 10))) > 3


def test_path__is_a_name_of_the_routing_table(save):
    path = save(3)
    assert play(ROUTING.load(str(path))(), 3) == play(Learned(path), 3)


GRID = {
    "name": "mine",
    "workloads": [{"use": WORKLOAD, "name": "tiny"}],
    "clusters": [{"use": {"workers": 3, "capacity_tokens": 600}, "name": "three"}],
    "routing": ["round_robin"],
    "eviction": ["lru"],
}


@pytest.mark.parametrize("work_rows", [True, False])
def test_evaluate__a_loaded_model_is_what_its_path_is(save, work_rows):
    from stable_baselines3 import PPO

    import kvgym

    path = save(3, work_rows)
    loaded, named = (kvgym.evaluate(policy, GRID, seeds=2).cells[1] for policy in (PPO.load(path), str(path)))
    assert loaded.per_seed == named.per_seed
    assert loaded.labels[2] == "PPO"


def test_evaluate__a_model_that_was_trained_on_flat_observations(make):
    from stable_baselines3 import PPO

    import kvgym

    flat = gymnasium.wrappers.FlattenObservation(make(3, False))
    model = PPO("MlpPolicy", flat, n_steps=8, batch_size=8, seed=0)
    cell = kvgym.evaluate(model, GRID, seeds=[5]).cells[1]
    observation, _ = flat.reset(options={"seed": 5})
    over, busy = False, np.zeros(3)
    while not over:
        worker = int(model.predict(observation, deterministic=True)[0])
        busy[worker] += 1
        observation, _, over, _, _ = flat.step(worker)
    records = flat.unwrapped.records()
    assert np.bincount(records["worker"], minlength=3).tolist() == busy.tolist()
    assert cell.mean("mean_latency_s") == pytest.approx((records["finish_s"] - records["arrival_s"]).mean())


@pytest.mark.parametrize("algorithm", ["PPO", "A2C", "DQN"])
def test_other_policies__play_on_the_fleet_they_were_trained_for_only(algorithm, make, tmp_path):
    import stable_baselines3

    path = tmp_path / "model.zip"
    options = {"learning_starts": 1, "buffer_size": 100} if algorithm == "DQN" else {"n_steps": 8}
    if algorithm == "PPO":
        options["batch_size"] = 8
    getattr(stable_baselines3, algorithm)("MultiInputPolicy", make(3, False), seed=0, **options).save(path)
    controller = Learned(path)
    assert len(play(controller, 3)) == 30
    for call in (lambda: controller.check_workers(5), lambda: play(controller, 5)):
        with pytest.raises(ConfigError, match=r"trained for 3 workers, this fleet has 5"):
            call()


def test_file__absent_or_foreign_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"path: no model file .*none\.zip"):
        Learned(tmp_path / "none.zip")
    text = tmp_path / "text.zip"
    text.write_text("not a zip")
    with pytest.raises(ConfigError, match="no model saved by stable-baselines3"):
        Learned(text)
    empty = tmp_path / "empty.zip"
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("data", json.dumps({"a": 1}))
    with pytest.raises(ConfigError, match=r"no model saved by stable-baselines3 \(KeyError"):
        Learned(empty)


def test_file__truncated_is_named(save, tmp_path):
    path = save(3)
    short = tmp_path / "short.zip"
    short.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ConfigError, match=r"short\.zip is no model"):
        Learned(short)


def test_file__of_another_environment_is_named(make, tmp_path):
    from stable_baselines3 import PPO

    path = tmp_path / "other.zip"
    PPO("MlpPolicy", gymnasium.make("CartPole-v1"), n_steps=8, batch_size=8).save(path)
    with pytest.raises(ConfigError, match="not on those of kvgym/Routing-v0"):
        Learned(path)
    flat = gymnasium.wrappers.TransformObservation(
        make(3, False), lambda o: {**o, "workers": o["workers"][:, :5]}, wider(make(3, False), 5)
    )
    PPO("MultiInputPolicy", flat, n_steps=8, batch_size=8).save(path)
    with pytest.raises(
        ConfigError, match=r"trained for 3 workers with 'workers' of shape \(3, 5\); they are \(3, 9\) here"
    ):
        Learned(path)


def wider(env, columns):
    box = gymnasium.spaces.Box(0.0, 1.0, (3, columns), np.float32)
    return gymnasium.spaces.Dict({**env.observation_space.spaces, "workers": box})


def test_package__of_the_policy_that_is_absent_is_named(save, monkeypatch):
    path = save(3)

    def absent(*args, **kwargs):
        raise ModuleNotFoundError("No module named 'sb3_contrib'", name="sb3_contrib")

    monkeypatch.setattr("stable_baselines3.common.save_util.load_from_zip_file", absent)
    with pytest.raises(MissingDependencyError, match="needs the package 'sb3_contrib'"):
        Learned(path)
