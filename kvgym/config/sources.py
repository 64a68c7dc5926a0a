"""Source files of modules are found without importing anything: where they lie, what belongs to a package."""

from __future__ import annotations

import ast
import importlib.util
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path


def module_file(name: str) -> Path | None:
    """Return the source file of the module `name`, without importing it or the packages around it.

    None: there is no such module, or it has no Python source (a namespace package, a compiled module).
    """
    spec = _spec(name)
    origin = spec.origin if spec is not None else None
    return Path(origin) if origin is not None and origin.endswith(".py") and Path(origin).is_file() else None


def package_files(name: str) -> list[Path]:
    """Return the sources that may take part in what the module `name` does, sorted.

    All files of its top-level package; of a module that stands alone, itself and those of its neighbours that it
    imports, directly or not.
    """
    spec = _spec(name.partition(".")[0])
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return sorted(path for folder in spec.submodule_search_locations for path in Path(folder).rglob("*.py"))
    found: set[Path] = set()
    waiting = [Path(spec.origin)] if spec.origin is not None and spec.origin.endswith(".py") else []
    while waiting:
        file = waiting.pop()
        if file not in found and file.is_file():
            found.add(file)
            waiting += _neighbours(file)
    return sorted(found)


def parse(file: Path) -> ast.Module:
    """Return the syntax tree of a source file.

    Raises:
        SyntaxError, ValueError, OSError: it is not Python, or cannot be read.
    """
    return ast.parse(file.read_bytes(), str(file))


def imported_names(tree: ast.AST) -> list[str]:
    """Return the modules that `tree` names in absolute import statements, in order, repeated ones too."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return names


def _neighbours(file: Path) -> list[Path]:
    """Return the files beside `file` that it imports: modules, and all files of packages."""
    try:
        names = {name.partition(".")[0] for name in imported_names(parse(file))}
    except (SyntaxError, ValueError):
        return []
    found: list[Path] = []
    for name in names:
        found.append(file.parent / f"{name}.py")
        found += (file.parent / name).rglob("*.py")
    return found


def _spec(name: str) -> ModuleSpec | None:
    top, *parts = name.split(".")
    try:
        spec = importlib.util.find_spec(top)  # a name without a dot: nothing is imported
        for i in range(len(parts)):
            if spec is None or spec.submodule_search_locations is None:
                return None
            spec = PathFinder.find_spec(".".join([top, *parts[: i + 1]]), list(spec.submodule_search_locations))
    except (ImportError, ValueError):  # ValueError: an empty name, or a module without a spec, such as __main__
        return None
    return spec
