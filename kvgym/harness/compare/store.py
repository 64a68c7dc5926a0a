"""A store owns the output folder of a comparison: finished runs, files that appear whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from kvgym.errors import KVGymError, ResultsError
from kvgym.harness.compare.cell import Cell, StoredCell
from kvgym.harness.measure.samples import Samples, read_samples, write_samples
from kvgym.records import read_records, replacing, write_records

MANIFEST, LOCK, OWNER = "manifest.json", ".lock", ".owner"
AnyCell = Cell | StoredCell


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader never sees half of it.

    Raises:
        ResultsError: the file cannot be written.
    """
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def to_json(value: Any) -> str:
    """Return indented JSON with a final newline; the same value gives the same bytes. numpy's numbers are allowed."""
    return json.dumps(value, indent=2, allow_nan=False, default=lambda item: item.tolist()) + "\n"


class Store:
    """Finished runs under one folder, three files each, ``STEM`` naming cell and seed.

    ``records/STEM.parquet`` (requests), ``samples/STEM.parquet`` (load of the workers) and ``records/STEM.json``: a run
    counts as finished when the last exists; that is written last.

    Args:
        folder: the output folder. Whoever writes to it takes it with `claim` first.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = folder / "records"
        self.samples = folder / "samples"

    @classmethod
    @contextmanager
    def claim(cls, folder: Path, manifest: dict[str, Any]) -> Iterator[Store]:
        """Take `folder` for this process and yield its store; nobody else can until the end.

        A folder whose manifest has the same ``identity`` is continued: that leaves the seeds out, so more of them may
        join later. Whatever a killed process has left unfinished is removed.

        Args:
            folder: the output folder; made if absent.
            manifest: what the results are made from (`make_manifest`), written to the folder.

        Raises:
            ResultsError: the folder cannot be written, belongs to something else or is in use.
        """
        store, known = cls(folder), folder.exists()
        _check_owner(folder, manifest["identity"])
        with _locked(folder):
            _check_owner(folder, manifest["identity"])  # who held the lock until now may have begun something else
            try:
                # First of all: a folder with a manifest is known as ours, however early this process is killed.
                write_text(folder / MANIFEST, to_json(manifest))
                store._make_room()
                yield store
            except KVGymError:
                if not any(store.records.glob("*.json")):  # what fails at once leaves nothing behind
                    store._undo(keep=known)
                raise

    def _undo(self, keep: bool) -> None:
        """Remove what `claim` has made, and nothing else; the folder itself stays with `keep`, or if it holds more."""
        for part in (self.records, self.samples):
            shutil.rmtree(part, ignore_errors=True)
        for name in (MANIFEST, OWNER, LOCK):
            with suppress(OSError):
                (self.folder / name).unlink()
        if not keep:
            with suppress(OSError):
                self.folder.rmdir()

    def _make_room(self) -> None:
        try:
            for part in (self.records, self.samples):
                part.mkdir(exist_ok=True)
            for rest in [*self.folder.glob(".*.tmp"), *self.folder.glob("*/.*.tmp")]:
                rest.unlink(missing_ok=True)
        except OSError as error:
            raise ResultsError(_cannot_write(self.folder, error)) from error

    def _paths(self, cell: AnyCell, seed: int) -> tuple[Path, Path, Path]:
        stem = file_stem(cell.labels, cell.plain, seed)
        return self.records / f"{stem}.parquet", self.samples / f"{stem}.parquet", self.records / f"{stem}.json"

    def has(self, cell: AnyCell, seed: int) -> bool:
        """Return whether the run is finished (its files are checked by `load`)."""
        return self._paths(cell, seed)[-1].exists()

    def journal(self, cell: AnyCell, seed: int) -> Path:
        """Return the file for requests of a live run as they end, emptied of an earlier, unfinished run."""
        path = self._paths(cell, seed)[-1].with_suffix(".jsonl")
        write_text(path, "")
        return path

    def save(self, cell: AnyCell, seed: int, records: np.ndarray, samples: Samples, facts: dict[str, Any]) -> None:
        """Write a finished run: its records and samples, then `facts` (plain data) as the mark that it is finished.

        Raises:
            ResultsError: the folder cannot be written.
        """
        parquet, sampled, mark = self._paths(cell, seed)
        write_records(parquet, records)
        write_samples(sampled, samples)
        digest = hashlib.sha256(parquet.read_bytes()).hexdigest()
        write_text(mark, to_json({"cell": cell.plain, "seed": seed, "records_sha256": digest, **facts}))

    def load(self, cell: AnyCell, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
        """Return (records, facts) of a finished run.

        Raises:
            ResultsError: a file is damaged or belongs to another run.
        """
        parquet, _, mark = self._paths(cell, seed)
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
        if missing := [name for name in ("wall_s", "decisions", "decision_s") if name not in facts["timing"]]:
            raise ResultsError(f"{mark} is damaged (no {missing[0]} in 'timing'); delete it to run this cell again")
        return read_records(parquet), facts

    def load_samples(self, cell: AnyCell, seed: int) -> Samples | None:
        """Return the load samples of a finished run; None if their file is absent.

        Raises:
            ResultsError: the file is damaged.
        """
        path = self._paths(cell, seed)[1]
        return read_samples(path) if path.exists() else None


def file_stem(labels: Sequence[str], plain: Mapping[str, Any], seed: int) -> str:
    """Return the name, without suffix, of the files of the cell with these `labels` and this `plain` for `seed`."""
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", "-".join(labels))[:150] + f"-{digest}-s{seed}"  # names end at 255 bytes


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a comparison's folder.

    Raises:
        ResultsError: there is none, or it is damaged.
    """
    manifest = folder / MANIFEST
    if not manifest.is_file():
        what = f"holds no {MANIFEST}" if folder.is_dir() else "is no folder"
        raise ResultsError(f"{folder} {what}; give the output folder of a `kvgym compare`")
    try:
        found = json.loads(manifest.read_text(encoding="utf-8"))
        found["identity"] + ""
        return found
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"{manifest} is damaged ({error}); delete the folder, or choose another --out") from error


def _check_owner(folder: Path, identity: str) -> None:
    try:
        if (folder / MANIFEST).exists():
            found = read_manifest(folder)["identity"]
            if found != identity:
                raise ResultsError(
                    f"{folder} holds results of another run (identity {found}, this run is {identity}: other "
                    "configuration, code or data); choose another --out or delete the folder"
                )
        elif folder.exists() and any(not path.name.startswith(".") for path in folder.iterdir()):
            raise ResultsError(f"{folder} is not empty and holds no {MANIFEST} of kvgym; choose another --out")
    except OSError as error:
        raise ResultsError(_cannot_write(folder, error)) from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder`, which the system takes back from a process that dies, however it dies."""
    lock, owner = FileLock(folder / LOCK), folder / OWNER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise ResultsError(f"{_owner(owner)} is writing to {folder}; wait for it or choose another --out") from error
    except OSError as error:
        raise ResultsError(_cannot_write(folder, error)) from error
    try:
        with suppress(OSError):  # on a full disk the lock holds as well without a name
            owner.write_text(f"process {os.getpid()} on {platform.node()}", encoding="utf-8")
        yield
    finally:
        with suppress(OSError):
            owner.unlink()
        lock.release()


def _owner(file: Path) -> str:
    """Return who holds the lock, as far as it has said."""
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text(encoding="utf-8") or "another process"
    return "another process"


def _cannot_write(folder: Path, error: OSError) -> str:
    return f"cannot write to {folder}: {error.strerror or error}; choose another --out"
