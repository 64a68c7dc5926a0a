"""The output folder of a comparison: who owns it, finished runs on disk, files that appear whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from kvgym.errors import ResultsError
from kvgym.harness.grid import Cell
from kvgym.records import read_records, write_records

MANIFEST = "manifest.json"


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` through a temporary file, so that a reader never sees half of it.

    Raises:
        ResultsError: the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def to_json(value: Any) -> str:
    """Return indented JSON with a final newline; the same value gives the same bytes. numpy's numbers are allowed."""
    return json.dumps(value, indent=2, allow_nan=False, default=lambda item: item.tolist()) + "\n"


class Store:
    """Finished runs under one folder: ``records/<cell>-s<seed>.parquet`` and ``.json`` beside it.

    A run counts as finished when its JSON exists; that is written last.

    Args:
        folder: the output folder; made if absent.
        manifest: what the results are made from (`make_manifest`), written to the folder. A folder whose manifest has
            the same ``identity`` is continued: that leaves the seeds out, so more of them may join later.

    Raises:
        ResultsError: the folder cannot be written, or belongs to something else.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.records = folder / "records"
        self._claim(manifest["identity"])
        try:
            write_text(folder / MANIFEST, to_json(manifest))
        except ResultsError:
            self.discard_if_unused()
            raise

    def _claim(self, identity: str) -> None:
        manifest = self.folder / MANIFEST
        try:
            if manifest.exists():
                found = json.loads(manifest.read_text(encoding="utf-8")).get("identity")
                if found != identity:
                    raise ResultsError(
                        f"{self.folder} holds results of another run (identity {found}, this run is {identity}: other "
                        "configuration, code or data); choose another --out or delete the folder"
                    )
            elif self.folder.exists() and any(self.folder.iterdir()):
                raise ResultsError(f"{self.folder} is not empty and holds no {MANIFEST} of kvgym; choose another --out")
            self.records.mkdir(parents=True, exist_ok=True)
        except (ValueError, AttributeError) as error:
            raise ResultsError(f"{manifest} is damaged ({error}); delete the folder or choose another --out") from error
        except OSError as error:
            raise ResultsError(
                f"cannot write to {self.folder}: {error.strerror or error}; choose another --out"
            ) from error

    def _paths(self, cell: Cell, seed: int) -> tuple[Path, Path]:
        stem = cell.file_stem(seed)
        return self.records / f"{stem}.parquet", self.records / f"{stem}.json"

    def has(self, cell: Cell, seed: int) -> bool:
        """Return whether the run is finished (its files are checked by `load`)."""
        return self._paths(cell, seed)[1].exists()

    def discard_if_unused(self) -> None:
        """Remove the folder if no run of it is finished: what failed at once leaves nothing behind."""
        if not any(self.records.glob("*.json")):
            shutil.rmtree(self.folder, ignore_errors=True)

    def save(self, cell: Cell, seed: int, records: np.ndarray, facts: dict[str, Any]) -> None:
        """Write a finished run: its records, then `facts` (plain data) as the mark that it is finished.

        Raises:
            ResultsError: the folder cannot be written.
        """
        parquet, mark = self._paths(cell, seed)
        write_records(parquet, records)
        digest = hashlib.sha256(parquet.read_bytes()).hexdigest()
        write_text(mark, to_json({"cell": cell.plain, "seed": seed, "records_sha256": digest, **facts}))

    def load(self, cell: Cell, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
        """Return (records, facts) of a finished run.

        Raises:
            ResultsError: a file is damaged or belongs to another run.
        """
        parquet, mark = self._paths(cell, seed)
        try:
            facts = json.loads(mark.read_text(encoding="utf-8"))
            expected = facts["records_sha256"]
            digest = hashlib.sha256(parquet.read_bytes()).hexdigest()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResultsError(f"{mark} is damaged ({error}); delete it to run this cell again") from error
        if digest != expected:
            raise ResultsError(
                f"{parquet} is not the file that {mark.name} describes; delete both to run this cell again"
            )
        if facts.get("cell") != json.loads(json.dumps(cell.plain)) or facts.get("seed") != seed:
            raise ResultsError(f"{mark} describes another run; choose another --out or delete the folder")
        for name in ("totals", "notes", "timing"):
            if not isinstance(facts.get(name), dict):
                raise ResultsError(f"{mark} is damaged (no map {name!r}); delete it to run this cell again")
        return read_records(parquet), facts
