from __future__ import annotations

import json

import pytest

QUICK = ["--set", "envs=4", "--set", "group=2", "--set", "stagger=16", "--set", "ppo.n_steps=32"]
QUICK += ["--set", "ppo.batch_size=64", "--set", "ppo.n_epochs=2", "--set", "validation.every=100"]
QUICK += ["--set", "validation.seeds=[7]", "--set", "test.seeds=[8, 9]", "--set", "test.against=[random]"]
QUICK += ["--set", "env.workload.prompts_per_group=4"]


@pytest.mark.slow
def test_tiny_budget__leaves_a_model_that_plays_and_can_be_continued(script, tmp_path, kvgym):
    code, out, stderr = script("train_sb3", "tiny", "--out", "run", "--steps", "256", "--json", *QUICK)
    assert code == 0 and "256 steps   mean" in stderr
    facts, folder = json.loads(out), tmp_path / "run"
    assert facts["steps"] == 256 and [cell["routing"] for cell in facts["cells"]] == ["random", "learned"]
    assert tags(folder) >= {"reward/latency", "episode/p50_latency_s", "episode/p95_latency_s", "episode/hit_rate"}
    assert tags(folder) >= {"episode/invalid_actions", "validation/mean_latency_s", "validation/p95_latency_s"}

    code, _, stderr = script("train_sb3", "tiny", "--out", "run", "--steps", "256", *QUICK)
    assert code == 2 and "is not empty" in stderr
    code, _, stderr = script(
        "train_sb3", "tiny", "--out", "run", "--steps", "512", "--resume", *QUICK, "--set", "hidden=8"
    )
    assert code == 2 and "another 'hidden'" in stderr
    code, out, stderr = script("train_sb3", "tiny", "--out", "run", "--steps", "384", "--resume", *QUICK)
    assert (code, stderr) == (0, "")
    assert "384 steps   mean" in out and "{" not in out
    assert [line.split()[0] for line in out.splitlines()[-2:]] == ["random", "learned"]
    assert json.loads((folder / "state.json").read_text())["steps"] == 384

    code, out, stderr = kvgym(
        "run", "--workload", "gsp_small", "--routing", str(folder / "best.zip"), "--seed", "1", "--json"
    )
    assert code == 0, stderr
    assert json.loads(out)["completed"] == 768


def tags(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return set(events.Tags()["scalars"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["tinny"], "did you mean 'tiny'"),
        (["tiny", "--set", "ppo.gama=0.9"], "did you mean 'gamma'"),
        (["tiny", "--resume", "--out", "nowhere"], "nothing to resume in nowhere"),
    ],
)
def test_mistake__is_one_line_and_leaves_nothing(call, tmp_path, args, message):
    code, _, stderr = call("train_sb3", *args)
    assert code == 2 and message in stderr and stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)])
def test_tiny__beats_random_routing_within_30000_steps(script, seed):
    code, out, stderr = script(
        "train_sb3", "tiny", "--seed", str(seed), "--out", "run", "--json", "--set", "test.against=[random]"
    )
    assert code == 0, stderr
    facts = json.loads(out)
    random, learned = facts["cells"]
    assert facts["steps"] <= 30_000 and learned["completed"] == random["completed"]
    assert learned["mean_latency_s"] < 0.5 * random["mean_latency_s"]
    assert learned["p95_latency_s"] < 0.5 * random["p95_latency_s"]
