from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("sb3_contrib")

QUICK = ["--set", "against=[random_leaf]", "--set", "every=4000"]


@pytest.fixture
def script(repo_root, tmp_path):
    """Return a function that runs the script in an empty folder: (exit code, last line, stderr)."""

    def script(*args):
        command = [sys.executable, "-W", "error", str(repo_root / "scripts" / "train_eviction.py"), *args]
        env = {**os.environ, "PYTHONPATH": str(repo_root)}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        return done.returncode, (done.stdout.splitlines() or [""])[-1], done.stderr

    return script


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_tiny__beats_random_leaf_within_13000_steps(script, seed, tmp_path, kvgym):
    code, last, stderr = script("tiny", "--seed", str(seed), "--out", "run", "--steps", "12288", *QUICK)
    assert code == 0, stderr
    facts = json.loads(last)
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
def test_mistake__is_one_line_and_leaves_nothing(script, tmp_path, args, message):
    code, _, stderr = script(*args)
    assert code == 2 and message in stderr and stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
