"""Gives training scripts one command line: configuration, changes to it, folder, ``--json``, one line for a mistake."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from kvgym.config.loader import apply_overrides, load_config, mistakes_in
from kvgym.config.options import to_plain
from kvgym.errors import KVGymError, ResultsError
from kvgym.harness.report.console import answer


def run_command(
    doc: str,
    kind: str,
    load: Callable[[Mapping[str, Any]], Any],
    train: Callable[[Any, Path, bool], tuple[Callable[[Console], None], dict[str, Any]]],
    interrupted: str = "interrupted",
    resumable: bool = False,
) -> int:
    """Parse the command line, load the configuration, train; return the exit code.

    Args:
        doc: the script's docstring; its first line is the help text.
        kind: folder of the configurations below configs/, and of the results.
        load: plain data -> the checked configuration, which has a name and a seed.
        train: (configuration, folder, resume) -> what prints the outcome for people, and the facts for ``--json``. What
            it prints itself is progress: it goes to stdout, with ``--json`` to stderr.
        interrupted: what Ctrl-C leaves behind, in one line.
        resumable: whether there is ``--resume``.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("config", help=f"name in configs/{kind}, or YAML file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as in ppo.gamma=0.99")
    parser.add_argument("--seed", type=int, help="seed of the run (the same as --set seed=N)")
    parser.add_argument("--steps", type=int, help="environment steps in all (the same as --set steps=N)")
    parser.add_argument("--out", type=Path, help=f"output folder; default: results/{kind}/NAME-sSEED")
    parser.add_argument("--json", action="store_true", help="print exactly one JSON object on stdout, for programs")
    if resumable:
        parser.add_argument("--resume", action="store_true", help="continue the run in the output folder")
    args = parser.parse_args()
    short = [f"{name}={value}" for name in ("seed", "steps") if (value := getattr(args, name)) is not None]
    changes = args.set + short
    try:
        data = apply_overrides(load_config(kind, args.config), changes)
        with mistakes_in(args.config, changes):
            config = load(data)
        folder = args.out or Path("results") / kind / f"{config.name}-s{config.seed}"
        with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
            show, facts = train(config, folder, resumable and args.resume)
    except KVGymError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        return 130
    answer(args.json, facts, show)
    return 0


def new_folder(folder: Path, config: Any, advice: str) -> None:
    """Make the folder of a new run, with its configuration in config.yaml.

    Args:
        folder: to be made; it may be there, but empty.
        config: the configuration, a dataclass.
        advice: what to do if it is not empty.

    Raises:
        ResultsError: it holds something, or cannot be written.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ResultsError(f"{folder} is not empty; {advice}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(to_plain(config), sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"cannot write {folder}: {error.strerror}") from error


def comparison(name: str, env: Any, seeds: Any, **policies: Any) -> dict[str, Any]:
    """Return a comparison (plain, see `CompareConfig`) on the workload and the fleet of a training environment.

    Args:
        name: of the comparison.
        env: has `workload` and `cluster`, each a name, a path or a map.
        seeds: episode seeds.
        policies: ``routing`` and ``eviction``, lists of entries.
    """
    workload, cluster = env.workload, env.cluster
    return {
        "name": name,
        "workloads": [workload if isinstance(workload, str) else {"use": workload, "name": "workload"}],
        "clusters": [cluster if isinstance(cluster, str) else {"use": cluster, "name": "cluster"}],
        "seeds": list(seeds),
        **policies,
    }
