"""`kvgym theory`: its tables, its JSON and its files."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kvgym.theory import ratio_report
from kvgym.theory.ratios import measure


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratio_report, "measure", partial(measure, sizes=(4, 8), seeds=2, cycles=30))


def test_theory__json(kvgym: Any, small: None) -> None:
    code, out, _ = kvgym("theory", "--json")
    found = json.loads(out)
    assert code == 0 and out.count("\n") == 1
    assert list(found) == ["settings", "ratios", "fits"]
    assert found["settings"] == {"sizes": [4, 8], "seeds": 2, "cycles": 30, "hot_rounds": 20}
    assert set(found["fits"]) == {"rlt", "lru"}
    assert all(set(fit) == {"slope", "offset", "r_squared"} for fit in found["fits"].values())
    for row in found["ratios"]:
        assert list(row) == ["instance", "policy", "n", "batch", "ratio", "low", "high"]
        assert row["ratio"] is None or (row["low"] <= row["ratio"] <= row["high"] and row["ratio"] > 0)
    assert {row["instance"] for row in found["ratios"]} == {
        *ratio_report.PLOTTED,
        "adversary",
        "batches, condition kept",
        "batches, condition violated",
    }


def test_theory__tables(kvgym: Any, small: None) -> None:
    _, out, _ = kvgym("theory")
    heads = r"^cyclic star\nn +lru +rlt +random_leaf +reuse\n.+\n4 +4\.\d\d \+- 0\.\d\d "
    assert re.search(heads, out, re.MULTILINE)
    assert "unbounded" in out
    assert re.search(r"^rlt, cyclic star: 0\.\d+ \+ \d\.\d+ ln n, R\^2 ", out, re.MULTILINE)


def test_theory__files(kvgym: Any, small: None, tmp_path: Path) -> None:
    code, out, _ = kvgym("theory", "--json", "--out", "made/here")
    folder = tmp_path / "made" / "here"
    assert code == 0
    assert json.loads((folder / "theory.json").read_text()) == json.loads(out)
    found = json.loads(out)["ratios"]
    drawn = ElementTree.parse(folder / "theory.svg").getroot()
    words = "".join(drawn.itertext())
    assert drawn.tag.endswith("svg")
    for name in ratio_report.PLOTTED:
        (rlt,) = (row for row in found if (row["instance"], row["policy"], row["n"]) == (name, "rlt", 8))
        (said,) = re.findall(rf"{name}: loads / optimal loadslru: .+?; rlt: .+? at 4, ([\d.]+) at 8; ", words)
        assert float(said) == pytest.approx(rlt["ratio"], rel=0.01)


def test_theory__a_file_in_the_place_of_the_folder(kvgym: Any, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    code, out, err = kvgym("theory", "--out", "taken")
    assert (code, out) == (2, "")
    assert err.startswith("error: cannot write taken") and err.count("\n") == 1


def test_theory__a_folder_in_the_place_of_a_file(kvgym: Any, tmp_path: Path) -> None:
    (tmp_path / "out" / "theory.svg").mkdir(parents=True)
    code, out, err = kvgym("theory", "--out", "out")  # not measured before
    assert (code, out, err) == (2, "", "error: cannot write out/theory.svg: Is a directory\n")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["theory.svg"]
