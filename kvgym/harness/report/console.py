"""Prints for people: every sentence and every table of the command line goes through here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

WIDTH = 200
"""Columns where there is no terminal: a file or a pipe."""
_GAP = 3


def make_console(file: IO[str] | None = None) -> Console:
    """Return a console on `file` (none: stdout): in a terminal as wide as that, elsewhere plain and `WIDTH` wide."""
    console = Console(file=file, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH
    return console


def answer(as_json: bool, facts: Mapping[str, Any], show: Callable[[Console], None]) -> None:
    """Print on stdout what a command has found: `facts` as one JSON object for programs, or what `show` prints."""
    if as_json:
        print(json.dumps(facts), flush=True)
    else:
        show(make_console())


def say(console: Console, *lines: str, style: str = "", indent: int = 0) -> None:
    """Print lines of text; a terminal breaks them between words, elsewhere each stays one line."""
    for line in lines:
        text = Text(line, style)
        if console.is_terminal:
            console.print(Padding(text, (0, 0, 0, indent), expand=False))
        else:
            console.print(Text(" " * indent) + text, soft_wrap=True)


def print_table(
    console: Console, header: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", names: int = 1
) -> None:
    """Print a table of which nothing is cut off.

    Columns that find no room beside the others come in another block below, which repeats the names of the rows.

    Args:
        console: where.
        header: a heading per column.
        rows: the cells as text.
        title: stands above it.
        names: how many columns at the left name a row; the others are set to the right.
    """
    if title:
        say(console, title, style="bold")
    widths = [max(map(cell_len, column)) for column in zip(header, *rows, strict=True)]
    for block in _blocks(widths, names, console.width):
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
        for column in block:
            side: Literal["left", "right"] = "left" if column < names else "right"
            table.add_column(Text(header[column]), justify=side, no_wrap=True, min_width=widths[column])
        for row in rows:
            table.add_row(*(Text(row[column]) for column in block))
        console.print(table, crop=False, no_wrap=True, soft_wrap=True)


def _blocks(widths: Sequence[int], names: int, most: int) -> Iterator[list[int]]:
    """Yield the columns of each block: the names, and as many of the others as fit, at least one."""
    head = list(range(names))
    block, used = list(head), sum(widths[:names]) + _GAP * names
    for column in range(names, len(widths)):
        if used + widths[column] > most and len(block) > names:
            yield block
            block, used = list(head), sum(widths[:names]) + _GAP * names
        block.append(column)
        used += widths[column] + _GAP
    yield block
