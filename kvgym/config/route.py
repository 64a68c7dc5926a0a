"""A served router as configuration: where it listens, whom it sends to, its limits, and what it keeps."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from kvgym.config.options import check_options, option
from kvgym.errors import ConfigError

CONTENTS = ("hashes", "ids")


@dataclass(frozen=True)
class RouteConfig:
    """Settings of `kvgym route`; a YAML file may hold them, and the command line changes them.

    Raises:
        ConfigError: a value is out of range, or an environment variable with a key is not set.
    """

    workers: tuple[str, ...] = option((), "servers to route to: http://host:port")
    routing: str = option("lbgr", "routing controller: a name, module:attr, or a model's file")
    options: dict[str, Any] | None = option(None, "the controller's options")
    listen: str = option("127.0.0.1:8000", "address and port to listen on")
    tokenizer: str = option("", "model folder or tokenizer.json; none: texts are compared as texts")
    seed: int = option(0, "of the controller", low=0)
    page_size: int = option(1, "page of the servers' caches", "tokens", low=1)
    capacity_tokens: int = option(200_000, "KV cache of a server that does not tell", "tokens", low=1)
    retries: int = option(2, "most times that a request which has no byte yet is sent elsewhere", low=0, high=100)
    wait_s: float = option(5.0, "how long a request waits when no server is up", "s", low=0)
    connect_timeout_s: float = option(3.0, "until a connection to a server must stand", "s", above=0)
    stall_timeout_s: float = option(300.0, "longest silence of a server before it counts as lost", "s", above=0)
    poll_s: float = option(0.5, "period of health and load polls", "s", above=0)
    break_after: int = option(3, "failures in a row after which a server rests", low=1)
    break_s: float = option(5.0, "how long it rests; doubled with each further failure, at most a minute", "s", above=0)
    most_body_mb: float = option(16.0, "largest request body", "MB", above=0)
    most_answer_mb: float = option(64.0, "largest answer", "MB", above=0)
    connections: int = option(0, "most connections to all servers together; 0: no limit", low=0)
    grace_s: float = option(30.0, "how long requests may finish when it is stopped", "s", low=0)
    api_key_variable: str = option("", "environment variable with the key that clients must send; none: no key")
    worker_key_variable: str = option("", "environment variable with the servers' key; none: the client's is passed on")
    tls_certificate: str = option("", "PEM file of the certificate; with tls_key it listens on https")
    tls_key: str = option("", "PEM file of the certificate's key")
    verify_tls: bool = option(True, "check the certificates of https servers")
    log: str = option("", "request log to append to; none: not kept")
    log_content: str = option("hashes", "what the log has of prompts: hashes (salted, per 16 tokens) or ids")
    shadows: tuple[str, ...] = option((), "controllers that decide on the same traffic without acting")
    processes: int = option(1, "router processes behind one port; each sees its own traffic only", low=1, high=64)

    def __post_init__(self) -> None:
        check_options(self)
        for url in self.workers:
            check_url(url)
        if self.log_content not in CONTENTS:
            raise ConfigError(f"log_content must be one of {', '.join(CONTENTS)}, got {self.log_content!r}")
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ConfigError("tls_certificate and tls_key belong together; give both or none")
        for name in (self.api_key_variable, self.worker_key_variable):
            if name and not os.environ.get(name):
                raise ConfigError(f"the environment has no {name}; set it to the key, or leave the setting out")
        _ = self.address

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise ConfigError(f"listen must be HOST:PORT, as in 127.0.0.1:8000, got {self.listen!r}")
        return host.strip("[]"), int(port)

    @property
    def api_key(self) -> str:
        """The key that clients must send; '': none."""
        return os.environ.get(self.api_key_variable, "") if self.api_key_variable else ""

    @property
    def worker_key(self) -> str:
        """The key that servers get; '': the client's own."""
        return os.environ.get(self.worker_key_variable, "") if self.worker_key_variable else ""


def check_url(url: Any) -> str:
    """Return a server's address without a slash at its end.

    Raises:
        ConfigError: it is none.
    """
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"a worker must be http://host:port or https://host:port, got {url!r}")
    return str(url).rstrip("/")
