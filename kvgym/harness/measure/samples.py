"""Samples follow the workers' load over a run: at most 512, evenly spaced over its decisions."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kvgym.backends.base import Load
from kvgym.errors import ResultsError
from kvgym.records import write_parquet

MOST_SAMPLES = 512
_MOST_VALUES = 1 << 20  # samples x workers: a fleet of thousands gets fewer samples


class Samples(NamedTuple):
    """What a run's workers carried at `time_s`; n samples, simulated quantities only."""

    time_s: np.ndarray  # float64 (n,), ascending
    kv_use: np.ndarray  # float32 (n, workers): KV tokens held / KV tokens
    retractions: np.ndarray  # int64 (n, workers): requests pushed back to the queue so far


class LoadSampler:
    """Collects samples at every `stride`-th decision; when they become too many, every second one is dropped.

    Args:
        workers: size of the fleet.
    """

    def __init__(self, workers: int) -> None:
        self.stride = 1
        # Even, so that after dropping every second sample the next one is due; one place is kept for the last.
        self._most = max(2, (min(MOST_SAMPLES, _MOST_VALUES // workers) - 1) // 2 * 2)
        self._rows: list[tuple[float, Load]] = []

    def add(self, time_s: float, load: Load) -> None:
        """Take the sample of decision 0, `stride`, 2 `stride`, ..."""
        if len(self._rows) == self._most:
            self._rows = self._rows[::2]
            self.stride *= 2
        self._rows.append((time_s, load))

    def finish(self, time_s: float, load: Load) -> Samples:
        """Return all samples and a last one, taken when the run has ended at `time_s`."""
        times, loads = zip(*self._rows, (time_s, load), strict=True)
        kv_use = np.array([load.kv_use for load in loads], np.float32)
        return Samples(np.array(times), kv_use, np.array([load.retractions for load in loads], np.int64))


def write_samples(path: Path, samples: Samples) -> None:
    """Write `samples` to a Parquet file: a row per sample, a list with one value per worker in each other column.

    Raises:
        ResultsError: the file cannot be written.
    """
    columns: dict[str, pa.Array] = {"time_s": pa.array(samples.time_s)}
    for name in ("kv_use", "retractions"):
        values = getattr(samples, name)
        columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
    write_parquet(path, pa.table(columns))


def read_samples(path: Path) -> Samples:
    """Return the samples of a file made by `write_samples`.

    Raises:
        ResultsError: the file is damaged or holds something else.
    """
    try:
        table = pq.read_table(path)
        shape = table.num_rows, -1
        lists = (pc.list_flatten(table.column(name)).to_numpy().reshape(shape) for name in ("kv_use", "retractions"))
        return Samples(table.column("time_s").to_numpy(), *lists)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise ResultsError(f"cannot read load samples from {path}: {error}; delete it to do without them") from error
