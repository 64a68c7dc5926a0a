"""`kvgym profile` on a real server: what it measures makes the simulator foretell that server's latencies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from kvgym.backends.sglang.launcher import Fleet
from kvgym.calibration.calibrating import profile
from kvgym.config.loader import load_config
from kvgym.harness.tools.comparison import compare

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(600)]


def test_profile__simulated_latencies_are_those_of_the_server(
    make_cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Hits are exact; seconds of a server that shares two cores with other tests are near, not exact."""
    with Fleet(make_cluster(workers=1), "lru", tmp_path / "logs") as fleet:
        path = tmp_path / "fit.yaml"
        done = profile(fleet.urls[0], path, "", 0, 4, lambda _: None)
        assert len(done.rows) >= 60
        fitted = yaml.safe_load(path.read_text())
        assert fitted["capacity_tokens"] == fleet.servers[0].capacity_tokens
        load = {**load_config("workloads", "live_small"), "prompts_per_group": 3}
        clusters = [{"use": fitted, "name": "simulated"}, {"use": fitted, "name": "real", "backend": "sglang"}]
        grid = {"name": "x", "workloads": [{"use": load}], "clusters": clusters}
        summary = compare(
            {**grid, "routing": ["round_robin"], "eviction": ["lru"], "seeds": 1}, tmp_path / "out"
        ).summary
    simulated, real = summary.cells
    assert abs(simulated.mean("hit_rate") - real.mean("hit_rate")) < 0.02
    assert abs(np.log(simulated.mean("p50_latency_s") / real.mean("p50_latency_s"))) < np.log(3.0)
