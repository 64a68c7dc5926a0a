"""The engine against a slow second implementation of one server: token lists, one step at a time, no leaps, no slots.

The reference follows SGLang 0.5.23's schedule_policy.py, schedule_batch.py, scheduler.py and radix_cache.py.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgym.types import DONE, FAILED, REJECTED

CLIP, RETRACT_STEPS, MARGIN = 4096, 20, 6
RATIO, RATIO_FLOOR, DECAY = 0.7, 0.7 * 0.14, (0.7 - 0.7 * 0.14) / 600
NAMES = ["status", "hit_tokens", "output_tokens", "retractions", "admitted_s", "first_token_s", "finish_s"]
RANKS = {"lru": lambda n: n.access, "mru": lambda n: -n.access, "fifo": lambda n: n.created}


@dataclass(eq=False)
class Node:
    """A radix node: the tokens below its parent."""

    key: list[Any]
    parent: Node | None
    access: int
    created: int
    children: dict[Any, Node] = field(default_factory=dict)
    lock: int = 0


class Tree:
    """A radix cache that stores token lists."""

    def __init__(self, page: int, policy: str) -> None:
        self.page, self.rank, self.time = page, RANKS[policy], 0
        self.root = Node([], None, 0, 0, lock=1)

    def tick(self) -> int:
        self.time += 1
        return self.time

    def nodes(self) -> list[Node]:
        found, stack = [], [self.root]
        while stack:
            stack += (node := stack.pop()).children.values()
            found.append(node)
        return found[1:]

    def size(self, locked: bool) -> int:
        return sum(len(n.key) for n in self.nodes() if (n.lock > 0) == locked)

    def split(self, node: Node, length: int) -> Node:
        assert node.parent is not None
        now = self.tick()
        upper = Node(
            node.key[:length], node.parent, now, now, {tuple(node.key[length : length + self.page]): node}, node.lock
        )
        node.parent.children[tuple(node.key[: self.page])] = upper
        node.key, node.parent = node.key[length:], upper
        return upper

    def match(self, tokens: list[Any]) -> tuple[Node, int]:
        """Touch and split along the way; return where whole pages of `tokens` stop being found."""
        tokens = tokens[: len(tokens) // self.page * self.page]
        node, depth, now = self.root, 0, self.tick()
        while child := node.children.get(tuple(tokens[depth : depth + self.page])):
            child.access, same = now, 0
            while same < len(child.key) and child.key[same : same + self.page] == tokens[depth + same :][: self.page]:
                same += self.page
            depth += same
            if same < len(child.key):
                return self.split(child, same), depth
            node = child
        return node, depth

    def insert(self, tokens: list[Any]) -> tuple[Node, int]:
        node, depth = self.match(tokens)
        rest = tokens[depth : len(tokens) // self.page * self.page]
        if not rest:
            return node, depth
        now = self.tick()
        node.children[tuple(rest[: self.page])] = leaf = Node(rest, node, now, now)
        return leaf, depth

    def add_lock(self, node: Node, count: int) -> None:
        while node is not self.root:
            node.lock += count
            assert node.parent is not None
            node = node.parent

    def evict(self, tokens: int) -> int:
        freed = 0
        while freed < tokens and (leaves := [n for n in self.nodes() if not n.children and n.lock == 0]):
            victim = min(leaves, key=self.rank)
            assert victim.parent is not None
            del victim.parent.children[tuple(victim.key[: self.page])]
            freed += len(victim.key)
        return freed


@dataclass(eq=False)
class Job:
    """A request on the server."""

    request: int
    tokens: list[Any]  # prompt and answer
    prompt: int
    target: int
    asked: int
    release_s: float
    out: int = 0
    kv: int = 0
    extend: int = 0
    node: Any = None
    owned: int = 0
    hit: int = -1
    admitted_s: float = -1.0
    first_s: float = -1.0
    retractions: int = 0

    @property
    def fill(self) -> int:
        return self.prompt + self.out


class Server:
    """One worker that serves a `Fixed` workload of path rows, one step at a time."""

    def __init__(self, case: Any, policy: str, costs: dict[str, float], delays_s: Sequence[float] = (0.0,)) -> None:
        self.delays_s = delays_s  # of the decisions, in turn
        self.rows, self.costs, self.o = case.rows, costs, case.options
        self.page = self.o["page"]
        self.capacity = self.free = case.capacities[0] // self.page * self.page
        self.tree = Tree(self.page, policy)
        self.ratio, self.full, self.now = case.ratio, False, 0.0
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.chunked: Job | None = None
        self.ended: dict[int, tuple[Any, ...]] = {}
        self.coming: list[tuple[float, int]] = []  # reach the router
        self.entering: list[tuple[float, int, Job]] = []  # reach the queue
        self.entered = 0
        heads = [i for i in range(len(self.rows)) if not self._before(i)]
        heads.sort(key=lambda i: self.rows[i]["arrival_s"])
        first = heads[: case.clients] if case.clients else heads
        self.backlog = heads[case.clients :] if case.clients else []
        for i in first:
            heapq.heappush(self.coming, (self.rows[i]["arrival_s"], i))

    def _before(self, i: int) -> list[int]:
        session = self.rows[i].get("session")
        return [j for j in range(i) if session and self.rows[j].get("session") == session]

    def _after(self, i: int) -> int | None:
        session = self.rows[i].get("session")
        later = [j for j in range(i + 1, len(self.rows)) if session and self.rows[j].get("session") == session]
        return later[0] if later else None

    def ceil(self, tokens: int) -> int:
        return -(-tokens // self.page) * self.page

    # -- arrivals and ends ------------------------------------------------------------------------------------------

    def end(self, job: Job, status: int, now: float) -> None:
        self.ended[job.request] = (status, max(job.hit, 0), job.out, job.retractions, job.admitted_s, job.first_s, now)
        follower = self._after(job.request)
        if follower is None and self.backlog:
            follower = self.backlog.pop(0)
        if follower is not None:
            heapq.heappush(self.coming, (now + self.rows[follower]["think_s"], follower))

    def step(self, seconds: float) -> None:
        """Let a step pass; what arrives meanwhile comes before what ends with it."""
        self.now += seconds
        self.receive(before=self.now)

    def receive(self, before: float = math.inf) -> None:
        """Take what has arrived by now to the router."""
        while self.coming and self.coming[0][0] <= self.now and self.coming[0][0] < before:
            release_s, i = heapq.heappop(self.coming)
            row = self.rows[i]
            names: list[Any] = []
            tokens: list[Any] = []
            for key, length in [*row["path"], [row["answer"], row["output_tokens"]]]:
                names.append(key)
                tokens += [(*names, t) for t in range(length)]
            prompt = len(tokens) - row["output_tokens"]
            asked = min(row["max_new_tokens"], self.capacity - self.ceil(prompt) - self.page - 1)
            job = Job(i, tokens, prompt, min(row["output_tokens"], asked), asked, release_s)
            if prompt > self.capacity - MARGIN or asked < 1:
                self.end(job, REJECTED, release_s)
            else:
                self.entered += 1
                enter_s = release_s + self.delays_s[i % len(self.delays_s)] + self.o.get("request_s", 0.0)
                heapq.heappush(self.entering, (enter_s, self.entered, job))

    def enter(self) -> None:
        """Put what has reached the worker by now into its queue."""
        while self.entering and self.entering[0][0] <= self.now:
            self.waiting.append(heapq.heappop(self.entering)[2])

    # -- memory -----------------------------------------------------------------------------------------------------

    def make_room(self, demand: int) -> None:
        if self.free < demand:
            self.free += self.tree.evict(demand if self.o.get("evict_full") else demand - self.free)

    def publish(self, job: Job, done: bool) -> None:
        """Insert what is computed, split at the prompt's end; give back duplicates (done: everything)."""
        tokens = job.tokens[: job.kv]
        whole = len(tokens) // self.page * self.page
        _, present = self.tree.insert(tokens)
        if job.prompt // self.page and whole > job.prompt // self.page * self.page:
            self.tree.insert(tokens[: job.prompt])
        self.free += present - job.owned
        node, matched = self.tree.match(tokens)
        assert matched == whole
        self.tree.add_lock(node, 1)
        self.tree.add_lock(job.node, -1)
        job.node, job.owned = node, whole
        if done:
            self.free += self.ceil(job.kv) - whole
            self.tree.add_lock(node, -1)

    # -- prefill ----------------------------------------------------------------------------------------------------

    def remaining(self, reserved: float) -> float:
        return self.free + self.tree.size(locked=False) - reserved

    def admit(self) -> list[Job]:
        if not self.running:
            self.full = False
        places = self.o.get("max_running", 2048) - len(self.running)
        if not self.chunked:
            if self.full or not self.waiting:
                return []
            if places <= 0:
                self.full = True
                return []
        ratio = 1.0 if self.o.get("ignore_eos", 1) and self.o.get("in_full", True) else self.ratio
        tails = len(self.running) if self.o.get("mixed_chunk") else 0
        reserved = sum(min(j.asked - j.out, CLIP) * ratio for j in self.running) + tails
        chunk, budget = self.o.get("chunk", 8192) - tails, self.o.get("prefill", 16384) - tails
        batch: list[Job] = []
        if self.chunked:
            job = self.chunked
            available = min(chunk, int(self.remaining(reserved)))
            available = available if available > 0 else chunk
            job.extend = min(job.fill - job.kv, available)
            last = job.extend == job.fill - job.kv
            reserved += self.ceil(job.extend) + self.page + (min(job.asked, CLIP) if last else 0)
            chunk, budget = chunk - self.ceil(job.extend), budget - self.ceil(job.extend)
            batch, self.chunked = [job], None if last else job
        for job in list(self.waiting):
            if self.remaining(reserved) > 0 and min(chunk, budget) <= 0:
                break
            if len(batch) >= places:
                self.full = True
            if self.full:
                break
            node, prefix = self.tree.match(job.tokens[: job.fill - 1])
            extend = job.fill - prefix
            self.tree.add_lock(node, 1)
            if extend + min(max(job.asked - job.out, 0), CLIP) + self.page >= self.remaining(reserved):
                self.full = bool(batch or self.running)
                self.tree.add_lock(node, -1)
                break
            cut = self.ceil(extend) > chunk
            if cut:
                extend = chunk // self.page * self.page
                if extend <= 0:
                    self.tree.add_lock(node, -1)
                    break
                self.chunked = job
            job.node, job.owned, job.kv, job.extend = node, prefix, prefix, extend
            if job.hit < 0:
                job.hit, job.admitted_s = prefix, self.now
            reserved += self.ceil(extend) + self.page + (0 if cut else min(job.asked, CLIP))
            chunk, budget = chunk - self.ceil(extend), budget - self.ceil(extend)
            self.waiting.remove(job)
            batch.append(job)
            if self.remaining(reserved) <= 0:
                self.full = True
                break
            if cut or min(chunk, budget) <= 0:
                break
        return batch

    def prefill(self, batch: list[Job]) -> None:
        self.make_room(sum(j.extend + (self.page if self.page > 1 else 0) for j in batch))
        tokens = sum(j.extend for j in batch)
        seconds = self.costs["p0"] + self.costs["p_tok"] * tokens
        for job in batch:
            self.free -= self.ceil(job.kv + job.extend) - self.ceil(job.kv)
        assert self.free >= 0
        tails: list[Job] = []
        if self.o.get("mixed_chunk") and self.running and self.fits():
            tails, self.running = self.running, []
            self.make_room(self.page * len(tails))
            weights = self.costs["d0"] + self.costs["d_seq"] * len(tails)
            seconds = max(weights, self.costs["p0"] + self.costs["p_tok"] * (tokens + len(tails)))
            seconds += (self.costs["d_kvtok"] + self.costs["mix_kvtok"]) * sum(j.kv + 1 for j in tails)
        self.step(seconds)
        for job in tails:
            self.grow(job)
        for job in batch:
            job.kv += job.extend
            if job.kv < job.fill:
                self.publish(job, done=False)
                self.full = False
                continue
            job.out += 1
            job.first_s = self.now if job.first_s < 0 else job.first_s
            self.publish(job, done=job.out >= job.target)
            if job.out >= job.target:
                self.full = False
                self.end(job, DONE, self.now)
            else:
                self.running.append(job)
        self.running += tails
        self.finish(tails)

    # -- decode -----------------------------------------------------------------------------------------------------

    def fits(self) -> bool:
        demand = sum(self.page for j in self.running if j.kv % self.page == 0)
        self.make_room(demand)
        return self.free >= demand

    def give_back(self, job: Job) -> None:
        self.running.remove(job)
        self.free += self.ceil(job.kv) - job.owned
        self.tree.add_lock(job.node, -1)
        self.full = False

    def decode(self) -> None:
        if self.fits():
            self.ratio = max(self.ratio - DECAY, RATIO_FLOOR)
        else:
            while True:
                if len(self.running) == 1:
                    break
                order = sorted(self.running, key=lambda j: (j.out, -j.prompt), reverse=True)
                victim = order[-1]
                self.give_back(victim)
                self.make_room(len(self.running) * RETRACT_STEPS)
                victim.kv = victim.owned = 0
                victim.retractions += 1
                self.waiting.append(victim)
                if self.fits():
                    break
            if len(self.running) == 1 and not self.fits():
                job = self.running[0]
                self.give_back(job)
                self.end(job, FAILED, self.now)
            asked = 1 + sum(j.asked for j in self.running)
            self.ratio = min(1.0, sum(j.out + RETRACT_STEPS for j in self.running) / asked)
        if not self.running:
            return
        self.make_room(self.page * len(self.running))
        context = sum(j.kv + 1 for j in self.running)
        self.step(self.costs["d0"] + self.costs["d_seq"] * len(self.running) + self.costs["d_kvtok"] * context)
        for job in self.running:
            self.grow(job)
        self.finish(list(self.running))

    def grow(self, job: Job) -> None:
        self.free -= self.ceil(job.kv + 1) - self.ceil(job.kv)
        job.kv, job.out = job.kv + 1, job.out + 1

    def finish(self, jobs: list[Job]) -> None:
        for job in jobs:
            if job.out >= job.target:
                self.running.remove(job)
                self.full = False
                self.publish(job, done=True)
                self.end(job, DONE, self.now)

    def run(self) -> list[tuple[Any, ...]]:
        """Serve everything; return (status, hit, out, retractions, admitted, first, finish) per request."""
        while True:
            self.receive()
            self.enter()
            if batch := self.admit():
                self.prefill(batch)
            elif self.running:
                self.decode()
            elif self.coming or self.entering:
                if self.tree.time:  # the case's own ratio holds until something was served
                    self.ratio = RATIO
                self.now = min([t for t, *_ in self.coming[:1]] + [t for t, *_ in self.entering[:1]])
            else:
                return [self.ended[i] for i in range(len(self.rows))]


@pytest.mark.parametrize("page", (1, 16))
@pytest.mark.parametrize("policy", RANKS)
def test_engine__equals_the_reference(drain: Any, episodes: Any, costs: Any, policy: str, page: int) -> None:
    @episodes.examples(60)
    @given(episodes.any(page))
    def check(case: Any) -> None:
        case = replace(case, capacities=case.capacities[:1])
        records = np.sort(drain(case.engine(policy)), order="request")
        expected = Server(case, policy, costs).run()
        assert [tuple(row) for row in records[NAMES]] == expected

    check()


@pytest.mark.parametrize("page", (1, 16))
def test_engine__equals_the_reference_when_decisions_take_time(
    drain: Any, episodes: Any, costs: Any, by_request: Any, page: int
) -> None:
    """Delays of any order: a request may overtake one that was routed before it, also on its way to an idle worker."""

    @episodes.examples(60)
    @given(episodes.any(page), st.lists(st.sampled_from((0.0, 0.25, 3.0, 20.0)), min_size=2, max_size=5))
    def check(case: Any, delays_s: list[float]) -> None:
        case = replace(case, capacities=case.capacities[:1])
        engine = case.engine("lru")
        records = by_request(drain(engine, delay_s=lambda request: delays_s[request % len(delays_s)]))
        expected = Server(case, "lru", costs, delays_s).run()
        assert [tuple(row) for row in records[NAMES]] == expected

    check()
