"""SGLang's two cache-aware routers share this base: options, text tree and the rule that they begin with."""

from __future__ import annotations

from dataclasses import dataclass

from controllers.accounts.text_tree import TextTree
from kvgym.config.options import option
from kvgym.control import RoutingController
from kvgym.types import Decision, FleetSpec


@dataclass(eq=False)
class TextRouter(RoutingController):
    """A router with a text tree that leaves it when the fleet is out of balance; defaults are sglang-router 0.1.4's.

    Args:
        cache_threshold: matched fraction that must be exceeded.
        balance_abs: difference of requests in flight that must be exceeded.
        balance_rel: ratio of requests in flight that must be exceeded.
        max_tree_chars: size to which each worker's tree is trimmed, characters.
        evict_every_s: period of the trimming, seconds.

    Raises:
        ConfigError: a value out of range.
    """

    concentrates = (
        "a prompt whose prefix a worker holds goes there whatever its load, until the fleet is out of balance"
    )

    cache_threshold: float = option(0.5, "matched fraction that must be exceeded", low=0, high=1)
    balance_abs: float = option(32, "difference of requests in flight that must be exceeded", "requests", low=0)
    balance_rel: float = option(1.0001, "ratio of requests in flight that must be exceeded", low=0)
    max_tree_chars: int = option(2**24, "size to which each worker's tree is trimmed", "characters", low=1)
    evict_every_s: float = option(60.0, "period of the trimming", "s", above=0)

    def reset(self, spec: FleetSpec, seed: int) -> None:
        """Start with empty trees."""
        super().reset(spec, seed)
        self.tree = TextTree(spec, self.max_tree_chars, self.evict_every_s)

    def catch_up(self, decision: Decision) -> None:
        """Bring the tree to the time of `decision`: trim it, and remove the workers that have restarted."""
        self.tree.advance(decision.time_s)
        for worker in self.restarted(decision):
            self.tree.remove_worker(worker)

    def imbalanced(self, decision: Decision) -> bool:
        """Whether the spread of requests in flight exceeds both limits; masked workers count, as in the source."""
        low, high = decision.inflight.min(), decision.inflight.max()
        return bool(high - low > self.balance_abs and high > self.balance_rel * low)
