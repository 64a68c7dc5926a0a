"""Measures kvgym and AISimulate (NVIDIA's simulator in Rust) alternately on one trace and prints the ratio.

    python scripts/bench_peers.py TRACE.jsonl.gz [--rounds 3] [--env .peers]

TRACE is in Mooncake's format, plain or gzip. AISimulate is installed from PyPI into an environment of its own, which
is kept in the folder --env. Both serve the whole trace at its recorded times on 8 workers of 400,000 tokens under round
robin and LRU, SGLang's scheduler, pages of one token; each is a process of its own, from its start to its end, and what
counts is the CPU time of that process. Figures of one run of this script may be compared, others may not.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvgym.config.options import to_plain
from kvgym.harness.tools.bench import TRACE_FLEET

PACKAGE = "aisimulate==0.13.0"


def main() -> None:
    """Install, run alternately, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trace", type=Path, help="trace in Mooncake's format, plain or gzip")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each (default 3)")
    parser.add_argument("--env", type=Path, default=Path(".peers"), help="folder of AISimulate's environment")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or not arguments.trace.is_file():
        parser.error(f"expected a trace that exists and at least one round, got {arguments.trace}, {arguments.rounds}")
    peer = install(arguments.env)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        requests = unpack(arguments.trace, folder / "trace.jsonl")
        commands = {"kvgym": kvgym_command(folder), "aisimulate": peer_command(folder, peer)}
        for command in commands.values():  # compiles, reads files into the system's cache
            cpu_seconds(command, folder)
        seconds: dict[str, list[float]] = {who: [] for who in commands}
        for _ in range(arguments.rounds):
            for who, command in commands.items():
                seconds[who].append(cpu_seconds(command, folder))
    for who, found in seconds.items():
        rates = ", ".join(f"{requests / each:,.0f}" for each in found)
        print(f"{who}: {rates} requests per CPU second")
    pairs = zip(seconds["aisimulate"], seconds["kvgym"], strict=True)
    print(f"kvgym is {statistics.median(slow / fast for slow, fast in pairs):.1f} times as fast (median over rounds)")


def install(env: Path) -> Path:
    """Return the program of AISimulate in the environment `env`, which is made if it is not there."""
    program = env.resolve() / "bin" / "aisimulate"
    if program.exists():
        return program
    subprocess.run([sys.executable, "-m", "venv", env], check=True)
    pip = [env / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode or not program.exists():
        sys.exit(f"bench_peers: {PACKAGE} cannot be had here ({reason(done.stderr)}), so there is nothing to compare")
    return program


def reason(output: str) -> str:
    """Return what pip or the package's installer says is wrong, in one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    told = [line for line in lines if re.match(r"[\w.]*(Error|ERROR): .", line)]
    return (told or lines or ["no reason given"])[0]


def unpack(trace: Path, plain: Path) -> int:
    """Write the trace as plain JSON lines; return how many."""
    opened = gzip.open if trace.suffix == ".gz" else open
    with opened(trace, "rt", encoding="utf-8") as file:
        lines = [line for line in file if line.strip()]
    plain.write_text("".join(lines), encoding="utf-8")
    return len(lines)


def kvgym_command(folder: Path) -> list[str]:
    """Write kvgym's files; return its command."""
    workload = {"source": "mooncake", "path": str(folder / "trace.jsonl")}
    (folder / "workload.yaml").write_text(json.dumps(workload))
    (folder / "fleet.yaml").write_text(json.dumps(to_plain(TRACE_FLEET)))
    files = ["--workload", "workload.yaml", "--cluster", "fleet.yaml"]
    return [sys.executable, "-m", "kvgym", "run", *files, "--routing", "round_robin", "--eviction", "lru", "--json"]


def peer_command(folder: Path, program: Path) -> list[str]:
    """Write AISimulate's configuration; return its command."""
    worker: dict[str, Any] = {
        "parallelism": {"replicas": TRACE_FLEET.workers},
        "kv_cache": {"block_size": 1, "capacity": {"type": "fixed", "blocks": TRACE_FLEET.capacity_tokens}},
        "timing": {"type": "polynomial"},
    }
    source = {"type": "trace", "paths": [str(folder / "trace.jsonl")], "format": "mooncake", "block_size": 512}
    engine = {"model": "Qwen/Qwen3-32B-FP8", "hardware": "h200_sxm", "backend": "sglang"}
    config = {
        "traffic": {"source": source, "load": {"type": "trace_timestamps"}},
        "engine": {**engine, "workers": {"aggregated": worker}},
    }
    (folder / "prediction.yaml").write_text(json.dumps(config))
    return [str(program), "predict", "--config", "prediction.yaml", "--overwrite", "--format", "json"]


def cpu_seconds(command: Sequence[str], folder: Path) -> float:
    """Run the command in `folder`; return the CPU seconds that it and its threads took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"bench_peers: {Path(command[0]).name} ended with {done.returncode}: {reason(done.stderr)}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    main()
