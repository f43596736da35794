"""`StatusWriter`: when the status of each job is written, and how often.

A status write costs the API server more than a pod. So the latest state wins, at most one write per job is in flight,
and a job that starts at once gets a single write, when it runs. That a job cannot run, or that it ended, is written
with higher urgency than the rest. A status that did not change is not written.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import msgspec

from sterna.backends.kubernetes.api.resources import Urgency, Write, WriteResult
from sterna.backends.kubernetes.api.write_purpose import WroteStatus
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.cache.job_entry import JobEntry, Stage, durable_fields, has_ended
from sterna.backends.kubernetes.lifecycle.backoff import pod_start_error, waiting_sentence
from sterna.backends.kubernetes.lifecycle.conditions import INVALID, end_condition
from sterna.backends.kubernetes.lifecycle.phase import JobPhase, phase_of
from sterna.backends.kubernetes.lifecycle.verdict import conditions_in
from sterna.backends.kubernetes.status.status import (
    StatusInput,
    StatusStorage,
    annotations_write,
    invalid_status,
    status_of,
    status_storage,
    status_write,
)
from sterna.kinds.labels import PHASE
from sterna.kinds.registry import job_kinds
from sterna.model.reason import Code
from sterna.model.snapshot import NEVER

UNSCHEDULABLE_CODES = frozenset({Code.TOO_LARGE, Code.NO_NODE, Code.NO_SERVERS, Code.NOT_BESIDE_SERVERS})
"""Reasons that persist until a user or an administrator acts."""

_WAITING_SECONDS = 0.8
"""Delay before a Waiting status is written, so that jobs that start at once never show it."""
_STARTING_SECONDS = 120.0
"""Delay before a Starting status is written; normally superseded by Running."""
_START_ERROR_SECONDS = 2.0
"""Delay before a Starting status with an error is written."""
_BUSY_DELAY_SECONDS = 5.0
_SENTENCE_SECONDS = 30.0
"""Minimum interval between writes that only change the sentence, whose numbers change in every round."""
_PROGRESS_SECONDS = 15.0
_DURABLE_FIELDS_SECONDS = 1.0
"""Delay before changed durable fields are written; the next leader depends on them."""
_RETRY_SECONDS, _MAX_RETRY_SECONDS = 2.0, 60.0
"""Bounds of the exponential back-off after rejections."""
_ERROR_RETRY_SECONDS = 30.0
_MAX_IN_FLIGHT = 64
"""Writes in flight above which statuses of low urgency are delayed."""

_DELAYS = {
    JobPhase.WAITING: _WAITING_SECONDS,
    JobPhase.STARTING: _STARTING_SECONDS,
    JobPhase.RESTARTING: _WAITING_SECONDS,
    JobPhase.STOPPING: _WAITING_SECONDS,
}
"""Delays by phase; other phases are written at once."""
_DELEGATED_DELAY_SECONDS = 3.0
"""Delay of writes to an MPIJob. The MPI operator updates the object several times after each change; a write in between
makes its updates conflict, and after a few conflicts it backs off for a minute."""
_DELAYABLE = frozenset({JobPhase.STARTING, JobPhase.RESTARTING, JobPhase.STOPPING})


class StatusWriter:
    """Schedules and builds the status writes of all jobs."""

    def __init__(self, state: ClusterState, backlog: Callable[[], int]) -> None:
        self._state, self._backlog = state, backlog
        self._heap: list[tuple[float, int]] = []
        self._foreign = {kind.resource for kind in job_kinds() if kind.has_foreign_definition}
        """Kinds with Kubeflow's CRD, which drops unknown status fields."""

    # Scheduling.

    def schedule(self, entry: JobEntry, now: float) -> None:
        """Set the time of the next write if something of the status changed."""
        state = entry.status
        if entry.stage is Stage.INVALID:
            has_stopped = state.phase != INVALID and not any(entry.live_pods)
            if state.sentence != entry.outcome[1] or has_stopped:
                self._schedule_at(entry, now, Urgency.VERDICT)
            return
        if entry.stage is Stage.ENDED and not has_ended(entry):
            return  # it ended under a previous leader, which wrote the status
        phase = phase_of(entry.job, entry.replicas, now, entry.verdict.kind)
        if phase.is_over:
            if state.phase != phase.value:
                self._schedule_at(entry, now, Urgency.VERDICT)
            return
        if phase is JobPhase.WAITING and entry.reason is None and not self._sentence(entry, now):
            return  # no round has decided about it yet
        code = entry.reason.code if entry.reason is not None and phase is JobPhase.WAITING else None
        if code in UNSCHEDULABLE_CODES and state.code != code:
            self._schedule_at(entry, now, Urgency.VERDICT)
        elif phase.value != state.phase:
            if phase.value != state.next_phase:
                state.next_phase, state.next_since = phase.value, now
                state.due_at, state.urgency = NEVER, Urgency.EVENT  # the scheduled phase is outdated
            urgency = Urgency.VERDICT if phase is JobPhase.WAITING else Urgency.STATUS
            delay = _DELAYS.get(phase, 0.0)
            if phase is JobPhase.STARTING and (entry.retry.message or pod_start_error(entry.job)):
                delay = _START_ERROR_SECONDS
            self._schedule_at(entry, state.next_since + delay, urgency)
        elif durable_fields(entry.job.persisted) != state.durable_fields:
            self._schedule_at(entry, max(now, state.written_at) + _DURABLE_FIELDS_SECONDS, Urgency.STATUS)
        elif self._sentence(entry, now) != state.sentence:
            self._schedule_at(entry, max(now + _WAITING_SECONDS, state.written_at + _SENTENCE_SECONDS), Urgency.STATUS)

    def restore(self, entry: JobEntry) -> None:
        """Restore what a previous leader wrote, so that it is not written again."""
        state, status = entry.status, entry.job.status
        held = {each.get("type") for each in conditions_in(status) if each.get("status") == "True"}
        known = next((word for word in ("Restarting", "Running") if word in held), "")
        phase = status.get("phase") or entry.source.annotations.get(PHASE) or known
        state.phase = state.next_phase = str(phase)
        state.durable_fields = durable_fields(entry.job.persisted)

    def on_progress(self, entry: JobEntry, now: float) -> None:
        """Schedule a write after a progress report."""
        self._schedule_at(entry, max(now, entry.status.written_at + _PROGRESS_SECONDS), Urgency.STATUS)

    def _schedule_at(self, entry: JobEntry, at: float, urgency: Urgency) -> None:
        state = entry.status
        if entry.parsed_job.ownership.is_delegated and (
            entry.reason is None or entry.reason.code not in UNSCHEDULABLE_CODES
        ):
            at += _DELEGATED_DELAY_SECONDS
        state.urgency = min(state.urgency, urgency)
        if at < state.due_at:
            state.due_at = at
            heapq.heappush(self._heap, (at, entry.key))

    @property
    def next_at(self) -> float:
        while self._heap:
            at, key = self._heap[0]
            entry = self._state.entries.get(key)
            if entry is not None and entry.status.due_at == at:
                return at
            heapq.heappop(self._heap)
        return NEVER

    # Writing.

    def due_writes(self, now: float, on_error: Callable[[Exception], None]) -> list[Write]:
        """Return all writes that are due. A job whose status raises an exception is retried later."""
        found: list[Write] = []
        while self.next_at <= now:
            entry = self._state.entries[heapq.heappop(self._heap)[1]]
            entry.status.due_at = NEVER
            try:
                found += self._write(entry, now)
            except Exception as error:
                self._schedule_at(entry, now + _ERROR_RETRY_SECONDS, Urgency.STATUS)
                on_error(error)
        return found

    def _write(self, entry: JobEntry, now: float) -> list[Write]:
        state, job = entry.status, entry.job
        if entry.is_compacted:
            return []
        if state.writes_in_flight:
            state.is_outdated = True
            return []
        if entry.stage is Stage.INVALID:
            return self._write_invalid(entry, now)
        phase = phase_of(job, entry.replicas, now, entry.verdict.kind)
        if phase in _DELAYABLE and state.urgency > Urgency.VERDICT and self._backlog() > _MAX_IN_FLIGHT:
            self._schedule_at(entry, now + _BUSY_DELAY_SECONDS, state.urgency)
            return []
        urgency, state.urgency = state.urgency, Urgency.EVENT
        status = status_of(job, self._status_input(entry, phase), now)
        state.phase = state.next_phase = phase.value
        state.sentence, state.written_at, state.durable_fields = (
            self._sentence(entry, now),
            now,
            durable_fields(job.persisted),
        )
        state.code = entry.reason.code if entry.reason is not None else None
        storage = self._storage(entry)
        ref = entry.parsed_job.ref
        writes = [
            status_write(ref, job.status, status, storage, urgency),
            annotations_write(job, status, entry.source.annotations, storage, urgency),
        ]
        if storage is not StatusStorage.ANNOTATIONS:  # else the status belongs to another controller
            job.status = status
        if phase.is_over and writes[0] is not None and writes[1] is not None:
            # The status must report the end before the annotation does: the next leader trusts the annotation.
            state.is_outdated = True
            writes.pop()
        elif phase.is_over and writes[0] is None:
            self._note_end_write(entry)
        return self._track(entry, [write for write in writes if write is not None])

    def _note_end_write(self, entry: JobEntry) -> None:
        entry.status.is_end_written = True
        self._state.work_queue.enqueue(entry)

    def _write_invalid(self, entry: JobEntry, now: float) -> list[Write]:
        ref, state, sentence = entry.parsed_job.ref, entry.status, entry.outcome[1]
        old, generation = entry.job.status, entry.parsed_job.generation
        state.sentence, state.written_at, state.urgency = sentence, now, Urgency.EVENT
        if any(entry.live_pods):  # running pods continue as submitted
            status = {**old, "reason": sentence, "observedGeneration": generation}
        else:
            status = invalid_status(ref.resource.kind, ref.name, old, sentence, generation, now)
            state.phase = INVALID
        storage = self._storage(entry)
        if storage is StatusStorage.ANNOTATIONS:
            status["phase"] = INVALID  # only its own controller reports failure
            write = annotations_write(entry.job, status, entry.source.annotations, storage, Urgency.VERDICT)
        else:
            write = status_write(ref, old, status, storage, Urgency.VERDICT)
            entry.job.status = status
        return self._track(entry, [write] if write is not None else [])

    def _track(self, entry: JobEntry, writes: list[Write]) -> list[Write]:
        entry.status.writes_in_flight = len(writes)
        return [write._replace(tag=WroteStatus(entry.key)) for write in writes]

    def _status_input(self, entry: JobEntry, phase: JobPhase) -> StatusInput:
        view = self._state.progress.view(entry.key, phase is JobPhase.RUNNING)
        is_worded = bool(entry.retry.message) or (entry.reason is not None and entry.sentence != entry.reason.sentence)
        return StatusInput(
            entry.replicas, entry.reason, _decision_sentence(entry) if is_worded else "", entry.verdict, view
        )

    def _sentence(self, entry: JobEntry, now: float) -> str:
        """Return the sentence beside the verdict."""
        sentence = _decision_sentence(entry)
        if not entry.replicas:
            return waiting_sentence(entry.job, sentence, now)
        return pod_start_error(entry.job) or sentence

    def _storage(self, entry: JobEntry) -> StatusStorage:
        return status_storage(entry.parsed_job.ownership, entry.parsed_job.ref.resource not in self._foreign)

    # Results.

    def on_write_result(self, entry: JobEntry, result: WriteResult, now: float) -> None:
        """Process the result of a status or annotation write."""
        state = entry.status
        state.writes_in_flight = max(0, state.writes_in_flight - 1)
        resource = entry.parsed_job.ref.resource
        if result.is_done:
            state.rejections = 0
            if entry.parsed_job.ownership.is_pod:
                self._state.work_queue.enqueue(entry)  # a CPU resize waits for the persisted base
            if result.write.subresource and (stored := _stored_status(result)) is not None:
                entry.job.status = entry.status.seen = stored
                if resource not in self._foreign and "conditions" in stored and "phase" not in stored:
                    self._foreign.add(resource)  # the server dropped fields unknown to Kubeflow's CRD
                    state.is_outdated = True
                if has_ended(entry) and end_condition(conditions_in(stored)) is not None:
                    self._note_end_write(entry)
        else:
            if result.write.subresource:
                entry.job.status = entry.status.seen
            if result.status not in (404, 422):
                wait = min(_RETRY_SECONDS * 2.0 ** min(state.rejections, 10), _MAX_RETRY_SECONDS)
                state.rejections += 1
                self._schedule_at(entry, now + wait, Urgency.VERDICT)
            elif has_ended(entry):
                self._note_end_write(entry)  # the object is gone or never accepts it
        if state.is_outdated and not state.writes_in_flight:
            state.is_outdated = False
            self._schedule_at(entry, now, Urgency.STATUS)
        elif state.is_end_written and state.due_at == NEVER and not state.writes_in_flight:
            self._state.compact(entry)


def _decision_sentence(entry: JobEntry) -> str:
    return entry.retry.message or entry.sentence


class _StatusOnly(msgspec.Struct):
    """Object decoded for its status alone."""

    status: dict[str, Any] | None = None


def _stored_status(result: WriteResult) -> dict[str, Any] | None:
    """Return the status in the response, None if there is none."""
    try:
        return msgspec.json.decode(result.body, type=_StatusOnly).status if result.body else None
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
