"""What the server answers to our writes, and what follows from it for the job that a write was for.

A creation that is refused for good ends its job or makes it wait, with the server's own sentence. Where nobody knows
whether a write was done, what it was to do counts as done for a while; the watch tells, or it is done again: names are
the same each time, so that nothing is made twice.
"""

from __future__ import annotations

from sterna.backends.kubernetes.api.rbac import FENCE
from sterna.backends.kubernetes.api.resources import NOT_LEADER, WriteResult
from sterna.backends.kubernetes.api.write_purpose import (
    FORGOTTEN,
    Bound,
    CreatedPod,
    CreatedService,
    DeletedJob,
    DeletedPod,
    DeletedService,
    Event,
    Patched,
    Placed,
    Told,
)
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.cache.timers import Timers
from sterna.backends.kubernetes.controllers.pods import Reconciler
from sterna.backends.kubernetes.lifecycle.replicas import changes_in_place
from sterna.backends.kubernetes.lifecycle.verdict import Fate, Verdict
from sterna.backends.kubernetes.status.event_recorder import EventRecorder
from sterna.backends.kubernetes.status.status_writer import StatusWriter
from sterna.kinds.parsed_job import PodOwnership

UNSURE_SECONDS = 5.0
"""After so long without news a write of which nobody knows the fate counts as not done."""
_SOON_SECONDS = 1.0
_NEWS_SECONDS = 0.3
"""What the server knows already is seen so much later at most."""
_TAKEN_SECONDS = 3.0
_TAKEN_TRIES = 2
"""A name that is still taken after so many tries is a stranger's."""
_FIRST_REFUSAL_SECONDS, _MOST_REFUSAL_SECONDS = 10.0, 300.0


class WriteResults:
    """Takes answers, one by one."""

    def __init__(
        self,
        state: ClusterState,
        reconciler: Reconciler,
        status_writer: StatusWriter,
        recorder: EventRecorder,
        timers: Timers,
    ) -> None:
        self._world, self._reconciler, self._status_writer, self._timers = state, reconciler, status_writer, timers
        self._recorder = recorder
        self._unsure: dict[int, tuple[float, object]] = {}
        """Writes of unknown fate: until when they count as done, and what they were for."""
        self._next = 0

    def take(self, answer: WriteResult, now: float) -> None:
        tag = answer.write.tag
        if isinstance(tag, CreatedPod):
            self._pod_created(tag, answer, now)
        elif isinstance(tag, DeletedPod):
            self._pod_deleted(tag, answer, now)
        elif isinstance(tag, Told):
            entry = self._world.entries.get(tag.job)
            if entry is not None:
                self._status_writer.answered(entry, answer, now)
        elif isinstance(tag, CreatedService):
            self._service_created(tag, answer, now)
        elif isinstance(tag, DeletedService):
            self._service_deleted(tag, answer, now)
        elif isinstance(tag, Placed):
            if not answer.is_done:
                self._world.share_pods.take_back(tag.uid)
        elif isinstance(tag, Event):
            self._recorder.answered(answer, now)
        elif isinstance(tag, Bound):
            self._bound(tag, answer, now)
        elif isinstance(tag, DeletedJob | Patched):
            self._look_again(tag, answer, now)

    def look(self, now: float) -> None:
        """Writes whose fate has been unknown for too long: what they were to do is not there."""
        for number, (until, tag) in list(self._unsure.items()):
            if until > now:
                continue
            del self._unsure[number]
            if isinstance(tag, CreatedPod) and not tag.pod.uid:
                entry = self._world.entries.get(tag.job)
                if entry is not None and entry.job.pods.get((tag.pod.type, tag.pod.index)) is tag.pod:
                    self._world.pods.give_up(entry, tag.pod)
            elif isinstance(tag, DeletedPod):
                self._world.pods.call_back(tag.uid)
            elif isinstance(tag, Bound):
                self._world.pods.unbind(tag.uid)

    def _doubt(self, tag: object, now: float) -> None:
        self._next += 1
        self._unsure[self._next] = (now + UNSURE_SECONDS, tag)
        self._timers.set(now + UNSURE_SECONDS)

    # Pods.

    def _pod_created(self, tag: CreatedPod, answer: WriteResult, now: float) -> None:
        entry = self._world.entries.get(tag.job)
        if entry is None:
            return
        if answer.is_done:
            self._recorder.created(entry, tag.pod, now)
            is_seen = entry.job.pods.get((tag.pod.type, tag.pod.index)) is not tag.pod
            if not is_seen:
                self._doubt(tag, now)
            return
        if answer.status == 0:
            self._doubt(tag, now)
            return
        if entry.job.pods.get((tag.pod.type, tag.pod.index)) is tag.pod:
            self._world.pods.give_up(entry, tag.pod)
        is_trouble = answer.status in (400, 403, 404, 422) and not is_ours(answer)
        self._recorder.not_created(entry, tag.pod, _said(answer) if is_trouble else "", now)
        self._refused(entry, tag, answer, now)

    def _refused(self, entry: JobEntry, tag: CreatedPod, answer: WriteResult, now: float) -> None:
        """The pod is not there. Why not says what becomes of its job."""
        if is_ours(answer):
            entry.retry_at = now + _SOON_SECONDS
        elif answer.reason == "AlreadyExists":
            # Ours from before a crash, a predecessor's, or a stranger's: the watch tells which.
            if self._count(entry, now) > _TAKEN_TRIES:
                name = tag.pod.key.rpartition("/")[2]
                what = f"another pod is called {name}, which is none of its own"
                self._hold_back(entry, what, "it is made when that one is gone", now)
            else:
                entry.retry_at = now + _TAKEN_SECONDS
        elif answer.status in (400, 422):
            sentence = f"failed: the API server does not take its pods ({_said(answer)})."
            verdict = Verdict(Fate.FAILED, reason=f"{entry.parsed_job.spec.kind}Failed", sentence=sentence)
            self._reconciler.end(entry, verdict, now)
        elif answer.status in (403, 404):
            self._count(entry, now)
            self._hold_back(entry, f"the API server refuses its pods ({_said(answer)})", "it is asked again", now)
        else:
            entry.retry_at = now + _SOON_SECONDS
        self._world.work_queue.dirty.add(entry.key)

    def _count(self, entry: JobEntry, now: float) -> int:
        """Refusals in a row; those of one gang count as one."""
        is_new = now >= max(entry.retry_at, entry.job.memory.not_before)
        entry.tries += is_new or not entry.tries
        return entry.tries

    def _hold_back(self, entry: JobEntry, what: str, then: str, now: float) -> None:
        """It cannot have all its pods now: it gives up its place, and tries again less and less often."""
        wait = min(_FIRST_REFUSAL_SECONDS * 2.0 ** (entry.tries - 1), _MOST_REFUSAL_SECONDS)
        entry.trouble = f"waits: {what}; {then}."
        if entry.job.memory.started_at is None or not changes_in_place(entry.parsed_job):
            entry.job.memory.not_before = now + wait
            self._reconciler.unassign(entry, now)
        else:
            entry.retry_at = now + wait  # the others train on
        self._timers.set(now + wait, entry)

    def _pod_deleted(self, tag: DeletedPod, answer: WriteResult, now: float) -> None:
        entry, pod = self._world.entries.get(tag.job), self._world.pods.get(tag.uid)
        if (
            entry is not None
            and entry.parsed_job.ownership is PodOwnership.POD
            and self._plain_pod_answered(entry, tag, answer, now)
        ):
            return
        if answer.is_done or answer.status in (404, 409):
            return  # it goes, is gone, or another one has its name
        if answer.status == 0:
            self._world.pods.suspect(tag.uid)
            self._doubt(tag, now)
            return
        self._world.pods.call_back(tag.uid)
        if entry is not None:
            if pod is not None and not is_ours(answer):
                self._recorder.not_deleted(entry, pod, _said(answer), now)
            self._count(entry, now)
            entry.retry_at = now + min(_SOON_SECONDS * 2.0**entry.tries, _MOST_REFUSAL_SECONDS)
            self._timers.set(entry.retry_at, entry)

    def _plain_pod_answered(self, entry: JobEntry, tag: DeletedPod, answer: WriteResult, now: float) -> bool:
        """Of a pod that is a job itself; whether that was all. If it was not as we knew it, it has ended, or somebody
        else deletes it: that is looked at first."""
        entry.under_way = max(0, entry.under_way - 1)
        self._world.work_queue.dirty.add(entry.key)
        if answer.status not in (404, 409):
            return False
        if self._world.pods.get(tag.uid) is None:
            entry.job.is_deleting = entry.job.is_deleting or not self._world.pods.is_asked(tag.uid)
        self._world.pods.call_back(tag.uid)
        entry.retry_at = now + _NEWS_SECONDS
        self._timers.set(entry.retry_at, entry)
        return True

    # Others.

    def _service_created(self, tag: CreatedService, answer: WriteResult, now: float) -> None:
        entry = self._world.entries.get(tag.job)
        if entry is None:
            return
        row = self._reconciler.service_row(entry, tag.replica)
        is_there = answer.reason == "AlreadyExists" and row is not None and row.owner == entry.parsed_job.ref.uid
        if answer.is_done or is_there:
            entry.services[tag.replica] = True
            return
        entry.services.pop(tag.replica, None)
        if answer.status in (400, 403, 422) and not is_ours(answer):
            entry.trouble = f"waits: the API server refuses its services ({_said(answer)})."
        entry.retry_at = max(entry.retry_at, now + _TAKEN_SECONDS)
        self._timers.set(entry.retry_at, entry)

    def _service_deleted(self, tag: DeletedService, answer: WriteResult, now: float) -> None:
        """One that is still there is asked to go again; not one that somebody else has made since."""
        entry = self._world.entries.get(tag.job)
        if entry is None or answer.is_done or answer.status in (404, 409):
            return
        row = self._reconciler.service_row(entry, tag.replica)
        if row is not None and row.owner == entry.parsed_job.ref.uid:
            entry.services[tag.replica] = True
            self._wait(entry, answer, now)

    def _bound(self, tag: Bound, answer: WriteResult, now: float) -> None:
        if answer.is_done:
            return
        if answer.status == 0:
            self._doubt(tag, now)
            return
        self._world.pods.unbind(tag.uid)
        self._wait(self._world.entries.get(tag.job), answer, now)

    def _look_again(self, tag: DeletedJob | Patched, answer: WriteResult, now: float) -> None:
        """A change to the object itself was made, or has to be tried again a little later."""
        entry = self._world.entries.get(tag.job)
        if entry is None:
            return
        if isinstance(tag, Patched):
            entry.under_way = max(0, entry.under_way - 1)
            if tag.what == FORGOTTEN and (answer.is_done or answer.status == 404):
                entry.tries = 0
                self._world.work_queue.dirty.add(entry.key)
                if entry.record is not None:
                    self._world.drop_record(entry)
                return
        if answer.is_done:
            entry.tries, entry.trouble = 0, ""
            self._world.learn_spec(entry, answer.body)
        else:
            if isinstance(tag, DeletedJob):
                entry.job.is_deleting = answer.status == 404
            self._wait(entry, answer, now)
        self._world.work_queue.dirty.add(entry.key)

    def _wait(self, entry: JobEntry | None, answer: WriteResult, now: float) -> None:
        if entry is None:
            return
        wait = min(_SOON_SECONDS * 2.0**entry.tries, _MOST_REFUSAL_SECONDS)
        entry.tries += 1
        entry.retry_at = now + (UNSURE_SECONDS if answer.status == 0 else wait)
        if answer.status in (400, 403, 422) and not is_ours(answer):
            entry.trouble = f"waits: the API server refuses a change ({_said(answer)}); it is asked again."
        self._world.work_queue.dirty.add(entry.key)
        self._timers.set(entry.retry_at, entry)


def is_ours(answer: WriteResult) -> bool:
    """Whether it was refused because another operator leads, which says nothing about the object."""
    return answer.reason == NOT_LEADER or FENCE in answer.message


def _said(answer: WriteResult) -> str:
    return (answer.message or answer.reason or f"status {answer.status}").strip().rstrip(".")
