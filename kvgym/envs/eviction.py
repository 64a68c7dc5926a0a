"""In Eviction-v0 a step chooses what a full cache evicts, while a named controller routes the requests."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from kvgym.config.contracts import make_controller
from kvgym.config.names import table
from kvgym.config.options import build
from kvgym.encoding.offers import encode_eviction, eviction_space
from kvgym.envs.choice import ChoiceEnv
from kvgym.envs.episode import Observation
from kvgym.envs.rewards.base import Term
from kvgym.errors import ConfigError
from kvgym.types import RECORD, Decision, EvictionDecision


class EvictionEnv(ChoiceEnv):
    """Choose the victims of full caches, over a fleet of LLM workers that each have their own prefix (KV) cache.

    ## Description
    A worker that has no room for the tokens it is about to compute must forget some: cached prefixes that would have
    made later prompts cheap. What may go are the ends of cached paths (leaves) that no running request holds. Workers
    serve by SGLang's rules in simulated time; a named controller sends requests to them; see `kvgym.engine`.

    ## Decision points
    One step evicts one leaf, or the end of it (`tail_tokens`), on one worker: the simulator runs until a worker is
    short of KV space. If that is too little, the next step comes at the same time (``info["dt_s"]`` 0) on the same
    worker. Each worker asks for itself; ``env.unwrapped.decision.worker`` says which does.

    ## Action space
    ``Discrete(candidates)``: which of the leaves on offer goes. There is never a choice among all leaves: `offered`
    says which are on offer, drawn anew at each step, the least recently accessed ones first and in that order, then
    the random ones. `action_masks()` tells which places hold a leaf; the first always does. An action that is masked
    or no place at all never raises: the leaf in the first place goes, and ``info["invalid_actions"]`` counts it.

    ## Observation space
    ``Dict`` of float32 boxes, ``cache`` (9,) and ``candidates`` (candidates, 10); a row means the same in every place.
    Rows of empty places are 0. log(x, top) is ln(1 + x) / ln(1 + top), signed log is that of the size with the sign
    kept. All features are clipped to their bounds. A tick is one match or insert in the worker's cache, or a split. A
    leaf is ``marked`` if it was accessed in this phase; a phase ends, and all its marks with it, when a step comes and
    no evictable leaf is without a mark (as in RLT). ``open`` is what a server knows whose clients close their
    sessions. The observation after the last step is all 0. The structured view is `env.unwrapped.decision`.

    | array | index | name | meaning | unit | min | max |
    | --- | --- | --- | --- | --- | --- | --- |
    | cache | 0 | need | tokens still to be freed | log(tokens, 2^20) | 0 | 1 |
    | cache | 1 | need_share | the same over the worker's KV capacity | fraction | 0 | 1 |
    | cache | 2 | free | free tokens over the capacity | fraction | 0 | 1 |
    | cache | 3 | evictable | tokens that may be evicted, over the capacity | fraction | 0 | 1 |
    | cache | 4 | capacity | the worker's KV capacity | log(tokens, 2^24) | 0 | 1 |
    | cache | 5 | leaves | evictable leaves, offered or not | log(leaves, 2^20) | 0 | 1 |
    | cache | 6 | unmarked | part of them without a mark | fraction | 0 | 1 |
    | cache | 7 | running | requests in the worker's running batch | log(requests, 2^12) | 0 | 1 |
    | cache | 8 | queued | requests waiting in its queue | log(requests, 2^12) | 0 | 1 |
    | candidates | 0 | age | since the leaf was made | log(ticks, 2^24) | 0 | 1 |
    | candidates | 1 | idle | since its last access | log(ticks, 2^24) | 0 | 1 |
    | candidates | 2 | tokens | tokens that it holds | log(tokens, 2^20) | 0 | 1 |
    | candidates | 3 | depth | from the beginning of the prompt to its end | log(tokens, 2^20) | 0 | 1 |
    | candidates | 4 | hits | requests that have inserted it | log(requests, 2^12) | 0 | 1 |
    | candidates | 5 | children | branches that were ever made below it | log(nodes, 2^12) | 0 | 1 |
    | candidates | 6 | fanout | branches of its parent now, itself included | log(nodes, 2^12) | 0 | 1 |
    | candidates | 7 | priority | largest priority of a request that inserted it | signed log(priority, 2^8) | -1 | 1 |
    | candidates | 8 | marked | accessed in this phase (see above) | 0 or 1 | 0 | 1 |
    | candidates | 9 | open | the session that used it first has turns that have not ended | 0 or 1 | 0 | 1 |

    ## Rewards
    A weighted sum of named terms, the same as in Routing-v0; ``info["rewards"]`` holds them unweighted. Each covers the
    time since the last step, the first step of an episode everything since its beginning, the last one everything
    until the fleet has drained, so undiscounted returns equal the metric:

    - ``cache`` (tokens): prompt tokens of answered requests that were found in a cache; sums to ``hit_tokens``.
    - ``latency`` (s): minus the area under the number of requests in the system; sums to minus the total latency.
    - ``ttft`` (s): minus the area under the number of requests without a first token; sums to minus the total TTFT.
    - ``makespan`` (s): minus the increase of the busiest worker's busy time; sums to minus ``makespan_load_s``. Busy
      time shrinks when requests wait for larger batches, so this pays for queueing.
    - ``makespan_alone`` (s): the paper's, minus the increase of the largest sum of what each request of a worker would
      cost alone; no batch makes it smaller.
    - ``makespan_completion`` (s): minus the time that has passed; sums to minus ``makespan_s`` but for the time before
      the first decision.
    - ``slo`` (requests): those answered within its options ``ttft_s``, ``tpot_s`` and ``latency_s``.

    ## Starting state
    The first time that a worker is short of space. `reset(seed=n)` seeds the environment, every reset draws an episode
    seed from it, and that makes workload, arrivals, engine and router. ``reset(options={"seed": n})`` sets the episode
    seed itself: the same requests as in ``kvgym run --seed n``. A drawn episode in which no cache gets full gives way
    to that with the next seed, at most a hundred times (``info["skipped_episodes"]``); with a seed that was set it is
    an error.

    ## Episode end
    Terminated when all requests have ended. Truncated only by the ``max_episode_steps`` of `gymnasium.make`.

    ## Arguments
    All survive `EnvSpec.to_json` as names, paths (strings) and maps; a callable reward does not.

    - ``workload``, ``cluster``, ``reward``, ``render_mode``: as in Routing-v0. The fleet is always simulated.
    - ``observability``, ``signals``: what the router sees, as in Routing-v0.
    - ``routing``: the controller that routes, a name or ``module:attr``, or a map ``{use: name, options: {...}}``. With
      several routers (`signals`) it is one controller that sees all of their decisions.
    - ``candidates``: places for leaves on offer.
    - ``offered``: ``recent`` (the least recently accessed leaves), ``random`` (drawn uniformly), or ``both``: half of
      the places, rounded up, for the least recent, the others drawn among the rest.
    - ``tail_tokens``: what a step evicts: so many tokens of the leaf's end, rounded up to pages; None: all of it.

    ## Info keys
    As in Routing-v0: ``time_s``, ``dt_s``, ``completed``, ``invalid_actions``, ``action_mask``, ``rewards``,
    ``episode_seed``, ``skipped_episodes``.

    ## Version history
    - v0: first release.
    """

    decision: EvictionDecision | None

    def __init__(
        self,
        workload: str | Mapping[str, Any] = "gsp_default",
        cluster: str | Mapping[str, Any] = "l40x4",
        reward: str | Mapping[str, Any] | Term = "cache",
        routing: str | Mapping[str, Any] = "shortest_queue",
        candidates: int = 16,
        offered: str = "both",
        tail_tokens: int | None = None,
        observability: str = "router",
        signals: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        episode = workload, cluster, reward, observability, signals, render_mode
        super().__init__(episode, candidates, offered, tail_tokens)
        self._router = _make_router(routing, self._cluster.workers)
        self._unseen: list[np.ndarray] = []
        self.action_space = spaces.Discrete(candidates)
        self.observation_space = eviction_space(candidates)

    def fork(self) -> EvictionEnv:
        """Return an independent copy at the same decision, its router included."""
        twin: Any = super().fork()
        forest = self.fleet.forest
        twin._router = copy.deepcopy(self._router, {id(forest): forest})
        twin._unseen = list(self._unseen)
        return twin

    def _begin(self) -> None:
        self._router.reset(self.fleet, self.episode_seed)
        self._unseen = []

    def _next(self) -> EvictionDecision | None:
        """Route what comes until a worker is short of space."""
        backend, ended = self.backend, []
        while True:
            decision = backend.run_to_choice()
            if len(records := backend.completions()):
                ended.append(records)
                self._unseen.append(records)
            if not isinstance(decision, Decision):
                self.completed = np.concatenate(ended) if ended else np.zeros(0, RECORD)
                return decision
            if self._unseen:
                self._router.observe(np.concatenate(self._unseen))
                self._unseen = []
            self._route(decision, self._router.act(decision))

    def _encode(self, decision: EvictionDecision) -> Observation:
        return encode_eviction(decision)


@dataclass(frozen=True)
class _Seat:
    """A routing controller with options for its constructor."""

    use: str
    options: dict[str, Any] = field(default_factory=dict)


def _make_router(given: str | Mapping[str, Any], workers: int) -> Any:
    """Return a new routing controller.

    Raises:
        ConfigError: it does not take its options, needs real servers, or cannot play so many workers.
        UnknownNameError: there is no such controller.
    """
    seat = build(_Seat, {"use": given} if isinstance(given, str) else given, "routing")
    if getattr(table("routing").load(seat.use), "live_only", False):
        raise ConfigError(f"routing controller {seat.use!r} needs real servers; choose one that runs in a simulation")
    return make_controller(seat.use, seat.options, workers)
