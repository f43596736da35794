"""The chronicle: which events are told of jobs, each once and as few as tell the story.

Under load one event a job is told until it runs, that its pods were made, with the sentence of the decision in it. A
gang is told of as one. An event that was told before is counted on as a series, where the server says so.
"""

from __future__ import annotations

from sterna.backends.kubernetes.api.job import PodRow, PodState, ReplicaAssignment
from sterna.backends.kubernetes.api.resources import Write, WriteResult
from sterna.backends.kubernetes.api.write_purpose import Event
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.lifecycle.verdict import Verdict, VerdictKind
from sterna.backends.kubernetes.status.events import EventBuilder
from sterna.backends.kubernetes.status.status_writer import UNSCHEDULABLE_CODES
from sterna.model.reason import Code, Reason

_TOLD = UNSCHEDULABLE_CODES | {
    Code.GREW,
    Code.SHRANK,
    Code.SHRANK_BY_RULE,
    Code.STOPPED,
    Code.STOPPED_BY_RULE,
    Code.MOVED,
    Code.MOVED_FOR,
    Code.SHARED,
}
"""Decisions that are told when they are made; that a job starts is told with its pods, that it waits in its status."""

_MOST_COUNTED = 4096
"""So many series are counted on; one that was not told for long begins anew."""


class EventRecorder:
    """Collects events to be sent."""

    def __init__(self, builder: EventBuilder) -> None:
        self._builder = builder
        self._outgoing: list[Write] = []
        self._counts: dict[str, int] = {}
        """How often events were told that the server had already, by their keys; those of late."""

    def drain(self) -> list[Write]:
        writes, self._outgoing = self._outgoing, []
        return writes

    def _add(self, write: Write | None) -> None:
        if write is not None:
            self._outgoing.append(write._replace(tag=Event(1)))

    # What was decided.

    def record_decision(self, entry: JobEntry, reason: Reason, now: float) -> None:
        if reason.code in _TOLD:
            self._add(self._builder.decision(entry.job, reason, now))

    def record_verdict(self, entry: JobEntry, verdict: Verdict, now: float) -> None:
        """Pods meant something for their job."""
        if verdict.kind in (VerdictKind.REPLACE, VerdictKind.RESTART, VerdictKind.FAILED):
            failed = [pod for pod in entry.job.pods.values() if pod.state is PodState.FAILED and not pod.is_deleting]
            for pod in failed[:1]:
                self._add(self._builder.pod_exit(entry.job, pod, now))
        self._add(self._builder.verdict(entry.job, verdict, now))

    def record_invalid(self, entry: JobEntry, now: float) -> None:
        self._add(self._builder.invalid(entry.parsed_job.ref, entry.outcome[1], now))

    # What became of pods.

    def expect_pod(self, entry: JobEntry, replica: ReplicaAssignment) -> None:
        entry.pending_pods[replica.type, replica.ordinal] = (replica, False)

    def record_created(self, entry: JobEntry, pod: PodRow, now: float) -> None:
        """The server took a pod. All that were asked for together are told of together."""
        known = entry.pending_pods.get((pod.type, pod.index))
        if known is not None:
            entry.pending_pods[pod.type, pod.index] = (known[0], True)
            self._close(entry, now)

    def record_create_failure(self, entry: JobEntry, pod: PodRow, message: str, now: float) -> None:
        """It did not; an empty message: that is nobody's trouble."""
        known = entry.pending_pods.pop((pod.type, pod.index), None)
        if known is not None and message:
            self._add(self._builder.create_failure(entry.job, known[0], message, now))
        self._close(entry, now)

    def _close(self, entry: JobEntry, now: float) -> None:
        # Those that were asked for last come last: from there it costs little to see that a large gang is not whole.
        if not entry.pending_pods or not all(is_made for _, is_made in reversed(entry.pending_pods.values())):
            return
        replicas = [replica for replica, _ in entry.pending_pods.values()]
        entry.pending_pods.clear()
        is_start = entry.reason is not None and entry.reason.code is Code.STARTED
        sentence = entry.reason.sentence if is_start and entry.reason is not None else ""
        self._add(self._builder.created(entry.job, replicas, now, sentence))

    def record_deleted(self, entry: JobEntry, pods: list[PodRow], now: float, why: str = "") -> None:
        if pods:
            self._add(self._builder.deleted(entry.job, pods, now, why))

    def record_delete_failure(self, entry: JobEntry, pod: PodRow, message: str, now: float) -> None:
        self._add(self._builder.delete_failure(entry.job, pod, message, now))

    # Again.

    def on_write_result(self, answer: WriteResult, now: float) -> None:
        """What was told before is counted on."""
        tag = answer.write.tag
        if isinstance(tag, Event) and answer.reason == "AlreadyExists" and tag.number == 1:
            key = f"{answer.write.namespace}/{answer.write.name}"
            count = self._counts.pop(key, 1) + 1
            self._counts[key] = count
            if len(self._counts) > _MOST_COUNTED:
                del self._counts[next(iter(self._counts))]
            again = self._builder.repeat(answer.write, count, now)
            self._outgoing.append(again._replace(tag=Event(count)))
