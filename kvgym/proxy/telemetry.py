"""Counts what the router does, as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterable

from kvgym.errors import MissingDependencyError
from kvgym.proxy.workers import Worker

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_DECISION_SECONDS = (5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 1e-1)


class Telemetry:
    """The router's metrics, in a registry of its own.

    Raises:
        MissingDependencyError: prometheus-client is absent.
    """

    def __init__(self) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        except ImportError as error:
            raise MissingDependencyError("kvgym route needs prometheus-client: pip install 'kvgym[route]'") from error
        registry = self.registry = CollectorRegistry()
        self.requests = Counter("kvgym_requests", "Requests by outcome.", ["worker", "status"], registry=registry)
        self.retries = Counter("kvgym_retries", "Requests that were sent elsewhere.", ["worker"], registry=registry)
        self.gone = Counter("kvgym_clients_gone", "Requests whose client left.", registry=registry)
        self.prompt = Counter("kvgym_prompt_tokens", "Prompt tokens of answered requests.", registry=registry)
        self.cached = Counter("kvgym_cached_tokens", "Of these, cached as the servers say.", registry=registry)
        self.believed = Counter("kvgym_believed_tokens", "Of these, cached as the index said.", registry=registry)
        self.ttft = Histogram("kvgym_ttft_seconds", "To the first byte.", buckets=_SECONDS, registry=registry)
        self.latency = Histogram("kvgym_latency_seconds", "To the last byte.", buckets=_SECONDS, registry=registry)
        self.decision = Histogram(
            "kvgym_decision_seconds",
            "Of a decision, tokenising included.",
            buckets=_DECISION_SECONDS,
            registry=registry,
        )
        self.shadow_decisions = Counter("kvgym_shadow_decisions", "By shadow.", ["shadow"], registry=registry)
        self.shadow_agrees = Counter("kvgym_shadow_agreements", "By shadow.", ["shadow"], registry=registry)
        self.shadow_believed = Counter(
            "kvgym_shadow_believed_tokens", "Cached tokens at the shadow's choice, by its own index.", ["shadow"],
            registry=registry,
        )  # fmt: skip
        self.up = Gauge("kvgym_worker_up", "1: may be chosen.", ["worker"], registry=registry)
        self.inflight = Gauge("kvgym_inflight", "Requests at a worker.", ["worker"], registry=registry)

    def page(self, workers: Iterable[Worker], inflight: Iterable[int]) -> bytes:
        """Return the text of /metrics."""
        from prometheus_client import generate_latest

        for worker, count in zip(workers, inflight, strict=False):
            self.up.labels(worker.url).set(worker.state == "up")
            self.inflight.labels(worker.url).set(count)
        return generate_latest(self.registry)
