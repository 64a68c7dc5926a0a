"""Parts answer Python, too, are inlined into what calls them, and leave nothing in the cache but their callers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvgym.jit import door
from kvgym.jit.door import njit

ROOT = Path(__file__).resolve().parent.parent.parent
OUTSIDE = """
from kvgym.jit.door import njit

@njit()
def twice(x):
    return 2 * x

@njit()
def unused(x):
    return x

@njit("int64(int64)")
def both(x):
    return twice(x) + twice(x + 1)
"""


@njit()
def halved(value: float) -> float:
    return value / 2


def test_njit__a_part_answers_calls_of_any_type_from_python() -> None:
    for _ in range(2):  # the second call takes what the first one compiled
        assert halved(3) == 1.5
        assert halved(5.0) == 2.5
    with pytest.raises(TypeError):
        halved()


@pytest.mark.skipif(not door.JIT_ON, reason="about compiled code")
def test_njit__only_what_python_calls_is_cached(tmp_path: Path) -> None:
    (tmp_path / "parts_of_test.py").write_text(OUTSIDE)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "KVGYM_CACHE": str(tmp_path / "cache")}

    def files(code: str) -> set[str]:
        command = [sys.executable, "-c", f"import parts_of_test as parts; {code}"]
        subprocess.run(command, env=environment, cwd=tmp_path, check=True)
        return {path.name.split("-")[0] for path in (tmp_path / "cache").rglob("*.nbc")}

    assert files("assert parts.both(3) == 14") == {"both"}
    assert files("assert parts.both(3) == 14; assert parts.twice(4) == 8") == {"both", "twice"}
