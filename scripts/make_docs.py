"""Writes the pages made from docstrings: docs/map.md, a page per environment, and one per family of plug-ins.

    python scripts/make_docs.py

tests/test_make_docs.py says when a page is older than the docstrings.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

from kvgym import ENVS
from kvgym.config.names import TABLES, table
from kvgym.config.sources import module_file

ROOT = Path(__file__).resolve().parent.parent
MAP_HEAD = """# Map

Made by `scripts/make_docs.py`: every module of `kvgym/` and `controllers/` with the first line of its docstring.

"""


def sentence(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def tree(folder: Path, depth: int = 0) -> Iterator[str]:
    """Yield a line per module: those of a package before its sub-packages."""

    def line(name: str, level: int, path: Path) -> str:
        return f"{'  ' * level}{name:<{24 - 2 * level}} {sentence(path)}".rstrip()

    yield line(f"{folder.name}/", depth, folder / "__init__.py")
    modules = (path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py")
    yield from (line(path.name, depth + 1, path) for path in modules)
    for path in sorted(folder.iterdir()):
        if (path / "__init__.py").exists():
            yield from tree(path, depth + 1)


def module_map() -> str:
    """Return the page of all modules."""
    lines = [line for name in ("kvgym", "controllers") for line in tree(ROOT / name)]
    return MAP_HEAD + "```text\n" + "\n".join(lines) + "\n```\n"


def env_page(env_id: str, path: str) -> str:
    """Return the Markdown page of one environment; `path` is its ``module:Class``."""
    module, _, name = path.partition(":")
    text = inspect.getdoc(getattr(importlib.import_module(module), name)) or ""
    return f"# {env_id}\n\nMade by `scripts/make_docs.py` from the docstring of `{path}`.\n\n{text.rstrip()}\n"


def family_page(family: str) -> str:
    """Return the page of all plug-ins of a family: the docstring of the family, then of each class or module."""
    registry = table(family)
    package = importlib.import_module(TABLES[family].partition(":")[0])
    title, _, rest = (inspect.getdoc(package) or "").partition("\n")
    parts = [f"# {family.capitalize()}", f"Made by `scripts/make_docs.py` from docstrings. {title}", rest.strip()]
    for name, path in sorted(registry.items()):
        module, _, attribute = path.partition(":")
        text = described(module, attribute)
        parts += [f"## {name}", f"`{module}`", text]
    return "\n\n".join(part for part in parts if part) + "\n"


def described(module: str, attribute: str) -> str:
    """Return the docstrings of the module and of the class or function that a name stands for, as preformatted text."""
    source = ast.parse(module_file(module).read_text(encoding="utf-8"))
    texts = [ast.get_docstring(source) or ""]
    for node in source.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == attribute.partition(".")[0]:
            texts.append(ast.get_docstring(node) or "")
    shown = [text for text in texts if text]
    return "```text\n" + "\n\n".join(shown) + "\n```"


def pages() -> dict[str, str]:
    """Return file below docs/ -> its text."""
    made = {"map.md": module_map()} | {
        f"reference/{family.replace(' ', '_')}.md": family_page(family) for family in TABLES
    }
    for env_id, path in ENVS.items():
        made[f"envs/{env_id.rpartition('/')[2].replace('-', '_').lower()}.md"] = env_page(env_id, path)
    return made


def main() -> None:
    """Write every page."""
    for name, text in pages().items():
        file = ROOT / "docs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
