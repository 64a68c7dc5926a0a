"""`kvgym watch`: printed pictures where there is no terminal, a live view and a clean end where there is one."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvgym.errors import ConfigError
from kvgym.harness.tools.watch import pick_cell

pty = pytest.importorskip("pty")
TINY = """
name: tiny
workloads: [{use: {source: gsp, groups: 8, prompts_per_group: 5, lens: [64, 128], rate_rps: 20.0}, name: gsp}]
clusters: [{use: {workers: 2, capacity_tokens: 1000}, name: two}, {use: {workers: 3}, name: three}]
routing: [round_robin, random]
eviction: [lru, rlt]
seeds: [4, 5]
"""
ANY = {"workload": None, "cluster": None, "routing": None, "eviction": None}


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return str(path)


def test_pick__the_first_cell_and_the_first_seed(config):
    cell, _, seed = pick_cell(config, ANY, [])
    assert (cell.labels, seed) == (("gsp", "two", "round_robin", "lru"), 4)


def test_pick__the_first_cell_with_these_labels(config):
    cell, _, _ = pick_cell(config, ANY | {"cluster": "three", "eviction": "rlt"}, [])
    assert cell.labels == ("gsp", "three", "round_robin", "rlt")
    cell, _, _ = pick_cell(config, ANY, ["cluster.workers=7"])
    assert cell.fleet.workers == 7


def test_pick__without_a_comparison_names_make_the_cell():
    names = {"workload": "gsp_small", "cluster": "l40x4", "routing": "random", "eviction": "lru"}
    cell, _, seed = pick_cell(None, names, ["workload.groups=3"])
    assert (cell.labels, cell.source.groups, seed) == (tuple(names.values()), 3, 0)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"routing": "randon"}, "no cell with routing 'randon'; did you mean 'random'?"),
        ({"cluster": "one"}, "there are: two, three"),
        ({"eviction": ""}, "no cell with eviction ''"),
    ],
)
def test_pick__a_label_that_no_cell_has_is_an_error(config, chosen, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        pick_cell(config, ANY | chosen, [])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("nothing.yaml",), "cannot read configuration nothing.yaml"),
        (("--routing", "lbrg"), "did you mean 'lbgr'"),
        (("--set", "options.x=1"), "does not take {'x': 1}"),
        (("--speed", "inf"), "speed must be a finite number >= 0"),
    ],
)
def test_errors__are_one_line_before_anything_is_drawn(kvgym, args, message):
    code, out, err = kvgym("watch", *args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_without_a_terminal__prints_pictures_and_what_came_out(kvgym, config):
    code, out, err = kvgym("watch", config, "--routing", "random", "--seed", "9")
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert out.count("gsp  two  random  lru  seed 9\n") == 11
    assert re.findall(r"routed (\d+)/40", out) == [str(n) for n in (*range(4, 41, 4), 40)]
    assert "gsp on two: random + lru, seed 9\n" in out.rpartition("/40")[2]


def test_json__is_alone_on_stdout(kvgym, config):
    _, out, err = kvgym("watch", config, "--routing", "random", "--seed", "9", "--json")
    last = json.loads(out)
    assert (out.count("\n"), err.count("gsp  two  random  lru  seed 9\n")) == (1, 11)
    assert (last["routing"], last["seed"], last["completed"], last["decisions"]) == ("random", 9, 40, 40)


def test_without_a_terminal__a_picture_every_so_many_decisions(kvgym, config):
    _, out, _ = kvgym("watch", config, "--every", "15")
    assert re.findall(r"routed (\d+)/40", out) == ["15", "30", "40"]


def test_watching__does_not_change_the_run(kvgym, config):
    args = ("--routing", "random", "--eviction", "lru", "--workload", "gsp_small", "--set", "workload.groups=4")
    watched, alone = (json.loads(kvgym(name, *args, "--json")[1]) for name in ("watch", "run"))
    assert {**watched, "wall_s": 0, "decision_s": 0} == {**alone, "wall_s": 0, "decision_s": 0}


def test_watching__measures_by_the_warmup_and_the_objective_of_the_comparison(kvgym, config):
    def metrics(*settings: str) -> dict:
        return json.loads(kvgym("watch", config, "--json", *settings)[1])

    late = metrics("--set", "warmup_s=1.0", "--set", "slo.latency_s=1000")
    assert late["goodput_share"] == 1.0
    plain = metrics()
    assert plain["goodput_share"] is None
    assert late["mean_latency_s"] != plain["mean_latency_s"]


class Terminal:
    """The command on a pseudo-terminal of 100 by 30 characters."""

    def __init__(self, folder: Path, *args: str) -> None:
        self.screen, theirs = pty.openpty()
        env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
        env["PYTHONPATH"] = str(Path(__file__).resolve().parents[3])
        command = [sys.executable, "-m", "kvgym", "watch", *args]
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=folder)
        os.close(theirs)
        self.shown = ""

    def read_until(self, pattern: str, seconds: float = 120.0) -> None:
        """Read what is shown until `pattern` has been seen, or to the end."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.shown) and time.monotonic() < deadline:
            if select.select([self.screen], [], [], 0.5)[0]:
                try:
                    self.shown += os.read(self.screen, 65536).decode()
                except OSError:  # Linux: the other side is closed
                    break

    def last_line(self) -> str:
        """Return the last line with text, without what moves the cursor or, as tqdm does at the end, resets colours."""
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.shown)
        return [line for line in plain.splitlines() if line.strip()][-1]

    def end(self) -> int:
        self.read_until("(?!)")
        os.close(self.screen)
        return self.process.wait(timeout=30)


def test_in_a_terminal__redraws_and_ends_with_what_came_out(config, tmp_path):
    terminal = Terminal(tmp_path, config, "--speed", "2")
    assert terminal.end() == 0
    assert len(set(re.findall(r"routed (\d+)/40", terminal.shown))) > 3
    assert "\x1b[?25h" in terminal.shown.split("\x1b[?25l")[-1]
    assert re.search(r"w0 +\d+ +\d+\.\d", terminal.shown)


@pytest.mark.slow
def test_in_a_terminal__keeps_the_pace(config, tmp_path):
    """The last request arrives after about two simulated seconds, and `speed` says how long that takes."""
    seconds = {}
    for speed in ("0", "0.5"):
        terminal = Terminal(tmp_path, config, "--speed", speed, "--json")
        terminal.end()
        seconds[speed] = json.loads(terminal.last_line())["wall_s"]
    assert seconds["0.5"] > 2.0 > seconds["0"]


def test_ctrl_c__ends_with_a_summary_and_no_traceback(config, tmp_path):
    terminal = Terminal(tmp_path, config, "--speed", "0.05")
    terminal.read_until(r"routed [1-9]")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert "Traceback" not in terminal.shown
    assert re.search(r"interrupted: t [\d.]+ s  routed \d+/40  done \d+", terminal.last_line())
    assert "\x1b[?25h" in terminal.shown.split("\x1b[?25l")[-1]
