"""One seed makes independent named random streams, so changing one part never changes another's draws."""

from __future__ import annotations

import zlib

import numpy as np


def stream_seed(seed: int, name: str) -> int:
    """Return a 63-bit seed for the stream `name` of episode `seed` (same inputs, same answer, on any machine)."""
    entropy = [seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF, zlib.crc32(name.encode())]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))


def stream(seed: int, name: str) -> np.random.Generator:
    """Return numpy's generator for the stream `name` ("workload", "arrivals", "classes", ...) of `seed`."""
    return np.random.default_rng(stream_seed(seed, name))
