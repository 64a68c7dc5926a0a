"""The README's tree lists every module with the first line of its docstring."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINE = re.compile(r"^(?P<indent> *)(?P<name>[\w.]+(?:/|\.py))(?: +(?P<sentence>\S.*))?$")


def expected_tree() -> list[str]:
    """Return the tree as the README must show it."""
    lines: list[str] = []
    for package in ("kvgym", "controllers"):
        _list_folder(ROOT / package, 0, lines)
    return lines


def _list_folder(folder: Path, depth: int, lines: list[str]) -> None:
    lines.append(_line(f"{folder.name}/", depth, _sentence(folder / "__init__.py")))
    for path in sorted(folder.glob("*.py")):
        if path.name != "__init__.py":
            lines.append(_line(path.name, depth + 1, _sentence(path)))
    for path in sorted(folder.iterdir()):
        if (path / "__init__.py").exists():
            _list_folder(path, depth + 1, lines)


def _line(name: str, depth: int, sentence: str) -> str:
    return f"{'  ' * depth}{name:<{24 - 2 * depth}} {sentence}".rstrip()


def _sentence(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]


def test_tree__equals_the_modules_first_lines():
    text = (ROOT / "README.md").read_text()
    shown = [line for line in text.partition("```tree\n")[2].partition("\n```")[0].splitlines() if LINE.match(line)]
    expected = expected_tree()
    missing = [line for line in expected if line not in shown]
    extra = [line for line in shown if line not in expected]
    assert (missing, extra) == ([], []), "README's tree must be:\n" + "\n".join(expected)
    assert shown == expected


def test_modules__each_has_a_one_sentence_first_line():
    for path in (*(ROOT / "kvgym").rglob("*.py"), *(ROOT / "controllers").rglob("*.py")):
        sentence = _sentence(path)
        assert sentence.endswith("."), f"{path}: the first docstring line must be one sentence, got {sentence!r}"
