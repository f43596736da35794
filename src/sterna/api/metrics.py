"""`/metrics` for Prometheus: what the cluster looks like when it is asked, and what has happened so far.

Gauges are computed at each scrape. Events are counted as they are read, so that the counters go on where they were.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from sterna import __version__
from sterna.api.answers import asked
from sterna.control.verbs import JobView, NodeView, Verbs

router = APIRouter(tags=["cluster"])

_STATES = ("waiting", "running", "stopping", "completed", "failed", "deleting")
_ACTIVE = ("waiting", "running", "stopping")
_AT_ONCE = 10_000


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Prometheus' text format."""
    registry: CollectorRegistry = request.app.state.metrics
    return Response(await asked(generate_latest, registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def registry_of(verbs: Verbs) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(ClusterMetrics(verbs))
    return registry


class ClusterMetrics(Collector):
    """Asks the cluster at each scrape."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._events: Counter[str] = Counter()
        self._last = 0
        self._lock = threading.Lock()

    def describe(self) -> list[Metric]:
        """Nothing in advance: names do not depend on what the cluster holds."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("sterna", "Which Sterna this is.", {"version": __version__})
        jobs = self._verbs.jobs()
        yield from _of_jobs(jobs)
        yield from _of_each([job for job in jobs if job.state in _ACTIVE])
        yield from _of_nodes(self._verbs.nodes())
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


def _of_jobs(jobs: list[JobView]) -> Iterator[Metric]:
    states = Counter(job.state for job in jobs)
    family = GaugeMetricFamily("sterna_jobs", "Jobs by state.", labels=["state"])
    for state in _STATES:
        family.add_metric([state], states[state])
    yield family
    yield GaugeMetricFamily("sterna_workers", "Workers that run.", value=sum(job.workers for job in jobs))
    lost = sum(job.lost_seconds for job in jobs)
    yield GaugeMetricFamily("sterna_lost_work_seconds", "Work thrown away by the jobs that are known.", value=lost)
    moves = sum(job.moves for job in jobs)
    yield GaugeMetricFamily("sterna_moves", "Moves of the jobs that are known.", value=moves)


def _of_each(jobs: list[JobView]) -> Iterator[Metric]:
    """Jobs that are not over, one by one; a label for each that was ever submitted would grow for ever."""
    workers = GaugeMetricFamily("sterna_job_workers", "Workers of a job.", labels=["job"])
    waited = GaugeMetricFamily("sterna_job_waited_seconds", "How long a job has waited in all.", labels=["job"])
    done = GaugeMetricFamily("sterna_job_progress_ratio", "Steps done of all.", labels=["job"])
    value = GaugeMetricFamily("sterna_job_metric", "The metric that counts for a job.", labels=["job", "metric"])
    eta = GaugeMetricFamily("sterna_job_eta_seconds", "Expected time to the end.", labels=["job"])
    for job in jobs:
        workers.add_metric([job.name], job.workers)
        waited.add_metric([job.name], job.waited_seconds)
        if job.step is not None and job.total:
            done.add_metric([job.name], job.step / job.total)
        if job.value is not None:
            value.add_metric([job.name, job.metric], job.value)
        if job.eta_seconds is not None:
            eta.add_metric([job.name], job.eta_seconds)
    yield from (workers, waited, done, value, eta)


def _of_nodes(nodes: list[NodeView]) -> Iterator[Metric]:
    columns = {
        "cpus": "CPU cores of a node.",
        "cpus_free": "CPU cores that nobody holds.",
        "devices": "Devices of a node.",
        "devices_free": "Devices that nobody holds.",
        "memory_bytes": "Memory of a node.",
        "memory_free_bytes": "Memory that nobody holds.",
    }
    for column, words in columns.items():
        family = GaugeMetricFamily(f"sterna_node_{column}", words, labels=["node"])
        for node in nodes:
            family.add_metric([node.name], getattr(node, column))
        yield family
    family = GaugeMetricFamily("sterna_node_ready", "Whether jobs may start on a node.", labels=["node"])
    for node in nodes:
        family.add_metric([node.name], node.state == "ready")
    yield family
