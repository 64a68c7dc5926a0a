"""Starts a router and stops it in good order: sockets, TLS, signals, several processes behind one port."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from kvgym.config.contracts import make_controller
from kvgym.config.route import RouteConfig
from kvgym.errors import ConfigError
from kvgym.proxy.app import Router
from kvgym.proxy.reading import Reader
from kvgym.proxy.relay import Relay
from kvgym.proxy.request_log import RequestLog
from kvgym.proxy.seat import Seat
from kvgym.proxy.telemetry import Telemetry
from kvgym.proxy.workers import Workers

logger = logging.getLogger(__name__)
Facts = dict[str, Any]
CHILD_VARIABLE = "KVGYM_ROUTE_CHILD"
"""Set in the processes that share a port: their number."""
_LINE_BYTES, _FIELD_BYTES = 8190, 16_380  # longest request line and header


def serve(
    config: RouteConfig, reload: Callable[[], list[str]], told: Callable[[str], None], ready: Callable[[Facts], None]
) -> None:
    """Route until SIGINT or SIGTERM; requests that are here by then may finish. SIGHUP reads the workers anew.

    Args:
        config: the settings.
        reload: returns the workers' addresses at SIGHUP.
        told: is told what SIGHUP has changed.
        ready: is told the url (or address), the controller and how many workers are up, as soon as it listens.

    Raises:
        ConfigError: the address can't be had, a certificate or controller is wrong.
    """
    if config.processes > 1 and CHILD_VARIABLE not in os.environ:
        _share_port(config, ready)
        return
    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.run(run(config, reload, told, ready))


async def run(
    config: RouteConfig,
    reload: Callable[[], list[str]],
    told: Callable[[str], None],
    ready: Callable[[Facts], None],
    stop: asyncio.Event | None = None,
) -> None:
    """Route inside a running loop until `stop` is set (none: until a signal)."""
    stopped = stop or asyncio.Event()
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=config.connect_timeout_s, sock_read=config.stall_timeout_s)
    connector = aiohttp.TCPConnector(limit=config.connections, ssl=config.verify_tls, keepalive_timeout=4.0)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, auto_decompress=False, skip_auto_headers=("User-Agent", "Accept-Encoding")
    ) as session:
        router, workers, log = await _made(config, session)
        runner = web.AppRunner(
            router.application(), handler_cancellation=True, access_log=None, shutdown_timeout=config.grace_s,
            max_line_size=_LINE_BYTES, max_field_size=_FIELD_BYTES, auto_decompress=False,
        )  # fmt: skip
        await runner.setup()
        try:
            url = await _listen(config, runner)
            _handle_signals(stopped, workers, reload, told)
            up = int(workers.signals().mask.sum())
            ready({"url": url, "routing": config.routing, "workers": len(workers.places), "workers_up": up})
            await stopped.wait()
            await _drain(router, config.grace_s)
        finally:
            await workers.stop()
            await runner.cleanup()
            if log is not None:
                log.close()


async def _made(config: RouteConfig, session: aiohttp.ClientSession) -> tuple[Router, Workers, RequestLog | None]:
    """Return the router with all that it is made of; the workers have been asked once."""
    seat: Seat | None = None

    def changed() -> None:
        if seat is not None:
            seat.resize(workers.capacities)

    workers = Workers(config, changed)
    await workers.start(session)
    seat = Seat(
        _maker(config.routing, config.options or {}), workers.capacities, time.monotonic, config.page_size, config.seed,
        [(name, _maker(name, {})) for name in config.shadows],
    )  # fmt: skip
    log = RequestLog(Path(config.log), config.log_content) if config.log else None
    reader = Reader(Path(config.tokenizer) if config.tokenizer else None)
    return Router(config, workers, seat, reader, Relay(config, session), Telemetry(), log), workers, log


def _maker(name: str, options: dict[str, Any]) -> Callable[[int], Any]:
    return lambda workers: make_controller(name, options, max(workers, 1))


async def _listen(config: RouteConfig, runner: web.AppRunner) -> str:
    host, port = config.address
    context: ssl.SSLContext | None = None
    if config.tls_certificate:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(config.tls_certificate, config.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cannot use {config.tls_certificate} with {config.tls_key}: {error}") from error
    site = web.TCPSite(runner, host, port, ssl_context=context, reuse_port=CHILD_VARIABLE in os.environ or None)
    try:
        await site.start()
    except OSError as error:
        raise ConfigError(f"cannot listen on {config.listen}: {error.strerror or error}") from error
    bound = runner.addresses[0][1]
    return f"http{'s' * (context is not None)}://{host}:{bound}"


def _handle_signals(
    stopped: asyncio.Event, workers: Workers, reload: Callable[[], list[str]], told: Callable[[str], None]
) -> None:
    loop = asyncio.get_running_loop()

    async def again() -> None:
        try:
            await workers.become(reload())
        except ConfigError as error:
            told(f"SIGHUP changed nothing: {error}")
        else:
            told(f"workers: {', '.join(worker.url for worker in workers.places if not worker.gone)}")

    tasks = set[asyncio.Task[None]]()

    def hang_up() -> None:
        task = asyncio.ensure_future(again())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread, or no such signal
        loop.add_signal_handler(signal.SIGINT, stopped.set)
        loop.add_signal_handler(signal.SIGTERM, stopped.set)
        loop.add_signal_handler(signal.SIGHUP, hang_up)


async def _drain(router: Router, grace_s: float) -> None:
    """Take nothing new, and wait for what is here."""
    router.stopping = True
    end_s = time.monotonic() + grace_s
    while router.active and time.monotonic() < end_s:
        await asyncio.sleep(0.02)


def _share_port(config: RouteConfig, ready: Callable[[Facts], None]) -> None:
    """Run the same command several times over one port, and pass signals on to all."""
    if config.address[1] == 0:
        raise ConfigError("several processes need a port of their own: give listen a port other than 0")
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "kvgym", *sys.argv[1:]], env={**os.environ, CHILD_VARIABLE: str(number)}
        )
        for number in range(config.processes)
    ]

    scheme = "https" if config.tls_certificate else "http"
    ready({"url": f"{scheme}://{config.listen}", "routing": config.routing, "workers": len(config.workers),
           "processes": config.processes})  # fmt: skip

    def forward(number: int, _: Any) -> None:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, forward)
    codes = [child.wait() for child in children]
    told_to = (0, -signal.SIGINT, -signal.SIGTERM)  # one that had not begun to listen knows no better end
    if any(code not in told_to for code in codes):
        raise ConfigError(f"router processes ended with {codes}")
