"""What `scripts/prove_plugins.py` adds is one file, one line in a name table, and one test."""

from __future__ import annotations

import ast
import runpy
import shutil
from pathlib import Path

import pytest


@pytest.mark.parametrize("which", range(4))
def test_add__a_file_a_line_and_a_test(which: int, tmp_path: Path, repo_root: Path) -> None:
    script = runpy.run_path(str(repo_root / "scripts" / "prove_plugins.py"))
    plugin = script["PLUGINS"][which]
    for name in (plugin.file, plugin.registry, plugin.test):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(repo_root / plugin.registry, tmp_path / plugin.registry)
    script["add"](plugin, tmp_path)
    before, after = ((root / plugin.registry).read_text().splitlines() for root in (repo_root, tmp_path))
    assert [line.strip() for line in after if line not in before] == [plugin.line] and len(after) == len(before) + 1
    for name in (plugin.file, plugin.registry, plugin.test):
        assert ast.get_docstring(ast.parse((tmp_path / name).read_text()))
