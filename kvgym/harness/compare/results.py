"""Reads a comparison's folder back, also one from another machine or of a run that was interrupted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kvgym.errors import ResultsError, UnknownNameError, did_you_mean
from kvgym.harness.compare.cell import StoredCell
from kvgym.harness.compare.grid import CompareConfig, load_compare
from kvgym.harness.compare.store import MANIFEST, Store, read_manifest
from kvgym.harness.compare.summary import Summary, summarize_grid
from kvgym.harness.measure.samples import Samples


@dataclass(frozen=True)
class Results:
    """What a folder holds.

    Attributes:
        store: the folder's runs.
        manifest: what they are made from.
        config: the comparison.
        cells: its cells in the order of the tables.
        summary: numbers of the finished runs.
        missing: (labels, seed) of the runs that are not finished.
    """

    store: Store
    manifest: dict[str, Any]
    config: CompareConfig
    cells: list[StoredCell]
    summary: Summary
    missing: list[tuple[tuple[str, str, str, str], int]]

    @property
    def skipped(self) -> list[str]:
        """Messages on workloads that were left out."""
        return list(self.manifest["skipped"])


def read_results(folder: Path) -> Results:
    """Return the results in `folder`; neither the data nor the plug-ins that they were made with are needed.

    Raises:
        ResultsError: it is no folder of a comparison, a file is damaged, or no run has finished.
    """
    manifest, config, cells = _read_manifest(folder)
    store, seeds = Store(folder), config.seed_list
    missing = [(cell.labels, seed) for cell in cells for seed in seeds if not store.has(cell, seed)]
    if len(missing) == len(cells) * len(seeds):
        raise ResultsError(f"no run in {folder} has finished; run `kvgym compare` into it first")
    summary = summarize_grid(cells, seeds, config.baseline_pair.labels, store, config.warmup_s, config.slo)
    return Results(store, manifest, config, cells, summary, missing)


def find_run(folder: Path, name: str, seed: int) -> tuple[np.ndarray, Samples | None]:
    """Return (RECORD rows, load samples) of one finished run in `folder`.

    Args:
        folder: a comparison's folder.
        name: the cell's labels, as in ``gsp_small/l40x4/lbgr/rlt``.
        seed: the run's seed.

    Raises:
        ResultsError: the folder, the cell or the run is not there or damaged.
        UnknownNameError: no such cell.
    """
    _, _, cells = _read_manifest(folder)
    store, names = Store(folder), {"/".join(cell.labels): cell for cell in cells}
    if name not in names:
        hint = did_you_mean(name, names) or ";"
        raise UnknownNameError(f"{folder} has no cell {name!r}{hint} there are: {', '.join(names)}")
    if not store.has(names[name], seed):
        raise ResultsError(f"{folder} has no finished run of {name} with seed {seed}; see `kvgym report {folder}`")
    return store.load(names[name], seed)[0], store.load_samples(names[name], seed)


def _read_manifest(folder: Path) -> tuple[dict[str, Any], CompareConfig, list[StoredCell]]:
    manifest = read_manifest(folder)
    try:
        config = load_compare(manifest["config"])
        cells = [_cell(entry) for entry in manifest["cells"]]
        dict(manifest["versions"]), list(manifest["skipped"])
    except (KeyError, TypeError, ValueError) as error:
        raise ResultsError(f"{folder / MANIFEST} is damaged or of another release of kvgym: {error!r}") from error
    return manifest, config, cells


def _cell(entry: dict[str, Any]) -> StoredCell:
    workload, cluster, routing, eviction = map(str, entry["labels"])
    labels = (workload, cluster, routing, eviction)
    return StoredCell(
        labels, dict(entry["plain"]), dict(entry["published"]), str(entry["concentrates"]), bool(entry["oracle"])
    )
