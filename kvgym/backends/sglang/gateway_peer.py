"""Stands for a real sglang-router in a comparison: it takes every request, whatever kvgym would choose."""

from __future__ import annotations

import numpy as np

from kvgym.types import Decision, FleetSpec


class RouterPeer:
    """A routing entry for backend ``sglang``: ``{use: kvgym.backends.sglang.gateway_peer:RouterPeer, options: ...}``.

    The harness starts sglang-router (0.3.2) with this policy and sends all requests to it; records name the worker that
    has answered. In a simulation there is nothing to send to: comparisons leave such cells out.

    Args:
        policy: cache_aware, round_robin, random or power_of_two.
    """

    live_only = True

    def __init__(self, policy: str = "cache_aware") -> None:
        self.front_policy = policy

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Nothing to prepare."""

    def act(self, decision: Decision) -> int:
        """Return a worker that is up, for the books until the answer tells which one it was."""
        return int(np.argmax(decision.mask))

    def observe(self, records: np.ndarray) -> None:
        """Nothing to learn."""
