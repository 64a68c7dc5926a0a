"""The cache folder of compiled code, and record arrays in both modes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kvgym import jit
from kvgym.types import RECORD


def key_of(tree: Path, code: str = "print(jit.cache_folder())") -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree), "KVGYM_CACHE": str(tree / "cache")}
    command = [sys.executable, "-c", f"from kvgym import jit; {code}"]
    return subprocess.run(command, env=environment, cwd=tree, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def tree(repo_root: Path, tmp_path: Path) -> Path:
    """A copy of the sources."""
    for package in ("kvgym", "controllers"):
        shutil.copytree(repo_root / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("kvgym/sim/heap.py", True),
        ("controllers/eviction/rlt.py", True),
        ("kvgym/types.py", True),
        ("kvgym/cli.py", False),
    ],
)
def test_cache_folder__changes_with_any_compiled_helper(tree: Path, file: str, counts: bool) -> None:
    before = key_of(tree)
    assert Path(before).parent == tree / "cache"
    assert key_of(tree) == before
    (tree / file).write_text((tree / file).read_text() + "\n# edited\n")
    assert (key_of(tree) != before) is counts


def test_cache__an_edited_helper_is_compiled_again(tree: Path) -> None:
    """numba itself would go on with the old code of `below`: it looks at the caller's file alone."""
    caller = tree / "controllers" / "probe.py"
    caller.write_text(
        "import numpy as np\nfrom kvgym.jit import njit\nfrom kvgym.sim.random import below\n\n"
        "@njit()\ndef probe() -> int:\n    return below(np.uint64(3) << np.uint64(62), 100)\n"
    )
    code = "from controllers.probe import probe; print(probe())"
    assert key_of(tree, code) == "75" == key_of(tree, code)
    helper = tree / "kvgym/sim/random.py"
    text = helper.read_text()
    helper.write_text(text.replace(">> np.uint64(32))\n", ">> np.uint64(32)) + 1\n"))
    assert helper.read_text() != text
    assert key_of(tree, code) == "76"


def test_records__fields_can_be_set_by_item() -> None:
    records = jit.record_zeros(3, RECORD)
    if jit.JIT_ON:
        assert type(records) is np.ndarray
    else:
        records[1].worker = 4
        assert records["worker"].tolist() == [0, 4, 0]
    assert jit.as_records(records).base is not None or jit.JIT_ON
