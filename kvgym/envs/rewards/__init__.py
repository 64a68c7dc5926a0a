"""Rewards are weighted sums of named terms, each made of what happened since the last step.

A term is a function ``term(before, after, records) -> float`` of the episode's integrals at both steps (`Progress`)
and of the RECORD rows that ended in between. A term with options is a class: its constructor takes them, its objects
are such functions. A term that reads the integrals alone says so (`base.of_integrals`), and the vector environment
computes it for all episodes at once. A new term is one file and one line here; a user's own is named as
``module:attr``, or handed over as it is. Costs are negative (latency, ttft, makespan), gains positive (slo, cache): the
undiscounted return of a built-in term is minus or plus the metric that it is named after.

Three terms are makespans. `makespan_alone` is the paper's: each request counts what it would cost alone, so it rewards
hits and even shares. `makespan` is the time for which the busiest worker was really busy; where requests are batched,
it shrinks when they are made to wait, since full batches cost less a request, so it pays for queueing.
`makespan_completion` is the time of the last completion, which says little where arrivals are given (open loop).
"""

from __future__ import annotations

from kvgym.config.registry import Registry

REWARDS = Registry(
    "reward term",
    {
        "cache": "kvgym.envs.rewards.cache:cache",
        "latency": "kvgym.envs.rewards.latency:latency",
        "makespan": "kvgym.envs.rewards.makespan:makespan",
        "makespan_alone": "kvgym.envs.rewards.makespan_alone:makespan_alone",
        "makespan_completion": "kvgym.envs.rewards.makespan_completion:makespan_completion",
        "slo": "kvgym.envs.rewards.slo:GoodRequests",
        "ttft": "kvgym.envs.rewards.ttft:ttft",
    },
    group="kvgym.rewards",
    check="kvgym.config.contracts:reward_term",
)
"""Name of a term -> the function that computes it, or the class of such functions with options."""
