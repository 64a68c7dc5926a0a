"""Makes the README's pictures from the folder of a comparison.

    kvgym compare gsp_ablation --seeds 5 --out results/pictures
    python scripts/make_pictures.py results/pictures

Writes docs/pictures/p50_ratio.svg and docs/pictures/hit_rate.svg: the plots of report.html as files of their own.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kvgym.harness.compare.results import read_results
from kvgym.harness.compare.store import write_text
from kvgym.harness.report.drawing.figures import Row, bars, forest
from kvgym.harness.report.drawing.pictures import picture


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
    write_text(arguments.out / "p50_ratio.svg", picture([forest(title, "below 1 is better", ratios)]))
    write_text(arguments.out / "hit_rate.svg", picture([bars("Hit rate; diamonds: published", hits)]))


if __name__ == "__main__":
    main()
