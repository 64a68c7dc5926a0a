"""Rewards: weighted sums of named terms, each made of what happened since the last step.

A term is a function ``term(before, after, records) -> float`` of the episode's integrals at both steps (`Progress`)
and of the RECORD rows that ended in between. A new term is one file and one line here; a user's own is named as
``module:attr``. The undiscounted return of each built-in term is minus the metric that it is named after.
"""

from __future__ import annotations

from kvgym.registry import Registry

REWARDS = Registry(
    "reward term",
    {
        "latency": "kvgym.envs.rewards.latency:latency",
        "makespan": "kvgym.envs.rewards.makespan:makespan",
        "ttft": "kvgym.envs.rewards.ttft:ttft",
    },
)
"""Name of a term -> the function that computes it."""
