"""What the operator tells Prometheus: the same names as a cluster on one machine, and those of the systems it follows.

Gauges are computed when somebody asks. Counters count what has happened since this operator came up, each job once:
DRAGON's (`tf_operator_*`, DRAGON-52) and Voda's (`voda_scheduler_*`) are other names for the same numbers.
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


class Telemetry(Collector):
    """Counts as told by the loop, and collects when scraped. Any thread may do either."""

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

    # Counting.

    def count(self, what: JobEvent, uid: str) -> None:
        """Of a job. Jobs that were there before this operator are none of its own: they are not counted as created."""
        with self._lock:
            if what in _ONCE:
                if (what, uid) in self._seen:
                    return
                self._seen.add((what, uid))
            self._counts[what] += 1
            if what is JobEvent.DELETED:  # nothing more will be heard of it
                self._seen.difference_update([(each, uid) for each in _ONCE])

    def count_round(self, seconds: float) -> None:
        """One that was decided and carried out, and how long it took."""
        with self._lock:
            self._rounds += 1
            self._round_seconds += seconds

    def count_answer(self, answer: WriteResult) -> None:
        """Of the API server to a write."""
        write = answer.write
        what = f"{write.resource.plural}/{write.subresource}" if write.subresource else write.resource.plural
        with self._lock:
            self._writes[write.verb.name.lower(), what, str(answer.status)] += 1

    # Telling.

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Nothing in advance: names do not depend on what the cluster holds."""
        return []

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            counts, writes = self._counts.copy(), self._writes.copy()
            rounds, round_seconds = self._rounds, self._round_seconds
        yield of_version()
        leads = float(self._is_leading())
        yield GaugeMetricFamily("sterna_is_leader", "Whether this replica acts.", value=leads)
        yield GaugeMetricFamily("tf_operator_is_leader", "The same, by DRAGON's name.", value=leads)
        yield from _of_counts(counts)
        yield SummaryMetricFamily("sterna_round_seconds", "Rounds and how long they took.", rounds, round_seconds)
        yield CounterMetricFamily("voda_scheduler_resched", "Rounds, by Voda's name.", value=rounds)
        yield _of_writes(writes)
        jobs, nodes = list(self._jobs()), list(self._nodes())
        yield from of_jobs(jobs)
        yield from of_nodes(nodes)
        yield from _by_vodas_names(jobs, nodes)


def _of_counts(counts: Counter[JobEvent]) -> Iterator[Metric]:
    family = CounterMetricFamily("sterna_job_events", "What has happened to jobs.", labels=["kind"])
    for what in JobEvent:
        family.add_metric([what.name.lower()], counts[what])
    yield family
    for what in JobEvent:
        dragon, voda = what.value
        yield CounterMetricFamily(f"tf_operator_jobs_{dragon}", "By DRAGON's name.", value=counts[what])
        if voda:
            yield CounterMetricFamily(f"voda_scheduler_jobs_{voda}", "By Voda's name.", value=counts[what])


def _of_writes(writes: Counter[tuple[str, str, str]]) -> Metric:
    words = "Writes to the API server, and how they were answered; 0: nobody knows."
    family = CounterMetricFamily("sterna_writes", words, labels=["verb", "resource", "status"])
    for labels, count in sorted(writes.items()):
        family.add_metric(list(labels), count)
    return family


def _by_vodas_names(jobs: Sequence[JobView], nodes: Sequence[NodeView]) -> Iterator[Metric]:
    states = Counter(job.state for job in jobs)
    running = states["running"] + states["stopping"]
    for name, count in (("ready", states["waiting"] + running), ("waiting", states["waiting"]), ("running", running)):
        yield GaugeMetricFamily(f"voda_scheduler_jobs_{name}", "By Voda's name.", value=count)
    total = sum(node.devices for node in nodes)
    used = total - sum(node.devices_free for node in nodes)
    yield GaugeMetricFamily("voda_scheduler_gpus", "Devices of all nodes, by Voda's name.", value=total)
    yield GaugeMetricFamily("voda_scheduler_gpus_inuse", "Devices that are held, by Voda's name.", value=used)
