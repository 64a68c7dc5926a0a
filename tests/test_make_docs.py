"""The pages of docs/envs are those that the docstrings give."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from kvgym import ENVS


def test_pages__are_up_to_date(repo_root: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_docs", repo_root / "scripts" / "make_docs.py")
    assert spec is not None and spec.loader is not None
    make_docs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_docs)
    for env_id, path in ENVS.items():
        written = (repo_root / "docs" / "envs" / make_docs.file_name(env_id)).read_text(encoding="utf-8")
        assert written == make_docs.page(env_id, path), "run python scripts/make_docs.py"
