"""Mooncake-style traces hold a request per line with its arrival, lengths and chained block hashes."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kvgym.config.options import check_options, option
from kvgym.errors import WorkloadError
from kvgym.forest.forest import CHARS_PER_TOKEN, Forest
from kvgym.logs.rows import Row, locate, read_rows
from kvgym.seeding import stream
from kvgym.types import REQUEST
from kvgym.workloads.base import Workload
from kvgym.workloads.building.arrivals import check_rate, open_loop, spread_ticks
from kvgym.workloads.building.sessions import make_workload


@dataclass(frozen=True)
class Mooncake:
    """Rows {timestamp (ms), input_length, output_length, hash_ids}, one id per block, the last block cut.

    The trace does not say which prompt continues which answer, so no prompt continues one: each answer has its own
    node. Arrivals are the recorded ones unless `rate_rps` or `clients` is given. Source: kvcache-ai/Mooncake
    (Apache-2.0).
    """

    path: str = option("mooncake_conversation_first_half.jsonl.gz", "JSONL file, plain or gzip")
    block_size: int = option(512, "tokens per hash id", "tokens", low=1)
    tick_s: float = option(3.0, "stamps are spread over ticks of this width; 0: they are exact", "s", low=0)
    time_scale: float = option(1.0, "factor on recorded times; 2: half the rate", above=0)
    rate_rps: float | None = option(None, "rate instead of recorded arrivals", "1/s")
    cv: float = option(1.0, "coefficient of variation of the gaps with rate_rps; 1: Poisson")
    clients: int = option(0, "closed-loop clients; 0: open loop", low=0)
    limit: int | None = option(None, "keep the first so many requests", low=1)
    max_context_tokens: int | None = option(None, "leave out requests with a longer prompt + output", "tokens", low=1)
    repair: bool = option(False, "mend late stamps, empty answers, and ids that are too many, too few or absent")

    def __post_init__(self) -> None:
        check_options(self, WorkloadError)
        check_rate(self.rate_rps, self.cv)

    def generate(self, seed: int, page_size: int = 1) -> Workload:
        """Return the trace compiled for `page_size`; only the arrivals depend on the seed."""
        file = locate(self.path)
        stamps, lengths, ids, notes = self._read(file)
        requests = np.zeros(len(stamps), REQUEST)
        requests["prompt_tokens"], requests["output_tokens"] = lengths.T
        requests["prompt_chars"] = (requests["prompt_tokens"] * CHARS_PER_TOKEN).astype(np.int64)
        requests["session"] = np.arange(len(requests))
        requests["output_node"] = requests["next"] = -1
        requests["arrival_s"] = self._arrivals(stamps, seed)
        forest = Forest(page_size, self.block_size)
        blocks = -(-lengths[:, 0] // self.block_size)
        requests["prompt_node"] = forest.insert_many(ids, np.cumsum(blocks) - blocks, lengths[:, 0])
        heads = np.arange(len(requests), dtype=np.int32)
        return make_workload("mooncake", forest, requests, heads, clients=self.clients, notes=notes)

    def _arrivals(self, stamps: np.ndarray, seed: int) -> np.ndarray:
        rng = stream(seed, "arrivals")
        if self.clients:
            return np.zeros(len(stamps))
        if self.rate_rps is not None:
            return open_loop(len(stamps), self.rate_rps, self.cv, rng)
        return spread_ticks(stamps, self.tick_s, rng) * self.time_scale

    def _read(self, file: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Return stamps (s), lengths (prompt, output) and the ids of all blocks of the kept rows, and the notes."""
        # arrays, not lists of objects: a trace may have ten million rows
        stamps, lengths, chain = array("d"), array("q"), array("q")
        first_misfit: Row | None = None
        last_ms, long, fresh, misfits = 0.0, 0, -1, 0
        for row in read_rows(file):
            if len(stamps) == self.limit:
                break
            if "timestamp" not in row.data and "delay" in row.data:
                raise row.error("timestamp", "there; for sessions with delays name the file itself as the workload")
            stamp = row.seconds("timestamp", unit="milliseconds")
            if stamp < last_ms and not self.repair:
                raise row.error("timestamp", f"not less than the previous row's ({last_ms:g}); or set repair: true")
            last_ms = stamp = max(stamp, last_ms)
            prompt, output = row.tokens("input_length"), row.tokens("output_length", 0 if self.repair else 1)
            misfits += output == 0
            output = max(output, 1)
            if self.max_context_tokens is not None and prompt + output > self.max_context_tokens:
                long += 1
                continue
            ids, blocks = _ids(row) if "hash_ids" in row.data else [], -(-prompt // self.block_size)
            if len(ids) != blocks:
                first_misfit, misfits = first_misfit or row, misfits + 1
                ids = [*ids[:blocks], *range(fresh, fresh - max(blocks - len(ids), 0), -1)]
                fresh -= blocks
            stamps.append(stamp / 1000)
            lengths.extend((prompt, output))
            chain.extend(ids)
        if first_misfit is not None and not self.repair:
            ids, tokens = first_misfit.data.get("hash_ids", []), first_misfit.data["input_length"]
            raise WorkloadError(
                f"{first_misfit.where}: hash_ids must have one id per {self.block_size} tokens of input_length, got "
                f"{len(ids)} for {tokens} ({misfits} such rows); check block_size, or set repair: true"
            )
        notes = {"source": file.name, "left_out_too_long": long, "repaired_rows": misfits}
        return (
            np.frombuffer(stamps),
            np.frombuffer(lengths, np.int64).reshape(-1, 2),
            np.frombuffer(chain, np.int64),
            notes,
        )


def _ids(row: Row) -> list[int]:
    """Return the row's block ids."""
    ids = row.items("hash_ids")
    if not all(type(i) is int and 0 <= i < 2**63 for i in ids):
        raise row.error("hash_ids", "a list of whole numbers in 0..2**63 - 1")
    return ids
