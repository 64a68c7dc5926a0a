"""Single plots are SVG elements about 340 pixels wide: a phone shows one, a desktop several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from kvgym.harness.report.curves import LEVELS
from kvgym.harness.report.drawing.markup import node
from kvgym.harness.report.drawing.scale import Scale, label

WIDTH = 340.0
_LABEL = 76.0  # width of row labels
_ROW, _HEAD = 15.0, 17.0  # height of a row and of the line with its group's name
_MARK, _LETTER = 34.0, 6.2  # width of a curve's mark with its gaps, and of a letter of its name
_MOST_PIECES, _MOST_STRIPS = 16, 8  # workers that are shown one by one


class Row(NamedTuple):
    """One row of a forest or bar plot; neighbours of one group stand under its name."""

    group: str
    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    base: bool = False  # it is what the others are compared with
    mark: float | None = None  # a published value


def figure(title: str, description: str, height: float, *parts: Element | None) -> Element:
    """Return a captioned SVG plot; `description` is what it says, for those who cannot see it."""
    inside = (node("title", title), node("desc", description), *parts)
    svg = node("svg", *inside, viewBox=f"0 0 {WIDTH:g} {height:g}", role="img", xmlns="http://www.w3.org/2000/svg")
    return node("figure", node("figcaption", title), svg)


def cdf(title: str, curves: Sequence[tuple[str, np.ndarray]], base: np.ndarray | None, band: np.ndarray) -> Element:
    """Return cumulative distributions of seconds on a logarithmic axis.

    Args:
        title: caption.
        curves: (name, quantiles at LEVELS), at most 4, told apart by dashes and colour.
        base: quantiles of the baseline, drawn thin and grey; none: not there.
        band: (2, levels): smallest and largest quantile of all rows; the area between them is shaded.
    """
    height, low, high = 190.0, float(band[0][1]), float(band[1][-1])
    low = max(low, high * 1e-4, 1e-6)
    x, y = Scale(low, high, 34.0, WIDTH - 8, log=True), Scale(0.0, 1.0, height - 34, 22.0)
    edge = [*zip(band[0], LEVELS, strict=True), *zip(band[1][::-1], LEVELS[::-1], strict=True)]
    parts = [node("path", class_="band", d=_path([(x(s), y(level)) for s, level in edge], close=True))]
    parts += [*_x_axis(x, 22.0, height - 34, "s"), *_y_axis(y, [(at, f"{at:.0%}") for at in (0.0, 0.5, 0.9, 1.0)])]
    if base is not None:
        parts.append(_curve(base, x, y, "line base"))
    parts += _key([name for name, _ in curves[:4]])
    said = []
    for index, (name, seconds) in enumerate(curves[:4]):
        parts.append(_curve(seconds, x, y, f"line c{index}"))
        p50, p99 = np.interp((0.5, 0.99), LEVELS, seconds)
        said.append(f"{name}: half within {label(p50)} s, 99 % within {label(p99)} s")
    return figure(title, "; ".join(said), height, *parts)


def _curve(seconds: np.ndarray, x: Scale, y: Scale, class_: str) -> Element:
    points = [(x(s), y(level)) for s, level in zip(seconds, LEVELS, strict=True)]
    return node("path", class_=class_, d=_path(points))


class Curve(NamedTuple):
    """A name and its points: (x, value, low, high), above 0."""

    name: str
    points: Sequence[tuple[float, float, float, float]]


def growth(title: str, unit: str, curves: Sequence[Curve]) -> Element:
    """Return at most 4 curves with their intervals, both axes logarithmic; `unit` is that of the x axis."""
    height, curves = 230.0, curves[:4]
    points = [point for curve in curves for point in curve.points]
    xs, values, lows, highs = zip(*points, strict=True)
    # An interval from few seeds may go below 0 or span decades; the points must stay apart.
    low, high = max(min(lows), min(values) / 3), min(max(highs), max(values) * 3)
    x = Scale(min(xs), max(xs), 38.0, WIDTH - 10, log=True)
    y = Scale(low * 0.97, high * 1.03, height - 34, 24.0, log=True)
    parts = [*_x_axis(x, 22.0, height - 34, unit), *_y_axis(y, [(tick, label(tick)) for tick in y.ticks()])]
    parts += _key([curve.name for curve in curves])
    said = []
    for index, curve in enumerate(curves):
        bars = "".join(f"M{x(at):.1f} {y(least):.1f}V{y(most):.1f}" for at, _, least, most in curve.points)
        line = _path([(x(at), y(value)) for at, value, _, _ in curve.points])
        parts += [node("path", class_="interval", d=bars), node("path", class_=f"line c{index}", d=line)]
        said.append(f"{curve.name}: " + ", ".join(f"{label(v)} at {label(at)}" for at, v, _, _ in curve.points))
    return figure(title, "; ".join(said), height, *parts)


def scatter(title: str, unit: str, groups: Sequence[tuple[str, np.ndarray, np.ndarray]]) -> Element:
    """Return points of at most 4 groups (name, x, y) around the line y = 0; x logarithmic in `unit`, y a share."""
    height, groups = 230.0, groups[:4]
    xs, ys = (np.concatenate([group[at] for group in groups]) for at in (1, 2))
    edge = max(float(np.abs(ys).max()), 0.01)
    x, y = Scale(float(xs.min()), float(xs.max()), 38.0, WIDTH - 10, log=True), Scale(-edge, edge, height - 34, 24.0)
    parts = [*_x_axis(x, 22.0, height - 34, unit), *_y_axis(y, [(tick, f"{tick:+.0%}") for tick in (-edge, 0.0, edge)])]
    parts += _key([name for name, _, _ in groups])
    for index, (_, across, up) in enumerate(groups):
        dots = "".join(f"M{x(a):.1f} {y(b):.1f}h0" for a, b in zip(across, up, strict=True))
        parts.append(node("path", class_=f"line dots c{index}", d=dots))
    said = (f"{name}: {len(up)} points, half of them within {np.median(np.abs(up)):.1%}" for name, _, up in groups)
    return figure(title, "; ".join(said), height, *parts)


def _key(names: Sequence[str]) -> list[Element]:
    """Return the marks and names of the curves in the line above the plot; long names are cut until all fit."""
    most, room = 14, WIDTH - 42
    while most > 4 and sum(_MARK + _LETTER * min(len(name), most) for name in names) > room:
        most -= 1
    parts, at = [], 34.0
    for index, name in enumerate(names):
        parts.append(node("path", class_=f"line c{index}", d=f"M{at:.1f} 10h22"))
        parts.append(node("text", _short(name, most), x=at + 26, y=14.0))
        at += _MARK + _LETTER * min(len(name), most)
    return parts


def _y_axis(y: Scale, ticks: Sequence[tuple[float, str]]) -> list[Element]:
    parts = []
    for value, text in ticks:
        parts.append(node("text", text, x=30.0, y=y(value) + 4, text_anchor="end"))
        parts.append(node("path", class_="grid", d=f"M34 {y(value):.1f}H{WIDTH - 8:g}"))
    return parts


def forest(title: str, better: str, rows: Sequence[Row]) -> Element:
    """Return ratios to the baseline with their intervals on a logarithmic axis; `better` says which side is good."""
    values = [row.value for row in rows if row.value is not None] + [0.95, 1.05]
    ends = [end for row in rows for end in (row.low, row.high) if end is not None]
    # An interval from two seeds may span decades; the points must stay apart.
    low, high = max(min(values + ends), min(values) / 3), min(max(values + ends), max(values) * 3)
    x = Scale(low * 0.97, high * 1.03, _LABEL + 4, WIDTH - 98, log=True)
    lines, bottom = _lines([(row.group, row.name) for row in rows])
    parts = [*_x_axis(x, 4.0, bottom, better, most=5), node("path", class_="one", d=f"M{x(1.0):.1f} 4V{bottom:g}")]
    for row, (labels, middle) in zip(rows, lines, strict=True):
        parts += [*labels, _number(_ratio_text(row), middle)]
        if row.value is None:
            continue
        if row.low is not None and row.high is not None:
            # An end without a cap lies beyond the axis.
            caps = "".join(f"M{x(v):.1f} {middle - 3:.1f}v6" for v in (row.low, row.high) if x.low <= v <= x.high)
            line = f"M{x(row.low):.1f} {middle:.1f}H{x(row.high):.1f}{caps}"
            parts.append(node("path", class_="interval", d=line))
        dot = node("circle", class_="dot", cx=x(row.value), cy=middle, r=3.2)
        parts.append(_diamond(x(row.value), middle) if row.base else dot)
    said = "; ".join(f"{row.group} + {row.name} {_ratio_text(row)}" for row in rows)
    return figure(title, said, bottom + 30, *parts)


def _ratio_text(row: Row) -> str:
    if row.base:
        return "baseline"
    if row.value is None:
        return "-"
    text = _three_digits(row.value)
    return (
        text if row.low is None or row.high is None else f"{text} ({_three_digits(row.low)}-{_three_digits(row.high)})"
    )


def _three_digits(value: float) -> str:
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}" if value >= 0.1 else f"{value:.2g}"


def bars(title: str, rows: Sequence[Row]) -> Element:
    """Return shares from 0 to 100 % as bars with their range over seeds; a diamond stands at a published value."""
    x = Scale(0.0, 1.0, _LABEL + 4, WIDTH - 42)
    lines, bottom = _lines([(row.group, row.name) for row in rows])
    parts = _x_axis(x, 4.0, bottom, "", percent=True)
    said = []
    for row, (labels, middle) in zip(rows, lines, strict=True):
        text = "-" if row.value is None else f"{row.value:.1%}"
        parts += [*labels, _number(text, middle)]
        said.append(f"{row.group} + {row.name} {text}")
        if row.value is None:
            continue
        size = max(x(row.value) - x.start, 0.5)
        parts.append(node("rect", class_="bar", x=x.start, y=middle - 5, width=size, height=10.0))
        if row.low is not None and row.high is not None and row.high > row.low:
            parts.append(node("path", class_="interval", d=f"M{x(row.low):.1f} {middle:.1f}H{x(row.high):.1f}"))
        if row.mark is not None:
            parts.append(_diamond(x(row.mark), middle))
    return figure(title, "; ".join(said), bottom + 30, *parts)


def shares(title: str, rows: Sequence[tuple[str, str, np.ndarray]]) -> Element:
    """Return (group, name, shares) as one bar each, cut into the workers' shares in the order of their numbers."""
    x = Scale(0.0, 1.0, _LABEL + 4, WIDTH - 14)
    lines, bottom = _lines([(group, name) for group, name, _ in rows])
    parts = _x_axis(x, 4.0, bottom, "", percent=True)
    said = []
    for (group, name, share), (labels, middle) in zip(rows, lines, strict=True):
        parts += [*labels, *_pieces(share if len(share) <= _MOST_PIECES else _grouped(share), x, middle)]
        said.append(f"{group} + {name}: busiest worker {share.max():.0%}, least busy {share.min():.0%}")
    return figure(title, "; ".join(said), bottom + 30, *parts)


def _pieces(share: np.ndarray, x: Scale, middle: float) -> list[Element]:
    parts, left = [], 0.0
    for index, part in enumerate(share):
        start, end = x(left), x(left + part)
        left += float(part)
        tone = f"p{index % 2}"
        if end - start > 0.05:
            parts.append(node("rect", class_=f"piece {tone}", x=start, y=middle - 6, width=end - start, height=12.0))
        if part >= 0.11:
            at = (start + end) / 2
            parts.append(node("text", f"{part:.0%}", class_=f"in {tone}", x=at, y=middle + 3.5, text_anchor="middle"))
    return parts


def _grouped(share: np.ndarray) -> np.ndarray:
    """Return the largest shares and, as one, the rest."""
    ordered = np.sort(share)[::-1]
    return np.append(ordered[: _MOST_PIECES - 1], ordered[_MOST_PIECES - 1 :].sum())


def over_time(title: str, values: np.ndarray, end_s: float, share: bool) -> Element:
    """Return one strip per worker over time.

    Args:
        title: caption.
        values: (workers, points); of more than 8 workers those with the largest mean are shown.
        end_s: end of the time axis.
        share: values are shares of 1; else they are counts and all strips share their largest.
    """
    chosen = np.arange(len(values))
    if len(values) > _MOST_STRIPS:
        chosen = np.sort(np.argsort(-values.mean(axis=1), kind="stable")[:_MOST_STRIPS])
        title += f" ({_MOST_STRIPS} of {len(values)} workers)"
    top = 1.0 if share else max(float(values[chosen].max()), 1.0)
    row, bottom = 24.0, 4 + 24.0 * len(chosen)
    x = Scale(0.0, end_s, 30.0, WIDTH - 62)
    parts = _x_axis(x, 4.0, bottom, "s")
    said = []
    for index, worker in enumerate(chosen):
        base = 4 + row * (index + 1) - 2
        y = Scale(0.0, top, base, base - row + 5)
        slots = np.linspace(x.start, x.end, len(values[worker]))
        points = [(x.start, base), *((px, y(v)) for px, v in zip(slots, values[worker], strict=True)), (x.end, base)]
        most = float(values[worker].max())
        text = f"{most:.0%}" if share else label(round(most, 1))
        parts.append(node("path", class_="area", d=_path(points, close=True)))
        parts.append(node("path", class_="axis", d=f"M{x.start:g} {base:g}H{x.end:g}"))
        parts.append(node("text", f"w{worker}", x=26.0, y=base - 4, text_anchor="end"))
        parts.append(_number(f"max {text}", base - 7.5))
        said.append(f"worker {worker}: at most {text}")
    return figure(title, "; ".join(said), bottom + 30, *parts)


def _lines(names: Sequence[tuple[str, str]]) -> tuple[list[tuple[list[Element], float]], float]:
    """Lay out rows under the names of their groups; return (labels, middle) of each, and where they end."""
    lines, y, last = [], 4.0, None
    for group, name in names:
        labels = []
        if group != last:
            labels.append(node("text", _short(group, 48), class_="group", x=2.0, y=y + 12))
            y, last = y + _HEAD, group
        labels.append(node("text", _short(name, 12), node("title", name), x=_LABEL, y=y + 11, text_anchor="end"))
        lines.append((labels, y + _ROW / 2))
        y += _ROW
    return lines, y + 2


def _number(text: str, middle: float) -> Element:
    return node("text", text, class_="num", x=WIDTH - 2, y=middle + 3.5, text_anchor="end")


def _diamond(at: float, middle: float) -> Element:
    return node("path", class_="hollow", d=f"M{at - 4:.1f} {middle:.1f}l4 -4 4 4 -4 4z")


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _x_axis(x: Scale, top: float, bottom: float, unit: str, percent: bool = False, most: int = 6) -> list[Element]:
    parts = []
    for tick in x.ticks(most):
        at = x(tick)
        text = f"{tick:.0%}" if percent else label(tick)
        parts.append(node("path", class_="grid", d=f"M{at:.1f} {top:g}V{bottom:g}"))
        parts.append(node("text", text, x=at, y=bottom + 13, text_anchor="middle"))
    if unit:
        parts.append(node("text", unit, class_="unit", x=(x.start + x.end) / 2, y=bottom + 27, text_anchor="middle"))
    return parts


def _path(points: Sequence[tuple[float, float]], close: bool = False) -> str:
    """Return path data in tenths of a pixel, as short steps; a point within half a pixel of the last is left out."""
    kept = [(round(10 * px), round(10 * py)) for px, py in points]
    last, text = kept[0], f"M{kept[0][0] / 10:g} {kept[0][1] / 10:g}l"
    for px, py in kept[1:]:
        dx, dy = px - last[0], py - last[1]
        if abs(dx) + abs(dy) >= 5:
            text += f"{dx / 10:g} {dy / 10:g} "
            last = px, py
    return text.rstrip(" l") + ("z" if close else "")
