"""Starts the servers of a live cluster and keeps them until it is told to stop."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from kvgym.backends.sglang.launcher import Fleet
from kvgym.config.cluster import resolve_cluster
from kvgym.config.names import table
from kvgym.errors import ConfigError


def serve(
    cluster: str, eviction: str, logs: Path | None, console: Console, ready: Callable[[dict[str, Any]], None]
) -> None:
    """Run the servers of `cluster` until SIGINT or SIGTERM; `ready` is told where they are as soon as they answer.

    Either signal while they still start is a `KeyboardInterrupt`, and no server is left.

    Raises:
        ConfigError: the cluster names no model to serve.
        BackendError: a server does not start.
    """
    fleet = resolve_cluster(cluster)
    if fleet.live is None or not fleet.live.model:
        raise ConfigError(f"cluster {cluster!r} has no live.model, so there is nothing to start")
    table("eviction").load(eviction)
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    with Fleet(fleet, eviction, logs, say) as running:
        capacities = [server.capacity_tokens for server in running.servers]
        ready({"urls": running.urls, "capacity_tokens": capacities})
        say(f"attach with  live: {{urls: [{', '.join(running.urls)}]}}")
        say("Ctrl-C stops them")
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
