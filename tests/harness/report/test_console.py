"""What is printed for people: nothing is cut off, nothing is taken for markup, no colours outside a terminal."""

from __future__ import annotations

import io

from kvgym.harness.report.console import WIDTH, make_console, print_table, say

HEADER = ["routing", "eviction", "P50 s", "hit %"]
ROWS = [["random", "lru", "0.1 [0.1-0.3]", "12.5"], ["[red]你好", "rlt", "20.0", "7.0"]]


def test_print_table__a_line_per_row_without_a_terminal() -> None:
    file = io.StringIO()
    print_table(make_console(file), HEADER, ROWS, title="gsp on [b]", names=2)
    title, header, rule, *rows = file.getvalue().splitlines()
    assert (title, header) == ("gsp on [b]", "routing     eviction           P50 s   hit %")
    assert set(rule) == {"─"}
    assert rows == ["random      lru        0.1 [0.1-0.3]    12.5", "[red]你好   rlt                 20.0     7.0"]


def test_print_table__columns_without_room_come_below_with_the_names_again() -> None:
    file = io.StringIO()
    console = make_console(file)
    console.width = 40
    print_table(console, HEADER, ROWS, names=2)
    heads = [line.split() for line in file.getvalue().splitlines() if line.startswith("routing")]
    assert heads == [["routing", "eviction", "P50", "s"], ["routing", "eviction", "hit", "%"]]
    assert "0.1 [0.1-0.3]" in file.getvalue() and file.getvalue().count("[red]你好") == 2
    assert max(map(len, file.getvalue().splitlines())) <= 40


def test_print_table__wider_than_the_console_is_still_whole() -> None:
    file = io.StringIO()
    print_table(make_console(file), ["name", "value"], [["n" * WIDTH, "v" * WIDTH]])
    assert "n" * WIDTH + "   " + "v" * WIDTH in file.getvalue()


def test_say__a_sentence_stays_one_line_without_a_terminal() -> None:
    file = io.StringIO()
    say(make_console(file), "word " * 100, "[bold]", style="bold", indent=2)
    assert file.getvalue() == f"  {'word ' * 100}\n  [bold]\n"
