"""Starts the real sglang-router in front of a fleet, as a peer to compare with."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from kvgym.backends.sglang.launcher import free_port
from kvgym.backends.sglang.watchdog import Watchdog, stop_groups
from kvgym.config.live import LiveConfig
from kvgym.errors import BackendError, ConfigError
from kvgym.interrupts import ignored

POLICIES = ("cache_aware", "round_robin", "random", "power_of_two")
"""Policies of sglang-router 0.3.2 that need nothing but its workers."""


class FrontRouter:
    """A running sglang-router; a context manager that stops it. Should this process be killed, a watchdog stops it.

    Args:
        live: interpreter and address.
        urls: the workers behind it.
        policy: one of `POLICIES`.

    Raises:
        ConfigError: no such policy.
        BackendError: it does not become ready.
    """

    def __init__(self, live: LiveConfig, urls: Sequence[str], policy: str) -> None:
        if policy not in POLICIES:
            raise ConfigError(f"sglang-router has no policy {policy!r}; known: {', '.join(POLICIES)}")
        port = free_port(live.host)
        self.url = f"http://{live.host}:{port}"
        self.log = Path(tempfile.mkdtemp(prefix="kvgym-router-")) / "router.log"
        python = live.python or os.environ.get("KVGYM_LIVE_PYTHON") or sys.executable
        command = [python, "-m", "sglang_router.launch_router", "--host", live.host, "--port", str(port)]
        command += ["--prometheus-host", live.host, "--prometheus-port", str(free_port(live.host))]
        command += ["--policy", policy, "--worker-startup-check-interval", "1", "--worker-urls", *urls]
        self._guard = Watchdog()
        with self.log.open("wb") as log, ignored():  # a Ctrl-C in between would leave a router that nobody knows of
            try:
                self._process = subprocess.Popen(
                    command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
                )
            except OSError as error:
                self._guard.close()
                raise BackendError(f"cannot run {command[0]}: {error.strerror}; set live.python") from error
            self._guard.watch(self._process.pid)
        try:
            self._wait(len(urls), live.start_timeout_s)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def close(self) -> None:
        """Stop it."""
        stop_groups([self._process.pid])
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        self._guard.close()

    def __enter__(self) -> FrontRouter:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.close()

    def _wait(self, workers: int, timeout_s: float) -> None:
        """Wait until all workers are registered; it calls itself ready with the first."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s and self._process.poll() is None:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/workers", timeout=5) as answer:
                if sum(worker["is_healthy"] for worker in json.load(answer)["workers"]) == workers:
                    return
            time.sleep(0.2)
        tail = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
        raise BackendError(f"sglang-router at {self.url} is not ready: {' | '.join(line[:200] for line in tail)}")
