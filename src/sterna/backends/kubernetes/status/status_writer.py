"""Telling: what people read of a job, its status and its events, at the right moment and no more often than it helps.

A status write costs the server more than a pod. So the latest state wins, one write of a job is under way at a time,
and a job that starts at once is told of once, when it runs. Somebody who waits to read that a job cannot run, or that
it ended, does not wait behind the others. What was told is compared with what is to be told: no change, no write.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import msgspec

from sterna.backends.kubernetes.api.resources import Urgency, Write, WriteResult
from sterna.backends.kubernetes.api.write_purpose import Told
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.cache.job_entry import JobEntry, Stage, durable_fields, has_ended
from sterna.backends.kubernetes.lifecycle.conditions import INVALID, end_condition
from sterna.backends.kubernetes.lifecycle.phase import Phase, phase_of
from sterna.backends.kubernetes.lifecycle.verdict import conditions_in
from sterna.backends.kubernetes.status.status import (
    StatusInput,
    StatusStorage,
    annotations_write,
    invalid_status,
    pod_start_error,
    status_of,
    status_storage,
    status_write,
)
from sterna.kinds.labels import PHASE
from sterna.kinds.registry import job_kinds
from sterna.model.reason import Code
from sterna.model.snapshot import NEVER

UNSCHEDULABLE_CODES = frozenset({Code.TOO_LARGE, Code.NO_NODE, Code.NO_SERVERS, Code.NOT_BESIDE_SERVERS})
"""A person has to do something about these."""

_WAITING_SECONDS = 0.8
"""A job that waits so long is told why; those that start sooner never wait in anybody's eyes."""
_STARTING_SECONDS = 120.0
"""Whoever starts is told of when it runs, unless something keeps it from that."""
_TROUBLE_SECONDS = 2.0
_PATIENCE_SECONDS = 5.0
_AGAIN_SECONDS = 30.0
"""Between two tellings of the same in other words: numbers change with every round."""
_PROGRESS_SECONDS = 15.0
_DURABLE_FIELDS_SECONDS = 1.0
"""What a successor must not forget is written down so soon, though nobody waits to read it."""
_RETRY_SECONDS, _MOST_RETRY_SECONDS = 2.0, 60.0
"""After the first refusal, and after many."""
_ERROR_RETRY_SECONDS = 30.0
_BUSY = 64
"""With so many writes under way, what is not urgent waits."""

_DELAYS = {
    Phase.WAITING: _WAITING_SECONDS,
    Phase.STARTING: _STARTING_SECONDS,
    Phase.RESTARTING: _WAITING_SECONDS,
    Phase.STOPPING: _WAITING_SECONDS,
}
"""The others are told at once."""
_BESIDE_ANOTHER_SECONDS = 3.0
"""The MPI operator writes to the object too, several times whenever something happens. What we note on it meanwhile
makes its writes fail, and after a few of those it falls silent for a minute."""
_PATIENT = frozenset({Phase.STARTING, Phase.RESTARTING, Phase.STOPPING})


class StatusWriter:
    """Keeps the statuses of all jobs in step with what is known."""

    def __init__(self, state: ClusterState, backlog: Callable[[], int]) -> None:
        self._state, self._backlog = state, backlog
        self._heap: list[tuple[float, int]] = []
        self._foreign = {kind.resource for kind in job_kinds() if kind.has_foreign_definition}
        """Kinds whose definitions are not ours, so that the server drops what they do not know."""

    # When.

    def schedule(self, entry: JobEntry, now: float) -> None:
        """Something of a job may have changed: set the moment at which it is told."""
        state = entry.status
        if entry.stage is Stage.INVALID:
            has_stopped = state.phase != INVALID and not any(entry.live_pods)
            if state.sentence != entry.outcome[1] or has_stopped:
                self._schedule_at(entry, now, Urgency.VERDICT)
            return
        if entry.stage is Stage.ENDED and not has_ended(entry):
            return  # it had ended before we came, and whoever was there before us told
        phase = phase_of(entry.job, entry.replicas, now, entry.verdict.kind)
        if phase.is_over:
            if state.phase != phase.value:
                self._schedule_at(entry, now, Urgency.VERDICT)
            return
        if phase is Phase.WAITING and entry.reason is None and not self._sentence(entry):
            return  # no round has looked at it yet, so that there is nothing to say
        code = entry.reason.code if entry.reason is not None and phase is Phase.WAITING else None
        if code in UNSCHEDULABLE_CODES and state.code != code:
            self._schedule_at(entry, now, Urgency.VERDICT)
        elif phase.value != state.phase:
            if phase.value != state.next_phase:
                state.next_phase, state.next_since = phase.value, now
                state.due_at, state.urgency = NEVER, Urgency.EVENT  # what was to be told before is not so any more
            urgency = Urgency.VERDICT if phase is Phase.WAITING else Urgency.STATUS
            delay = _DELAYS.get(phase, 0.0)
            if phase is Phase.STARTING and (entry.retry.message or pod_start_error(entry.job)):
                delay = _TROUBLE_SECONDS
            self._schedule_at(entry, state.next_since + delay, urgency)
        elif durable_fields(entry.job.memory) != state.durable_fields:
            self._schedule_at(entry, max(now, state.written_at) + _DURABLE_FIELDS_SECONDS, Urgency.STATUS)
        elif self._sentence(entry) != state.sentence:
            self._schedule_at(entry, max(now + _WAITING_SECONDS, state.written_at + _AGAIN_SECONDS), Urgency.STATUS)

    def restore(self, entry: JobEntry) -> None:
        """What a predecessor told, so that it is not told again."""
        state, status = entry.status, entry.job.status
        said = {each.get("type") for each in conditions_in(status) if each.get("status") == "True"}
        known = next((word for word in ("Restarting", "Running") if word in said), "")
        phase = status.get("phase") or entry.source.annotations.get(PHASE) or known
        state.phase = state.next_phase = str(phase)
        state.durable_fields = durable_fields(entry.job.memory)

    def on_progress(self, entry: JobEntry, now: float) -> None:
        """It told how far it is."""
        self._schedule_at(entry, max(now, entry.status.written_at + _PROGRESS_SECONDS), Urgency.STATUS)

    def _schedule_at(self, entry: JobEntry, at: float, urgency: Urgency) -> None:
        state = entry.status
        if entry.parsed_job.ownership.is_delegated and (
            entry.reason is None or entry.reason.code not in UNSCHEDULABLE_CODES
        ):
            at += _BESIDE_ANOTHER_SECONDS
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

    # What.

    def due_writes(self, now: float, on_error: Callable[[Exception], None]) -> list[Write]:
        """All that is due. Of a job that cannot be told of, nothing is for a while, and nobody else waits for it."""
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
        if phase in _PATIENT and state.urgency > Urgency.VERDICT and self._backlog() > _BUSY:
            self._schedule_at(entry, now + _PATIENCE_SECONDS, state.urgency)
            return []
        urgency, state.urgency = state.urgency, Urgency.EVENT
        status = status_of(job, self._status_input(entry, phase), now)
        state.phase = state.next_phase = phase.value
        state.sentence, state.written_at, state.durable_fields = self._sentence(entry), now, durable_fields(job.memory)
        state.code = entry.reason.code if entry.reason is not None else None
        storage = self._storage(entry)
        ref = entry.parsed_job.ref
        writes = [
            status_write(ref, job.status, status, storage, urgency),
            annotations_write(job, status, entry.source.annotations, storage, urgency),
        ]
        if storage is not StatusStorage.ANNOTATIONS:  # else it is its own operator's, and says how the job does
            job.status = status
        if phase.is_over and writes[0] is not None and writes[1] is not None:
            # That it ended must be in its status before its memory says so: a successor trusts the memory.
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
        if any(entry.live_pods):  # what runs goes on as it was submitted, and has not failed
            status = {**old, "reason": sentence, "observedGeneration": generation}
        else:
            status = invalid_status(ref.resource.kind, ref.name, old, sentence, generation, now)
            state.phase = INVALID
        storage = self._storage(entry)
        if storage is StatusStorage.ANNOTATIONS:
            status["phase"] = INVALID  # whether it has failed is its own operator's to say
            write = annotations_write(entry.job, status, entry.source.annotations, storage, Urgency.VERDICT)
        else:
            write = status_write(ref, old, status, storage, Urgency.VERDICT)
            entry.job.status = status
        return self._track(entry, [write] if write is not None else [])

    def _track(self, entry: JobEntry, writes: list[Write]) -> list[Write]:
        entry.status.writes_in_flight = len(writes)
        return [write._replace(tag=Told(entry.key)) for write in writes]

    def _status_input(self, entry: JobEntry, phase: Phase) -> StatusInput:
        view = self._state.progress.view(entry.key, phase is Phase.RUNNING)
        is_worded = bool(entry.retry.message) or (entry.reason is not None and entry.sentence != entry.reason.sentence)
        return StatusInput(
            entry.replicas, entry.reason, self._sentence(entry) if is_worded else "", entry.verdict, view
        )

    def _sentence(self, entry: JobEntry) -> str:
        """What there is to say beside the verdict on its pods."""
        return entry.retry.message or entry.sentence

    def _storage(self, entry: JobEntry) -> StatusStorage:
        return status_storage(entry.parsed_job.ownership, entry.parsed_job.ref.resource not in self._foreign)

    # Answers.

    def on_write_result(self, entry: JobEntry, answer: WriteResult, now: float) -> None:
        """A status was taken, or has to be told again."""
        state = entry.status
        state.writes_in_flight = max(0, state.writes_in_flight - 1)
        resource = entry.parsed_job.ref.resource
        if answer.is_done:
            state.rejections = 0
            if entry.parsed_job.ownership.is_pod:
                self._state.work_queue.enqueue(entry)  # some things wait for what is written down
            if answer.write.subresource and (kept := _kept(answer)) is not None:
                entry.job.status = entry.status.seen = kept
                if resource not in self._foreign and "conditions" in kept and "phase" not in kept:
                    self._foreign.add(resource)  # the server dropped what Kubeflow's definition does not know
                    state.is_outdated = True
                if has_ended(entry) and end_condition(conditions_in(kept)) is not None:
                    self._note_end_write(entry)
        else:
            if answer.write.subresource:
                entry.job.status = entry.status.seen
            if answer.status not in (404, 422):
                wait = min(_RETRY_SECONDS * 2.0 ** min(state.rejections, 10), _MOST_RETRY_SECONDS)
                state.rejections += 1
                self._schedule_at(entry, now + wait, Urgency.VERDICT)
            elif has_ended(entry):
                self._note_end_write(entry)  # nobody will ever read it
        if state.is_outdated and not state.writes_in_flight:
            state.is_outdated = False
            self._schedule_at(entry, now, Urgency.STATUS)
        elif state.is_end_written and state.due_at == NEVER and not state.writes_in_flight:
            self._state.compact(entry)


class _Kept(msgspec.Struct):
    """An object of which only the status counts."""

    status: dict[str, Any] | None = None


def _kept(answer: WriteResult) -> dict[str, Any] | None:
    """The status as the server has it now; nothing if the answer does not say."""
    try:
        return msgspec.json.decode(answer.body, type=_Kept).status if answer.body else None
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
