"""Starts SGLang servers, one per worker, waits until they are healthy, and leaves none behind."""

from __future__ import annotations

import atexit
import contextlib
import http.client
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvgym.backends.sglang.plugin import FILE_VARIABLE, LEARNED, PREFIX, short_name
from kvgym.backends.sglang.watchdog import Watchdog, stop_groups
from kvgym.config.cluster import ClusterConfig
from kvgym.config.live import LiveConfig
from kvgym.config.names import table
from kvgym.errors import BackendError, ConfigError
from kvgym.interrupts import ignored

RELEASE = "0.5.23"
"""SGLang release that this backend was written for and tested with."""
BUILT_IN = ("lru", "lfu", "slru", "priority")
"""Eviction policies that SGLang has itself; the others come from kvgym's plug-in."""
CPU_FLAGS = (
    "--device cpu --attention-backend torch_native --dtype float32 --load-format dummy --disable-overlap-schedule "
    "--sleep-on-idle"
).split()
CPU_ENVIRONMENT = {"SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Server:
    """A healthy server: where it is, and what it says of itself (`/server_info`)."""

    url: str
    capacity_tokens: int
    version: str
    info: Mapping[str, Any]


class Fleet:
    """Started servers of a cluster; a context manager that stops them.

    Servers run in process groups of their own. They are stopped at `close`, at the end of the process, and, should it
    be killed, by a watchdog process. Their output goes to ``worker-N.log`` in `logs`.

    Args:
        cluster: its `live` part names a model.
        eviction: eviction policy of all workers.
        logs: folder for the servers' output; none: a temporary one.
        progress: told what goes on, in one line each.

    Raises:
        BackendError: a server does not start (the end of its log is quoted) or does not do what was asked for.
        ConfigError: the devices do not fit the workers, or the policy sees the future.
    """

    def __init__(
        self, cluster: ClusterConfig, eviction: str, logs: Path | None = None, progress: Progress = lambda line: None
    ) -> None:
        assert cluster.live is not None, "the caller has a live cluster"
        if table("eviction").load(eviction).oracle:
            raise ConfigError(f"eviction policy {eviction!r} sees the future, which real servers do not know")
        self.cluster, self.eviction, self.live = cluster, eviction, cluster.live
        self.logs = logs or Path(tempfile.mkdtemp(prefix="kvgym-servers-"))
        self.logs.mkdir(parents=True, exist_ok=True)
        self._progress = progress
        self._processes: list[subprocess.Popen[bytes]] = []
        self.ports = [free_port(self.live.host) for _ in range(cluster.workers)]
        self._nonce = secrets.token_hex(4)  # tells our servers from another's at the same port
        self.servers: list[Server] = []
        devices = self.live.devices
        if len(devices) not in (1, cluster.workers):
            raise ConfigError(f"live.devices has {len(devices)} entries for {cluster.workers} workers; give 1 or each")
        self._guard = Watchdog()
        atexit.register(self.close)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    @property
    def urls(self) -> list[str]:
        """Addresses of the workers."""
        return [f"http://{self.live.host}:{port}" for port in self.ports]

    def start_worker(self, worker: int) -> None:
        """Start the server of `worker` at its port, without waiting for it; also after it was killed."""
        if worker < len(self._processes):
            self._processes[worker].wait(timeout=10)  # it has ended; this clears it away
            self._guard.forget(self._processes[worker].pid)
        command, environment = server_command(
            self.cluster, self.eviction, worker, self.ports[worker], self._label(worker)
        )
        # A Ctrl-C in between would leave a server that nobody knows of.
        with (self.logs / f"worker-{worker}.log").open("ab") as log, ignored():
            try:
                process = subprocess.Popen(
                    command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
                )
            except OSError as error:
                raise BackendError(f"cannot run {command[0]}: {error.strerror}; set live.python") from error
            if worker < len(self._processes):
                self._processes[worker] = process
            else:
                self._processes.append(process)
            self._guard.watch(process.pid)

    def group(self, worker: int) -> int:
        """Return the process group of a worker, for signals."""
        return self._processes[worker].pid

    def wait_healthy(self, worker: int) -> Server:
        """Return what the server of `worker` says of itself, as soon as it is healthy."""
        url, process = self.urls[worker], self._processes[worker]
        deadline_s = time.monotonic() + self.live.start_timeout_s
        while time.monotonic() < deadline_s:
            if process.poll() is not None:
                raise BackendError(f"server {worker} ended with status {process.returncode}: {self._tail(worker)}")
            if healthy(url):
                return self._ours(worker, url)
            time.sleep(0.2)
        raise BackendError(
            f"server {worker} at {url} is not healthy after {self.live.start_timeout_s:g} s (live.start_timeout_s): "
            f"{self._tail(worker)}"
        )

    def _label(self, worker: int) -> str:
        return f"worker-{worker}-{self._nonce}"

    def _ours(self, worker: int, url: str) -> Server:
        taken = f"port {self.ports[worker]} is in use by another server, which answers at {url}; start again"
        try:
            server = check_server(url, self.eviction, api_key(self.live))
        except BackendError as error:
            raise BackendError(f"{error}; if it is none of ours: {taken}") from error
        if server.info.get("weight_version") != self._label(worker):
            raise BackendError(taken)
        return server

    def revive(self) -> None:
        """Start servers that have ended anew, and wait until all are healthy."""
        for worker, process in enumerate(self._processes):
            if process.poll() is not None:
                stop_groups([process.pid])
                self.start_worker(worker)
                self.servers[worker] = self.wait_healthy(worker)

    def close(self) -> None:
        """Stop every server that was started, and wait until all are gone."""
        atexit.unregister(self.close)
        groups = [process.pid for process in self._processes]
        stop_groups(groups)
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
        for worker in range(len(groups)):
            events_socket(self._label(worker)).unlink(missing_ok=True)
        self._processes = []
        self._guard.close()

    def __enter__(self) -> Fleet:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the servers."""
        self.close()

    def _start(self) -> None:
        for worker in range(self.cluster.workers):
            self.start_worker(worker)
        self._progress(f"starting {self.cluster.workers} SGLang servers ({self.eviction}); logs in {self.logs}")
        for worker in range(self.cluster.workers):
            server = self.wait_healthy(worker)
            self.servers.append(server)
            self._progress(f"{server.url}: SGLang {server.version}, {server.capacity_tokens:,} tokens of KV cache")

    def _tail(self, worker: int) -> str:
        path = self.logs / f"worker-{worker}.log"
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        return f"{path} ends with: {' | '.join(line[:200] for line in lines[-4:])}"


def server_command(
    cluster: ClusterConfig, eviction: str, worker: int, port: int, label: str
) -> tuple[list[str], dict[str, str]]:
    """Return the command line and the environment that start the server of `worker`; its answers carry `label`."""
    live = cluster.live
    assert live is not None, "the caller has a live cluster"
    python = live.python or os.environ.get("KVGYM_LIVE_PYTHON") or sys.executable
    device = live.devices[worker % len(live.devices)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"} | (
        CPU_ENVIRONMENT if device == "cpu" else {"CUDA_VISIBLE_DEVICES": device}
    )
    if short_name(eviction) == LEARNED:
        environment[FILE_VARIABLE] = os.path.abspath(eviction)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled modules halve the start
    command = [python, "-m", "sglang.launch_server", "--model-path", live.model, "--host", live.host]
    command += ["--port", str(port), "--page-size", str(cluster.page_size), "--enable-metrics"]
    command += ["--random-seed", str(worker), "--weight-version", label]
    command += ["--chunked-prefill-size", str(cluster.chunk_tokens)]
    command += ["--max-prefill-tokens", str(cluster.max_prefill_tokens)]
    if device == "cpu":
        command += CPU_FLAGS
    else:
        command += ["--tensor-parallel-size", str(len(device.split(",")))]
    if live.memory_fraction is None:
        command += ["--max-total-tokens", str(cluster.capacities[worker])]
    else:
        command += ["--mem-fraction-static", str(live.memory_fraction)]
    command += policy_flags(eviction)
    if live.kv_events:
        address = f"ipc://{events_socket(label)}"
        events = {"publisher": "zmq", "topic": "kv-events", "endpoint": address, "bind": True}
        command += ["--kv-events-config", json.dumps(events)]
    if key := api_key(live):
        command += ["--api-key", key]
    return command + list(live.flags), environment


def events_socket(label: str) -> Path:
    """Return the local socket at which the server with this label publishes KV events."""
    return Path(tempfile.gettempdir()) / f"kvgym-{label}.events"


def api_key(live: LiveConfig) -> str:
    """Return the API key from the environment, or ''.

    Raises:
        ConfigError: the variable that should hold it is not set.
    """
    if not live.api_key_variable:
        return ""
    if live.api_key_variable not in os.environ:
        raise ConfigError(f"live.api_key_variable names {live.api_key_variable!r}, which is not set")
    return os.environ[live.api_key_variable]


def free_port(host: str) -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def healthy(url: str, timeout_s: float = 5.0) -> bool:
    """Return whether a server answers that it is ready."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=timeout_s) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError, http.client.HTTPException):
        return False


def server_at(url: str, key: str = "") -> Server:
    """Return what a running server says of itself.

    Raises:
        BackendError: it cannot be reached, wants another API key, or is no SGLang server.
    """
    request = urllib.request.Request(f"{url}/server_info", headers={"Authorization": f"Bearer {key}"} if key else {})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            info = json.load(answer)
    except urllib.error.HTTPError as error:
        hint = "; set live.api_key_variable" if error.code in (401, 403) else ""
        raise BackendError(f"{url}/server_info answers HTTP {error.code}{hint}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise BackendError(f"cannot reach an SGLang server at {url}: {error}; is it running?") from error
    info = info if isinstance(info, dict) else {}
    capacity, page = info.get("max_total_num_tokens"), info.get("page_size", 1)
    if not (isinstance(capacity, int) and capacity > 0 and isinstance(page, int) and page > 0):
        raise BackendError(
            f"{url}/server_info has no usable max_total_num_tokens and page_size ({capacity!r}, {page!r}): is it an "
            f"SGLang {RELEASE} server?"
        )
    return Server(url, capacity, str(info.get("version", "?")), info)


def check_server(url: str, eviction: str, key: str = "") -> Server:
    """Return what a running server says of itself, if it evicts by `eviction`.

    Raises:
        BackendError: it cannot be reached, wants another API key, or evicts otherwise.
    """
    server = server_at(url, key)
    found = str(server.info.get("radix_cache_backend") or server.info.get("radix_eviction_policy"))
    if found.removeprefix(PREFIX) != short_name(eviction):
        raise BackendError(
            f"the server at {url} evicts by {found!r}, this run asks for {eviction!r}: start it with "
            f"{' '.join(policy_flags(eviction))}"
        )
    return server


def policy_flags(eviction: str) -> Sequence[str]:
    """Return the flags that make a server evict by `eviction`."""
    if eviction in BUILT_IN:
        return ("--radix-eviction-policy", eviction)
    return ("--radix-cache-backend", PREFIX + short_name(eviction))
