from __future__ import annotations

import runpy

import pytest

from kvgym.costs import COSTS


@pytest.mark.parametrize(("name", "pool_tokens"), [("RTX4090", 41_408), ("RTXPRO6000", 400_000)])
def test_preset__is_what_the_script_fits(data_dir, repo_root, name, pool_tokens):
    fit = runpy.run_path(str(repo_root / "scripts/fit_layer_profile.py"))["fit"]
    preset = COSTS.load(f"{name.lower()}-llama31-8b")
    found = fit(data_dir / "calibration", f"{name}_llama31_8b_tp1", pool_tokens, 32)
    assert found == {key: getattr(preset, key) for key in found}
