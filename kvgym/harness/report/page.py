"""Puts the page together: verdicts, facts, tables, and per workload the plots of all its cells."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import groupby
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from kvgym.harness.compare.results import Results
from kvgym.harness.compare.store import write_text
from kvgym.harness.compare.summary import CellSummary
from kvgym.harness.measure.statistics import METRICS
from kvgym.harness.report.beside import TITLE, beside_rows
from kvgym.harness.report.curves import Curves, read_curves
from kvgym.harness.report.drawing.figures import Row, bars, cdf, forest, over_time, shares
from kvgym.harness.report.drawing.markup import html, node
from kvgym.harness.report.explained import DEFINITIONS, HINT, explained_rows, moved_lines
from kvgym.harness.report.explained import TITLE as WATERFALL
from kvgym.harness.report.tables import class_rows, conditions, missing_lines, published_rows, table_rows, waterfalls
from kvgym.harness.report.verdict import Verdict, verdicts
from kvgym.records import check_ending

_FORESTS = (
    ("p50_latency_s", "Median latency"),
    ("p95_latency_s", "95th percentile of the latency"),
    ("p50_ttft_s", "Median time to first token"),
)
Drawn = list[tuple[CellSummary, Curves]]


def write_page(results: Results, path: Path | None = None) -> Path:
    """Write the page of `results` and return its file.

    Args:
        results: what a folder holds.
        path: the file; none: report.html in that folder.

    Raises:
        ResultsError: a run's file is damaged, or the page cannot be written.
    """
    path = results.store.folder / "report.html" if path is None else path
    check_ending(path, ".html")
    write_text(path, make_page(results))
    return path


def make_page(results: Results) -> str:
    """Return the page: one file of HTML with its style and plots, nothing else is loaded.

    Raises:
        ResultsError: a run's file is damaged.
    """
    style = resources.files("kvgym.harness.report").joinpath("style.css").read_text(encoding="utf-8")
    head = node(
        "head",
        node("meta", charset="utf-8"),
        node("meta", name="viewport", content="width=device-width, initial-scale=1"),
        node("meta", name="color-scheme", content="light dark"),
        node("title", f"{results.config.name} - kvgym"),
        node("style", style),
    )
    groups = [list(group) for _, group in groupby(results.summary.cells, key=lambda cell: cell.labels[:2])]
    body = node("body", node("main", *_opening(results, groups), *(_workload(results, group) for group in groups)))
    main = body[0]
    if beside := beside_rows(results.summary.cells):
        main.append(node("section", node("h2", TITLE), _table(*beside)))
    if published := published_rows(results.summary.cells):
        main.append(node("section", node("h2", "Published values beside ours"), _table(*published)))
    main.append(_definitions())
    main.append(_origin(results))
    return html(node("html", head, body, lang="en"))


def _opening(results: Results, groups: Sequence[Sequence[CellSummary]]) -> list[Element | None]:
    """Return title, verdicts, notes, how to read the page, what is missing, and links."""
    config, summary = results.config, results.summary
    seeds = ", ".join(map(str, config.seed_list))
    reading = (
        f"Seeds: {seeds}, the same for every row. Tables give the mean over seeds and the range in brackets. Ratios "
        f"are geometric means over paired seeds against {' + '.join(summary.baseline)}, with 95 % intervals."
    )
    links = [node("li", node("a", _title(group), href=f"#{_anchor(group)}")) for group in groups]
    return [
        node("h1", config.name),
        *map(_verdict, verdicts(summary)),
        node("p", config.notes.strip()) if config.notes else None,
        node("p", " ".join([reading, *(line.replace("**", "") for line in conditions(config))])),
        _box("Not finished", [*missing_lines(results), *results.skipped]),
        node("nav", node("ul", *links), aria_label="Workloads") if len(groups) > 1 else None,
    ]


def _verdict(verdict: Verdict) -> Element:
    sentences = (node("li", sentence) for sentence in verdict.sentences)
    return node("section", node("h2", f"Verdict: {verdict.title}"), node("ul", *sentences), class_="verdict")


def _title(cells: Sequence[CellSummary]) -> str:
    return " on ".join(cells[0].labels[:2])


def _anchor(cells: Sequence[CellSummary]) -> str:
    return "-".join("".join(c if c.isalnum() else "_" for c in label) for label in cells[0].labels[:2])


def _box(title: str, lines: Sequence[str]) -> Element | None:
    if not lines:
        return None
    return node("aside", node("h2", title), node("ul", *(node("li", line) for line in lines)))


def _workload(results: Results, cells: list[CellSummary]) -> Element:
    """Return the section of one workload on one fleet."""
    stored = {cell.labels: cell for cell in results.cells}
    store, warmup_s = results.store, results.config.warmup_s
    drawn = [(cell, read_curves(stored[cell.labels], cell.seeds, store, warmup_s)) for cell in cells]
    notes = [node("li", f"{key}: {value}") for key, value in cells[0].notes.items()]
    baseline = results.summary.baseline
    return node(
        "section",
        node("h2", _title(cells)),
        node("ul", *notes, class_="notes") if notes else None,
        _table(*table_rows(cells)),
        *(part for kind, head, rows in class_rows(cells) for part in (node("h3", f"Per {kind}"), _table(head, rows))),
        *_explained(cells, baseline),
        node("h3", f"Ratio to {' + '.join(baseline)}"),
        node("p", "Lines are 95 % intervals over seeds; the diamond is the baseline.", class_="hint"),
        node("div", *(_forest(*each, cells, baseline) for each in _FORESTS), class_="panels"),
        *_distributions("Latency", [(cell, curves.latency_s) for cell, curves in drawn], baseline),
        *_distributions("Time to first token", [(cell, curves.ttft_s) for cell, curves in drawn], baseline),
        node("h3", "Cache hits and routing"),
        node(
            "p", "Hit rate: mean and range over seeds, diamond: published. Share: one piece per worker.", class_="hint"
        ),
        node("div", _hits(cells), _shares(drawn), class_="panels"),
        node("h3", f"Workers over time, seed {cells[0].seeds[0]}"),
        *_over_time(drawn, baseline),
        id=_anchor(cells),
    )


def _explained(cells: Sequence[CellSummary], baseline: tuple[str, str]) -> list[Element]:
    rows = explained_rows(waterfalls(cells))
    if rows is None:
        return []
    moved = [node("li", line) for line in moved_lines(waterfalls(cells), baseline)]
    parts = [node("h3", WATERFALL), node("p", HINT, class_="hint"), _table(*rows)]
    return [*parts, node("ul", *moved)] if moved else parts


def _name(cell: CellSummary) -> str:
    return " + ".join(cell.labels[2:])


def _forest(metric: str, title: str, cells: list[CellSummary], baseline: tuple[str, str]) -> Element:
    rows = [Row(*cell.labels[2:], *cell.ratios[metric], base=cell.labels[2:] == baseline) for cell in cells]
    return forest(title, "below 1 is better", rows)


def _hits(cells: Sequence[CellSummary]) -> Element:
    rows = [Row(*cell.labels[2:], *cell.metrics["hit_rate"], mark=cell.published.get("hit_rate")) for cell in cells]
    return bars("Hit rate", rows)


def _shares(drawn: Drawn) -> Element:
    return shares("Share of the requests per worker", [(*cell.labels[2:], curves.share) for cell, curves in drawn])


def _distributions(
    what: str, drawn: Sequence[tuple[CellSummary, np.ndarray | None]], baseline: tuple[str, str]
) -> list[Element]:
    """Return heading, hint and one panel of cumulative distributions per router."""
    known = [(cell, seconds) for cell, seconds in drawn if seconds is not None]
    if not known:
        return []
    everything = np.array([seconds for _, seconds in known])
    band = np.array([everything.min(axis=0), everything.max(axis=0)])
    base = next((seconds for cell, seconds in known if cell.labels[2:] == baseline), None)
    panels = []
    for routing, group in groupby(known, key=lambda entry: entry[0].labels[2]):
        curves = [(cell.labels[3], seconds) for cell, seconds in group]
        panels += [cdf(routing, curves[i : i + 4], base, band) for i in range(0, len(curves), 4)]
    hint = "Share of the requests that took at most so long. Grey line: the baseline; grey area: all rows of the table."
    return [node("h3", what), node("p", hint, class_="hint"), node("div", *panels, class_="panels")]


def _over_time(drawn: Drawn, baseline: tuple[str, str]) -> list[Element]:
    """Return two plots per cell; those of the baseline and of the best median latency are unfolded."""
    medians = {_name(cell): p50 for cell, _ in drawn if (p50 := cell.mean("p50_latency_s")) is not None}
    shown = {" + ".join(baseline), min(medians, key=lambda name: medians[name], default="")}
    result = []
    for cell, curves in drawn:
        plots = [over_time("Waiting requests", curves.queued, curves.end_s, share=False)]
        if curves.kv_use is not None:
            plots.append(over_time("KV cache in use", curves.kv_use, curves.end_s, share=True))
        absent = None if curves.kv_use is not None else node("p", "No load samples in this folder.", class_="hint")
        unfolded = "open" if _name(cell) in shown or len(drawn) <= 4 else None
        inside = (node("summary", _name(cell)), node("div", *plots, class_="panels"), absent)
        result.append(node("details", *inside, open=unfolded))
    return result


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Element:
    """Return a table in a box of its own that scrolls where the screen is too narrow."""
    head = node("tr", *(node("th", text, scope="col") for text in header))
    body = [node("tr", *(node("th", text, scope="row") for text in row[:2]), *map(_value, row[2:])) for row in rows]
    table = node("table", node("thead", head), node("tbody", *body))
    return node("div", table, class_="scroll", tabindex=0, role="region", aria_label="Table")


def _value(text: str) -> Element:
    """Return a table's cell; its range or interval may go to a line of its own."""
    start = next((text.index(mark) for mark in (" [", " (") if mark in text), len(text))
    return node("td", text[:start], node("span", text[start:]) if text[start:] else None)


def _definitions() -> Element:
    terms = [part for name, text in (METRICS | DEFINITIONS).items() for part in (node("dt", name), node("dd", text))]
    return node("section", node("h2", "Definitions"), node("dl", *terms))


def _origin(results: Results) -> Element:
    """Return what the results were made from."""
    manifest = results.manifest
    facts: dict[str, object] = {f"version of {name}": version for name, version in manifest["versions"].items()}
    facts |= {name: manifest.get(name) for name in ("identity", "commit", "code_sha256")}
    facts |= {f"sha256 of {Path(name).name}": digest for name, digest in _items(manifest.get("data_sha256"))}
    rows = [node("tr", node("th", key, scope="row"), node("td", str(value))) for key, value in facts.items() if value]
    text = json.dumps(manifest["config"], indent=2, ensure_ascii=False)
    return node(
        "section",
        node("h2", "Made from"),
        node("div", node("table", node("tbody", *rows), class_="facts"), class_="scroll"),
        node("details", node("summary", "Configuration"), node("pre", text)),
    )


def _items(value: object) -> list[tuple[str, object]]:
    return list(value.items()) if isinstance(value, Mapping) else []
