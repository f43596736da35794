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
from sterna.backends.kubernetes.cache.job_entry import JobEntry, Stage, has_ended, marks_of
from sterna.backends.kubernetes.lifecycle.conditions import INVALID, ending
from sterna.backends.kubernetes.lifecycle.phase import Phase, phase_of
from sterna.backends.kubernetes.lifecycle.verdict import conditions_in
from sterna.backends.kubernetes.status.status import (
    PHASE,
    Keeping,
    Standing,
    annotations_write,
    invalid_status,
    keeping_of,
    status_of,
    status_write,
    trouble_of,
)
from sterna.kinds.parsed_job import PodOwnership
from sterna.kinds.resource import PYTORCH_JOBS, Resource
from sterna.model.reason import Code
from sterna.model.snapshot import NEVER

HOPELESS = frozenset({Code.TOO_LARGE, Code.NO_NODE, Code.NO_SERVERS, Code.NOT_BESIDE_SERVERS})
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
_MARKS_SECONDS = 1.0
"""What a successor must not forget is written down so soon, though nobody waits to read it."""
_RETRY_SECONDS, _MOST_RETRY_SECONDS = 2.0, 60.0
"""After the first refusal, and after many."""
_MISHAP_SECONDS = 30.0
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
        self._world, self._backlog = state, backlog
        self._heap: list[tuple[float, int]] = []
        self._foreign: set[Resource] = {PYTORCH_JOBS}
        """Kinds whose definitions are not ours, so that the server drops what they do not know."""

    # When.

    def consider(self, entry: JobEntry, now: float) -> None:
        """Something of a job may have changed: set the moment at which it is told."""
        telling = entry.telling
        if entry.stage is Stage.INVALID:
            has_stopped = telling.phase != INVALID and not any(entry.live_pods)
            if telling.sentence != entry.outcome[1] or has_stopped:
                self._due(entry, now, Urgency.VERDICT)
            return
        if entry.stage is Stage.ENDED and not has_ended(entry):
            return  # it had ended before we came, and whoever was there before us told
        phase = phase_of(entry.job, entry.replicas, now, entry.verdict.fate)
        if phase.is_over:
            if telling.phase != phase.value:
                self._due(entry, now, Urgency.VERDICT)
            return
        if phase is Phase.WAITING and entry.reason is None and not self._sentence(entry):
            return  # no round has looked at it yet, so that there is nothing to say
        code = entry.reason.code if entry.reason is not None and phase is Phase.WAITING else None
        if code in HOPELESS and telling.code != code:
            self._due(entry, now, Urgency.VERDICT)
        elif phase.value != telling.phase:
            if phase.value != telling.next_phase:
                telling.next_phase, telling.next_since = phase.value, now
                telling.due_at, telling.urgency = NEVER, Urgency.EVENT  # what was to be told before is not so any more
            urgency = Urgency.VERDICT if phase is Phase.WAITING else Urgency.STATUS
            delay = _DELAYS.get(phase, 0.0)
            if phase is Phase.STARTING and (entry.trouble or trouble_of(entry.job)):
                delay = _TROUBLE_SECONDS
            self._due(entry, telling.next_since + delay, urgency)
        elif marks_of(entry.job.memory) != telling.marks:
            self._due(entry, max(now, telling.said_at) + _MARKS_SECONDS, Urgency.STATUS)
        elif self._sentence(entry) != telling.sentence:
            self._due(entry, max(now + _WAITING_SECONDS, telling.said_at + _AGAIN_SECONDS), Urgency.STATUS)

    def recall(self, entry: JobEntry) -> None:
        """What a predecessor told, so that it is not told again."""
        telling, status = entry.telling, entry.job.status
        said = {each.get("type") for each in conditions_in(status) if each.get("status") == "True"}
        known = next((word for word in ("Restarting", "Running") if word in said), "")
        phase = status.get("phase") or entry.annotations.get(PHASE) or known
        telling.phase = telling.next_phase = str(phase)
        telling.marks = marks_of(entry.job.memory)

    def progressed(self, entry: JobEntry, now: float) -> None:
        """It told how far it is."""
        self._due(entry, max(now, entry.telling.said_at + _PROGRESS_SECONDS), Urgency.STATUS)

    def _due(self, entry: JobEntry, at: float, urgency: Urgency) -> None:
        telling = entry.telling
        if entry.parsed_job.ownership is PodOwnership.MPI and (
            entry.reason is None or entry.reason.code not in HOPELESS
        ):
            at += _BESIDE_ANOTHER_SECONDS
        telling.urgency = min(telling.urgency, urgency)
        if at < telling.due_at:
            telling.due_at = at
            heapq.heappush(self._heap, (at, entry.key))

    @property
    def next_at(self) -> float:
        while self._heap:
            at, key = self._heap[0]
            entry = self._world.entries.get(key)
            if entry is not None and entry.telling.due_at == at:
                return at
            heapq.heappop(self._heap)
        return NEVER

    # What.

    def writes(self, now: float, on_mishap: Callable[[Exception], None]) -> list[Write]:
        """All that is due. Of a job that cannot be told of, nothing is for a while, and nobody else waits for it."""
        found: list[Write] = []
        while self.next_at <= now:
            entry = self._world.entries[heapq.heappop(self._heap)[1]]
            entry.telling.due_at = NEVER
            try:
                found += self._told(entry, now)
            except Exception as mishap:
                self._due(entry, now + _MISHAP_SECONDS, Urgency.STATUS)
                on_mishap(mishap)
        return found

    def _told(self, entry: JobEntry, now: float) -> list[Write]:
        telling, job = entry.telling, entry.job
        if entry.is_resting:
            return []
        if telling.under_way:
            telling.is_outdated = True
            return []
        if entry.stage is Stage.INVALID:
            return self._told_invalid(entry, now)
        phase = phase_of(job, entry.replicas, now, entry.verdict.fate)
        if phase in _PATIENT and telling.urgency > Urgency.VERDICT and self._backlog() > _BUSY:
            self._due(entry, now + _PATIENCE_SECONDS, telling.urgency)
            return []
        urgency, telling.urgency = telling.urgency, Urgency.EVENT
        status = status_of(job, self._standing(entry, phase), now)
        telling.phase = telling.next_phase = phase.value
        telling.sentence, telling.said_at, telling.marks = self._sentence(entry), now, marks_of(job.memory)
        telling.code = entry.reason.code if entry.reason is not None else None
        keeping = self._keeping(entry)
        ref = entry.parsed_job.ref
        writes = [
            status_write(ref, job.status, status, keeping, urgency),
            annotations_write(job, status, entry.annotations, keeping, urgency),
        ]
        if keeping is not Keeping.ANNOTATIONS:  # else it is its own operator's, and says how the job does
            job.status = status
        if phase.is_over and writes[0] is not None and writes[1] is not None:
            # That it ended must be in its status before its memory says so: a successor trusts the memory.
            telling.is_outdated = True
            writes.pop()
        elif phase.is_over and writes[0] is None:
            self._note_end_told(entry)
        return self._sent(entry, [write for write in writes if write is not None])

    def _note_end_told(self, entry: JobEntry) -> None:
        entry.telling.is_end_told = True
        self._world.work_queue.dirty.add(entry.key)

    def _told_invalid(self, entry: JobEntry, now: float) -> list[Write]:
        ref, telling, sentence = entry.parsed_job.ref, entry.telling, entry.outcome[1]
        old, generation = entry.job.status, entry.parsed_job.generation
        telling.sentence, telling.said_at, telling.urgency = sentence, now, Urgency.EVENT
        if any(entry.live_pods):  # what runs goes on as it was submitted, and has not failed
            status = {**old, "reason": sentence, "observedGeneration": generation}
        else:
            status = invalid_status(ref.resource.kind, ref.name, old, sentence, generation, now)
            telling.phase = INVALID
        keeping = self._keeping(entry)
        if keeping is Keeping.ANNOTATIONS:
            status["phase"] = INVALID  # whether it has failed is its own operator's to say
            write = annotations_write(entry.job, status, entry.annotations, keeping, Urgency.VERDICT)
        else:
            write = status_write(ref, old, status, keeping, Urgency.VERDICT)
            entry.job.status = status
        return self._sent(entry, [write] if write is not None else [])

    def _sent(self, entry: JobEntry, writes: list[Write]) -> list[Write]:
        entry.telling.under_way = len(writes)
        return [write._replace(tag=Told(entry.key)) for write in writes]

    def _standing(self, entry: JobEntry, phase: Phase) -> Standing:
        view = self._world.progress.view(entry.key, phase is Phase.RUNNING)
        is_worded = bool(entry.trouble) or (entry.reason is not None and entry.words != entry.reason.sentence)
        return Standing(entry.replicas, entry.reason, self._sentence(entry) if is_worded else "", entry.verdict, view)

    def _sentence(self, entry: JobEntry) -> str:
        """What there is to say beside the verdict on its pods."""
        return entry.trouble or entry.words

    def _keeping(self, entry: JobEntry) -> Keeping:
        return keeping_of(entry.parsed_job.ownership, entry.parsed_job.ref.resource not in self._foreign)

    # Answers.

    def answered(self, entry: JobEntry, answer: WriteResult, now: float) -> None:
        """A status was taken, or has to be told again."""
        telling = entry.telling
        telling.under_way = max(0, telling.under_way - 1)
        resource = entry.parsed_job.ref.resource
        if answer.is_done:
            telling.refusals = 0
            if entry.parsed_job.ownership is PodOwnership.POD:
                self._world.work_queue.dirty.add(entry.key)  # some things wait for what is written down
            if answer.write.subresource and (kept := _kept(answer)) is not None:
                entry.job.status = entry.seen_status = kept
                if resource not in self._foreign and "conditions" in kept and "phase" not in kept:
                    self._foreign.add(resource)  # the server dropped what Kubeflow's definition does not know
                    telling.is_outdated = True
                if has_ended(entry) and ending(conditions_in(kept)) is not None:
                    self._note_end_told(entry)
        else:
            if answer.write.subresource:
                entry.job.status = entry.seen_status
            if answer.status not in (404, 422):
                wait = min(_RETRY_SECONDS * 2.0 ** min(telling.refusals, 10), _MOST_RETRY_SECONDS)
                telling.refusals += 1
                self._due(entry, now + wait, Urgency.VERDICT)
            elif has_ended(entry):
                self._note_end_told(entry)  # nobody will ever read it
        if telling.is_outdated and not telling.under_way:
            telling.is_outdated = False
            self._due(entry, now, Urgency.STATUS)
        elif telling.is_end_told and telling.due_at == NEVER and not telling.under_way:
            self._world.rest(entry)


class _Kept(msgspec.Struct):
    """An object of which only the status counts."""

    status: dict[str, Any] | None = None


def _kept(answer: WriteResult) -> dict[str, Any] | None:
    """The status as the server has it now; nothing if the answer does not say."""
    try:
        return msgspec.json.decode(answer.body, type=_Kept).status if answer.body else None
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
