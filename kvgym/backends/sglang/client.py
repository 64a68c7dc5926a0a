"""Speaks to one SGLang server: streamed generation with times, health, loads, counters; every error has a meaning."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvgym.config.live import LiveConfig
from kvgym.errors import BackendError

if TYPE_CHECKING:
    import aiohttp

ANSWERED, REFUSED, LOST = "answered", "refused", "lost"
"""How a request ended at a server: with all its tokens; refused for good (HTTP 400 and 413: too long); or lost (no
connection, broken or silent stream, HTTP 429 and 5xx), which may be sent again."""


@dataclass
class Answer:
    """What came of one attempt; times are of `time.monotonic`, -1 where nothing came."""

    request: int
    worker: int
    outcome: str
    sent_s: float
    first_s: float = -1.0
    finish_s: float = -1.0
    queue_s: float = 0.0  # in the server's waiting queue
    cached_tokens: int = 0
    prompt_tokens: int = 0
    retractions: int = 0
    output_ids: list[int] = field(default_factory=list)
    label: str = ""  # weight_version of the server that answered
    error: str = ""


def open_session(live: LiveConfig, api_key: str, connections: int) -> aiohttp.ClientSession:
    """Return an HTTP session with the timeouts and the API key of `live`; call it inside the event loop.

    At most `connections` at a time to each server, 0: any number.

    Each request has a connection of its own. SGLang gives an idle one up after 5 s, and a server that was stalled for
    so long does that before it reads the request that has come over it meanwhile: the request would be lost.
    """
    import aiohttp

    connector = aiohttp.TCPConnector(limit=0, limit_per_host=connections, ssl=live.verify_tls, force_close=True)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=live.connect_timeout_s, sock_read=live.stall_timeout_s)
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    return aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers)


async def generate(
    session: aiohttp.ClientSession, url: str, body: dict[str, Any], answer: Answer, on_first: Callable[[], None]
) -> Answer:
    """Send one request (`body` of POST /generate), read its stream to the end, and fill in `answer`.

    `on_first` is called at the first token.

    Raises:
        BackendError: the server wants another API key, or does not know the route: no retry would help.
    """
    import aiohttp

    last: dict[str, Any] = {}
    try:
        async with session.post(f"{url}/generate", json={**body, "stream": True}) as response:
            if response.status != 200:
                return _refused(url, response.status, (await response.text())[:300], answer)
            async for last in _events(response):
                if reason := _aborted(last):
                    return _refused(
                        url, int(reason.get("status_code") or 500), str(reason.get("message"))[:300], answer
                    )
                if answer.first_s < 0 and last.get("output_ids"):
                    answer.first_s = time.monotonic()
                    on_first()
        answer.finish_s = time.monotonic()
        _read(url, last, answer)
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        answer.outcome, answer.error = LOST, f"{url}: {type(error).__name__} {error}"
    except (LookupError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__} {error}"
        answer.outcome, answer.error = LOST, f"{url}: an answer unlike SGLang's ({what}): {str(last)[:200]}"
    return answer


def _read(url: str, last: dict[str, Any], answer: Answer) -> None:
    """Fill in `answer` from the last event of a stream."""
    meta = last.get("meta_info") or {}
    reason = (meta.get("finish_reason") or {}).get("type")
    if reason not in ("length", "stop"):
        answer.outcome, answer.error = LOST, f"{url}: the stream ended without all its tokens ({reason})"
        return
    answer.cached_tokens, answer.prompt_tokens = int(meta["cached_tokens"]), int(meta["prompt_tokens"])
    answer.retractions, answer.queue_s = int(meta.get("num_retractions") or 0), float(meta.get("queue_time") or 0.0)
    answer.label = str(meta.get("weight_version", ""))
    answer.outcome, answer.output_ids = ANSWERED, list(last["output_ids"])


def _refused(url: str, status: int, text: str, answer: Answer) -> Answer:
    if status in (401, 403):
        raise BackendError(f"{url} answers {status}: wrong or missing API key; set live.api_key_variable")
    if status == 404:
        raise BackendError(f"{url} has no /generate: is it an SGLang server?")
    answer.outcome = REFUSED if status in (400, 413) else LOST
    answer.error = f"{url}: HTTP {status} {text}"
    answer.finish_s = time.monotonic()
    return answer


def _aborted(event: dict[str, Any]) -> dict[str, Any] | None:
    """Return why a request was given up after its stream had begun with HTTP 200, as SGLang does with long prompts."""
    if "error" in event:
        error = event["error"] if isinstance(event["error"], dict) else {"message": event["error"]}
        return {"status_code": error.get("code"), "message": error.get("message")}
    reason = (event.get("meta_info") or {}).get("finish_reason") or {}
    return reason if reason.get("type") == "abort" else None


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """Yield the JSON objects of a server-sent event stream; lines may be of any length."""
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and (payload := line[5:].strip()) != b"[DONE]":
                yield json.loads(payload)


async def get_json(session: aiohttp.ClientSession, url: str, timeout_s: float) -> Any:
    """Return the JSON of a GET.

    Raises:
        aiohttp.ClientError, TimeoutError, OSError, ValueError: no usable answer.
    """
    import aiohttp

    async with session.get(url, timeout=aiohttp.ClientTimeout(total=timeout_s)) as response:
        response.raise_for_status()
        return await response.json(content_type=None)


async def get_text(session: aiohttp.ClientSession, url: str, timeout_s: float) -> str:
    """Return the text of a GET; raises as `get_json`."""
    import aiohttp

    async with session.get(url, timeout=aiohttp.ClientTimeout(total=timeout_s)) as response:
        response.raise_for_status()
        return await response.text()


def counter(text: str, name: str) -> float:
    """Return the sum of a Prometheus counter over its labels; 0 where it has not appeared yet."""
    total = 0.0
    for line in text.splitlines():
        if line.startswith(name) and line[len(name) :][:1] in ("{", " "):
            total += float(line.rpartition(" ")[2])
    return total
