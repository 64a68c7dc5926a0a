from __future__ import annotations

import pytest

from kvgym.envs.viewer.palette import letter
from kvgym.envs.viewer.text import draw_text


def test_text__shows_totals_decision_and_a_line_per_worker(busy):
    frame = busy(4)
    lines = draw_text(frame).plain.split("\n")
    assert len(lines) == 3 + 4
    assert lines[0].startswith(f"t {frame.time_s:.2f} s  routed 60/120  done {frame.done}  in flight {60 - frame.done}")
    last = frame.last
    assert lines[1] == (
        f"{letter(frame.fleet.prefix)} request 59 with {last.prompt_tokens} tokens, "
        f"{last.hit_tokens[3]} of them expected there, to worker 3"
    )
    assert [line[1:5].strip() for line in lines[3:]] == ["w0", "w1", "w2", "> w3"]
    for worker, line in enumerate(lines[3:]):
        queued, running, inflight, used = line.replace(">", " ").split()[1:5]
        fleet = frame.fleet
        assert (int(queued), int(running), int(inflight)) == (
            fleet.queued[worker],
            fleet.running[worker],
            fleet.inflight[worker],
        )
        assert used == f"{frame.used_frac[worker]:.0%}"
        assert len(line) == 100


def test_text__before_the_first_decision_has_dashes_for_numbers(busy):
    lines = draw_text(busy(2, steps=0)).plain.split("\n")
    assert lines[0] == "t 0.00 s  routed 0/120  done 0  in flight 0  hits -  P50 - s  P95 - s"
    assert lines[1] == "nothing routed yet"
    assert lines[3].endswith("." * 20)


def test_text__says_which_workers_are_down(busy):
    lines = draw_text(busy(3, down=(1,))).plain.split("\n")[3:]
    assert ["down" in line for line in lines] == [False, True, False]


def test_text__a_hundred_workers_share_lines(busy):
    text = draw_text(busy(100)).plain
    lines = text.split("\n")
    assert len(lines) == 3 + 25
    assert max(map(len, lines)) <= 100
    assert all(f"w{worker} " in text for worker in range(100))
    assert ">w59" in text


def test_text__more_workers_than_fit_are_counted(busy):
    lines = draw_text(busy(110), lines=20).plain.split("\n")
    assert len(lines) == 3 + 20 + 1
    assert lines[-1].strip() == "and 30 more workers"


@pytest.mark.parametrize("width", [60, 100, 160])
def test_text__fits_its_width(busy, width):
    lines = draw_text(busy(4), width=width).plain.split("\n")
    assert max(map(len, lines[3:])) == width


def test_text__colours_the_letters_of_a_prefix_alike(busy):
    text = draw_text(busy(4))
    bars = {span.style for span in text.spans if "on #" in str(span.style)}
    assert len(bars) > 4
