"""Writes one page per environment, docs/envs/*.md, from the docstring of its class.

    python scripts/make_docs.py

tests/test_make_docs.py says when a page is older than its docstring.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

from kvgym import ENVS

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "envs"


def page(env_id: str, path: str) -> str:
    """Return the Markdown page of one environment; `path` is its ``module:Class``."""
    module, _, name = path.partition(":")
    text = inspect.getdoc(getattr(importlib.import_module(module), name)) or ""
    return f"# {env_id}\n\nMade by `scripts/make_docs.py` from the docstring of `{path}`.\n\n{text.rstrip()}\n"


def file_name(env_id: str) -> str:
    """Return the page's file name, as routing_v0.md for kvgym/Routing-v0."""
    return env_id.rpartition("/")[2].replace("-", "_").lower() + ".md"


def main() -> None:
    """Write every page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for env_id, path in ENVS.items():
        (FOLDER / file_name(env_id)).write_text(page(env_id, path), encoding="utf-8")


if __name__ == "__main__":
    main()
