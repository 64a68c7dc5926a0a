"""SGLang's router of sglang-router 0.3.2 takes the longest match if it is long enough, else the fewest in flight."""

from __future__ import annotations

from dataclasses import dataclass

from controllers.accounts.text_router import TextRouter
from kvgym.config.options import other_default
from kvgym.control import allowed_workers, least
from kvgym.types import Decision


@dataclass(eq=False)
class CacheAware(TextRouter):
    """Policy `cache_aware` of sglang-router 0.3.2 with its default constants.

    1. Imbalanced, i.e. max - min > `balance_abs` and max > `balance_rel` * min over all workers' requests in flight
       (masked ones too, as in the source): the worker with the fewest.
    2. Else, if the tree knows more than `cache_threshold` of the prompt's characters: the owner of the deepest matched
       node, a worker with the longest match.
    3. Else: the worker with the fewest requests in flight (the release's own comment says smallest tree: not so).

    The prompt is then inserted into the tree for that worker, in all three cases.

    Ties: fewest in flight -> the first in the list. Several longest matches -> the worker that brought this text first
    and still has it (the release caches one tenant per node; once that one is gone it takes any, here the lowest id).
    So equal matches do all go to one worker, until the imbalance rule steps in.

    Masks: rules 1 and 3 leave masked workers out. If rule 2 names a masked worker, the first allowed worker is taken
    and nothing is inserted, as the release does for an unhealthy one. A worker that has restarted leaves the tree.

    Source: sglang-router 0.3.2 (sgl-model-gateway, policies/cache_aware.rs and tree.rs).

    Args: those of `TextRouter`.
    """

    cache_threshold: float = other_default(TextRouter, "cache_threshold", 0.3)
    balance_abs: float = other_default(TextRouter, "balance_abs", 64)
    balance_rel: float = other_default(TextRouter, "balance_rel", 1.5)
    max_tree_chars: int = other_default(TextRouter, "max_tree_chars", 2**26)

    def act(self, decision: Decision) -> int:
        """Return the worker by the three rules, and remember the prompt there."""
        self.catch_up(decision)
        worker = -1
        if not self.imbalanced(decision):
            node = self.tree.matched(decision.node)
            if self.tree.matched_fraction(node, decision.prompt_chars) > self.cache_threshold:
                worker = self.tree.owner(node)
                if not decision.mask[worker]:
                    return int(allowed_workers(decision.mask)[0])
        if worker < 0:
            worker = int(least(decision.inflight, decision.mask)[0])
        self.tree.insert(worker, decision.node, decision.time_s)
        return worker
