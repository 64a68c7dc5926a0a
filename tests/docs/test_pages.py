"""Every block of code in the README and the tutorials runs, in order, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]*) -->\n)?```(?P<kind>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
RUN = ("python", "sh")
MOST_LEFT_OUT = 6
"""Blocks of all pages together that need what a test has not."""


class Block(NamedTuple):
    kind: str
    code: str
    reason: str


def blocks(page: Path) -> list[Block]:
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(each["kind"], each["code"], each["reason"] or "") for each in found]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page__its_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        if block.reason or block.kind not in RUN:
            continue
        if block.kind == "python":
            exec(compile(block.code, f"{page.name}: {block.code.splitlines()[0]}", "exec"), names)
            continue
        done = subprocess.run(["sh", "-euc", block.code], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block.code}\n{done.stdout}\n{done.stderr}"


def test_pages__leave_few_blocks_out_and_say_why() -> None:
    every = [block for page in PAGES for block in blocks(page)]
    assert {block.kind for block in every} <= {*RUN, "text", "yaml"}
    left_out = [block for block in every if block.reason]
    assert 0 < len(left_out) <= MOST_LEFT_OUT < sum(block.kind in RUN for block in every)
    commands = [block for block in every if block.kind == "sh" and re.search(r"^make ", block.code, re.MULTILINE)]
    assert all(block.reason for block in commands)


def test_readme__is_one_page() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 170


def test_links__lead_to_files() -> None:
    for page in [*PAGES, *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
