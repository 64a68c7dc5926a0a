"""In Routing-v0 a step sends an arriving request to one worker of a fleet with prefix caches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from kvgym.config.names import table
from kvgym.encoding.decisions import encode, observation_space
from kvgym.envs.episode import EpisodeEnv, Observation
from kvgym.envs.rewards.base import Term
from kvgym.errors import SimulationError


class RoutingEnv(EpisodeEnv):
    """Route the requests of one workload over a fleet of LLM workers, each with its own prefix (KV) cache.

    ## Description
    Sending related prompts to the same worker makes them cheap, and builds a queue there. Workers serve by SGLang's
    rules (radix cache, chunked prefill, continuous batching) in simulated time; see `kvgym.engine`.

    ## Decision points
    One step routes one request: the simulator runs until the next request reaches the router. Steps are unevenly
    spaced in time (``info["dt_s"]``); several requests of one instant are several steps with ``dt_s`` 0. A request
    that was lost with a failed worker is routed again, so a cluster with a schedule can take more steps than requests.

    ## Action space
    ``Discrete(workers)``: the worker that gets the request. `action_masks()` tells which may be chosen: those that are
    up, as far as the router knows; at least one is. An action that is masked or no worker at all never raises: the
    first allowed worker gets the request, and ``info["invalid_actions"]`` counts it.

    ## Observation space
    ``Dict`` of float32 boxes, ``request`` (4,) and ``workers`` (workers, 9); a row means the same whatever the number
    of workers. log(x, top) is ln(1 + x) / ln(1 + top). All features are clipped to their bounds, so overload beyond
    them reads as the bound. ``hit`` and ``miss`` follow `observability`, ``running``, ``queued`` and ``kv_used`` what
    `signals` says (0 if workers report no metrics). The observation after the last request is all 0. The structured
    view that controllers use is `env.unwrapped.decision`.

    | array | index | name | meaning | unit | min | max |
    | --- | --- | --- | --- | --- | --- | --- |
    | request | 0 | prompt | prompt length | log(tokens, 2^20) | 0 | 1 |
    | request | 1 | prompt_share | prompt length over the mean KV capacity of the workers | fraction | 0 | 1 |
    | request | 2 | max_new | generated tokens that the client asks for | log(tokens, 2^20) | 0 | 1 |
    | request | 3 | turn | turn within its session, 0 for the first | log(turns, 2^8) | 0 | 1 |
    | workers | 0 | inflight | requests sent to the worker and not yet answered | log(requests, 2^12) | 0 | 1 |
    | workers | 1 | inflight_tokens | their prompt tokens | log(tokens, 2^24) | 0 | 1 |
    | workers | 2 | inflight_share | their prompt tokens over its KV capacity | fraction | 0 | 1 |
    | workers | 3 | running | requests in its running batch | log(requests, 2^12) | 0 | 1 |
    | workers | 4 | queued | requests waiting in its queue | log(requests, 2^12) | 0 | 1 |
    | workers | 5 | kv_used | resident and private KV tokens over its KV capacity | fraction | 0 | 1 |
    | workers | 6 | capacity | its KV capacity | log(tokens, 2^24) | 0 | 1 |
    | workers | 7 | hit | part of this prompt that it holds, as far as the observability tells | fraction | 0 | 1 |
    | workers | 8 | miss | tokens of this prompt that it would have to compute | log(tokens, 2^20) | 0 | 1 |

    ## Rewards
    A weighted sum of named terms; ``info["rewards"]`` holds them unweighted. Each covers the time since the last step,
    the last step everything until the fleet has drained, so undiscounted returns equal the metric:

    - ``latency`` (s): minus the area under the number of requests in the system; sums to minus the total latency.
    - ``ttft`` (s): minus the area under the number of requests without a first token; sums to minus the total TTFT.
    - ``makespan`` (s): minus the increase of the busiest worker's busy time; sums to minus ``makespan_load_s``. Busy
      time shrinks when requests wait for larger batches, so this pays for queueing.
    - ``makespan_alone`` (s): the paper's, minus the increase of the largest sum of what each request of a worker would
      cost alone; no batch makes it smaller.
    - ``makespan_completion`` (s): minus the time that has passed; sums to minus ``makespan_s`` but for the time before
      the first decision.
    - ``slo`` (requests): those answered within its options ``ttft_s``, ``tpot_s`` and ``latency_s`` (at least one),
      as in ``{"slo": {"weight": 1.0, "ttft_s": 2.0}}``; sums to the goodput of the whole run.
    - ``cache`` (tokens): prompt tokens of answered requests that were found in a cache; sums to ``hit_tokens``.

    ## Starting state
    Empty caches, idle workers, the first request at the router. `reset(seed=n)` seeds the environment, every reset
    draws an episode seed from it, and that makes workload, arrivals and engine. ``reset(options={"seed": n})`` sets
    the episode seed itself: the same requests as in ``kvgym run --seed n``. A drawn episode without a decision (no
    worker is ever up) gives way to that with the next seed, at most a hundred times; a seed that was set is an error.

    ## Episode end
    Terminated once the last request is routed: that step runs the simulator until all requests have ended (one that
    no worker can serve any more has failed). Truncated only by the ``max_episode_steps`` of `gymnasium.make`.

    ## Arguments
    All survive `EnvSpec.to_json` as names, paths (strings) and maps; a callable reward does not.

    - ``workload``: preset of configs/workloads, path of a YAML file, or a map with ``source``.
    - ``cluster``: preset of configs/clusters, path, or map of `kvgym.config.cluster.ClusterConfig` fields.
    - ``reward``: name of one term, or ``module:attr``; a map term -> weight (or a map of ``weight`` and options); path
      of a YAML file with such a map; or a callable (see `kvgym.envs.rewards`).
    - ``backend``: where requests are served: ``simulated``, or ``sglang`` (a cluster with a ``live`` part; wall time).
    - ``observability``: ``router`` (the hit is what the router remembers of its own sending), ``events`` (what the
      caches report) or ``exact`` (what the worker's cache really holds); short for the same field of ``signals``.
    - ``signals``: map of `kvgym.config.signals.SignalsConfig` fields: how stale metrics and KV events are, how much a
      router remembers, how many routers there are. One agent decides for all of them: each observation is the view of
      the router whose request waits (``env.unwrapped.decision.router``).
    - ``eviction``: eviction policy of the workers, or ``module:attr``.
    - ``render_mode``: ``ansi`` (`render` returns a str of plain text), ``rgb_array`` (a uint8 image of (540, 960, 3)
      for `gymnasium.wrappers.RecordVideo`; needs pillow, ``pip install 'kvgym[render]'``) or None.

    ## Pictures
    `render` shows the fleet as it is now, whatever the observability: totals, and per worker its queued, running and
    in-flight requests, what its KV pool holds by top-level prefix (one colour each), and whether it is down. The
    worker that the last request went to is highlighted.

    ## Info keys
    - ``time_s``, ``dt_s``: simulated time, and how much of it the step took.
    - ``completed``: requests that ended in this step; their records are in `env.unwrapped.completed`.
    - ``invalid_actions``: count in this episode.
    - ``action_mask``: `action_masks()` as int8; all 1 where nothing is to be decided.
    - ``rewards``: term -> value; 0 at reset.
    - ``episode_seed``, and ``skipped_episodes``: drawn before it, but without a decision (see Starting state).

    ## Version history
    - v0: first release.

    Attributes:
        decision: what waits to be routed; None before the first reset and after the last step.
        fleet: the fleet of this episode, a new object after each reset.
        episode_seed: seed of this episode.
        completed: RECORD rows that ended since the last decision, in order of completion.
    """

    _idle = "ends without a decision: no worker is up for any request; change the cluster's schedule"

    def __init__(
        self,
        workload: str | Mapping[str, Any] = "gsp_default",
        cluster: str | Mapping[str, Any] = "l40x4",
        reward: str | Mapping[str, Any] | Term = "latency",
        backend: str = "simulated",
        observability: str = "router",
        eviction: str = "lru",
        signals: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(workload, cluster, reward, observability, signals, render_mode)
        self._backend_class = table("backends").load(backend)
        table("eviction").load(eviction)  # a wrong name is reported here, not at the first reset
        self._eviction = eviction
        self.action_space = spaces.Discrete(self._cluster.workers)
        self.observation_space = observation_space(self._cluster.workers)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; ``options={"seed": n}`` fixes the episode seed instead of drawing it.

        Raises:
            ConfigError: `options` holds something else.
            SimulationError: no worker is up for any request in the episode of that seed, or in a hundred drawn ones.
        """
        super().reset(seed=seed)
        return self._draw_episode(options or {}), self._first_info()

    def _open(self) -> Observation:
        """Start the episode with `episode_seed` and run to its first decision."""
        workload = self._source.generate(self.episode_seed, self._cluster.page_size)
        self.close()
        self._backend = self._backend_class(workload, self._cluster, self._eviction, self.episode_seed, self._signals)
        self.fleet = self.backend.spec
        self._forget()
        return self._advance()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Send the waiting request to worker `action` and run to the next one.

        Raises:
            SimulationError: no request waits, because the episode has ended or not begun.
        """
        if self.decision is None:
            raise SimulationError("no request waits for a worker; call reset() first")
        before, worker = self._progress, self._allowed(action)
        self.backend.apply(worker)
        self._last = (self.decision, worker)
        observation = self._advance()
        reward, terms = self._reward(before, self._progress, self.completed)
        info = self._info(self._progress.time_s - before.time_s)
        info["rewards"] = terms
        return observation, reward, self.decision is None, False, info

    def close(self) -> None:
        """Give up the episode's connections, if its backend is live."""
        if self._backend is not None:
            self._backend.close()

    def _advance(self) -> Observation:
        """Run to the next decision and take note of where the episode stands; return the observation."""
        backend = self.backend
        self.decision = backend.run_to_decision()
        self.completed = backend.completions()
        self._progress = backend.progress()
        return self._nothing() if self.decision is None else encode(self.decision)
