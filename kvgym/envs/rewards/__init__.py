"""Rewards are weighted sums of named terms, each made of what happened since the last step.

A term is a function ``term(before, after, records) -> float`` of the episode's integrals at both steps (`Progress`)
and of the RECORD rows that ended in between. A term with options is a class: its constructor takes them, its objects
are such functions. A term that reads the integrals alone says so (`base.of_integrals`), and the vector environment
computes it for all episodes at once. A new term is one file and one line here; a user's own is named as
``module:attr``, or handed over as it is. Costs are negative (latency, ttft, makespan), gains positive (slo, cache): the
undiscounted return of a built-in term is minus or plus the metric that it is named after.
"""

from __future__ import annotations

from kvgym.config.registry import Registry

REWARDS = Registry(
    "reward term",
    {
        "cache": "kvgym.envs.rewards.cache:cache",
        "latency": "kvgym.envs.rewards.latency:latency",
        "makespan": "kvgym.envs.rewards.makespan:makespan",
        "slo": "kvgym.envs.rewards.slo:GoodRequests",
        "ttft": "kvgym.envs.rewards.ttft:ttft",
    },
    group="kvgym.rewards",
    check="kvgym.config.contracts:reward_term",
)
"""Name of a term -> the function that computes it, or the class of such functions with options."""
