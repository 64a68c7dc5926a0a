"""Knows the servers with their health, load and rest after failures; they may come, drain and go at any time."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kvgym.config.route import RouteConfig, check_url
from kvgym.errors import ConfigError
from kvgym.proxy.seat import Signals

if TYPE_CHECKING:
    import aiohttp

DOWN_AFTER = 2
"""Polls in a row without an answer, after which a worker is down."""
_LONGEST_REST_S = 60.0
_POLL_TIMEOUT_S = 2.0
_MOST_METRICS = 4 << 20  # bytes of a /metrics page that are read


@dataclass
class Worker:
    """One server in its place; `gone` ones have left, and their place is free for another."""

    url: str
    capacity_tokens: int
    up: bool = False
    draining: bool = False
    gone: bool = False
    running: int = 0
    queued: int = 0
    kv_used_tokens: int = 0
    incarnation: int = 0
    failures: int = 0
    rests_until_s: float = 0.0
    failed_polls: int = 0
    broken: bool = False  # a connection was refused: the cache is empty when it comes back

    @property
    def state(self) -> str:
        """One word for it."""
        if self.gone:
            return "gone"
        if self.draining:
            return "draining"
        if not self.up:
            return "down"
        return "resting" if self.rests_until_s > time.monotonic() else "up"


class Workers:
    """The places of the fleet; place i is worker i of every decision.

    Args:
        config: addresses, limits and periods.
        changed: called when the number of places has grown.
    """

    def __init__(self, config: RouteConfig, changed: Callable[[], None]) -> None:
        self._config, self._changed = config, changed
        self.places = [Worker(check_url(url), config.capacity_tokens) for url in config.workers]
        self._polls: dict[int, asyncio.Task[None]] = {}
        self._session: aiohttp.ClientSession | None = None
        self.news = asyncio.Event()

    async def start(self, session: aiohttp.ClientSession) -> None:
        """Begin to poll, and wait until each server has been asked once."""
        self._session = session
        await asyncio.gather(*(self._look(worker) for worker in self.places))
        for place in range(len(self.places)):
            self._watch(place)

    async def stop(self) -> None:
        """End the polls."""
        for task in self._polls.values():
            task.cancel()
        await asyncio.gather(*self._polls.values(), return_exceptions=True)

    @property
    def capacities(self) -> list[int]:
        """KV tokens of each place."""
        return [worker.capacity_tokens for worker in self.places]

    def signals(self) -> Signals:
        """Return what is known of all places now."""
        now_s = time.monotonic()
        rows = [
            (w.running, w.queued, w.kv_used_tokens, w.incarnation, w.up and not w.draining and not w.gone)
            for w in self.places
        ]
        table = np.array(rows, np.int64).reshape(-1, 5)
        mask = table[:, 4].astype(bool)
        rested = mask & np.array([worker.rests_until_s <= now_s for worker in self.places], bool)
        return Signals(table[:, 0], table[:, 1], table[:, 2], rested if rested.any() else mask, table[:, 3])

    async def wait_for_one(self, timeout_s: float) -> bool:
        """Wait until somebody may be chosen; return whether somebody may."""
        end_s = time.monotonic() + timeout_s
        while not self.signals().mask.any():
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return False
            self.news.clear()
            try:
                await asyncio.wait_for(self.news.wait(), min(left_s, 0.5))
            except TimeoutError:
                continue
        return True

    def succeeded(self, place: int) -> None:
        """Note an answer."""
        worker = self.places[place]
        worker.failures, worker.rests_until_s = 0, 0.0

    def failed(self, place: int, refused: bool = False, rest_s: float = 0.0) -> None:
        """Note a lost request: after some in a row, or at once for `rest_s`, the worker rests; refused: it is down."""
        worker = self.places[place]
        worker.failures += 1
        if refused:
            worker.up, worker.broken, worker.failed_polls = False, True, DOWN_AFTER
        extra = worker.failures - self._config.break_after
        if extra >= 0:
            rest_s = max(rest_s, self._config.break_s * 2.0 ** min(extra, 10))
        if rest_s:
            worker.rests_until_s = time.monotonic() + min(rest_s, _LONGEST_REST_S)

    async def add(self, url: str) -> int:
        """Add a server, in a free place if there is one; return its place.

        Raises:
            ConfigError: it is no address, or there already.
        """
        url = check_url(url)
        if any(worker.url == url and not worker.gone for worker in self.places):
            raise ConfigError(f"{url} is there already")
        place = next((i for i, worker in enumerate(self.places) if worker.gone), len(self.places))
        new = Worker(url, self._config.capacity_tokens)
        if place < len(self.places):
            new.incarnation = self.places[place].incarnation + 1
            self.places[place] = new
        else:
            self.places.append(new)
        await self._look(new)
        self._changed()
        self._watch(place)
        return place

    def drain(self, url: str) -> int:
        """Send nothing more to a server; return its place.

        Raises:
            ConfigError: it is not there.
        """
        place = self.place_of(url)
        self.places[place].draining = True
        return place

    def remove(self, url: str) -> int:
        """Take a server out; what is on its way there still comes back. Return its place.

        Raises:
            ConfigError: it is not there.
        """
        place = self.drain(url)
        self.places[place].gone = True
        if task := self._polls.pop(place, None):
            task.cancel()
        return place

    async def become(self, urls: list[str]) -> None:
        """Add and remove servers until these are there."""
        wanted = [check_url(url) for url in urls]
        for worker in list(self.places):
            if not worker.gone and worker.url not in wanted:
                self.remove(worker.url)
        present = {worker.url for worker in self.places if not worker.gone}
        for url in wanted:
            if url not in present:
                await self.add(url)

    def place_of(self, url: str) -> int:
        """Return the place of a server.

        Raises:
            ConfigError: it is not there.
        """
        url = str(url).rstrip("/")
        for place, worker in enumerate(self.places):
            if worker.url == url and not worker.gone:
                return place
        known = ", ".join(worker.url for worker in self.places if not worker.gone)
        raise ConfigError(f"no worker {url}; there are: {known or 'none'}")

    def _watch(self, place: int) -> None:
        async def watch() -> None:
            while True:
                await asyncio.sleep(self._config.poll_s)
                await self._look(self.places[place])

        if old := self._polls.pop(place, None):
            old.cancel()
        self._polls[place] = asyncio.create_task(watch())

    async def _look(self, worker: Worker) -> None:
        """Ask a server for its health and load once."""
        import aiohttp

        try:
            if await self._fetch(f"{worker.url}/health") is None:
                raise ValueError("not healthy")
            await self._read_load(worker)
        except (aiohttp.ClientConnectorError, ConnectionError):
            worker.failed_polls, worker.broken, worker.up = DOWN_AFTER, True, False
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            worker.failed_polls += 1
            worker.up = worker.up and worker.failed_polls < DOWN_AFTER
        else:
            worker.incarnation += worker.broken
            worker.up, worker.failed_polls, worker.broken = True, 0, False
            self.news.set()

    async def _read_load(self, worker: Worker) -> None:
        """Read a server's load and, once, its capacity: SGLang's /v1/loads and /server_info, or vLLM's metrics."""
        if worker.capacity_tokens == self._config.capacity_tokens and not worker.up:
            info = _json(await self._fetch(f"{worker.url}/server_info"))
            tokens = info.get("max_total_num_tokens")
            if isinstance(tokens, int) and tokens > 0 and tokens != worker.capacity_tokens:
                worker.capacity_tokens = tokens
                self._changed()
        loads = _json(await self._fetch(f"{worker.url}/v1/loads")).get("loads")
        if isinstance(loads, list) and loads and isinstance(loads[0], dict):
            for name, theirs in (("running", "num_running_reqs"), ("queued", "num_waiting_reqs"),
                                 ("kv_used_tokens", "num_used_tokens")):  # fmt: skip
                setattr(worker, name, int(loads[0].get(theirs) or 0))
        elif (page := await self._fetch(f"{worker.url}/metrics")) is not None:
            worker.running = int(_metric(page, "vllm:num_requests_running"))
            worker.queued = int(_metric(page, "vllm:num_requests_waiting"))
            share = _metric(page, "vllm:kv_cache_usage_perc") or _metric(page, "vllm:gpu_cache_usage_perc")
            worker.kv_used_tokens = int(share * worker.capacity_tokens)

    async def _fetch(self, url: str) -> bytes | None:
        """Return the body of a GET, None where the answer is not 200."""
        import aiohttp

        assert self._session is not None, "start() comes first"
        key = self._config.worker_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        timeout = aiohttp.ClientTimeout(total=_POLL_TIMEOUT_S)
        async with self._session.get(url, headers=headers, timeout=timeout) as answer:
            return await answer.content.read(_MOST_METRICS) if answer.status == 200 else None


def _json(body: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(body) if body else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _metric(page: bytes, name: str) -> float:
    """Return the sum of a Prometheus metric over its labels; 0 where it is not there."""
    total = 0.0
    for line in page.decode("utf-8", "replace").splitlines():
        if line.startswith(name) and line[len(name) :][:1] in ("{", " "):
            try:
                total += float(line.rpartition(" ")[2])
            except ValueError:
                continue
    return total
