"""Says whether this checkout's results are byte-identical to another commit's: records, summaries and samples.

    python scripts/compare_commits.py cbc38ef
    python scripts/compare_commits.py HEAD~3 --comparison quickstart --seeds 1

Checks the commit out into a temporary folder and runs each comparison with both trees in this environment. Exit code 1
and a line per file where they differ.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).resolve().parent.parent
COMPARISONS = ["quickstart", "gsp_ablation", "eviction_ablation"]
UNLIKE = ("manifest.json", "timing.csv", "report.html", "report.md", "comparison.json")
"""Files that hold versions, wall-clock times or wording."""


def run(tree: Path, comparison: str, seeds: int, out: Path) -> None:
    """Run a comparison with the sources of `tree`."""
    data = (ROOT / os.environ.get("KVGYM_DATA", "../shared/data")).resolve()
    environment = {**os.environ, "PYTHONPATH": str(tree), "KVGYM_DATA": str(data)}
    command = [sys.executable, "-m", "kvgym", "compare", comparison, "--seeds", str(seeds), "--out", str(out)]
    subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a comparison's folder that must be equal, by path; run files by their bytes alone."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in UNLIKE)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def differences(before: Path, after: Path) -> tuple[int, list[str]]:
    """Return how many files were compared, and a line per file that differs."""
    old, new = contents(before), contents(after)
    absent = [f"{name}: only in one of the two" for name in sorted(old.keys() ^ new.keys())]
    return len(old), absent + [f"{name}: differs" for name in sorted(old.keys() & new.keys()) if old[name] != new[name]]


def main(
    commit: Annotated[str, typer.Argument(help="What to compare with.")],
    comparison: Annotated[list[str] | None, typer.Option(help="Comparison to run; repeatable.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each.")] = 2,
) -> None:
    """Compare this checkout's results with another commit's."""
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(tree)], check=True)
        subprocess.run(["git", "-C", str(tree), "checkout", "--quiet", commit], check=True)
        for name in comparison or COMPARISONS:
            before, after = Path(folder) / "before" / name, Path(folder) / "after" / name
            run(tree, name, seeds, before)
            run(ROOT, name, seeds, after)
            files, problems = differences(before, after)
            failed |= bool(problems)
            print("\n".join([f"{name}: {files} files, {len(problems)} differ", *(f"  {line}" for line in problems)]))
    raise typer.Exit(int(failed))


if __name__ == "__main__":
    typer.run(main)
