"""The check that runs inside an episode (KVGYM_CHECK=1): it stops, says what is wrong and leaves the last events."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvgym.engine.engine import RING_EVENTS, default_options
from kvgym.engine.state import DECIDE, PREFILL, READY
from kvgym.errors import SimulationError


def row(name: str, tokens: int, arrival_s: float) -> dict[str, Any]:
    return {"path": [[name, tokens]], "arrival_s": arrival_s}


@pytest.mark.parametrize("value", ["1", "0"])
def test_check__is_switched_by_the_environment(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("KVGYM_CHECK", value)
    assert default_options()["check"][0] == int(value)
    monkeypatch.delenv("KVGYM_CHECK")
    assert default_options()["check"][0] == 0


def test_check__a_lost_token_stops_the_episode(build: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    engine = build([row("a", 4, 0.0), row("b", 8, 10.0)])
    assert engine.run() == DECIDE
    engine.route(0)
    assert engine.run() == DECIDE
    engine.cache.workers["free"][0] -= 1
    engine.route(0)
    rule = re.escape("free + evictable + protected + private = capacity")
    with pytest.raises(SimulationError, match=rf"broken invariant on worker 0 at 10\.0\d* s: {rule}"):
        engine.run()
    (dump,) = tmp_path.iterdir()
    events = np.load(dump)
    assert len(events) == RING_EVENTS + 1
    kinds = [(float(e["time_s"]), int(e["kind"]), int(e["tokens"])) for e in events[:4]]
    # request 0: scheduled, computed, the worker falls idle; request 1: scheduled, a token short of 1000 - 4 - 8
    assert kinds == [(0.0, READY, 996), (2.0, PREFILL, 996), (2.0, READY, 996), (10.0, READY, 987)]


def test_check__off_it_costs_no_ring(build: Any) -> None:
    assert len(build([row("a", 4, 0.0)], check=0).sim.ring) == 2
