"""Prometheus metrics of the operator, under the names that a local cluster has.

Gauges are computed at each scrape. Counters start at 0 with the operator and count each job once. DRAGON's names
(`tf_operator_*`) and Voda's (`voda_scheduler_*`) are aliases of the same numbers.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from sterna.backends.kubernetes.api.resources import WriteResult
from sterna.backends.kubernetes.cache.job_entry import JobEvent
from sterna.control.metrics import of_jobs, of_nodes, of_version
from sterna.service.views import JobView, NodeView

_ONCE = frozenset({JobEvent.CREATED, JobEvent.DELETED, JobEvent.COMPLETED, JobEvent.FAILED})


class OperatorMetrics(Collector):
    """Counters that the loop increments, collected when scraped. Any thread may do either."""

    def __init__(
        self,
        jobs: Callable[[], Iterable[JobView]],
        nodes: Callable[[], Iterable[NodeView]],
        is_leading: Callable[[], bool],
    ) -> None:
        self._jobs, self._nodes, self._is_leading = jobs, nodes, is_leading
        self._counts: Counter[JobEvent] = Counter()
        self._seen: set[tuple[JobEvent, str]] = set()
        self._writes: Counter[tuple[str, str, str]] = Counter()
        self._rounds, self._round_seconds = 0, 0.0
        self._lock = threading.Lock()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    # Counters.

    def count_event(self, what: JobEvent, uid: str) -> None:
        """Count an event of a job; jobs that existed before this operator are not counted as created."""
        with self._lock:
            if what in _ONCE:
                if (what, uid) in self._seen:
                    return
                self._seen.add((what, uid))
            self._counts[what] += 1
            if what is JobEvent.DELETED:  # its uid never comes again
                self._seen.difference_update([(each, uid) for each in _ONCE])

    def count_round(self, seconds: float) -> None:
        with self._lock:
            self._rounds += 1
            self._round_seconds += seconds

    def count_write(self, result: WriteResult) -> None:
        write = result.write
        what = f"{write.resource.plural}/{write.subresource}" if write.subresource else write.resource.plural
        with self._lock:
            self._writes[write.verb.name.lower(), what, str(result.status)] += 1

    # Collection.

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering does not collect."""
        return []

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            counts, writes = self._counts.copy(), self._writes.copy()
            rounds, round_seconds = self._rounds, self._round_seconds
        yield of_version()
        leads = float(self._is_leading())
        yield GaugeMetricFamily("sterna_is_leader", "1 if this replica leads.", value=leads)
        yield GaugeMetricFamily("tf_operator_is_leader", "sterna_is_leader by DRAGON's name.", value=leads)
        yield from _event_counters(counts)
        yield SummaryMetricFamily("sterna_round_seconds", "Rounds and their duration.", rounds, round_seconds)
        yield CounterMetricFamily("voda_scheduler_resched", "Rounds, by Voda's name.", value=rounds)
        yield _write_counter(writes)
        jobs, nodes = list(self._jobs()), list(self._nodes())
        yield from of_jobs(jobs)
        yield from of_nodes(nodes)
        yield from _voda_gauges(jobs, nodes)


def _event_counters(counts: Counter[JobEvent]) -> Iterator[Metric]:
    family = CounterMetricFamily("sterna_job_events", "Events of jobs, by kind.", labels=["kind"])
    for what in JobEvent:
        family.add_metric([what.name.lower()], counts[what])
    yield family
    for what in JobEvent:
        dragon, voda = what.value
        yield CounterMetricFamily(f"tf_operator_jobs_{dragon}", "By DRAGON's name.", value=counts[what])
        if voda:
            yield CounterMetricFamily(f"voda_scheduler_jobs_{voda}", "By Voda's name.", value=counts[what])


def _write_counter(writes: Counter[tuple[str, str, str]]) -> Metric:
    words = "Writes to the API server by HTTP status; 0: no reply."
    family = CounterMetricFamily("sterna_writes", words, labels=["verb", "resource", "status"])
    for labels, count in sorted(writes.items()):
        family.add_metric(list(labels), count)
    return family


def _voda_gauges(jobs: Sequence[JobView], nodes: Sequence[NodeView]) -> Iterator[Metric]:
    states = Counter(job.state for job in jobs)
    running = states["running"] + states["stopping"]
    for name, count in (("ready", states["waiting"] + running), ("waiting", states["waiting"]), ("running", running)):
        yield GaugeMetricFamily(f"voda_scheduler_jobs_{name}", "By Voda's name.", value=count)
    total = sum(node.devices for node in nodes)
    used = total - sum(node.devices_free for node in nodes)
    yield GaugeMetricFamily("voda_scheduler_gpus", "Devices of all nodes, by Voda's name.", value=total)
    yield GaugeMetricFamily("voda_scheduler_gpus_inuse", "Devices in use, by Voda's name.", value=used)
