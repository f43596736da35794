"""`/metrics` for Prometheus: what the cluster looks like when it is asked, and what has happened so far.

Gauges are computed at each scrape. Events are counted as they are read, so that the counters go on where they were.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from sterna.api.responses import asked
from sterna.service.views import ClusterService
from sterna.control.metrics import of_jobs, of_nodes, of_version

router = APIRouter(tags=["cluster"])

_AT_ONCE = 10_000


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Prometheus' text format."""
    registry: CollectorRegistry = request.app.state.metrics
    return Response(await asked(generate_latest, registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def registry_of(verbs: ClusterService) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(ClusterMetrics(verbs))
    return registry


class ClusterMetrics(Collector):
    """Asks the cluster at each scrape."""

    def __init__(self, verbs: ClusterService) -> None:
        self._verbs = verbs
        self._events: Counter[str] = Counter()
        self._last = 0
        self._lock = threading.Lock()

    def describe(self) -> list[Metric]:
        """Nothing in advance: names do not depend on what the cluster holds."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield of_version()
        yield from of_jobs(self._verbs.jobs())
        yield from of_nodes(self._verbs.nodes())
        yield self._of_events()

    def _of_events(self) -> Metric:
        with self._lock:
            while events := self._verbs.events("", self._last, _AT_ONCE):
                self._events.update(event.kind for event in events)
                self._last = events[-1].number
                if len(events) < _AT_ONCE:
                    break
            counted = dict(self._events)
        family = CounterMetricFamily("sterna_events", "What has happened, by kind.", labels=["kind"])
        for kind, count in sorted(counted.items()):
            family.add_metric([kind], count)
        return family
