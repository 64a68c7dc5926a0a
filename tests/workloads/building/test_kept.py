from __future__ import annotations

from kvgym.workloads.building.kept import KeptSource
from kvgym.workloads.gsp import GSP


def test_kept__the_same_workload_once_per_seed_and_page_size():
    source = GSP(groups=2, prompts_per_group=2, lens=(32,))
    kept = KeptSource(source)
    first = kept.generate(3)
    assert kept.generate(3) is first
    assert (first.requests == source.generate(3).requests).all()
    assert kept.generate(4) is not first
    assert (kept.generate(3, 16).page_size, kept.generate(3).page_size) == (16, 1)
