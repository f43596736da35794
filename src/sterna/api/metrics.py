"""`/metrics` of a daemon, for Prometheus: gauges of jobs and nodes, counters of events.

Gauges are computed at each scrape. Events are counted as they are read from the cluster, which keeps them over
restarts, so that counters continue.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

from fastapi import APIRouter
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from sterna.api.responses import call
from sterna.control.metrics import of_jobs, of_nodes, of_version
from sterna.service.cluster_service import ClusterService

_PAGE_EVENTS = 10_000


def create_metrics_router(service: ClusterService) -> APIRouter:
    """Return the route `/metrics` of a cluster."""
    registry = CollectorRegistry()
    registry.register(ClusterMetrics(service))
    router = APIRouter(tags=["cluster"])

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Metrics in Prometheus' text format."""
        return Response(await call(generate_latest, registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return router


class ClusterMetrics(Collector):
    """Collects metrics from the cluster at each scrape."""

    def __init__(self, service: ClusterService) -> None:
        self._service = service
        self._events: Counter[str] = Counter()
        self._last = 0
        self._lock = threading.Lock()

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering does not collect."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield of_version()
        yield from of_jobs(self._service.jobs())
        yield from of_nodes(self._service.nodes())
        yield self._of_events()

    def _of_events(self) -> Metric:
        with self._lock:
            while events := self._service.events("", self._last, _PAGE_EVENTS):
                self._events.update(event.kind for event in events)
                self._last = events[-1].number
                if len(events) < _PAGE_EVENTS:
                    break
            counted = dict(self._events)
        family = CounterMetricFamily("sterna_events", "Events of the cluster, by kind.", labels=["kind"])
        for kind, count in sorted(counted.items()):
            family.add_metric([kind], count)
        return family
