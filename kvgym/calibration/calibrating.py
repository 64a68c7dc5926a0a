"""Makes a fit of observations and files of a fit, for `kvgym calibrate` and `kvgym profile`."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kvgym.calibration.fit_report import extrapolated, write_cluster, write_picture
from kvgym.calibration.fitting import Fit, fit
from kvgym.calibration.observations import FIRST_TOKEN, read_observations, write_observations
from kvgym.config.cluster import ClusterConfig
from kvgym.config.loader import load_config
from kvgym.config.options import build
from kvgym.errors import ConfigError

_ENGINE = "sglang-0.5.23"
_LIMITS = {
    "page_size": "page_size",
    "chunk_tokens": "chunked_prefill_size",
    "max_prefill_tokens": "max_prefill_tokens",
    "max_running": "max_running_requests",
}
"""Field of a cluster -> what a server's /server_info calls it."""


@dataclass(frozen=True)
class Calibrated:
    """A fit with what it was made of and where it was written."""

    fit: Fit
    rows: np.ndarray
    notes: list[str]
    files: list[Path]


def calibrate(paths: Sequence[Path], cluster: str, where: Sequence[str], out: Path) -> Calibrated:
    """Fit the files' observations and write `out`: the cluster (preset or path) with the fitted cost.

    Raises:
        ConfigError: a file can't be used, or the cluster is wrong.
    """
    _check_scipy()
    wanted = dict(_pair(text) for text in where)
    found = [read_observations(path, wanted) for path in paths]
    rows = np.concatenate([each for each, _ in found])
    notes = [f"{path.name}: {note}" for path, (_, sentences) in zip(paths, found, strict=True) for note in sentences]
    return _finish(rows, notes, load_config("clusters", cluster), ", ".join(path.name for path in paths), out)


def profile(
    url: str, out: Path, key_variable: str, vocab_size: int, repeats: int, told: Callable[[str], None]
) -> Calibrated:
    """Measure the server at `url`, fit, and write `out`: a cluster of it, with its own capacity and limits.

    Raises:
        BackendError: the server can't be reached or refuses.
        ConfigError: the API key's variable is not set.
    """
    _check_scipy()
    from kvgym.calibration.probing import probe

    if key_variable and key_variable not in os.environ:
        raise ConfigError(f"the environment has no {key_variable}; set it to the server's API key")
    rows, server = probe(url, os.environ.get(key_variable, ""), vocab_size, repeats, told=told)
    observed = out.with_suffix(".observed.jsonl")
    write_observations(observed, rows)
    info = server.info
    cluster: dict[str, Any] = {"workers": 1, "capacity_tokens": server.capacity_tokens, "engine": _ENGINE}
    for ours, theirs in _LIMITS.items():
        value = info.get(theirs)
        if isinstance(value, int) and value > 0:
            cluster[ours] = value
    cluster["live"] = {"urls": [url], **({"api_key_variable": key_variable} if key_variable else {}),
                       **({"vocab_size": vocab_size} if vocab_size else {})}  # fmt: skip
    done = _finish(rows, [], cluster, f"the server at {url}, SGLang {server.version}", out)
    return Calibrated(done.fit, rows, done.notes, [*done.files, observed])


def _finish(rows: np.ndarray, notes: list[str], cluster: Mapping[str, Any], source: str, out: Path) -> Calibrated:
    found = fit(rows)
    build(ClusterConfig, dict(cluster), "cluster")
    files = write_cluster(out, cluster, found, source)
    files.append(write_picture(out.with_suffix(".svg"), found, rows))
    if not (rows["phase"] == FIRST_TOKEN).any():
        notes = [*notes, "no client's times among them: request_ms is 0; set request_overhead_s if HTTP takes time"]
    return Calibrated(found, rows, [*notes, *extrapolated(found, cluster)], files)


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise ConfigError(f"--where must be COLUMN=VALUE, as in system=l40s, got {text!r}")
    return name, value


def _check_scipy() -> None:
    if importlib.util.find_spec("scipy") is None:
        raise ConfigError("fitting needs scipy, which is not installed: pip install 'kvgym[calibrate]'")
