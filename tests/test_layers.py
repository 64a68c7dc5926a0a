"""Imports go one way: bottom <- workloads, costs <- sim <- backends <- envs <- harness <- cli."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BOTTOM = {"kvgym", "kvgym.types", "kvgym.errors", "kvgym.registry", "kvgym.seeding", "kvgym.jit", "kvgym.config"}
BOTTOM |= {"kvgym.cluster", "kvgym.schedule", "kvgym.slo", "kvgym.records", "kvgym.encoding", "kvgym.tables"}
BOTTOM |= {"kvgym.contracts", "kvgym.jit_parts", "kvgym.jit_tuples", "kvgym.live", "kvgym.signals", "kvgym.sources"}
BOTTOM |= {"kvgym.encoding_eviction", "kvgym.interrupts"}
ALLOWED = {
    "bottom": {"bottom"},
    "workloads": {"bottom", "workloads"},
    "costs": {"bottom", "costs"},
    "sim": {"bottom", "workloads", "costs", "sim"},
    "backends": {"bottom", "workloads", "costs", "sim", "backends"},
    "envs": {"bottom", "workloads", "costs", "sim", "backends", "envs"},
    "harness": {"bottom", "workloads", "costs", "sim", "backends", "envs", "harness"},
    "cli": {"bottom", "workloads", "costs", "sim", "backends", "envs", "harness", "cli"},
    # Controllers see decisions and the engine's policy API, never who runs them. `workloads` is there for the forest.
    "controllers": {"bottom", "workloads", "sim", "controllers"},
}
OPTIONAL = {"PIL", "aiohttp", "matplotlib", "pettingzoo", "ray", "sb3_contrib", "sglang", "stable_baselines3"}
OPTIONAL |= {"tensorboard", "tokenizers", "torch"}
INSIDE_SGLANG = {"kvgym.backends.sglang.radix"}
"""Imported by an SGLang server only, where sglang is at hand."""
MADE_OF_OPTIONAL = {"controllers.learned.set_policy", "controllers.learned.group_buffer", "kvgym.envs.aec"}
MADE_OF_OPTIONAL |= {"controllers.learned.candidate_policy"}
"""Subclasses of the classes of torch, SB3 and PettingZoo; nobody else imports them at module level."""
FILES = sorted(path for package in ("kvgym", "controllers") for path in (ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str | None:
    package, _, rest = module.partition(".")
    if package == "controllers":
        return "controllers"
    if package != "kvgym":
        return None
    if module in BOTTOM:
        return "bottom"
    part = rest.partition(".")[0]
    return {"cli": "cli", "__main__": "cli"}.get(part, part)


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
            modules = [node.module or ""]
            # "from kvgym import sim" names a layer too
            modules += [
                f"{node.module}.{alias.name}" for alias in node.names if node.module in ("kvgym", "controllers")
            ]
            yield from ((module, node.lineno, top) for module in modules)
        inside = top and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        stack.extend((child, inside) for child in ast.iter_child_nodes(node))


def broken_rules(module: str, tree: ast.AST) -> list[str]:
    layer = layer_of(module)
    assert layer in ALLOWED, f"{module} belongs to no layer; add it to tests/test_layers.py"
    problems = []
    for name, line, top in runtime_imports(tree):
        target = layer_of(name)
        if target in ALLOWED and target not in ALLOWED[layer]:
            problems.append(f"line {line}: {layer} must not import {name} ({target})")
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
        ("kvgym.sim.cache", "from kvgym.backends import simulated"),
        ("kvgym.workloads.gsp", "def f():\n    import kvgym.sim.cache"),
        ("kvgym.config", "from kvgym import workloads"),
        ("kvgym.harness.run", "import controllers.routing"),
        ("controllers.routing.lbgr", "from kvgym.envs.routing import RoutingEnv"),
        ("controllers.learned.model", "import torch"),
        ("controllers.learned.model", "from controllers.learned.set_policy import SetPolicy"),
    ],
)
def test_rules__catch_a_wrong_import(module, code):
    assert len(broken_rules(module, ast.parse(code))) >= 1


def test_rules__leave_type_checking_and_local_optional_imports_alone():
    code = "if TYPE_CHECKING:\n    from kvgym.envs import routing\ndef f():\n    import torch"
    assert broken_rules("controllers.learned.model", ast.parse(code)) == []


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
