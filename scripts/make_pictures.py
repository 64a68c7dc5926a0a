"""Makes the README's pictures from the folder of a comparison.

    kvgym compare gsp_ablation --seeds 5 --out results/pictures
    python scripts/make_pictures.py results/pictures

Writes docs/pictures/p50_ratio.svg and docs/pictures/hit_rate.svg: the plots of report.html as files of their own.
"""

from __future__ import annotations

import argparse
import copy
from importlib import resources
from pathlib import Path
from xml.etree.ElementTree import Element, tostring

from kvgym.harness.compare.results import read_results
from kvgym.harness.compare.store import write_text
from kvgym.harness.report.figures import Row, bars, forest
from kvgym.harness.report.markup import node


def main() -> None:
    """Read the folder, write the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="output folder of a comparison of one workload")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"), help="folder of the pictures")
    arguments = parser.parse_args()
    summary = read_results(arguments.folder).summary
    ratios = [
        Row(*cell.labels[2:], *cell.ratios["p50_latency_s"], base=cell.labels[2:] == summary.baseline)
        for cell in summary.cells
    ]
    hits = [
        Row(*cell.labels[2:], *cell.metrics["hit_rate"], mark=cell.published.get("hit_rate")) for cell in summary.cells
    ]
    arguments.out.mkdir(parents=True, exist_ok=True)
    title = f"Median latency relative to {' + '.join(summary.baseline)}"
    write_text(arguments.out / "p50_ratio.svg", standalone(forest(title, "below 1 is better", ratios)))
    write_text(arguments.out / "hit_rate.svg", standalone(bars("Hit rate; diamonds: published", hits)))


def standalone(figure: Element) -> str:
    """Return the SVG file of a captioned plot, with the page's style and the caption above it."""
    drawn, caption = figure.find("svg"), figure.findtext("figcaption")
    assert drawn is not None, "figures hold one plot"
    svg = copy.deepcopy(drawn)
    width, height = map(float, str(svg.get("viewBox")).split()[2:])
    svg.set("viewBox", f"-6 -22 {width + 12:g} {height + 24:g}")
    svg.set("width", f"{1.5 * (width + 12):g}")
    style = resources.files("kvgym.harness.report").joinpath("style.css").read_text(encoding="utf-8")
    svg.insert(0, node("style", style))
    svg.insert(1, node("rect", x=-6, y=-22, width=width + 12, height=height + 24, rx=6, style="fill: var(--paper)"))
    svg.append(node("text", caption, class_="group", x=2, y=-8))
    return tostring(svg, encoding="unicode") + "\n"


if __name__ == "__main__":
    main()
