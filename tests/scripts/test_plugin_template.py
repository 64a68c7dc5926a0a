"""The template package of plug-ins: built, installed and used as docs/plugins.md says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from kvgym.config.names import TABLES, table

COMPARE = """
name: outside
workloads: [{use: {source: template_workload, documents: 3, document_tokens: 400, rate_rps: null}, name: documents}]
clusters: [{use: {workers: 2, capacity_tokens: 1000, cost: template_cost}, name: slow}]
cells:
  - {routing: {use: template_router, options: {surplus: 3}}, eviction: template_eviction}
  - {routing: random, eviction: lru}
seeds: 2
"""
MAKE = """
import gymnasium, kvgym
env = gymnasium.make(
    "kvgym/Routing-v0", workload={"source": "template_workload"}, cluster={"cost": "template_cost", "workers": 2},
    reward={"template_reward": 2.0}, eviction="template_eviction",
)
env.reset(seed=0)
total, done = 0.0, False
while not done:
    _, reward, done, _, _ = env.step(env.action_space.sample())
    total += reward
print(total)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory, repo_root):
    """Run Python in an empty folder with the template installed; return stdout."""
    base = tmp_path_factory.mktemp("outside")
    source = shutil.copytree(repo_root / "scripts" / "plugin_template", base / "source")
    work = base / "work"
    work.mkdir()
    paths = os.pathsep.join(map(str, (base / "site", repo_root)))

    def call(*arguments: object) -> str:
        command = [sys.executable, *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": paths}
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    offline = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    call("-m", "pip", "install", *offline, "--target", base / "site", source)
    (work / "compare.yaml").write_text(COMPARE)
    (work / "mine.yaml").write_text("{source: template_workload, questions: 5}")
    return call


@pytest.mark.slow
def test_template__list_names_the_package(python):
    out = python("-m", "kvgym", "list")
    for name in ("template_router", "template_eviction", "template_reward", "template_workload", "template_cost"):
        assert re.search(rf"^  {name} +\[kvgym-plugin-template 0.1.0\] \w.*\.$", out, re.MULTILINE)
    assert "broken" not in out
    assert "template_router.surplus" in python("-m", "kvgym", "list", "routing fields")


@pytest.mark.slow
def test_template__run_compare_and_make_with_all_of_it(python):
    names = ("--routing", "template_router", "--eviction", "template_eviction", "--set", "cluster.cost=template_cost")
    out = python("-m", "kvgym", "run", "--workload", "mine.yaml", *names, "--set", "options.surplus=2", "--json")
    last = json.loads(out)
    assert (last["completed"], last["routing"], last["eviction"]) == (20, "template_router", "template_eviction")
    out = python("-m", "kvgym", "compare", "compare.yaml", "--jobs", 2, "--out", "here", "--json")
    cells = json.loads(out)["cells"]
    assert [(cell["routing"], cell["completed"]) for cell in cells] == [("template_router", 24), ("random", 24)]
    assert cells[0]["hit_rate"] > cells[1]["hit_rate"]
    assert float(python("-c", MAKE)) == 2.0 * 32


def test_docs__show_the_template_as_it_is(repo_root):
    text = (repo_root / "docs" / "plugins.md").read_text()
    blocks = re.findall(r"```python (\S+)\n(.*?)```", text, re.DOTALL)
    folder = repo_root / "scripts" / "plugin_template"
    assert {name for name, _ in blocks} == {path.name for path in folder.glob("*/*.py")} - {"__init__.py"}
    for name, block in blocks:
        assert block in (folder / "kvgym_plugin_template" / name).read_text(), name
    (settings,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert settings in (folder / "pyproject.toml").read_text()
    groups = set(re.findall(r"^\| [a-z ]+ \| `([\w.]+)` \|", text, re.MULTILINE))
    assert groups == {table(family).group for family in TABLES}
