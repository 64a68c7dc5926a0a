"""What a user gets: the built wheel, in an empty environment, from an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest


def run(*command: object, cwd: Path, **environment: str) -> str:
    # Nothing of this checkout may help: no PYTHONPATH, and a home and cache of its own.
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "KVGYM_DATA")} | environment
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, repo_root) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, repo_root)
    run(*command, cwd=folder, PIP_CONSTRAINT=str(repo_root / "constraints.txt"))
    (path,) = folder.glob("kvgym-*.whl")
    return path


@pytest.mark.slow
def test_wheel__holds_both_packages_the_configs_and_the_licence(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "kvgym/py.typed",
        "kvgym/configs/compare/quickstart.yaml",
        "kvgym/configs/clusters/l40x4.yaml",
        "controllers/routing/lbgr_release.py",
        "controllers/eviction/rlt.py",
    ):
        assert wanted in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"kvgym", "controllers"}


@pytest.mark.slow
def test_wheel__runs_a_comparison_from_an_empty_folder(wheel, tmp_path, repo_root, pytestconfig):
    """With --soak what it depends on is installed anew, too; else it is taken from this environment."""
    env, work = tmp_path / "env", tmp_path / "work"
    work.mkdir()
    run(sys.executable, "-m", "venv", env, cwd=tmp_path)
    python = env / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--constraint", repo_root / "constraints.txt")
    if pytestconfig.getoption("--soak"):
        run(*pip, wheel, cwd=tmp_path)
    else:
        run(*pip, "--no-deps", wheel, cwd=tmp_path)
        site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
        (Path(site) / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    settings = ("--set", "workload.groups=8", "--set", "workload.prompts_per_group=4", "--seeds", "1", "--jobs", "1")
    settings += ("--json",)
    out = run(env / "bin" / "kvgym", "compare", "gsp_ablation", *settings, cwd=work)
    last = json.loads(out)
    assert [cell["completed"] for cell in last["cells"]] == [32, 32, 32, 32]
    assert (work / last["out"] / "report.md").is_file()
    assert json.loads((work / last["out"] / "manifest.json").read_text())["commit"] is None
