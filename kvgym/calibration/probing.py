"""Measures step times of a running SGLang server from outside: a designed set of prompts over plain HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kvgym.backends.sglang.client import ANSWERED, Answer, generate, open_session
from kvgym.backends.sglang.launcher import Server, server_at
from kvgym.backends.sglang.pool import vocabulary
from kvgym.calibration.observations import DECODE, FIRST_TOKEN, OBSERVATION, observation
from kvgym.config.live import LiveConfig
from kvgym.errors import BackendError
from kvgym.seeding import stream

if TYPE_CHECKING:
    import aiohttp

_SHORTEST, _LONGEST = 16, 16_384
_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_TOKENS = 24
"""Tokens of an answer whose time per token is measured."""
_PAUSE_S = 0.1
"""Longest pause before a lone prompt: in a light load a server has to wake up, too."""
_FIRST_ID = 3
"""Ids below are special in most vocabularies."""


def probe(
    url: str,
    api_key: str = "",
    vocab_size: int = 0,
    repeats: int = 5,
    seed: int = 0,
    told: Callable[[str], None] = lambda _: None,
) -> tuple[np.ndarray, Server]:
    """Return OBSERVATION rows of the server at `url`, and what it says of itself.

    Prompts are random token ids. Lone prompts of six lengths, then the same with a new end behind what is now cached,
    tell prefills; answers of 24 tokens, alone and in batches, tell decodes. Nobody else should use the server then.

    Raises:
        BackendError: it can't be reached, refuses a prompt, or loses a connection.
    """
    server = server_at(url, api_key)
    live = LiveConfig(urls=(url,), vocab_size=vocab_size)
    task = _Probe(live, server, vocab_size or vocabulary(server), seed, told)
    return asyncio.run(task.measure(api_key, repeats)), server


class _Probe:
    """One run over a server: draws prompts, sends them, and keeps what their times tell."""

    def __init__(
        self, live: LiveConfig, server: Server, vocab_size: int, seed: int, told: Callable[[str], None]
    ) -> None:
        self._live, self._server, self._told = live, server, told
        self._rng, self._vocab = stream(seed, "probe"), vocab_size
        limit = server.info.get("context_length") or server.info.get("max_req_input_len") or _LONGEST
        self._longest = int(min(_LONGEST, 0.45 * server.capacity_tokens, 0.9 * int(limit)))
        if self._longest < 4 * _SHORTEST:
            raise BackendError(f"{server.url} holds {server.capacity_tokens} tokens: too few to measure anything")

    async def measure(self, api_key: str, repeats: int) -> np.ndarray:
        """Return the rows."""
        rows: list[np.ndarray] = []
        async with open_session(self._live, api_key, 0) as session:
            for _ in range(3):
                await self._ask(session, self._ids(64), 4)
            for number in range(repeats):
                for length in np.geomspace(_SHORTEST, self._longest, 6).astype(int):
                    rows += await self._lone(session, int(length))
                for length in (4 * _SHORTEST, self._longest // 4):
                    for batch in _BATCHES:
                        if self._fits(batch, length):
                            rows.append(await self._together(session, batch, length))
                self._told(f"round {number + 1} of {repeats}: {len(rows)} observations")
        return np.concatenate(rows) if rows else np.zeros(0, OBSERVATION)

    def _fits(self, batch: int, length: int) -> bool:
        running = int(self._server.info.get("max_running_requests") or batch)
        return batch <= running and batch * (length + _TOKENS) <= 0.9 * self._server.capacity_tokens

    async def _lone(self, session: aiohttp.ClientSession, length: int) -> list[np.ndarray]:
        """Send a prompt of `length` new tokens, and one that continues it; return their times to first token."""
        ids = self._ids(length)
        rows = []
        for added in (0, max(length // 4, 8)):
            ids = ids + self._ids(added)
            await asyncio.sleep(float(self._rng.uniform(0.0, _PAUSE_S)))
            answer = await self._ask(session, ids, 1)
            new = answer.prompt_tokens - answer.cached_tokens
            first_ms = 1000.0 * (answer.first_s - answer.sent_s)
            rows.append(observation(FIRST_TOKEN, 1, new, answer.cached_tokens, first_ms))
        return rows

    async def _together(self, session: aiohttp.ClientSession, batch: int, length: int) -> np.ndarray:
        """Send `batch` prompts at once; return the time per token of the one that began last: all decode beside it."""
        answers = await asyncio.gather(*(self._ask(session, self._ids(length), _TOKENS) for _ in range(batch)))
        last = max(answers, key=lambda answer: answer.first_s)
        token_ms = 1000.0 * (last.finish_s - last.first_s) / (_TOKENS - 1)
        return observation(DECODE, batch, 1, length + _TOKENS / 2, token_ms)

    async def _ask(self, session: aiohttp.ClientSession, ids: list[int], tokens: int) -> Answer:
        sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        body: dict[str, Any] = {"input_ids": ids, "sampling_params": sampling}
        answer = Answer(0, 0, "", time.monotonic())
        await generate(session, self._server.url, body, answer, lambda: None)
        if answer.outcome != ANSWERED or answer.first_s < 0:
            raise BackendError(f"{self._server.url} did not answer a prompt of {len(ids)} tokens: {answer.error}")
        return answer

    def _ids(self, count: int) -> list[int]:
        return list(map(int, self._rng.integers(_FIRST_ID, self._vocab, count)))
