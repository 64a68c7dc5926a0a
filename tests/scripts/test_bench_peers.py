"""`scripts/bench_peers.py` where AISimulate cannot be had."""

from __future__ import annotations

import os
import subprocess
import sys


def test_bench_peers__says_in_one_line_that_there_is_nothing_to_compare_with(tmp_path, repo_root):
    (tmp_path / "trace.jsonl").write_text("{}\n")
    command = [sys.executable, repo_root / "scripts" / "bench_peers.py", "trace.jsonl", "--env", "peers"]
    env = {**os.environ, "PYTHONPATH": str(repo_root), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("bench_peers: aisimulate==")
    assert "cannot be had here (ERROR: Could not find a version" in done.stderr
