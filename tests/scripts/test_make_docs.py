"""The pages made from docstrings are those that the docstrings give."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def make_docs(repo_root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_docs", repo_root / "scripts" / "make_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages__are_up_to_date(make_docs: ModuleType, repo_root: Path) -> None:
    for name, text in make_docs.pages().items():
        assert (repo_root / "docs" / name).read_text(encoding="utf-8") == text, "run python scripts/make_docs.py"


def test_modules__each_has_a_one_sentence_first_line(make_docs: ModuleType, repo_root: Path) -> None:
    for path in (*(repo_root / "kvgym").rglob("*.py"), *(repo_root / "controllers").rglob("*.py")):
        line = make_docs.sentence(path)
        assert line.endswith("."), f"{path}: the first docstring line must be one sentence, got {line!r}"
        assert line.split()[0] not in ("How", "What", "When", "Where", "Whether", "Who"), (
            f"{path}: give {line!r} a verb"
        )
