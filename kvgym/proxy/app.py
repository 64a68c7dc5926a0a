"""The router's HTTP side: what each path does, who may use it, and how a request finds its server."""

from __future__ import annotations

import hmac
import logging
import time
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from kvgym.config.route import RouteConfig
from kvgym.errors import ConfigError, SimulationError, WorkloadError
from kvgym.proxy.reading import Reader
from kvgym.proxy.relay import LostError, Passed, Relay
from kvgym.proxy.request_log import RequestLog
from kvgym.proxy.seat import Seat, Signals, Ticket
from kvgym.proxy.shadow import Shadow
from kvgym.proxy.telemetry import Telemetry
from kvgym.proxy.usage import Reported
from kvgym.proxy.workers import Workers
from kvgym.types import DONE, FAILED, REJECTED

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

logger = logging.getLogger(__name__)

ROUTED = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/generate")
"""Paths whose prompts the controller places."""
PASSED = ("/v1/embeddings", "/v1/rerank", "/v1/score", "/tokenize", "/detokenize")
"""Paths that go to the worker with the fewest requests."""
OPEN = ("/health", "/ready")
"""Paths that need no key."""
_MB = 1 << 20
_CLIENT_GONE = 499


class Router:
    """One router process: takes requests, lets the controller choose, passes answers back.

    Attributes:
        stopping: no new request is taken.
        active: requests that are here now.
    """

    def __init__(
        self,
        config: RouteConfig,
        workers: Workers,
        seat: Seat,
        reader: Reader,
        relay: Relay,
        telemetry: Telemetry,
        log: RequestLog | None = None,
    ) -> None:
        self._config, self._workers, self._seat, self._reader = config, workers, seat, reader
        self._relay, self._telemetry, self._log = relay, telemetry, log
        self.stopping = False
        self.active = 0

    def application(self) -> web.Application:
        """Return the aiohttp application."""
        app = web.Application(client_max_size=int(self._config.most_body_mb * _MB), middlewares=[self._guard])
        app.add_routes([web.post(path, self._routed) for path in ROUTED])
        app.add_routes([web.post(path, self._passed) for path in PASSED])
        app.add_routes(
            [
                web.get("/v1/models", self._passed),
                web.get("/health", self._health),
                web.get("/ready", self._ready),
                web.get("/metrics", self._metrics),
                web.get("/workers", self._list),
                web.post("/workers", self._change),
            ]
        )
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check the key, and give every error one form."""
        key = self._config.api_key
        if key and request.path not in OPEN:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), key.encode()):
                return _error(401, "wrong or missing API key; send Authorization: Bearer KEY")
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            hint = f"; the limit is {self._config.most_body_mb:g} MB" if error.status == 413 else ""
            return _error(error.status, f"{error.reason}{hint}")
        except (WorkloadError, ConfigError) as error:
            return _error(400, str(error))

    async def _routed(self, request: web.Request) -> web.StreamResponse:
        if self.stopping:
            return _error(503, "this router is stopping", {"Retry-After": "1"})
        arrived_s = time.monotonic()
        body = await request.read()
        asked = self._reader.read(_parsed(body))
        begun_s = time.monotonic()
        ticket = self._seat.enter(asked)
        self.active += 1
        try:
            return await self._place(request, body, ticket, arrived_s, begun_s)
        finally:
            self.active -= 1

    async def _place(
        self, request: web.Request, body: bytes, ticket: Ticket, arrived_s: float, begun_s: float
    ) -> web.StreamResponse:
        """Send a request to the controller's choice, elsewhere if that is lost before its first byte."""
        lost: LostError | None = None
        while ticket.attempts <= self._config.retries:
            signals = self._workers.signals()
            if not signals.mask.any():
                if not await self._workers.wait_for_one(self._config.wait_s):
                    break
                signals = self._workers.signals()
            self._choose(ticket, signals, begun_s)
            place, url = ticket.worker, self._workers.places[ticket.worker].url
            ended, passed = False, None
            try:
                passed = await self._relay.send(request, body, url, lambda: self._seat.first(ticket))
                ended = True
            except LostError as error:
                ended, lost = True, error
                logger.warning("request %d, attempt %d: %s", ticket.request, ticket.attempts, error)
                self._telemetry.retries.labels(url).inc()
                self._workers.failed(place, error.refused, error.rest_s)
            finally:
                self._seat.leave(ticket)
                if not ended:  # the client has gone: the connection upstream is closed with it
                    self._telemetry.gone.inc()
                    self._finish(ticket, FAILED, url, _CLIENT_GONE, Reported(), arrived_s)
            if passed is not None:
                return self._answered(ticket, place, url, passed, arrived_s)
        url = self._workers.places[ticket.worker].url if ticket.worker >= 0 else ""
        self._finish(ticket, FAILED, url, 503 if lost is None else 502, Reported(), arrived_s)
        if lost is None:
            return _error(503, "no server is up", {"Retry-After": "1"})
        if lost.answer is not None:
            status, headers, text = lost.answer
            return web.Response(status=status, headers=dict(headers), body=text)
        return _error(502, f"no server answered: {str(lost)[:300]}")

    def _choose(self, ticket: Ticket, signals: Signals, begun_s: float) -> None:
        try:
            self._seat.route(ticket, signals)
        except SimulationError as error:
            raise web.HTTPServiceUnavailable(reason=" ".join(str(error).split())) from error
        self._telemetry.decision.observe(time.monotonic() - begun_s)

    def _answered(self, ticket: Ticket, place: int, url: str, passed: Passed, arrived_s: float) -> web.StreamResponse:
        if passed.whole:
            self._workers.succeeded(place)
        else:
            self._workers.failed(place)
        good = passed.whole and passed.status < 400
        status = DONE if good else REJECTED if passed.whole else FAILED
        if good:
            hits = ticket.believed_tokens if passed.reported.cached_tokens < 0 else passed.reported.cached_tokens
            self._telemetry.prompt.inc(len(ticket.asked.ids))
            self._telemetry.cached.inc(hits)
            self._telemetry.believed.inc(ticket.believed_tokens)
        self._finish(ticket, status, url, passed.status if passed.whole else 502, passed.reported, arrived_s)
        return passed.response

    def _finish(self, ticket: Ticket, status: int, url: str, code: int, reported: Reported, arrived_s: float) -> None:
        """Tell the controller, the metrics and the log how a request has ended."""
        hits = ticket.believed_tokens if reported.cached_tokens < 0 else reported.cached_tokens
        row = self._seat.end(ticket, status, hits, max(reported.output_tokens, 0))
        self._telemetry.requests.labels(url or "none", str(code)).inc()
        if status == DONE:
            self._telemetry.latency.observe(time.monotonic() - arrived_s)
            self._telemetry.ttft.observe(max(ticket.first_s - ticket.arrival_s, 0.0))
        if self._log is not None:
            self._log.write(ticket, arrived_s, url, code, reported, row)

    async def _passed(self, request: web.Request) -> web.StreamResponse:
        """Pass a request without a prompt to the least busy worker."""
        if not await self._workers.wait_for_one(self._config.wait_s):
            return _error(503, "no server is up", {"Retry-After": "1"})
        body, tried = await request.read(), set[int]()
        lost: LostError | None = None
        for _ in range(self._config.retries + 1):
            mask, busy = self._workers.signals().mask, self._seat.inflight[0]
            free = [place for place in range(len(mask)) if mask[place] and place not in tried]
            if not free:
                break
            place = min(free, key=lambda each: int(busy[each]))
            tried.add(place)
            try:
                passed = await self._relay.send(request, body, self._workers.places[place].url, lambda: None)
                return passed.response
            except LostError as error:
                lost = error
                self._workers.failed(place, error.refused, error.rest_s)
        if lost is not None and lost.answer is not None:
            return web.Response(status=lost.answer[0], headers=dict(lost.answer[1]), body=lost.answer[2])
        return _error(502, f"no server answered: {str(lost)[:300]}")

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"status": "ok"})

    async def _ready(self, _: web.Request) -> web.StreamResponse:
        up = int(self._workers.signals().mask.sum())
        ready = up > 0 and not self.stopping
        return web.json_response({"ready": ready, "workers_up": up}, status=200 if ready else 503)

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        for shadow in self._seat.shadows:
            self._publish(shadow)
        page = self._telemetry.page(self._workers.places, self._seat.inflight[0].tolist())
        return web.Response(body=page, content_type="text/plain", charset="utf-8")

    def _publish(self, shadow: Shadow) -> None:
        for counter, total in ((self._telemetry.shadow_decisions, shadow.decisions),
                               (self._telemetry.shadow_agrees, shadow.agreements),
                               (self._telemetry.shadow_believed, shadow.believed_tokens)):  # fmt: skip
            labelled = counter.labels(shadow.name)
            labelled.inc(total - labelled._value.get())

    async def _list(self, _: web.Request) -> web.StreamResponse:
        busy = self._seat.inflight[0].tolist()
        rows = [
            {"url": worker.url, "state": worker.state, "inflight": count, "running": worker.running,
             "queued": worker.queued, "kv_used_tokens": worker.kv_used_tokens,
             "kv_capacity_tokens": worker.capacity_tokens}
            for worker, count in zip(self._workers.places, busy, strict=False) if not worker.gone
        ]  # fmt: skip
        return web.json_response({"workers": rows})

    async def _change(self, request: web.Request) -> web.StreamResponse:
        """Do what ``{"action": "add" | "drain" | "remove", "url": ...}`` says."""
        data = _parsed(await request.read())
        action, url = (data.get("action"), data.get("url")) if isinstance(data, dict) else (None, None)
        if action == "add":
            await self._workers.add(str(url))
        elif action == "drain":
            self._workers.drain(str(url))
        elif action == "remove":
            self._workers.remove(str(url))
        else:
            raise ConfigError(f"action must be add, drain or remove, got {action!r}")
        return await self._list(request)


def _parsed(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise WorkloadError(f"the body is no JSON: {str(error)[:200]}") from error


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return web.json_response(
        {"error": {"message": message, "type": kind, "code": status}}, status=status, headers=headers
    )
