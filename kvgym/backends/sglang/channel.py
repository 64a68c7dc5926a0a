"""An event loop in a thread sends the live backend's requests and polls its servers."""

from __future__ import annotations

import asyncio
import functools
import queue
import threading
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvgym.backends.sglang.client import Answer, counter, generate, get_json, get_text, open_session
from kvgym.config.live import LiveConfig
from kvgym.errors import BackendError

DOWN_AFTER = 2
"""Failed polls in a row after which a silent server counts as down; a refused connection counts at once."""


@dataclass
class Health:
    """What polls say of one server."""

    up: bool = True
    failed_polls: int = 0
    broken: bool = False  # a connection was refused or broke: if it comes back, it has restarted
    incarnation: int = 0
    running: int = 0
    queued: int = 0
    kv_used_tokens: int = 0


class Channel:
    """Sends requests to servers and watches over them; all public methods are for the caller's thread.

    Args:
        live: limits and timeouts.
        urls: servers, one per worker.
        api_key: sent with every request, if not empty.
        front: router in front of the servers, to which requests go instead; '' for none.
    """

    def __init__(self, live: LiveConfig, urls: Sequence[str], api_key: str, front: str = "") -> None:
        self.live, self.urls, self.front = live, list(urls), front
        self.health = [Health() for _ in urls]
        self.answers: queue.SimpleQueue[Answer | int | BaseException] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kvgym-live", daemon=True)
        self._thread.start()
        # Polls have connections of their own: generations may take all that `live.connections` allows.
        self._session = self._call(self._open(api_key, live.connections))
        self._watching = self._call(self._open(api_key, 0))
        self._polls = [asyncio.run_coroutine_threadsafe(self._poll(w), self._loop) for w in range(len(urls))]

    def send(self, request: int, worker: int, body: dict[str, Any], delay_s: float = 0.0) -> None:
        """Send a request; through `answers` come its number at the first token, and its `Answer` at the end."""
        answer = Answer(request, worker, "", time.monotonic())
        asyncio.run_coroutine_threadsafe(self._send(self.front or self.urls[worker], body, answer, delay_s), self._loop)

    def flush(self) -> None:
        """Empty the caches of all servers, which must be idle.

        Raises:
            BackendError: a server cannot be reached or refuses.
        """
        self._call(self._flush())

    def probe(self, worker: int) -> None:
        """Make a server compute and store a few tokens, and wait for it."""
        body = {"input_ids": [1] * 64, "sampling_params": {"max_new_tokens": 1}}
        answer = Answer(-1, worker, "", time.monotonic())
        self._call(generate(self._session, self.urls[worker], body, answer, lambda: None))

    def evicted_tokens(self) -> list[int]:
        """Return each server's count of evicted tokens since it started; -1 where it does not answer."""
        return self._call(self._evicted())

    def close(self) -> None:
        """Cancel what is on its way and end the thread; a second call does nothing."""
        if self._loop.is_closed():
            return
        self._call(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self, api_key: str, connections: int) -> Any:
        return open_session(self.live, api_key, connections)

    async def _send(self, url: str, body: dict[str, Any], answer: Answer, delay_s: float) -> None:
        try:
            await asyncio.sleep(delay_s)
            first = functools.partial(self.answers.put, answer.request)
            self.answers.put(await generate(self._session, url, body, answer, first))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # the caller's thread raises it
            self.answers.put(error)

    async def _flush(self) -> None:
        for url in self.urls:
            try:
                async with self._session.post(f"{url}/flush_cache?timeout=10") as response:
                    text = await response.text()
            except Exception as error:
                raise BackendError(f"cannot empty the cache of {url}: {type(error).__name__} {error}") from error
            if response.status != 200:
                raise BackendError(
                    f"{url} does not empty its cache (HTTP {response.status} {text[:200]}): is somebody else using it?"
                )

    async def _evicted(self) -> list[int]:
        totals = []
        for url in self.urls:
            try:
                text = await get_text(self._watching, f"{url}/metrics", self.live.poll_timeout_s)
                totals.append(int(counter(text, "sglang:evicted_tokens_total")))
            except Exception:
                totals.append(-1)
        return totals

    async def _poll(self, worker: int) -> None:
        import aiohttp

        health, url = self.health[worker], f"{self.urls[worker]}/v1/loads"
        while True:
            try:
                load = (await get_json(self._watching, url, self.live.poll_timeout_s))["loads"][0]
                running, queued = int(load["num_running_reqs"]), int(load["num_waiting_reqs"])
                used = int(load["num_used_tokens"])
            except (aiohttp.ClientConnectorError, ConnectionError):
                health.failed_polls, health.broken, health.up = DOWN_AFTER, True, False
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError, LookupError, TypeError):
                health.failed_polls += 1
                health.up = health.up and health.failed_polls < DOWN_AFTER
            else:
                health.running, health.queued, health.kv_used_tokens = running, queued, used
                health.incarnation += health.broken
                health.up, health.failed_polls, health.broken = True, 0, False
            await asyncio.sleep(self.live.poll_s)

    async def _shut(self) -> None:
        this = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not this]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._session.close()
        await self._watching.close()

    def mark_broken(self, worker: int) -> None:
        """A request was lost at `worker`: keep it masked until a poll succeeds."""
        health = self.health[worker]
        health.up, health.failed_polls = False, DOWN_AFTER

    def signals(self) -> tuple[np.ndarray, ...]:
        """Return (running, queued, KV tokens used, up, incarnation), each of shape (workers,)."""
        rows = [(h.running, h.queued, h.kv_used_tokens, h.up, h.incarnation) for h in self.health]
        running, queued, used, up, incarnation = zip(*rows, strict=True)
        return (
            *(np.array(x, np.int64) for x in (running, queued, used)),
            np.array(up),
            np.array(incarnation, np.int64),
        )
