"""Runs the published experiments in the simulator and writes EXPERIMENTS.md.

python scripts/reproduce.py             every experiment, in full
python scripts/reproduce.py --quick     every experiment with few seeds, into results/ only
python scripts/reproduce.py ablation    one of them
python scripts/reproduce.py --page      no run: the page from the stored figures
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kvgym.errors import KVGymError
from kvgym.experiments.experiment import experiment_names, findings, read_outcomes, run_experiment, write_outcomes
from kvgym.experiments.experiments_page import said, verdict_counts, write_page

ROOT = Path(__file__).resolve().parent.parent
STORED, PAGE = ROOT / "docs" / "experiments.json", ROOT / "EXPERIMENTS.md"


def main(
    names: Annotated[list[str] | None, typer.Argument(help="experiments; none: all of configs/experiments")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="few seeds; the stored figures stay as they are")] = False,
    page: Annotated[bool, typer.Option("--page", help="run nothing, write the page from the stored figures")] = False,
    jobs: Annotated[int | None, typer.Option(help="processes; none: as many as there are CPUs")] = None,
    out: Annotated[Path, typer.Option(help="folder for the figures and the page of a quick look")] = Path("results"),
) -> None:
    """Run the experiments and write the page; figures are stored as each of them ends."""
    console = Console(stderr=True)
    stored, target = (out / "experiments-quick.json", out / "EXPERIMENTS.md") if quick else (STORED, PAGE)
    try:
        outcomes = read_outcomes(stored)
        for name in [] if page else (names or experiment_names()):
            outcomes[name] = run_experiment(name, jobs, quick, console)
            write_outcomes(stored, outcomes)
            console.print(f"{name}: {said(verdict_counts(findings(name, outcomes[name])))}", highlight=False)
        outcomes = read_outcomes(stored)  # as stored, to six digits: the page is always made of these
        write_page(target, {name: outcomes[name] for name in experiment_names() if name in outcomes})
    except KVGymError as error:
        console.print(f"error: {error}", style="red", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    console.print(f"wrote {target}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
