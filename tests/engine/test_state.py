"""Record layouts of the episode."""

from __future__ import annotations

import numpy as np
import pytest

from kvgym import types
from kvgym.engine import state

LAYOUTS = {
    name: value for module in (types, state) for name, value in vars(module).items() if isinstance(value, np.dtype)
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout__fields_can_be_attributes(name: str) -> None:
    """Without the JIT a row is an np.record, whose own methods would hide a field of the same name."""
    assert [field for field in LAYOUTS[name].names or () if hasattr(np.record, field)] == []


def test_table__is_at_most_half_full() -> None:
    for slots in (1, 5, 16, 17, 1000, 1024, 1025):
        size = state.table_size(slots)
        assert size >= 2 * slots and size & (size - 1) == 0
