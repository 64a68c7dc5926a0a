"""The source tells what ``module:attr`` promises and whether it can keep it, without importing anything."""

from __future__ import annotations

import ast
import importlib.util
import itertools

from kvgym.config.sources import imported_names, module_file, parse

_LITERALS = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.JoinedStr)


def module_sentence(path: str) -> str:
    """Return the first line of the docstring of the module in ``module:attr``; empty where there is none."""
    file = module_file(path.partition(":")[0])
    return "" if file is None else _sentence(parse(file))


def own_sentence(path: str) -> str:
    """Return the first sentence that ``module:attr`` has for itself, else the module's.

    That is the text under the assignment of a preset; a module that makes one thing speaks for it in its first line.
    """
    module, _, attribute = path.partition(":")
    file = module_file(module)
    tree = ast.Module([], []) if file is None else parse(file)
    for statement, following in itertools.pairwise(tree.body):
        text = following.value if isinstance(following, ast.Expr) else None
        if attribute in _bound(statement)[0] and isinstance(statement, ast.Assign) and isinstance(text, ast.Constant):
            return str(text.value).partition("\n\n")[0].replace("\n", " ").partition(". ")[0]
    return _sentence(tree)


def describe(path: str) -> str:
    """Return the module's sentence, or ``broken: why`` for what cannot work.

    Told without running foreign code, so not everything is: a module that is absent or no Python, imports at its top
    what is not installed, does not define the attribute, or makes it a plain number, text or list.
    """
    module, _, attributes = path.partition(":")
    if not module or not attributes:
        return f"broken: {path!r} is not of the form module:attr"
    if (file := module_file(module)) is None:
        return f"broken: no module {module!r}"
    try:
        tree = parse(file)
    except (SyntaxError, ValueError, OSError) as error:
        return f"broken: {' '.join(str(error).split())}"
    if absent := next((name for name in _top_imports(tree) if not _installed(name)), None):
        return f"broken: it imports {absent!r}, which is not installed"
    return _problem(tree, attributes.partition(".")[0]) or _sentence(tree)


def _sentence(tree: ast.Module) -> str:
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def _top_imports(tree: ast.Module) -> list[str]:
    """Return what is imported whenever the module is (not inside functions, ``try`` or ``if``), top-level names."""
    names = (name for statement in tree.body if _is_import(statement) for name in imported_names(statement))
    return [name.partition(".")[0] for name in names]


def _is_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Import | ast.ImportFrom)


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # a module that is there but has no spec
        return True


def _problem(tree: ast.Module, attribute: str) -> str:
    """Return why the module's `attribute` cannot be a plug-in; empty if nothing speaks against it."""
    for statement in reversed(tree.body):
        names, value = _bound(statement)
        if attribute in names:
            return f"broken: {attribute} is {ast.unparse(value)[:40]}" if isinstance(value, _LITERALS) else ""
    if any(_may_bind(node, attribute) for node in ast.walk(tree)):
        return ""
    return f"broken: the module does not define {attribute}"


def _may_bind(node: ast.AST, attribute: str) -> bool:
    """Say whether `node`, in whatever block it stands, may give the module its `attribute`."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name in (attribute, "__getattr__")
    if isinstance(node, ast.alias):
        return node.name == "*" or attribute in (node.asname, node.name)
    return isinstance(node, ast.Name) and node.id == attribute and isinstance(node.ctx, ast.Store)


def _bound(statement: ast.stmt) -> tuple[list[str], ast.expr | None]:
    """Return the names that a statement binds, and what to."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name], None
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).partition(".")[0] for alias in statement.names], None
    if isinstance(statement, ast.Assign):
        names = [node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)]
        return names, statement.value
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return [statement.target.id], statement.value
    return [], None
