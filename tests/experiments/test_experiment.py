import json
from pathlib import Path

import pytest
from rich.console import Console

from kvgym.errors import ConfigError, ResultsError, UnknownNameError
from kvgym.experiments import experiment
from kvgym.experiments.experiment import (
    Outcome,
    experiment_names,
    findings,
    load_experiment,
    read_outcomes,
    run_experiment,
    write_outcomes,
)
from kvgym.experiments.experiments_page import markdown

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "docs" / "experiments.json"


def test_page__is_what_the_stored_figures_give():
    stored = read_outcomes(STORED)
    assert list(stored) == experiment_names()
    assert not any(outcome.quick for outcome in stored.values())
    assert markdown(stored) == (ROOT / "EXPERIMENTS.md").read_text(encoding="utf-8")


def test_stored_figures__are_those_of_a_run_today(tmp_path, monkeypatch):
    """Two of the ablation's ten seeds: all that a policy does shows in them."""
    monkeypatch.chdir(tmp_path)
    plain = dict(experiment.load_config("experiments", "ablation"))
    plain["compare"] = {**plain["compare"], "seeds": 2}
    monkeypatch.setattr(experiment, "load_config", lambda kind, name: plain)
    again = run_experiment("ablation", 1, False, Console(quiet=True)).plain["cells"]
    stored = read_outcomes(STORED)["ablation"].plain["cells"]
    for old, new in zip(stored, again, strict=True):
        assert old["labels"] == new["labels"]
        assert {name: values[:2] for name, values in old["metrics"].items()} == new["metrics"]


def test_ablation__is_met_by_one_set_of_constants():
    judged = findings("ablation", read_outcomes(STORED)["ablation"])
    assert len(judged) == 12
    assert {finding.verdict for finding in judged} == {"holds"}


@pytest.mark.parametrize("name", experiment_names())
def test_experiments__can_be_read(name):
    assert load_experiment(name).claims


def test_outcomes__come_back_as_they_were_written(tmp_path):
    path = tmp_path / "folder" / "figures.json"
    assert read_outcomes(path) == {}
    outcome = Outcome(2, True, {("w", "c", "r", "e"): {"hit_rate": [0.123456789, None]}})
    write_outcomes(path, {"b": outcome, "a": outcome})
    assert list(json.loads(path.read_text())) == ["a", "b"]
    assert read_outcomes(path)["a"].cells == {("w", "c", "r", "e"): {"hit_rate": [0.123457, None]}}
    path.write_text("[1]")
    with pytest.raises(ResultsError, match="no file of experiments' outcomes"):
        read_outcomes(path)


def test_mistakes__are_named(tmp_path):
    with pytest.raises(UnknownNameError, match=r"no preset 'ablatoin'.*'ablation'"):
        load_experiment("ablatoin")
    path = tmp_path / "x.yaml"
    path.write_text("title: x\nsource: y\ncompare: {workloads: [gsp_small]}\nclaims: []\n")
    with pytest.raises(ConfigError, match="give either cells, or routing and eviction"):
        load_experiment(str(path))
