"""Sends one request to one server and passes the answer back as it comes."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvgym.config.route import RouteConfig
from kvgym.errors import KVGymError
from kvgym.proxy.usage import Reported, UsageReader

if TYPE_CHECKING:
    import aiohttp
    from aiohttp import web

HOP_BY_HOP = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade",
}  # fmt: skip
"""Headers that are between two neighbours only (RFC 9110 7.6.1)."""
TRY_ELSEWHERE = (429, 500, 502, 503, 504)
"""Answers after which another server may do better."""
_MOST_ERROR = 1 << 16
_MB = 1 << 20


class LostError(KVGymError):
    """A server gave nothing that may be passed on, so the request may go elsewhere.

    Attributes:
        refused: no connection: the server is down.
        rest_s: how long it asked to be left alone (Retry-After).
        answer: its own error answer (status, headers, body), for the client should nobody do better.
    """

    def __init__(
        self,
        why: str,
        refused: bool = False,
        rest_s: float = 0.0,
        answer: tuple[int, Mapping[str, str], bytes] | None = None,
    ) -> None:
        super().__init__(why)
        self.refused, self.rest_s, self.answer = refused, rest_s, answer


@dataclass
class Passed:
    """An answer that went to the client: its status, whether it ended in good order, and what the server reported."""

    response: web.StreamResponse
    status: int
    whole: bool
    reported: Reported


class Relay:
    """Passes requests on over one session with pooled connections."""

    def __init__(self, config: RouteConfig, session: aiohttp.ClientSession) -> None:
        self._config, self._session = config, session

    async def send(self, request: web.Request, body: bytes, url: str, first: Callable[[], None]) -> Passed:
        """Send `request` to the server at `url` and pass the answer on; `first` is called at its first byte.

        Raises:
            LostError: nothing has gone to the client yet.
        """
        import aiohttp

        headers = self._headers(request)
        data = io.BytesIO(body) if len(body) > _MB else body  # aiohttp sends these in pieces
        try:
            async with self._session.request(
                request.method, f"{url}{request.rel_url}", data=data, headers=headers, allow_redirects=False
            ) as answer:
                await self._check(answer, url)
                start = await answer.content.readany()
                return await self._pass_on(request, answer, start, first)
        except (aiohttp.ClientConnectorError, ConnectionRefusedError) as error:
            raise LostError(f"{url}: {error}", refused=True) from error
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise LostError(f"{url}: {type(error).__name__} {error}") from error

    def _headers(self, request: web.Request) -> list[tuple[str, str]]:
        named = {name.strip().lower() for name in request.headers.get("Connection", "").split(",")}
        left_out = HOP_BY_HOP | named | {"host", "content-length", "expect"}
        if self._config.worker_key or self._config.api_key:
            left_out = left_out | {"authorization"}  # the client's key is for this router
        kept = [(name, value) for name, value in request.headers.items() if name.lower() not in left_out]
        if self._config.worker_key:
            kept.append(("Authorization", f"Bearer {self._config.worker_key}"))
        return kept

    async def _check(self, answer: aiohttp.ClientResponse, url: str) -> None:
        """Raise what lets the request go elsewhere, where the answer's status says that this may help."""
        if answer.status not in TRY_ELSEWHERE:
            return
        body = await answer.content.read(_MOST_ERROR)
        rest = answer.headers.get("Retry-After", "")
        rest_s = float(rest) if rest.isdigit() else 0.0
        kept = {
            name: value for name, value in answer.headers.items() if name.lower() in ("content-type", "retry-after")
        }
        raise LostError(f"{url}: HTTP {answer.status}", rest_s=rest_s, answer=(answer.status, kept, body))

    async def _pass_on(
        self, request: web.Request, answer: aiohttp.ClientResponse, start: bytes, first: Callable[[], None]
    ) -> Passed:
        import aiohttp
        from aiohttp import web

        streamed = answer.content_type == "text/event-stream"
        usage = UsageReader(streamed)
        response = web.StreamResponse(status=answer.status, reason=answer.reason)
        for name, value in answer.headers.items():
            if name.lower() not in HOP_BY_HOP | {"content-length", "server", "date"}:
                response.headers.add(name, value)
        if answer.content_length is not None and request.method != "HEAD":
            response.content_length = answer.content_length
        first()
        await response.prepare(request)
        sent, whole, chunk = 0, True, start
        try:
            while chunk:
                usage.feed(chunk)
                sent += len(chunk)
                if sent > self._config.most_answer_mb * _MB:
                    raise ValueError(f"longer than {self._config.most_answer_mb:g} MB")
                await response.write(chunk)
                chunk = await answer.content.readany()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            whole = False
            await self._break_off(request, response, streamed, error)
        if whole:
            await response.write_eof()
        return Passed(response, answer.status, whole, usage.report())

    async def _break_off(
        self, request: web.Request, response: web.StreamResponse, streamed: bool, error: Exception
    ) -> None:
        """Tell the client that the answer ends here: an event in a stream, else a connection that breaks."""
        if streamed:
            text = f'data: {{"error": {{"message": "the server was lost in the middle: {type(error).__name__}", ' \
                   '"type": "server_error", "code": 502}}\n\n'  # fmt: skip
            await response.write(text.encode())
            await response.write_eof()
        elif request.transport is not None:
            request.transport.abort()
