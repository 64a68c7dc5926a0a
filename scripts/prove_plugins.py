"""Proves that a plug-in is one file, one line and one test: adds four of them to a copy of this tree and checks it.

    python scripts/prove_plugins.py

A router, an eviction policy, a reward term and a workload, made from `scripts/plugin_template`. Golden numbers and
pages are written by their own scripts. Then come `make check` and the tests that take names from the registries.
Prints every file that was touched; exit code 1 if a gate fails or another file had to change.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "scripts" / "plugin_template" / "kvgym_plugin_template"


class PlugIn(NamedTuple):
    """A plug-in to add.

    Attributes:
        kind: what it is.
        template: file in `TEMPLATES`.
        file: where it goes.
        registry: file with the name table.
        line: the new line, which goes before the one that follows by name.
        before: beginning of that line.
        test: file of its test.
        checks: the test.
    """

    kind: str
    template: str
    file: str
    registry: str
    line: str
    before: str
    test: str
    checks: str


ROUTER = PlugIn(
    "router",
    "router.py",
    "controllers/routing/longest_hit.py",
    "controllers/routing/__init__.py",
    '"longest_hit": "controllers.routing.longest_hit:LongestHit",',
    '"learned":',
    "tests/controllers/routing/test_longest_hit.py",
    '''"""Longest hit: most of the prompt, then least in flight."""

from __future__ import annotations

import dataclasses

import numpy as np

from controllers.routing.longest_hit import LongestHit


def test_choice__is_the_worker_that_holds_most(fleet, ask):
    controller = LongestHit(surplus=4)
    controller.reset(fleet(2), 0)
    for inflight, worker in (([1, 0], 0), ([9, 0], 1)):
        decision = dataclasses.replace(ask(1, inflight), hit_tokens=np.array([50, 0]))
        assert controller.act(decision) == worker
''',
)
EVICTION = PlugIn(
    "eviction policy",
    "eviction.py",
    "controllers/eviction/largest.py",
    "controllers/eviction/__init__.py",
    '"largest",',
    '"lru",',
    "tests/controllers/eviction/test_largest.py",
    '''"""Largest first: the leaf with the most tokens goes."""

from __future__ import annotations

from controllers.eviction.largest import POLICY
from kvgym.engine.handle import CacheHandle
from kvgym.forest.forest import Forest


def test_evict__takes_the_longest_leaf() -> None:
    forest = Forest()
    nodes = [forest.insert([i] * length) for i, length in enumerate((3, 9, 5))]
    cache = CacheHandle(forest.nodes, POLICY, 100)
    for node, length in zip(nodes, (3, 9, 5), strict=True):
        cache.insert(0, node, length)
    assert cache.evict(0, 1) == 9
''',
)
REWARD = PlugIn(
    "reward term",
    "reward.py",
    "kvgym/envs/rewards/answered.py",
    "kvgym/envs/rewards/__init__.py",
    '"answered": "kvgym.envs.rewards.answered:answered",',
    '"cache":',
    "tests/envs/rewards/test_answered.py",
    '''"""Answered: the number of requests that were."""

from __future__ import annotations

import numpy as np

from kvgym.backends.base import Progress
from kvgym.envs.rewards.answered import answered
from kvgym.types import DONE, RECORD


def test_answered__counts_what_is_done() -> None:
    records = np.zeros(3, RECORD)
    records["status"][:2] = DONE
    still = Progress(0.0, 0.0, 0.0, 0.0)
    assert answered(still, still, records) == 2.0
''',
)
WORKLOAD = PlugIn(
    "workload",
    "workload.py",
    "kvgym/workloads/documents.py",
    "kvgym/workloads/__init__.py",
    '"documents": "kvgym.workloads.documents:Documents",',
    '"fixed":',
    "tests/workloads/test_documents.py",
    '''"""Documents: every prompt is a document and a question."""

from __future__ import annotations

from kvgym.workloads.documents import Documents


def test_generate__questions_of_one_document_share_it() -> None:
    made = Documents(documents=2, questions=3).generate(0)
    assert len(made.requests) == 6
    parents = made.forest.nodes["parent"][made.requests["prompt_node"]]
    assert sorted((parents == node).sum() for node in set(parents.tolist())) == [3, 3]
''',
)
PLUGINS = (ROUTER, EVICTION, REWARD, WORKLOAD)
CHECK = ("make", "check", f"VENV={sys.prefix}", f"--old-file={sys.prefix}/.dev")
"""The gate that everybody runs, in the copy, with the environment of this interpreter as it is."""
TESTS = (
    "tests/test_layers.py",
    "tests/scripts/test_make_docs.py",
    "tests/golden",
    "tests/controllers",
    "tests/workloads",
    "tests/envs/rewards",
    "tests/engine/test_jit_off.py",
    "tests/config",
    "tests/test_cli.py",
)
"""Those that take names from the registries, or hold the rules of the tree."""


def add(plugin: PlugIn, tree: Path) -> None:
    """Write a plug-in's file, its line and its test to `tree`."""
    template = (TEMPLATES / plugin.template).read_text(encoding="utf-8")
    (tree / plugin.file).write_text(template, encoding="utf-8")
    registry = tree / plugin.registry
    lines = registry.read_text(encoding="utf-8").split("\n")
    place = next(i for i, line in enumerate(lines) if line.strip().startswith(plugin.before))
    indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
    registry.write_text("\n".join([*lines[:place], indent + plugin.line, *lines[place:]]), encoding="utf-8")
    (tree / plugin.test).write_text(plugin.checks, encoding="utf-8")


def copy_tree(tree: Path) -> None:
    """Copy what git tracks or would track to `tree`, and make it a repository with one commit."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    subprocess.run(
        ["tar", "--create", "--ignore-failed-read", "--files-from", "-", "--file", tree.parent / "tree.tar"],
        cwd=ROOT, input=listed.stdout, check=True,
    )  # fmt: skip
    tree.mkdir()
    subprocess.run(["tar", "--extract", "--file", tree.parent / "tree.tar"], cwd=tree, check=True)
    for command in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "before")):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x", *command], cwd=tree, check=True)


def touched(tree: Path) -> list[str]:
    """Return the files of `tree` that are new or changed."""
    shown = subprocess.run(
        ["git", "status", "--short", "--untracked-files=all"], cwd=tree, capture_output=True, text=True, check=True
    )
    return sorted(line[3:] for line in shown.stdout.splitlines())


def main() -> int:
    """Add the plug-ins, run the gates, say what was touched."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        copy_tree(tree)
        for plugin in PLUGINS:
            add(plugin, tree)
        data = (ROOT / os.environ.get("KVGYM_DATA", "../shared/data")).resolve()
        env = {**os.environ, "PYTHONPATH": str(tree), "KVGYM_DATA": str(data)}

        def run(name: str, *command: str) -> bool:
            code = subprocess.run(command, cwd=tree, env=env, check=False).returncode
            print(f"{name}: {'passed' if code == 0 else f'FAILED ({code})'}", flush=True)
            return code == 0

        python = sys.executable
        passed = run("golden numbers", python, "tests/golden/test_golden.py")
        passed &= run("pages", python, "scripts/make_docs.py")
        passed &= run("make check", *CHECK)
        tests = (*TESTS, *(plugin.test for plugin in PLUGINS))
        passed &= run("tests", python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=0", *tests)
        by_hand = {name for plugin in PLUGINS for name in (plugin.file, plugin.registry, plugin.test)}
        made = [name for name in touched(tree) if name not in by_hand]
        for plugin in PLUGINS:
            print(f"{plugin.kind}: file {plugin.file}, line in {plugin.registry}, test {plugin.test}")
        print(f"generated: {', '.join(made)}")
        strange = [name for name in made if not name.startswith(("tests/golden/", "docs/"))]
        print(f"other files touched: {', '.join(strange) or 'none'}")
    return 0 if passed and not strange else 1


if __name__ == "__main__":
    sys.exit(main())
