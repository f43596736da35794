"""`EventRecorder`: decides which Events are written for jobs, and aggregates them.

Under load a job gets one event until it runs: that its pods were created, with the sentence of the decision. The pods
of a gang share one event. A repeated event becomes a series when the server answers `AlreadyExists`.
"""

from __future__ import annotations

from sterna.backends.kubernetes.api.job import PodRow, PodState, ReplicaAssignment
from sterna.backends.kubernetes.api.resources import Write, WriteResult
from sterna.backends.kubernetes.api.write_purpose import RecordedEvent
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.lifecycle.verdict import Verdict, VerdictKind
from sterna.backends.kubernetes.status.events import EventBuilder
from sterna.backends.kubernetes.status.status_writer import UNSCHEDULABLE_CODES
from sterna.model.reason import Code, Reason

_RECORDED_CODES = UNSCHEDULABLE_CODES | {
    Code.GREW,
    Code.SHRANK,
    Code.SHRANK_BY_RULE,
    Code.STOPPED,
    Code.STOPPED_BY_RULE,
    Code.MOVED,
    Code.MOVED_FOR,
    Code.SHARED,
}
"""Reasons that get an event of their own. Starting is reported with the pods, waiting in the status."""

_MAX_SERIES = 4096
"""Upper bound on remembered event series; the least recent one is dropped and starts over."""


class EventRecorder:
    """Collects event writes until the backend drains them."""

    def __init__(self, builder: EventBuilder) -> None:
        self._builder = builder
        self._outgoing: list[Write] = []
        self._counts: dict[str, int] = {}
        """Count of each recent event series, by `namespace/name`."""

    def drain(self) -> list[Write]:
        writes, self._outgoing = self._outgoing, []
        return writes

    def _add(self, write: Write | None) -> None:
        if write is not None:
            self._outgoing.append(write._replace(tag=RecordedEvent(1)))

    # Decisions and verdicts.

    def record_decision(self, entry: JobEntry, reason: Reason, now: float, loss: str = "") -> None:
        if reason.code in _RECORDED_CODES:
            self._add(self._builder.decision(entry.job, reason, now, loss))

    def record_broken_save(self, entry: JobEntry, lost_seconds: float, now: float) -> None:
        self._add(self._builder.broken_save(entry.job, lost_seconds, now))

    def record_verdict(self, entry: JobEntry, verdict: Verdict, now: float) -> None:
        """Record a verdict, and the exit of one failed pod that caused it."""
        if verdict.kind in (VerdictKind.REPLACE, VerdictKind.RESTART, VerdictKind.FAILED):
            failed = [pod for pod in entry.job.pods.values() if pod.state is PodState.FAILED and not pod.is_deleting]
            for pod in failed[:1]:
                self._add(self._builder.pod_exit(entry.job, pod, now))
        self._add(self._builder.verdict(entry.job, verdict, now))

    def record_invalid(self, entry: JobEntry, now: float) -> None:
        self._add(self._builder.invalid(entry.parsed_job.ref, entry.outcome[1], now))

    # Pods.

    def expect_pod(self, entry: JobEntry, replica: ReplicaAssignment) -> None:
        entry.pending_pods[replica.type, replica.ordinal] = (replica, False)

    def record_created(self, entry: JobEntry, pod: PodRow, now: float) -> None:
        """Record that the server accepted a pod; pods created together share one event."""
        pending = entry.pending_pods.get((pod.type, pod.index))
        if pending is not None:
            entry.pending_pods[pod.type, pod.index] = (pending[0], True)
            self._flush_created(entry, now)

    def record_create_failure(self, entry: JobEntry, pod: PodRow, message: str, now: float) -> None:
        """Record that the server rejected a pod; no event if the message is empty."""
        pending = entry.pending_pods.pop((pod.type, pod.index), None)
        if pending is not None and message:
            self._add(self._builder.create_failure(entry.job, pending[0], message, now))
        self._flush_created(entry, now)

    def _flush_created(self, entry: JobEntry, now: float) -> None:
        # The last requested pods are accepted last: searching from the end finds an incomplete gang early.
        if not entry.pending_pods or not all(is_made for _, is_made in reversed(entry.pending_pods.values())):
            return
        replicas = [replica for replica, _ in entry.pending_pods.values()]
        entry.pending_pods.clear()
        is_start = entry.reason is not None and entry.reason.code is Code.STARTED
        sentence = entry.reason.sentence if is_start and entry.reason is not None else ""
        self._add(self._builder.pods_created(entry.job, replicas, now, sentence))

    def record_deleted(self, entry: JobEntry, pods: list[PodRow], now: float, why: str = "") -> None:
        if pods:
            self._add(self._builder.pods_deleted(entry.job, pods, now, why))

    def record_delete_failure(self, entry: JobEntry, pod: PodRow, message: str, now: float) -> None:
        self._add(self._builder.delete_failure(entry.job, pod, message, now))

    # Series.

    def on_write_result(self, result: WriteResult, now: float) -> None:
        """Turn an event that exists already into a series."""
        tag = result.write.tag
        if isinstance(tag, RecordedEvent) and result.reason == "AlreadyExists" and tag.occurrences == 1:
            key = f"{result.write.namespace}/{result.write.name}"
            count = self._counts.pop(key, 1) + 1
            self._counts[key] = count
            if len(self._counts) > _MAX_SERIES:
                del self._counts[next(iter(self._counts))]
            patch = self._builder.repeat(result.write, count, now)
            self._outgoing.append(patch._replace(tag=RecordedEvent(count)))
