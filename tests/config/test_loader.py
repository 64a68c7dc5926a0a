from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest

from kvgym.config import loader
from kvgym.config.loader import apply_overrides
from kvgym.config.options import build, to_plain
from kvgym.errors import ConfigError


@dataclass(frozen=True)
class Leaf:
    rate_rps: float = 1.0
    kind: Literal["poisson", "gamma"] = "poisson"


@dataclass(frozen=True)
class Tree:
    count: int
    leaf: Leaf = field(default_factory=Leaf)
    lens: tuple[int, ...] = ()
    either: str | Leaf | None = None
    pairs: dict[str, float] = field(default_factory=dict)


def test_build__nested_values_and_round_trip():
    tree = build(Tree, {"count": 3, "leaf": {"rate_rps": 2}, "lens": [1, 2], "either": {"kind": "gamma"}})
    assert tree == Tree(3, Leaf(2.0), (1, 2), Leaf(kind="gamma"))
    assert build(Tree, to_plain(tree)) == tree


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"count": 1, "leef": {}}, r"unknown key 'leef' in tree; did you mean 'leaf'\?"),
        ({"count": 1, "leaf": {"rate": 1}}, r"unknown key 'rate' in tree\.leaf; did you mean 'rate_rps'\?"),
        ({"count": 1, "leaf": [1]}, r"tree\.leaf must be a map of fields, got a list"),
        ({"count": [1]}, r"tree\.count must be a whole number, got a list"),
        ({"count": True}, r"tree\.count must be a whole number, got bool"),
        ({"count": 1.5}, r"tree\.count must be a whole number, got float"),
        ({"count": 1, "lens": 3}, r"tree\.lens must be a list, got int"),
        ({"count": 1, "lens": [1, "x"]}, r"tree\.lens\.1 must be a whole number"),
        ({"count": 1, "leaf": {"kind": "gama"}}, r"tree\.leaf\.kind must be one of 'poisson', 'gamma', got str"),
        ({"count": 1, "either": {"rate": 1}}, r"unknown key 'rate' in tree\.either"),
        ({"count": 1, "pairs": {"a": "x"}}, r"tree\.pairs\.a must be a number"),
        ({"count": 1, "leaf": {"rate_rps": float("inf")}}, r"rate_rps must be a finite number, got inf"),
        ({}, r"tree lacks 'count'"),
        (None, r"tree must be a map of fields, got nothing"),
    ],
)
def test_build__mistakes_name_place_and_remedy(data, message):
    with pytest.raises(ConfigError, match=message):
        build(Tree, data, "tree")


def test_overrides__maps_lists_and_new_fields():
    data = {"a": {"b": 1}, "list": [{"x": 1}]}
    assert apply_overrides(data, ["a.b=2", "list.0.x=[3, 4]", "new.deep=1e-3"]) == {
        "a": {"b": 2},
        "list": [{"x": [3, 4]}],
        "new": {"deep": 0.001},
    }
    assert data == {"a": {"b": 1}, "list": [{"x": 1}]}


@pytest.mark.parametrize("text", ["a.b", "=1", "a.b.c=1", "list.7=1", "list.x=1", "a=[1"])
def test_overrides__mistakes(text):
    with pytest.raises(ConfigError):
        apply_overrides({"a": {"b": 1}, "list": [1]}, [text])


@pytest.mark.parametrize("kind", ["clusters", "compare", "workloads"])
def test_presets__there_are_some(kind):
    assert loader.preset_names(kind)


@pytest.mark.parametrize("name", loader.preset_names("workloads"))
def test_presets__every_workload_builds(name):
    assert callable(loader.resolve_workload(name).generate)


@pytest.mark.parametrize("text", ["- 1\n", "a: [1\n", ""])
def test_load_yaml__not_a_map(tmp_path, text):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        loader.load_yaml(path)


def test_load_yaml__absent_file():
    with pytest.raises(ConfigError, match=r"cannot read configuration nowhere\.yaml: No such file"):
        loader.load_yaml("nowhere.yaml")


def test_workload__source_is_required():
    with pytest.raises(ConfigError, match="workload lacks 'source'"):
        loader.resolve_workload({"rate_rps": 1})
