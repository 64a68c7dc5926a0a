"""Block-id session files hold chained block ids as ranges, one session or one request per line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from kvgym.config.options import check_options, option
from kvgym.errors import WorkloadError
from kvgym.forest.forest import CHARS_PER_TOKEN, Forest
from kvgym.logs.rows import Row, locate, read_rows
from kvgym.seeding import stream
from kvgym.types import REQUEST
from kvgym.workloads.base import Workload
from kvgym.workloads.building.arrivals import check_rate, open_loop
from kvgym.workloads.building.chains import Chains, Turn, count_repairs, read_turn
from kvgym.workloads.building.sessions import make_workload

_BARE_BLOCK = 16


@dataclass(frozen=True)
class Blocks:
    """Session files (`*_blk16`, WEKA coding agents) as described in data/README.md of the trimmed public traces.

    A session's turns follow each other: a turn is released `think` seconds (its own field, else `think_s`) after the
    answer to the one before; a sub-agent is a session of its own, released at its recorded time after the start of the
    session that spawned it. Sessions start at their recorded times unless `rate_rps` or `clients` is given.

    Only full blocks are listed, so sharing is known per block; but if turn k+1 starts with all full blocks of turn k
    and is at least as long as its prompt + answer, it is taken to continue that answer, token by token.
    """

    path: str = field(metadata={"help": "JSONL file, plain or gzip"})
    rate_rps: float | None = option(None, "session starts per second", "1/s")
    cv: float = option(1.0, "coefficient of variation of the gaps with rate_rps; 1: Poisson")
    clients: int = option(0, "closed-loop clients, each with one session; 0: open loop", low=0)
    release: Literal["think", "recorded"] = option(
        "think", "turns follow the answer before, or come at their recorded times"
    )
    think_s: float = option(0.0, "think time where the file has none", "s", low=0)
    history: Literal["generated", "recorded"] = option(
        "generated", "whether the next turn continues the answer that was really generated"
    )
    ids: Literal["auto", "file", "session"] = option(
        "auto", "where ids are unique; auto: session for WEKA rows (tool_tokens), else file"
    )
    sessions: int | None = option(None, "keep the first so many sessions", low=1)
    max_context_tokens: int | None = option(None, "leave out sessions with a longer prompt + output", "tokens", low=1)
    repair: bool = option(False, "fit ids to lengths and make empty answers 1 token long, instead of failing")

    def __post_init__(self) -> None:
        check_options(self, WorkloadError)
        check_rate(self.rate_rps, self.cv)
        if self.release == "recorded" and self.clients:
            raise WorkloadError("blocks: release: recorded is an open loop; leave clients at 0")

    def generate(self, seed: int, page_size: int = 1) -> Workload:
        """Return the sessions compiled for `page_size`; only generated arrivals depend on the seed."""
        file = locate(self.path)
        chains = Chains()
        kept, dropped = self._read(file, chains)
        if not kept:
            raise WorkloadError(f"{file.name}: no session is left ({dropped} exceed max_context_tokens)")
        starts = self._starts(kept, seed, file.name)
        turns = [turn for session in kept for turn in session.turns]
        repairs = count_repairs(turns, self.repair)
        forest = Forest(page_size, kept[0].block)
        requests = np.zeros(len(turns), REQUEST)
        requests["next"] = requests["output_node"] = -1
        at, number = 0, 0
        for session, start in zip(kept, starts, strict=True):
            for branch in session.branches():
                rows = slice(at, at + len(branch))
                self._fill(requests[rows], branch, float(start), number)
                nodes = chains.insert(forest, branch)
                requests["prompt_node"][rows] = nodes[:, 0]
                if self.history == "generated":
                    requests["output_node"][rows] = nodes[:, 1]
                at, number = at + len(branch), number + 1
        heads = None
        if self.release == "recorded":
            heads = np.argsort(requests["arrival_s"], kind="stable").astype(np.int32)
        notes = {"source": file.name, "sessions": len(kept), "left_out_too_long": dropped, **repairs}
        return make_workload("blocks", forest, requests, heads, clients=self.clients, notes=notes)

    def _fill(self, requests: np.ndarray, branch: list[Turn], start: float, session: int) -> None:
        """Write one branch's rows: lengths, times and its session number."""
        recorded = self.release == "recorded"
        requests["session"], requests["turn"] = session, np.arange(len(branch))
        requests["prompt_tokens"] = [turn.prompt_tokens for turn in branch]
        requests["output_tokens"] = [turn.output_tokens for turn in branch]
        requests["prompt_chars"] = (requests["prompt_tokens"] * CHARS_PER_TOKEN).astype(np.int64)
        for row, turn in zip(requests, branch, strict=True):
            if recorded or turn is branch[0]:
                row["arrival_s"] = 0.0 if self.clients else start + turn.time_s
            if not recorded:
                row["think_s"] = self.think_s if turn.think_s is None else turn.think_s

    def _starts(self, kept: list[_Session], seed: int, name: str) -> np.ndarray:
        """Return when each session starts, seconds."""
        if self.clients:
            return np.zeros(len(kept))
        if self.rate_rps is not None:
            return open_loop(len(kept), self.rate_rps, self.cv, stream(seed, "arrivals"))
        missing = sum(session.start_s is None for session in kept)
        if missing:
            raise WorkloadError(
                f"{name}: {missing} of {len(kept)} sessions have no recorded start; give rate_rps or clients"
            )
        return np.array([session.start_s for session in kept])

    def _read(self, file: Path, chains: Chains) -> tuple[list[_Session], int]:
        """Return the sessions that are kept and the number of those that are too long."""
        kept: list[_Session] = []
        dropped, last_s = 0, 0.0
        for number, row in enumerate(read_rows(file)):
            if len(kept) == self.sessions:
                break
            session = self._session(row, number, chains)
            if "requests" not in row.data:
                if (session.start_s or 0.0) < last_s:
                    raise row.error("t", f"not less than the previous row's ({last_s:g})")
                last_s = session.start_s or 0.0
            if kept and session.block != kept[0].block:
                raise row.error("block_size", f"the same in the whole file ({kept[0].block})")
            limit = self.max_context_tokens
            if limit is not None and any(turn.prompt_tokens + turn.output_tokens > limit for turn in session.turns):
                dropped += 1
                continue
            kept.append(session)
        return kept, dropped

    def _session(self, row: Row, number: int, chains: Chains) -> _Session:
        """Return one line's session; a line without `requests` is a session of one turn that starts at t."""
        block = row.tokens("block_size") if "block_size" in row.data else _BARE_BLOCK
        local = self.ids == "session" or (self.ids == "auto" and "tool_tokens" in row.data)
        shift = (number + 1) << 40 if local else 0
        if "requests" not in row.data:
            turn = read_turn(row, block, shift, chains, offset_s=0.0)
            start = turn.time_s if "t" in row.data else None
            turn.time_s = 0.0
            return _Session(block, start, [turn], [])
        turns: list[Turn] = []
        agents: list[list[Turn]] = []
        last_s = 0.0
        for item in row.nested("requests"):
            time_s = item.seconds("t", default=0.0)
            if time_s < last_s:
                raise item.error("t", f"not less than the previous entry's ({last_s:g})")
            last_s = time_s
            if "requests" in item.data:
                agents.append([read_turn(r, block, shift, chains, offset_s=time_s) for r in item.nested("requests")])
            else:
                turns.append(read_turn(item, block, shift, chains, offset_s=0.0))
        if not turns:
            raise row.error("requests", "a list with at least one request of the session itself")
        start = row.seconds("start") if "start" in row.data else None
        return _Session(block, start, turns, [agent for agent in agents if agent])


@dataclass
class _Session:
    """A session's own turns and those of its sub-agents, with times since the session's start."""

    block: int
    start_s: float | None
    own: list[Turn]
    agents: list[list[Turn]]

    def branches(self) -> Iterator[list[Turn]]:
        """Yield the session itself, then its sub-agents."""
        yield self.own
        yield from self.agents

    @property
    def turns(self) -> list[Turn]:
        """All turns in the order of `branches`."""
        return [turn for branch in self.branches() for turn in branch]
