import pytest
import yaml
from rich.console import Console

from kvgym.errors import ConfigError, UnknownNameError
from kvgym.harness.report.tuned import plain, print_tuned
from kvgym.harness.tools.tuning import spaces, tune
from kvgym.proxy.command_line import make_settings

GSP = {"source": "gsp", "groups": 24, "prompts_per_group": 16, "lens": [1024, 2048], "rate_rps": 16.0}
GRID = {
    "name": "tuning",
    "workloads": [{"use": GSP, "name": "gsp"}],
    "clusters": [{"use": {"workers": 3, "capacity_tokens": 20_000}, "name": "three"}],
    "routing": ["random"],
    "eviction": ["lru"],
    "seeds": [0],
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_spaces__are_around_the_defaults_and_within_the_ranges():
    found = spaces("cache_aware_014")
    assert (found["cache_threshold"].low, found["cache_threshold"].high) == (0.5 / 8, 1.0)
    assert found["balance_abs"].high == 32 * 8
    assert "max_tree_chars" not in found
    assert spaces("cache_aware_014", ["cache_threshold=0.1:0.3"])["cache_threshold"].high == 0.3


@pytest.mark.slow
def test_tune__finds_what_is_better_and_goes_on(tmp_path):
    """The released threshold of .5 stands on a cliff where half of each prompt is shared."""
    out = tmp_path / "best.yaml"
    only = ["cache_threshold=0.1:0.6"]
    first = tune(GRID, "cache_aware_014", out, only, trials=5, jobs=2)
    assert first.gain < 0.9
    assert first.options["cache_threshold"] < 0.5
    again = tune(GRID, "cache_aware_014", out, only, trials=2, jobs=2)
    assert (again.trials, again.gain <= first.gain) == (7, True)
    (row,) = plain(again)["held_out"]
    assert row["mean_latency_s"][2] < 1.0  # judged on sessions and seeds that it has not seen
    print_tuned(Console(quiet=True), again, out)
    settings = make_settings(out, {"workers": ["http://127.0.0.1:1"]}, [])
    assert (settings.routing, settings.options) == ("cache_aware_014", again.options)
    assert set(yaml.safe_load(out.read_text())) == {"routing", "options"}


@pytest.mark.parametrize(
    ("routing", "given", "error", "message"),
    [
        ("lgbr", [], UnknownNameError, "lgbr"),
        ("round_robin", [], ConfigError, "no option that can be tuned"),
        ("lbgr", ["nope"], ConfigError, "no tunable option 'nope'; there are: .*miss_price"),
        ("cache_aware", ["balance_abs=9"], ConfigError, "NAME or NAME=LOW:HIGH"),
        ("cache_aware", ["balance_abs=9:3"], ConfigError, "NAME or NAME=LOW:HIGH"),
    ],
)
def test_mistakes__are_named(routing, given, error, message):
    with pytest.raises(error, match=message):
        spaces(routing, given)
