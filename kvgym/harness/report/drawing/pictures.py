"""Makes SVG files that stand alone out of the page's plots: for the README and for `kvgym theory`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import resources
from xml.etree.ElementTree import Element, tostring

from kvgym.harness.report.drawing.markup import node

_EDGE, _CAPTION = 6.0, 22.0
_SCALE = 1.5  # of the picture's own width, so that letters have a good size on a desktop


def picture(figures: Sequence[Element], columns: int = 1) -> str:
    """Return the text of an SVG file with the page's style: captioned plots in rows of `columns`."""
    boxes = [_size(figure) for figure in figures]
    width = max(wide for wide, _ in boxes) + 2 * _EDGE
    lines = [range(start, min(start + columns, len(boxes))) for start in range(0, len(boxes), columns)]
    top, placed = 0.0, []
    for line in lines:
        placed += [_placed(figures[i], left * width + _EDGE, top + _CAPTION) for left, i in enumerate(line)]
        top += math.ceil(max(boxes[i][1] for i in line)) + _CAPTION + 2
    columns = min(columns, len(boxes))
    style = resources.files("kvgym.harness.report").joinpath("style.css").read_text(encoding="utf-8")
    paper = node("rect", width=columns * width, height=top, rx=6, style="fill: var(--paper)")
    svg = node(
        "svg",
        node("style", style),
        paper,
        *placed,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {columns * width:g} {top:g}",
        width=_SCALE * columns * width,
    )
    return tostring(svg, encoding="unicode") + "\n"


def _drawn(figure: Element) -> Element:
    svg = figure.find("svg")
    assert svg is not None, "figures hold one plot"
    return svg


def _size(figure: Element) -> tuple[float, float]:
    wide, high = str(_drawn(figure).get("viewBox")).split()[2:]
    return float(wide), float(high)


def _placed(figure: Element, left: float, top: float) -> Element:
    caption = node("text", figure.findtext("figcaption"), class_="group", x=2, y=-8)
    return node("g", *_drawn(figure), caption, role="img", transform=f"translate({left:g} {top:g})")
