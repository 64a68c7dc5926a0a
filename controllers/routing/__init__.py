"""Routers send each request to one worker of the fleet, one rule per file.

`random`, `round_robin` and `shortest_queue` know nothing of caches. `cache_aware` and `cache_aware_014` are SGLang's
router in two releases (0.3.2 and the paper's baseline 0.1.4); `lbgr_release` is the router of the LBGR paper's code.
These three remember what they sent where in a text tree, which does not see what the engines evict;
`cache_aware_tuned` is the first with other constants. `lbgr` is LBGR in the paper's form: tokens, measured speeds, a
learned residual, an index of the caches' size (all in `controllers.accounts`). `session_affinity` sticks to sessions.
`llmd_default`, `llmd_precise` (llm-d's of 2025), `affinity_load` (its of 2026), `dynamo`, `llmd` (both in `linear`) and
`lmetric` score what the decision says about the caches; `power_of_two` compares two workers only. `blend` weighs the
router's own account of the workers, which lbgr keeps, too. `learned` plays a trained model (`controllers.learned`); the
path of its .zip file is a name too. A new router is one file and one line here; a user's own is named as
``module:attr``.
"""

from __future__ import annotations

import functools
from typing import Any

from kvgym.config.registry import Registry


class _Routers(Registry):
    """A name table in which the path of a saved model is a name as well."""

    def path(self, name: str) -> str:
        """Return the ``module:attr`` that `name` stands for; raises as `Registry.path`."""
        return super().path("learned" if _is_model(name) else name)

    def load(self, name: str) -> Any:
        """Return a router's class, for ``FOLDER/FILE.zip`` what makes the learned router of that file."""
        return functools.partial(super().load("learned"), path=name) if _is_model(name) else super().load(name)


def _is_model(name: Any) -> bool:
    return isinstance(name, str) and name.endswith(".zip")


ROUTING = _Routers(
    "routing controller",
    {
        "affinity_load": "controllers.routing.affinity_load:AffinityLoad",
        "random": "controllers.routing.random:Random",
        "round_robin": "controllers.routing.round_robin:RoundRobin",
        "shortest_queue": "controllers.routing.shortest_queue:ShortestQueue",
        "cache_aware": "controllers.routing.cache_aware:CacheAware",
        "cache_aware_014": "controllers.routing.cache_aware_014:CacheAware014",
        "lbgr_release": "controllers.routing.lbgr_release:LBGRRelease",
        "lbgr": "controllers.routing.lbgr:LBGR",
        "power_of_two": "controllers.routing.power_of_two:PowerOfTwo",
        "dynamo": "controllers.routing.linear:dynamo",
        "llmd": "controllers.routing.linear:llmd",
        "llmd_default": "controllers.routing.llmd_default:LlmdDefault",
        "llmd_precise": "controllers.routing.llmd_precise:LlmdPrecise",
        "lmetric": "controllers.routing.lmetric:LMetric",
        "cache_aware_tuned": "controllers.routing.cache_aware_tuned:CacheAwareTuned",
        "session_affinity": "controllers.routing.session_affinity:SessionAffinity",
        "blend": "controllers.routing.blend:Blend",
        # needs the option `path`
        "learned": "controllers.learned.model:Learned",
    },
    group="kvgym.routing",
    check="kvgym.config.contracts:routing_controller",
)
"""Name -> import path of a class that follows `kvgym.control.Controller`."""
