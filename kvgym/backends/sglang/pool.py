"""Keeps started servers up between episodes: one fleet at a time, until another is asked for or the process ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kvgym.backends.sglang.launcher import RELEASE, Fleet, Server, api_key, check_server, server_command
from kvgym.config.cluster import ClusterConfig
from kvgym.errors import BackendError, ConfigError

_fleet: Fleet | None = None


def acquire(cluster: ClusterConfig, eviction: str) -> list[Server]:
    """Return one healthy server per worker of a live cluster: attached, still up from the last call, or started now.

    Raises:
        ConfigError: the addresses do not fit the workers, or a server has another page size.
        BackendError: servers cannot be reached or started.
    """
    live = cluster.live
    assert live is not None, "the caller has a live cluster"
    if live.urls:
        if len(live.urls) != cluster.workers:
            raise ConfigError(f"live.urls has {len(live.urls)} addresses for {cluster.workers} workers")
        servers = [check_server(url.rstrip("/"), eviction, api_key(live)) for url in live.urls]
    else:
        servers = _started(cluster, eviction).servers
    for server in servers:
        if server.version != RELEASE:
            print(f"kvgym: {server.url} runs SGLang {server.version}; tested with {RELEASE}", file=sys.stderr)
        if int(server.info.get("page_size", cluster.page_size)) != cluster.page_size:
            raise ConfigError(
                f"{server.url} has pages of {server.info['page_size']} tokens, the cluster {cluster.page_size}"
            )
    return servers


def release() -> None:
    """Stop the servers that were started, if there are any."""
    global _fleet
    if _fleet is not None:
        _fleet.close()
        _fleet = None


def fleet() -> Fleet | None:
    """Return the started fleet, if there is one."""
    return _fleet


def _started(cluster: ClusterConfig, eviction: str) -> Fleet:
    global _fleet
    if _fleet is not None and _commands(_fleet.cluster, _fleet.eviction) == _commands(cluster, eviction):
        _fleet.revive()
        return _fleet
    release()
    _fleet = Fleet(cluster, eviction, progress=lambda line: print(f"kvgym: {line}", file=sys.stderr, flush=True))
    return _fleet


def _commands(cluster: ClusterConfig, eviction: str) -> list[tuple[list[str], dict[str, str]]]:
    """Return what starts the servers: clusters that differ in client settings only share them."""
    return [server_command(cluster, eviction, worker, 0, "") for worker in range(cluster.workers)]


def vocabulary(server: Server) -> int:
    """Return the vocabulary size of a server's model.

    Raises:
        BackendError: neither the server nor its model folder tells.
    """
    path = Path(str(server.info.get("model_path", ""))) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return int(config.get("vocab_size") or config["text_config"]["vocab_size"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise BackendError(
            f"{server.url}: cannot read the vocabulary size from {path}: {error}; set live.vocab_size"
        ) from error
