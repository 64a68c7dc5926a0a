from __future__ import annotations

import json

import pytest


@pytest.mark.slow
def test_tiny_budget__learns_something_and_saves_weights(script, tmp_path):
    import torch

    code, out, stderr = script("ppo_cleanrl_style", "--out", "run", "--steps", "8192", "--json")
    assert code == 0, stderr
    facts = json.loads(out)
    assert facts["trained_s"] < facts["random_s"]
    weights = torch.load(tmp_path / "run" / "weights.pt", weights_only=True)
    assert "actor.2.weight" in weights
    assert list((tmp_path / "run").glob("events.*"))


def test_mistake__is_one_line(call):
    code, _, stderr = call("ppo_cleanrl_style", "--config", "tinny")
    assert code == 2 and "did you mean 'tiny'" in stderr and stderr.count("\n") == 1
