import json
import os
from pathlib import Path

import numpy as np
import pytest
import yaml

from kvgym.calibration.calibrating import calibrate, profile
from kvgym.calibration.fitting import NAMES
from kvgym.config.cluster import resolve_cluster
from kvgym.costs.presets import H100_LLAMA31_8B
from kvgym.errors import BackendError, ConfigError
from kvgym.harness.tools.single import run_single

TABLE = Path(os.environ.get("KVGYM_DATA", "../shared/data")) / "calibration" / "aic_step_times_llama31.csv.gz"
H100 = ["model=Meta-Llama-3.1-8B", "system=h100_sxm", "backend=sglang", "gemm=bfloat16"]


@pytest.mark.skipif(not TABLE.exists(), reason="the kernel tables are absent (KVGYM_DATA)")
def test_kernel_tables__give_the_published_fit(tmp_path):
    """Published: the coefficients of the preset h100-llama31-8b (aic_linear_fit.csv)."""
    found = calibrate([TABLE], "h100x8", H100, tmp_path / "h100.yaml").fit
    published = np.array([getattr(H100_LLAMA31_8B, name) for name in NAMES[:7]])
    assert found.values[:3] == pytest.approx(published[:3], rel=0.08)
    assert found.values[[4, 6]] == pytest.approx(published[[4, 6]], rel=0.01)


def test_lone_requests_of_the_simulator__give_its_cost_back(tmp_path):
    """One request in five seconds, and what the records show must be what the cost model said."""
    slow = ["workload.rate_rps=0.2", "workload.groups=30", "workload.prompts_per_group=4", "workload.output_tokens=40"]
    run_single("gsp_small", "h100x8", "round_robin", "lru", 0, slow, records=tmp_path / "r.parquet")
    done = calibrate([tmp_path / "r.parquet"], "h100x8", [], tmp_path / "fit.yaml")
    true = resolve_cluster("h100x8")
    assert np.median(np.abs(done.fit.relative)) < 0.005
    assert done.fit.cost.p_tok_ms == pytest.approx(0.0194, rel=0.03)
    assert done.fit.cost.d0_ms + done.fit.cost.d_seq_ms == pytest.approx((6.43 * 1.25 + 0.011), rel=0.05)
    assert (tmp_path / "fit.svg").read_text().startswith("<svg")
    written = resolve_cluster(str(tmp_path / "fit.yaml"))
    assert written.workers == true.workers
    draws = json.loads((tmp_path / "fit.draws.json").read_text())
    assert draws["names"] == list(NAMES)
    assert np.array(draws["draws"]).shape == (200, len(NAMES))
    assert yaml.safe_load((tmp_path / "fit.yaml").read_text())["cost"]["p_tok_ms"] == pytest.approx(0.0194, rel=1e-5)


def test_mistakes__are_named(tmp_path):
    with pytest.raises(ConfigError, match="--where must be COLUMN=VALUE"):
        calibrate([tmp_path / "x.csv"], "l40x4", ["system"], tmp_path / "y.yaml")
    with pytest.raises(BackendError, match="cannot reach an SGLang server"):
        profile("http://127.0.0.1:1", tmp_path / "y.yaml", "", 0, 1, print)
    with pytest.raises(ConfigError, match="the environment has no KVGYM_NO_SUCH_KEY"):
        profile("http://127.0.0.1:1", tmp_path / "y.yaml", "KVGYM_NO_SUCH_KEY", 0, 1, print)
