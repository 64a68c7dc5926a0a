"""In Joint-v0 a step is whichever choice comes next, a worker for a request or a victim for a full cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from kvgym.encoding.decisions import encode, observation_space
from kvgym.encoding.offers import encode_eviction, eviction_space
from kvgym.envs.choice import ChoiceEnv
from kvgym.envs.episode import Observation
from kvgym.envs.rewards.base import Term
from kvgym.types import Decision, EvictionDecision

ROUTE, EVICTION = 0, 1
"""Index of the 1 in ``kind``."""


class JointEnv(ChoiceEnv):
    """Route requests over a fleet of LLM workers, and choose what their full prefix (KV) caches evict.

    ## Description
    Routing-v0 and Eviction-v0 in one: where a prompt goes decides which cache gets full of what, and what a cache has
    forgotten decides where a prompt is cheap.

    ## Decision points
    One step is one decision, whichever comes next: a request at the router, or a worker that is short of KV space.
    ``kind`` in the observation says which.

    ## Action space
    ``Discrete(max(workers, candidates))``. For a request: the worker that gets it. For a worker short of space: which
    of the leaves on offer goes, as in Eviction-v0. `action_masks()` tells what is allowed, at least one action always
    is. A masked or unknown action never raises: the first allowed one is taken, and ``info["invalid_actions"]``
    counts it.

    ## Observation space
    ``Dict`` of float32 boxes: ``kind`` (2,), 1 at index 0 for a request and at index 1 for an eviction; ``request`` and
    ``workers`` as in Routing-v0, 0 at evictions; ``cache`` and ``candidates`` as in Eviction-v0, 0 at requests. The
    observation after the last step is all 0. The structured view is `env.unwrapped.decision`, a `Decision` or an
    `EvictionDecision`.

    | array | index | name | meaning | unit | min | max |
    | --- | --- | --- | --- | --- | --- | --- |
    | kind | 0 | request | a request needs a worker | 0 or 1 | 0 | 1 |
    | kind | 1 | eviction | a worker needs space | 0 or 1 | 0 | 1 |

    ## Rewards
    As in Routing-v0: a weighted sum of named terms, each of which covers the time since the last step.

    ## Starting state
    The first request at the router, all caches empty. Seeds: as in Routing-v0.

    ## Episode end
    Terminated when all requests have ended. Truncated only by the ``max_episode_steps`` of `gymnasium.make`.

    ## Arguments
    ``workload``, ``cluster``, ``reward``, ``observability``, ``signals`` and ``render_mode`` as in Routing-v0,
    ``candidates``, ``offered`` and ``tail_tokens`` as in Eviction-v0.

    ## Several agents
    `kvgym.envs.aec` has the same as a PettingZoo AEC environment: one agent that routes, and one evictor per worker.
    `controllers.joint.JointController` plays a router and an evictor here, as a baseline.

    ## Info keys
    As in Routing-v0: ``time_s``, ``dt_s``, ``completed``, ``invalid_actions``, ``action_mask``, ``rewards``,
    ``episode_seed``, ``skipped_episodes``.

    ## Version history
    - v0: first release.
    """

    def __init__(
        self,
        workload: str | Mapping[str, Any] = "gsp_default",
        cluster: str | Mapping[str, Any] = "l40x4",
        reward: str | Mapping[str, Any] | Term = "latency",
        candidates: int = 16,
        offered: str = "both",
        tail_tokens: int | None = None,
        observability: str = "router",
        signals: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        episode = workload, cluster, reward, observability, signals, render_mode
        super().__init__(episode, candidates, offered, tail_tokens)
        workers = self._cluster.workers
        self.action_space = spaces.Discrete(max(workers, candidates))
        kind = {"kind": spaces.Box(0.0, 1.0, (2,), np.float32)}
        parts = (observation_space(workers).spaces, eviction_space(candidates).spaces)
        self.observation_space = spaces.Dict(kind | parts[0] | parts[1])

    def _next(self) -> Decision | EvictionDecision | None:
        decision = self.backend.run_to_choice()
        self.completed = self.backend.completions()
        return decision

    def _encode(self, decision: Decision | EvictionDecision) -> Observation:
        route = isinstance(decision, Decision)
        seen = self._nothing() | (encode(decision) if isinstance(decision, Decision) else encode_eviction(decision))
        seen["kind"][ROUTE if route else EVICTION] = 1.0
        return seen
