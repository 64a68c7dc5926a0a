from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


@pytest.fixture
def script(repo_root, tmp_path):
    """Return a function that runs the script in an empty folder: (exit code, last line, stderr)."""

    def script(*args):
        command = [sys.executable, "-W", "error", str(repo_root / "scripts" / "ppo_cleanrl_style.py"), *args]
        env = {**os.environ, "PYTHONPATH": str(repo_root)}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        return done.returncode, (done.stdout.splitlines() or [""])[-1], done.stderr

    return script


@pytest.mark.slow
def test_tiny_budget__learns_something_and_saves_weights(script, tmp_path):
    import torch

    code, last, stderr = script("--out", "run", "--steps", "8192")
    assert code == 0, stderr
    facts = json.loads(last)
    assert facts["trained_s"] < facts["random_s"]
    weights = torch.load(tmp_path / "run" / "weights.pt", weights_only=True)
    assert "actor.2.weight" in weights
    assert list((tmp_path / "run").glob("events.*"))


def test_mistake__is_one_line(script):
    code, _, stderr = script("--config", "tinny")
    assert code == 2 and "did you mean 'tiny'" in stderr and stderr.count("\n") == 1
