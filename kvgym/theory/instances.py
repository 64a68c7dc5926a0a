"""Competitive ratios are measured on these instances: prompts below one stem, in an order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvgym.forest.forest import Forest

STEM_TOKENS = 4


@dataclass(frozen=True)
class Instance:
    """A pool, prompts and queries.

    Attributes:
        capacity: tokens of the pool.
        forest: page size 1.
        nodes: forest node of each prompt, int64.
        tokens: length of each prompt, int64.
        queries: prompt of each query, int64.
        dropped: queries at the beginning that are not counted.
        batch: queries that are loaded together.
    """

    capacity: int
    forest: Forest
    nodes: np.ndarray
    tokens: np.ndarray
    queries: np.ndarray
    dropped: int
    batch: int = 1

    @property
    def fits(self) -> bool:
        """Whether every batch fits into the pool: the condition of the theorem on continuous batching."""
        return self.batch * int(self.tokens.max()) <= self.capacity


def star(n: int, order: str, cycles: int, rng: np.random.Generator) -> Instance:
    """A stem and n + 1 leaves of one token, n of which fit beside it (n = B - L + 1 for prompts of L tokens).

    Args:
        n: leaves that fit.
        order: ``cyclic`` or ``random`` (uniform, independent).
        cycles: counted cycles of n + 1 queries; before them each leaf is asked for once.
        rng: draws the random order.
    """
    queries = np.arange((cycles + 1) * (n + 1)) % (n + 1)
    if order == "random":
        queries[n + 1 :] = rng.integers(n + 1, size=cycles * (n + 1))
    return Instance(STEM_TOKENS + n, *_prompts([1] * (n + 1), STEM_TOKENS), queries.astype(np.int64), n + 1)


def hot_sets(n: int, rounds: int, turns: int, _: np.random.Generator) -> Instance:
    """Two sets of n - 1 leaves below one stem; each is asked for `rounds` times over, then the other, `turns` times."""
    sets = [np.tile(np.arange(n - 1) + (n - 1) * (turn % 2), rounds) for turn in range(turns + 2)]
    prompts = _prompts([1] * (2 * (n - 1)), STEM_TOKENS)
    return Instance(STEM_TOKENS + n, *prompts, np.concatenate(sets).astype(np.int64), 2 * rounds * (n - 1))


def unbalanced(n: int, cycles: int, _: np.random.Generator) -> Instance:
    """Leaves of 1 token and, every other one, of n // 4, asked for in a cycle that is one token too long for n."""
    lengths: list[int] = []
    while sum(lengths) < n + 1:
        lengths.append(min(n // 4 if len(lengths) % 2 else 1, n + 1 - sum(lengths)))
    queries = np.arange((cycles + 1) * len(lengths)) % len(lengths)
    return Instance(STEM_TOKENS + n, *_prompts(lengths, STEM_TOKENS), queries.astype(np.int64), len(lengths))


def batches(fitting: int, length: int, batch: int, cycles: int, _: np.random.Generator) -> Instance:
    """Prompts that share nothing, one more than fits, asked for in a cycle and loaded `batch` at a time."""
    count, dropped = (cycles + 1) * (fitting + 1), -(-(fitting + 1) // batch) * batch
    queries = np.arange(dropped + count // batch * batch) % (fitting + 1)
    prompts = _prompts([length] * (fitting + 1), 0)
    return Instance(fitting * length, *prompts, queries.astype(np.int64), dropped, batch)


def _prompts(lengths: list[int], stem: int) -> tuple[Forest, np.ndarray, np.ndarray]:
    forest, above = Forest(), 0
    if stem:
        above = int(forest.add_nodes(np.zeros(1), np.array([stem]), np.zeros(1))[0])
    nodes = forest.add_nodes(np.full(len(lengths), above), np.array(lengths), np.zeros(len(lengths)))
    return forest, nodes.astype(np.int64), np.array(lengths, np.int64) + stem
