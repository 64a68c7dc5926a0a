"""Generated shared prefixes, one request at a time: hit and evicted tokens of SGLang 0.5.23's RadixCache, exactly.

The figures were made with SGLang's own RadixCache under the life cycle of its scheduler (tests/differential); those of
lru also match a live server. Settings: lens 64, 128, 256, 512, 1024 dealt to the groups in turn, no shared literal, 32
prompts a group, prefix ratio .5, 4 output tokens, worst order, a pool of 24,500 tokens, shortfall.
"""

from __future__ import annotations

from typing import Any

import pytest

from kvgym.workloads.gsp import GSP

POOL_TOKENS = 24_500
SGLANG = {  # (policy, page, groups): (hit tokens, evicted tokens)
    ("lru", 1, 48): (280_704, 285_142),
    ("lru", 1, 60): (236_160, 506_956),
    ("lru", 1, 64): (0, 774_220),
    ("lru", 1, 72): (0, 877_702),
    ("lfu", 1, 48): (280_736, 285_110),
    ("lfu", 1, 60): (303_552, 439_564),
    ("lfu", 1, 64): (0, 774_220),
    ("lfu", 1, 72): (0, 877_702),
    ("slru", 1, 48): (280_736, 285_110),
    ("slru", 1, 60): (303_552, 439_564),
    ("slru", 1, 64): (0, 774_220),
    ("slru", 1, 72): (0, 877_702),
    ("fifo", 1, 60): (369_024, 374_092),
    ("mru", 1, 48): (283_712, 282_416),
    ("mru", 1, 60): (369_024, 374_112),
    ("mru", 1, 64): (369_024, 405_216),
    ("mru", 1, 72): (353_152, 524_550),
    ("filo", 1, 48): (283_712, 282_416),
    ("filo", 1, 60): (369_024, 374_092),
    ("filo", 1, 64): (369_024, 405_196),
    ("filo", 1, 72): (353_152, 524_550),
    ("priority", 1, 48): (280_896, 284_948),
    ("priority", 1, 60): (252_224, 491_069),
    ("priority", 1, 64): (0, 774_397),
    ("priority", 1, 72): (0, 877_879),
    ("lru", 16, 48): (280_736, 280_544),
    ("lru", 16, 60): (249_728, 487_808),
    ("lru", 16, 64): (0, 768_256),
    ("lru", 16, 72): (0, 870_976),
    ("slru", 16, 48): (280_736, 280_544),
    ("slru", 16, 60): (303_552, 433_984),
    ("slru", 16, 64): (0, 768_256),
    ("slru", 16, 72): (0, 870_976),
}


@pytest.mark.parametrize("setting", SGLANG, ids=lambda s: f"{s[0]}-page{s[1]}-{s[2]}groups")
def test_gsp__equals_sglang(run: Any, setting: tuple[str, int, int]) -> None:
    policy, page, groups = setting
    source = GSP(groups, lens=(64, 128, 256, 512, 1024), order="worst", rate_rps=None, clients=1, shared_literal=False)
    records, evicted = run(source.generate(1, page), policy, POOL_TOKENS)
    assert (int(records["hit_tokens"].sum()), evicted) == SGLANG[setting]
