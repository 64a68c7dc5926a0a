"""Says whether this checkout's results are byte-identical to another commit's: records, summaries and samples.

    python scripts/compare_commits.py cbc38ef
    python scripts/compare_commits.py HEAD~3 --comparison quickstart --seeds 1

Checks the commit out into a temporary folder and runs each comparison with both trees in this environment. Exit code 1
and a line per file where they differ.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).resolve().parent.parent
COMPARISONS = ["quickstart", "gsp_ablation", "eviction_ablation"]
UNLIKE = (".lock", "manifest.json", "timing.csv", "report.html", "report.md")
"""Files that hold versions, wall-clock times or wording."""
IDENTITY = re.compile(r"-[0-9a-f]{8}(?=-s[0-9]+\.)")
"""The part of a run's file name that stands for its configuration, which may have got fields since."""


def run(tree: Path, comparison: str, seeds: int, out: Path) -> None:
    """Run a comparison with the sources of `tree`."""
    data = (ROOT / os.environ.get("KVGYM_DATA", "../shared/data")).resolve()
    environment = {**os.environ, "PYTHONPATH": str(tree), "KVGYM_DATA": str(data)}
    command = [sys.executable, "-m", "kvgym", "compare", comparison, "--seeds", str(seeds), "--out", str(out)]
    subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL)


def contents(folder: Path) -> dict[str, bytes]:
    """Return name -> bytes of the files of a comparison's folder that must be equal; of a run's facts its results."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in UNLIKE)
    return {IDENTITY.sub("", str(path.relative_to(folder))): results(path) for path in files}


def results(file: Path) -> bytes:
    """Return what is simulated of a file: all of it, but of a run's facts neither wall times nor configuration."""
    if file.parent.name != "records" or file.suffix != ".json":
        return file.read_bytes()
    facts = json.loads(file.read_bytes())
    return json.dumps({name: facts[name] for name in ("totals", "notes")}, sort_keys=True).encode()


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
