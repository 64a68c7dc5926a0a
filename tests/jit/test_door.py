"""The cache of compiled code, plain compilation, and record arrays in both modes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kvgym.jit import door, storage
from kvgym.types import RECORD

ROOT = Path(__file__).resolve().parent.parent.parent


def printed(tree: Path, code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree), "KVGYM_CACHE": str(tree / "cache")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, cwd=tree, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def tree(repo_root: Path, tmp_path: Path) -> Path:
    """A copy of the sources."""
    for package in ("kvgym", "controllers", "configs"):
        shutil.copytree(repo_root / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_cache__an_edited_helper_is_compiled_again(tree: Path) -> None:
    """numba itself would go on with the old code of `below`: it looks at the caller's file alone."""
    caller = tree / "controllers" / "probe.py"
    caller.write_text(
        "import numpy as np\nfrom kvgym.jit.door import njit\nfrom kvgym.engine.rng import below\n\n"
        "@njit()\ndef probe() -> int:\n    return below(np.uint64(3) << np.uint64(62), 100)\n"
    )
    code = "from controllers.probe import probe; print(probe())"
    assert printed(tree, code) == "75" == printed(tree, code)
    helper = tree / "kvgym/engine/rng.py"
    text = helper.read_text()
    helper.write_text(text.replace(">> np.uint64(32))\n", ">> np.uint64(32)) + 1\n"))
    assert helper.read_text() != text
    assert printed(tree, code) == "76"


def test_records__fields_can_be_set_by_item() -> None:
    records = door.record_zeros(3, RECORD)
    if door.JIT_ON:
        assert type(records) is np.ndarray
    else:
        records[1].worker = 4
        assert records["worker"].tolist() == [0, 4, 0]
    assert door.as_records(records).base is not None or door.JIT_ON


def play(folder: Path, *policies: str) -> list[list]:
    """Route a small workload from `folder` in a process of its own; per policy: what it evicted, cache misses."""
    code = (
        "import json; from kvgym.harness.tools.single import run_single; from kvgym.config.names import table\n"
        "sets = ['workload.groups=12', 'workload.lens=[64, 128]', 'cluster.capacity_tokens=700', 'cluster.workers=1']\n"
        f"for name in {policies!r}:\n"
        "    done = run_single('gsp_small', 'l40x4', 'random', name, 0, sets)\n"
        "    missed = table('eviction').load(name).evict.stats.cache_misses\n"
        "    print(json.dumps([[done['hit_rate'], done['evicted_tokens']], sum(missed.values())]))"
    )
    # the cache is the real one: the engine itself need not be compiled again
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=folder, check=True, capture_output=True, text=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


OUTSIDE = """
from kvgym.jit.door import njit
from kvgym.engine.cache.heap import keyed
from {0} import LIMIT, sign

@njit()
def rank(c, s):
    return min(sign() * c.slots[s].access, LIMIT)

POLICY = keyed(rank)
"""
HELPERS = """
from kvgym.jit.door import njit
LIMIT = 2**40

@njit()
def sign():
    return 1
"""


@pytest.mark.slow
@pytest.mark.skipif(not door.JIT_ON, reason="about the cache of compiled code")
def test_cache__an_edited_outside_policy_is_compiled_again(tmp_path: Path) -> None:
    """Not only its own file counts: here the helper and the constant stand in another one of its package."""
    package, policy = tmp_path / "policies_of_test", "policies_of_test.mine:POLICY"
    package.mkdir()
    (package / "mine.py").write_text(OUTSIDE.format("policies_of_test.helpers"))
    (package / "helpers.py").write_text(HELPERS)
    (lru, _), (mru, _), (first, _) = play(tmp_path, "lru", "mru", policy)
    assert first == lru != mru
    assert play(tmp_path, policy) == [[lru, 0]], "an unchanged policy comes from the cache"
    (package / "helpers.py").write_text(HELPERS.replace("return 1", "return -1"))
    assert play(tmp_path, policy)[0][0] == mru
    (package / "helpers.py").write_text(HELPERS.replace("2**40", "-1"))
    assert play(tmp_path, policy)[0][0] not in (lru, mru), "now all ranks are equal"


@pytest.mark.slow
@pytest.mark.skipif(not door.JIT_ON, reason="about the cache of compiled code")
def test_cache__neighbours_of_a_lone_module_count(tmp_path: Path) -> None:
    (tmp_path / "mine_of_test.py").write_text(OUTSIDE.format("helpers_of_test"))
    (tmp_path / "helpers_of_test.py").write_text(HELPERS)
    before = play(tmp_path, "mine_of_test:POLICY")[0][0]
    (tmp_path / "helpers_of_test.py").write_text(HELPERS.replace("return 1", "return -1"))
    assert play(tmp_path, "mine_of_test:POLICY")[0][0] != before


@pytest.mark.skipif(not door.JIT_ON, reason="about the cache of compiled code")
def test_announced__is_said_once_and_only_if_something_is_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(storage, "cache_folder", lambda: tmp_path)
    said = []
    for _ in range(2):  # the second finds what the first has kept
        with storage.announced("compiling ..."):
            for add in (lambda x: x + 10, lambda x: x + 20):
                assert door.njit("int64(int64)")(add)(1) > 10
        said.append(capsys.readouterr().err)
    assert said == ["compiling ...\n", ""]


FACTORY = """
from kvgym.jit.door import njit

def make(inner):
    @njit("int64(int64)")
    def outer(x):
        return inner(x) * 100 + {0}
    return outer
"""
INNER = """
from kvgym.jit.door import njit
from factory_of_test import make

@njit()
def inner(x):
    return x + {0}

CALL = make(inner)
"""


@pytest.mark.slow
@pytest.mark.skipif(not door.JIT_ON, reason="about the cache of compiled code")
def test_cache__only_what_an_edit_changes_is_compiled_again(tree: Path) -> None:
    code = (
        "from numba.core.event import install_recorder; from kvgym.harness.tools.single import run_single\n"
        "with install_recorder('numba:compile') as seen:\n"
        "    for name in ('lru', 'rlt'):\n"
        "        run_single('gsp_small', 'l40x4', 'lbgr', name, 0, [])\n"
        "print(*{event.data['dispatcher'].__name__ for _, event in seen.buffer})"
    )

    def compiled(file: str, old: str, new: str) -> set[str]:
        text = (tree / file).read_text()
        assert old in text
        (tree / file).write_text(text.replace(old, new))
        return set(printed(tree, code).split())

    play(ROOT, "lru", "rlt")
    shutil.copytree(
        storage.cache_folder(), tree / "cache" / storage.cache_folder().name, ignore=shutil.ignore_patterns("plain")
    )
    compiled("controllers/routing/lbgr.py", '"""', '"""')  # what `play` did not need
    assert compiled("controllers/routing/lbgr.py", '"""', '"""\n') == set()
    assert compiled("controllers/eviction/rlt.py", '    """', '    """It is so: ') == set()
    touch = compiled(
        "controllers/eviction/rlt.py", "if kind != TOUCH_REST", "if kind < TOUCH_REST or kind > TOUCH_REST"
    )
    assert "touch" in touch
    assert not touch & {"run", "route", "evict", "enter"}
    pages = compiled("kvgym/engine/pages.py", "- page - 1))", "- page - 2 + 1))")
    assert "route" in pages
    assert not pages & {"touch", "evict", "match"}


RUNS = """
import sys
from pathlib import Path
import numpy as np
from kvgym.envs.vector import RoutingVectorEnv
from kvgym.harness.tools.single import run_single

sets = ["workload.groups=12", "workload.lens=[64, 128]", "cluster.capacity_tokens=700"]
run_single("gsp_small", "l40x4", "lbgr", "rlt", 0, sets, records=Path(sys.argv[1]))
envs = RoutingVectorEnv(4, workload="gsp_small", threads=2)
envs.reset(seed=0)
for step in range(400):
    observation, reward, *_ = envs.step(np.arange(4))
    print(reward, *(value.sum() for value in observation.values()))
"""


@pytest.mark.soak
@pytest.mark.skipif(not door.JIT_ON, reason="about compiled code")
def test_plain_jit__gives_the_same_records(tmp_path: Path) -> None:
    records, printed = [], []
    for plain in "01":
        file = tmp_path / f"{plain}.parquet"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KVGYM_PLAIN_JIT": plain}
        command = [sys.executable, "-c", RUNS, str(file)]
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        printed.append(done.stdout)
        records.append(file.read_bytes())
    assert printed[0] == printed[1] != ""
    assert records[0] == records[1]


@pytest.mark.slow
@pytest.mark.skipif(not door.JIT_ON, reason="about the cache of compiled code")
def test_cache__a_policy_of_closures_comes_from_the_cache(tmp_path: Path) -> None:
    (first, _), (again, _) = *play(tmp_path, "reuse"), *play(tmp_path, "reuse")
    assert first == again
    assert play(tmp_path, "reuse")[0][1] == 0


@pytest.mark.skipif(not door.JIT_ON, reason="about the cache of compiled code")
def test_cache__closures_of_one_factory_are_not_mistaken_for_each_other(tmp_path: Path) -> None:
    """Compiled by two processes, each of which counts its functions from one; used together by a third."""
    (tmp_path / "factory_of_test.py").write_text(FACTORY.format(7))
    for name, number in (("one", 1), ("two", 2)):
        (tmp_path / f"{name}_of_test.py").write_text(INNER.format(number))

    def run(code: str) -> str:
        environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    assert run("from one_of_test import CALL; print(CALL(0))") == "107"
    assert run("from two_of_test import CALL; print(CALL(0))") == "207"
    both = "from one_of_test import CALL as one; from two_of_test import CALL as two; import numba\n"
    call = "@numba.njit\ndef call(x):\n    return one(x), two(x)\n\nprint(*call(0))\n"
    hits = "print(sum((one.stats.cache_hits + two.stats.cache_hits).values()))"
    assert run(both + call + hits).split() == ["107", "207", "2"]
