from __future__ import annotations

import numpy as np
import pytest

from kvgym.backends.base import Load
from kvgym.errors import ResultsError
from kvgym.harness.measure.samples import MOST_SAMPLES, LoadSampler, Samples, read_samples, write_samples


def sample(decisions: int, workers: int = 2) -> Samples:
    sampler = LoadSampler(workers)
    for i in range(decisions):
        if i % sampler.stride == 0:
            sampler.add(float(i), Load(np.full(workers, i / decisions), np.full(workers, i)))
    return sampler.finish(float(decisions), Load(np.zeros(workers), np.full(workers, decisions)))


@pytest.mark.parametrize("decisions", [1, 7, MOST_SAMPLES - 1, MOST_SAMPLES, 1000, 100_000])
def test_sampler__keeps_an_even_selection_and_the_end(decisions):
    samples = sample(decisions)
    gaps = np.diff(samples.time_s)
    assert len(samples.time_s) <= MOST_SAMPLES
    assert samples.time_s[0] == 0 and samples.time_s[-1] == decisions
    assert len(set(gaps[:-1])) <= 1 and (gaps > 0).all()
    if decisions >= MOST_SAMPLES:
        assert len(samples.time_s) >= MOST_SAMPLES // 2
    assert samples.retractions[:, 1].tolist() == samples.time_s.tolist()


def test_sampler__large_fleets_get_fewer_samples():
    assert len(sample(200, workers=20_000).time_s) * 20_000 <= 1.1 * 2**20


def test_samples__round_trip(tmp_path):
    samples = sample(50, workers=3)
    write_samples(tmp_path / "s.parquet", samples)
    again = read_samples(tmp_path / "s.parquet")
    for before, after in zip(samples, again, strict=True):
        assert (before.dtype, before.tolist()) == (after.dtype, after.tolist())


@pytest.mark.parametrize("content", [b"", b"PAR1"])
def test_samples__a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "s.parquet"
    path.write_bytes(content)
    with pytest.raises(ResultsError, match=r"s\.parquet.*delete it to do without"):
        read_samples(path)


def test_samples__request_records_are_not_samples(tmp_path):
    from kvgym.records import write_records
    from kvgym.types import RECORD

    write_records(tmp_path / "s.parquet", np.zeros(3, RECORD))
    with pytest.raises(ResultsError, match=r"s\.parquet.*delete it to do without"):
        read_samples(tmp_path / "s.parquet")
