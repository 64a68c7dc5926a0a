"""A small comparison for several test files."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def grid() -> dict[str, Any]:
    """Two routers x two eviction policies on two workers, two seeds; not to be changed."""
    return {
        "name": "tiny",
        "workloads": [
            {"use": {"source": "gsp", "groups": 8, "prompts_per_group": 4, "lens": [64, 128]}, "name": "gsp"}
        ],
        "clusters": [{"use": {"workers": 2, "capacity_tokens": 1000}, "name": "two"}],
        "routing": ["round_robin", "random"],
        "eviction": ["lru", "rlt"],
        "seeds": 2,
    }
