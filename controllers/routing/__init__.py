"""Routers: each request goes to one worker of the fleet, one rule per file.

`random`, `round_robin` and `shortest_queue` know nothing of caches. `cache_aware` and `cache_aware_014` are SGLang's
router in two releases (0.3.2 and the paper's baseline 0.1.4); `lbgr_release` is the router of the LBGR paper's code.
These three remember what they sent where in a text tree (`text_tree`), which does not see what the engines evict;
`cache_aware_tuned` is the first with other constants. `lbgr` is LBGR in the paper's form: tokens, measured speeds
(`service_rate`), a learned residual (`bounded_rls`), an index of the caches' size (`cache_model`). `session_affinity`
sticks to sessions. `dynamo`, `llmd` (both in `linear`) and `lmetric` score what the decision says about the caches;
`power_of_two` compares two workers only.
A new router is one file and one line here; a user's own is named as ``module:attr``.
"""

from __future__ import annotations

from kvgym.registry import Registry

ROUTING = Registry(
    "routing controller",
    {
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
        "lmetric": "controllers.routing.lmetric:LMetric",
        "cache_aware_tuned": "controllers.routing.cache_aware_tuned:CacheAwareTuned",
        "session_affinity": "controllers.routing.session_affinity:SessionAffinity",
    },
    group="kvgym.routing",
    check="kvgym.contracts:routing_controller",
)
"""Name -> import path of a class that follows `controllers.base.Controller`."""
