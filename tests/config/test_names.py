from __future__ import annotations

import pytest

from kvgym.config.names import TABLES, table


@pytest.mark.parametrize("family", TABLES)
def test_table__every_name_loads(family):
    names = table(family)
    assert len(names) > 0
    assert all(names.load(name) is not None for name in names)
