from __future__ import annotations

import json

import pytest

pytest.importorskip("sb3_contrib")

QUICK = ["--set", "against=[random_leaf]", "--set", "every=4000"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)])
def test_tiny__beats_random_leaf_within_13000_steps(script, seed, tmp_path, kvgym):
    code, out, stderr = script(
        "train_eviction", "tiny", "--seed", str(seed), "--out", "run", "--steps", "12288", "--json", *QUICK
    )
    assert code == 0, stderr
    facts = json.loads(out)
    random, learned = facts["cells"]
    assert facts["steps"] < 13_000 and learned["completed"] == random["completed"]
    assert learned["hit_rate"] > 1.15 * random["hit_rate"]
    assert (tmp_path / "run" / "best.json").is_file() and (tmp_path / "run" / "config.yaml").is_file()
    assert list((tmp_path / "run").glob("events.out.tfevents*"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["tinny"], "did you mean 'tiny'"),
        (["tiny", "--set", "env.offered=all"], "offered must be one of"),
    ],
)
def test_mistake__is_one_line_and_leaves_nothing(call, tmp_path, args, message):
    code, _, stderr = call("train_eviction", *args)
    assert code == 2 and message in stderr and stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
