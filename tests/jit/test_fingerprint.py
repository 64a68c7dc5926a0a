"""A function's fingerprint changes with everything that its compiled code depends on, and with nothing else."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

from controllers.eviction import EVICTION
from kvgym.jit import door, entry_points
from kvgym.jit.door import njit
from kvgym.jit.entry_points import INT, type_of
from kvgym.jit.fingerprint import fingerprint, tell_types
from kvgym.jit.tuples import whole

pytestmark = pytest.mark.skipif(not door.JIT_ON, reason="about compiled code")

SOURCE = '''
import math
from typing import NamedTuple

import numpy as np

import neighbour_of_test
from kvgym.jit.door import njit

FACTOR, TABLE, KIND = 3, np.arange(5000), np.dtype([("a", "<i4"), ("b", "<i4")])


class Pair(NamedTuple):
    left: int
    right: int


def plain(x):
    return x


@njit()
def deep(x):
    return x * FACTOR


@njit()
def helper(x, scale=2):
    """Scale."""
    return deep(x) * scale


def around(number):
    @njit()
    def inner(x):
        return helper(x) + number

    return inner


inner = around(1)


def function(x):
    """First."""
    pair = Pair(1, x)
    records = np.zeros(2, KIND)
    return inner(x) + TABLE[x] + neighbour_of_test.offset(x) + math.sqrt(pair.left) + records[0].a


@njit()
def recursive(x):
    return turn(x - 1) if x else 0


@njit()
def turn(x):
    return recursive(x)


def unknown(x):
    return plain(x)


def quoting():
    """Said."""
    return "Said."
'''
NEIGHBOUR = """
from kvgym.jit.door import njit

@njit()
def offset(x):
    return 5 * x

def unused():
    return 1
"""


def load(folder: Path, name: str, text: str) -> object:
    file = folder / f"{name}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    exec(compile(text, str(file), "exec", dont_inherit=True), module.__dict__)
    return module


@pytest.fixture
def of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str | None]:
    """Returns the fingerprint of a function of the two modules above, after a replacement in their text."""

    def mark(name: str = "function", old: str = "", new: str = "") -> str | None:
        assert old in SOURCE + NEIGHBOUR
        load(tmp_path, "neighbour_of_test", NEIGHBOUR.replace(old, new))
        function = getattr(load(tmp_path, "module_of_test", SOURCE.replace(old, new)), name)
        return fingerprint(getattr(function, "py_func", function))

    for name in ("neighbour_of_test", "module_of_test"):
        monkeypatch.setitem(sys.modules, name, None)
    return mark


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""First."""', '"""First, in other words."""'),
        ('"""Scale."""', '"""Scale\n    in two lines."""'),
        ("import math\n", "import math\n\n# moved down\n\n"),
        ("def plain(x):\n    return x", "def plain(x):\n    return 2 * x"),
        ("def unused():\n    return 1", "def unused():\n    return 2"),
    ],
)
def test_fingerprint__stays(of: Callable[..., str | None], old: str, new: str) -> None:
    assert of("function", old, new) == of() is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("math.sqrt", "math.floor"),
        ("return inner(x) + TABLE", "return inner(x) - TABLE"),
        ("FACTOR, TABLE, KIND = 3", "FACTOR, TABLE, KIND = 4"),
        ("FACTOR, TABLE, KIND = 3", "FACTOR, TABLE, KIND = 3.0"),
        ("np.arange(5000)", "np.where(np.arange(5000) == 2500, 0, np.arange(5000))"),
        ('[("a", "<i4"), ("b", "<i4")]', '[("b", "<i4"), ("a", "<i4")]'),
        ("scale=2", "scale=3"),
        ("return x * FACTOR", "return x + FACTOR"),
        ("around(1)", "around(2)"),
        ("left: int\n    right: int", "right: int\n    left: int"),
        ("return 5 * x", "return 6 * x"),
        ("@njit()\ndef deep", "@njit(allocates=True)\ndef deep"),
        ("@njit()\ndef deep", '@njit("int32(int64)")\ndef deep'),
    ],
)
def test_fingerprint__changes(of: Callable[..., str | None], old: str, new: str) -> None:
    assert None is not of("function", old, new) != of()


def test_fingerprint__a_docstring_that_is_a_value_counts(of: Callable[..., str | None]) -> None:
    assert of("quoting") != of("quoting", "Said", "Told")


def test_fingerprint__functions_may_call_each_other(of: Callable[..., str | None]) -> None:
    marks = [of("recursive", "if x else 0", text) for text in ("if x else 0", "if x else 0", "if x else FACTOR")]
    assert None is not marks[0] == marks[1] != marks[2]


def test_fingerprint__there_is_none_where_nobody_can_tell(of: Callable[..., str | None]) -> None:
    assert of("unknown") is None
    assert of("function", "FACTOR, TABLE, KIND = 3", "FACTOR, TABLE, KIND = object()") is None
    assert of("function", "import neighbour_of_test\n", "") is None, "it may come later"
    namespace: dict[str, FunctionType] = {}
    exec(compile("def of_a_notebook(x):\n    return x", "<cell 1>", "exec"), namespace)
    assert fingerprint(namespace["of_a_notebook"]) is None


def test_fingerprint__is_the_same_in_every_process(of: Callable[..., str | None], tmp_path: Path) -> None:
    here = of()
    code = (
        "import neighbour_of_test, module_of_test as m; from kvgym.jit.fingerprint import fingerprint;"
        "print(fingerprint(m.function))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == here


def test_types__fields_of_tuples_count() -> None:
    def told(mark: Callable[[type], type], fields: list[str]) -> str:
        cls = mark(namedtuple("Pair", fields))
        return tell_types(INT(type_of(cls(np.arange(2), np.arange(2)))))

    for mark in (whole, lambda cls: cls):
        assert told(mark, ["a", "b"]) == told(mark, ["a", "b"]) != told(mark, ["b", "a"])


def test_fingerprint__all_that_kvgym_compiles_at_import_has_one() -> None:
    for name in ("entry", "entry_cache", "entry_leaves", "entry_rule", "episodes"):
        importlib.import_module(f"kvgym.engine.entry.{name}")
    policies = [EVICTION.load(name) for name in EVICTION]
    hooks = [hook for each in policies for hook in (each.enter, each.leave, each.touch, each.evict)]
    entries = list(entry_points._DISPATCHERS.values())
    assert len(entries) > 20
    assert [each.py_func.__qualname__ for each in hooks + entries if fingerprint(each.py_func) is None] == []


@njit("int64(int64)")
def factorial(x):
    return x * factorial(x - 1) if x else 1


def test_njit__a_function_with_a_signature_may_call_itself() -> None:
    assert factorial(5) == 120
