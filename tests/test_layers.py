"""Imports go one way, between the rooms and inside them, and the rooms stay small enough to look around in."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvgym import ENVS
from kvgym.config.names import TABLES, table

ROOT = Path(__file__).resolve().parent.parent
LAYERS = (
    ("kvgym", "kvgym.errors", "kvgym.seeding", "kvgym.interrupts"),
    ("kvgym.jit",),
    ("kvgym.forest",),
    ("kvgym.types",),
    ("kvgym.config",),
    ("kvgym.records", "kvgym.encoding"),
    ("kvgym.control",),
    ("kvgym.logs",),
    ("kvgym.workloads",),
    ("kvgym.costs", "kvgym.knowledge"),
    ("kvgym.engine.state", "kvgym.engine.pages", "kvgym.engine.rng"),
    ("kvgym.engine.cache",),
    ("kvgym.engine.serving",),
    ("kvgym.engine.entry",),
    ("kvgym.engine",),
    ("kvgym.backends",),
    ("kvgym.envs",),
    ("kvgym.harness.measure", "kvgym.harness"),
    ("kvgym.harness.compare",),
    ("kvgym.harness.report",),
    ("kvgym.harness.tools",),
    ("kvgym.theory", "kvgym.validation", "kvgym.experiments", "kvgym.calibration"),
    ("kvgym.training", "kvgym.proxy"),
    ("kvgym.cli", "kvgym.__main__"),
)
"""From the ground up: a module may import from its own row and from those above it; the longest prefix counts."""
RANK = {prefix: rank for rank, row in enumerate(LAYERS) for prefix in row}
FOR_CONTROLLERS = tuple(
    f"kvgym.{name}"
    for name in (
        "errors",
        "seeding",
        "jit",
        "forest",
        "types",
        "config",
        "encoding",
        "control",
        "knowledge",
        "engine.cache",
        "engine.state",
        "engine.pages",
        "engine.rng",
        "engine.future",
    )
)
"""What controllers see: decisions, what routers know, and the engine's policy API, never who runs them."""
MOST_MODULES, MOST_LOOSE = 16, 8
OPTIONAL = {"PIL", "aiohttp", "pettingzoo", "psutil", "ray", "sb3_contrib", "sglang", "stable_baselines3"}
OPTIONAL |= {"jinja2", "optuna", "prometheus_client", "scipy", "tensorboard", "tokenizers", "torch", "uvloop"}
INSIDE_SGLANG = {"kvgym.backends.sglang.policy_cache"}
"""Imported by an SGLang server only, where sglang is at hand."""
MADE_OF_OPTIONAL = {"controllers.learned.set_policy", "controllers.learned.group_buffer", "kvgym.envs.aec"}
MADE_OF_OPTIONAL |= {"kvgym.envs.parallel", "kvgym.envs.joint_v0"}
MADE_OF_OPTIONAL |= {"controllers.learned.candidate_policy", "kvgym.proxy.app", "kvgym.proxy.service"}
"""Made of torch, SB3, PettingZoo or aiohttp all through; nobody else imports them at module level."""
FILES = sorted(path for package in ("kvgym", "controllers") for path in (ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def rank_of(module: str) -> int | None:
    """Return the row of `LAYERS` that holds a module of kvgym; None for all others."""
    if module.partition(".")[0] != "kvgym":
        return None
    parts = module.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next(RANK[prefix] for prefix in prefixes if prefix in RANK)


def is_module(name: str) -> bool:
    place = ROOT / name.replace(".", "/")
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def runtime_imports(tree: ast.AST) -> Iterator[tuple[str, int, bool]]:
    """Yield (module, line, is it at module level) of imports that run; those under TYPE_CHECKING do not."""
    stack: list[tuple[ast.AST, bool]] = [(tree, True)]
    while stack:
        node, top = stack.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            stack.extend((child, top) for child in node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, top) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            whole = (f"{node.module}.{alias.name}" for alias in node.names)
            modules = {name if is_module(name) else node.module or "" for name in whole}
            yield from ((module, node.lineno, top) for module in modules)
        inside = top and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        stack.extend((child, inside) for child in ast.iter_child_nodes(node))


def broken_rules(module: str, tree: ast.AST) -> list[str]:
    rank = rank_of(module)
    problems = []
    for name, line, top in runtime_imports(tree):
        target = rank_of(name)
        if rank is None and target is not None:
            if not any(name == allowed or name.startswith(f"{allowed}.") for allowed in FOR_CONTROLLERS):
                problems.append(f"line {line}: controllers must not import {name}")
        elif rank is not None and (target or 0) > rank:
            problems.append(f"line {line}: {module} must not import {name}, which lies above it")
        elif rank is not None and name.partition(".")[0] == "controllers":
            problems.append(f"line {line}: kvgym finds controllers by name only, it must not import {name}")
        if name.partition(".")[0] in ("numba", "llvmlite") and not module.startswith("kvgym.jit."):
            problems.append(f"line {line}: only kvgym.jit knows numba; {module} must not import {name}")
        optional = name.partition(".")[0] in OPTIONAL or name in MADE_OF_OPTIONAL
        if top and optional and module not in INSIDE_SGLANG | MADE_OF_OPTIONAL:
            problems.append(f"line {line}: {name} is optional; import it where it is used")
    return problems


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports__go_one_way(path):
    assert broken_rules(module_name(path), ast.parse(path.read_text())) == []


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("kvgym.engine.cache.radix", "from kvgym.backends import simulated"),
        ("kvgym.workloads.gsp", "def f():\n    import kvgym.engine.engine"),
        ("kvgym.config.loader", "from kvgym import workloads"),
        ("kvgym.harness.compare.run", "import controllers.routing"),
        ("controllers.routing.lbgr", "from kvgym.envs.routing import RoutingEnv"),
        ("kvgym.engine.engine", "from numba import types"),
        ("controllers.eviction.lru", "import numba"),
        ("controllers.learned.model", "import torch"),
        ("controllers.learned.model", "from controllers.learned.set_policy import SetPolicy"),
    ],
)
def test_rules__catch_a_wrong_import(module, code):
    assert len(broken_rules(module, ast.parse(code))) >= 1


def test_rules__leave_type_checking_and_local_optional_imports_alone():
    code = "if TYPE_CHECKING:\n    from kvgym.envs import routing\ndef f():\n    import torch"
    assert broken_rules("controllers.learned.model", ast.parse(code)) == []


def imported_modules(tree: ast.AST) -> set[str]:
    """Return the modules that a source file names in imports, those for type checking and inside functions included."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if is_module(name) else str(node.module) for name in whole}
    return found


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other: each can be reached from all others of its group."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = graph.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        return seen

    reached = {name: reach(name) for name in graph}
    groups = {frozenset(other for other in reached[name] if name in reached.get(other, ())) for name in graph}
    return sorted(sorted(group) for group in groups if group)


def test_imports__form_no_circle():
    graph = {module_name(path): imported_modules(ast.parse(path.read_text())) for path in FILES}
    assert circles(graph) == []


def test_circles__are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def named_in_tables() -> set[str]:
    """Return the modules of plug-ins: those that a name table names."""
    return {attr.partition(":")[0] for name in TABLES for _, attr in table(name).items()}


def test_folders__have_at_most_16_modules_beside_plug_ins_and_the_top_8():
    plugins = named_in_tables()
    modules = [path for path in FILES if path.name != "__init__.py" and module_name(path) not in plugins]
    counts = {folder: sum(path.parent == folder for path in modules) for folder in {path.parent for path in modules}}
    assert {str(folder): count for folder, count in counts.items() if count > MOST_MODULES} == {}
    assert counts[ROOT / "kvgym"] <= MOST_LOOSE


def test_names__mean_one_thing():
    plugins = named_in_tables() | {path.partition(":")[0] for path in ENVS.values()}
    places: dict[str, list[str]] = {}
    for path in FILES:
        module = module_name(path)
        package, _, base = module.rpartition(".")
        own_name = module in plugins or package in ("controllers.routing", "controllers.eviction")
        if base != "base" and not own_name and base != package.rpartition(".")[2]:
            places.setdefault(base, []).append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_import_kvgym__compiles_nothing_and_does_not_warn_twice():
    code = (
        "import sys, importlib, kvgym, gymnasium\n"
        "assert 'kvgym/Routing-v0' in gymnasium.registry\n"
        "importlib.reload(kvgym)\n"
        "print(sorted({'numba', 'torch', 'pyarrow', 'controllers'} & set(sys.modules)))"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")
