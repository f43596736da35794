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
from sterna.backends.kubernetes.controllers.pods import PodController
from sterna.backends.kubernetes.lifecycle.replicas import replaces_in_place
from sterna.backends.kubernetes.lifecycle.verdict import Fate, Verdict
from sterna.backends.kubernetes.status.event_recorder import EventRecorder
from sterna.backends.kubernetes.status.status_writer import StatusWriter
from sterna.kinds.parsed_job import PodOwnership

UNKNOWN_RESULT_SECONDS = 5.0
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
        reconciler: PodController,
        status_writer: StatusWriter,
        recorder: EventRecorder,
        timers: Timers,
    ) -> None:
        self._state, self._pods, self._status_writer, self._timers = state, reconciler, status_writer, timers
        self._recorder = recorder
        self._unknown: dict[int, tuple[float, object]] = {}
        """Writes of unknown fate: until when they count as done, and what they were for."""
        self._next = 0

    def handle(self, result: WriteResult, now: float) -> None:
        tag = result.write.tag
        if isinstance(tag, CreatedPod):
            self._pod_created(tag, result, now)
        elif isinstance(tag, DeletedPod):
            self._pod_deleted(tag, result, now)
        elif isinstance(tag, Told):
            entry = self._state.entries.get(tag.job)
            if entry is not None:
                self._status_writer.on_write_result(entry, result, now)
        elif isinstance(tag, CreatedService):
            self._service_created(tag, result, now)
        elif isinstance(tag, DeletedService):
            self._service_deleted(tag, result, now)
        elif isinstance(tag, Placed):
            if not result.is_done:
                self._state.share_pods.take_back(tag.uid)
        elif isinstance(tag, Event):
            self._recorder.on_write_result(result, now)
        elif isinstance(tag, Bound):
            self._bound(tag, result, now)
        elif isinstance(tag, DeletedJob | Patched):
            self._look_again(tag, result, now)

    def expire_unknown(self, now: float) -> None:
        """Writes whose fate has been unknown for too long: what they were to do is not there."""
        for number, (until, tag) in list(self._unknown.items()):
            if until > now:
                continue
            del self._unknown[number]
            if isinstance(tag, CreatedPod) and not tag.pod.uid:
                entry = self._state.entries.get(tag.job)
                if entry is not None and entry.job.pods.get((tag.pod.type, tag.pod.index)) is tag.pod:
                    self._state.pods.give_up(entry, tag.pod)
            elif isinstance(tag, DeletedPod):
                self._state.pods.call_back(tag.uid)
            elif isinstance(tag, Bound):
                self._state.pods.unbind(tag.uid)

    def _track_unknown(self, tag: object, now: float) -> None:
        self._next += 1
        self._unknown[self._next] = (now + UNKNOWN_RESULT_SECONDS, tag)
        self._timers.set(now + UNKNOWN_RESULT_SECONDS)

    # Pods.

    def _pod_created(self, tag: CreatedPod, result: WriteResult, now: float) -> None:
        entry = self._state.entries.get(tag.job)
        if entry is None:
            return
        if result.is_done:
            self._recorder.record_created(entry, tag.pod, now)
            is_seen = entry.job.pods.get((tag.pod.type, tag.pod.index)) is not tag.pod
            if not is_seen:
                self._track_unknown(tag, now)
            return
        if result.status == 0:
            self._track_unknown(tag, now)
            return
        if entry.job.pods.get((tag.pod.type, tag.pod.index)) is tag.pod:
            self._state.pods.give_up(entry, tag.pod)
        is_trouble = result.status in (400, 403, 404, 422) and not is_not_leader(result)
        self._recorder.record_create_failure(entry, tag.pod, _server_message(result) if is_trouble else "", now)
        self._refused(entry, tag, result, now)

    def _refused(self, entry: JobEntry, tag: CreatedPod, result: WriteResult, now: float) -> None:
        """The pod is not there. Why not says what becomes of its job."""
        if is_not_leader(result):
            entry.retry.at = now + _SOON_SECONDS
        elif result.reason == "AlreadyExists":
            # Ours from before a crash, a predecessor's, or a stranger's: the watch tells which.
            if self._count(entry, now) > _TAKEN_TRIES:
                name = tag.pod.key.rpartition("/")[2]
                what = f"another pod is called {name}, which is none of its own"
                self._back_off(entry, what, "it is made when that one is gone", now)
            else:
                entry.retry.at = now + _TAKEN_SECONDS
        elif result.status in (400, 422):
            sentence = f"failed: the API server does not take its pods ({_server_message(result)})."
            verdict = Verdict(Fate.FAILED, reason=f"{entry.parsed_job.spec.kind}Failed", sentence=sentence)
            self._pods.finish(entry, verdict, now)
        elif result.status in (403, 404):
            self._count(entry, now)
            self._back_off(
                entry, f"the API server refuses its pods ({_server_message(result)})", "it is asked again", now
            )
        else:
            entry.retry.at = now + _SOON_SECONDS
        self._state.work_queue.enqueue(entry)

    def _count(self, entry: JobEntry, now: float) -> int:
        """Refusals in a row; those of one gang count as one."""
        is_new = now >= max(entry.retry.at, entry.job.memory.not_before)
        entry.retry.count += is_new or not entry.retry.count
        return entry.retry.count

    def _back_off(self, entry: JobEntry, what: str, then: str, now: float) -> None:
        """It cannot have all its pods now: it gives up its place, and tries again less and less often."""
        wait = min(_FIRST_REFUSAL_SECONDS * 2.0 ** (entry.retry.count - 1), _MOST_REFUSAL_SECONDS)
        entry.retry.message = f"waits: {what}; {then}."
        if entry.job.memory.started_at is None or not replaces_in_place(entry.parsed_job):
            entry.job.memory.not_before = now + wait
            self._pods.unassign(entry, now)
        else:
            entry.retry.at = now + wait  # the others train on
        self._timers.set(now + wait, entry)

    def _pod_deleted(self, tag: DeletedPod, result: WriteResult, now: float) -> None:
        entry, pod = self._state.entries.get(tag.job), self._state.pods.get(tag.uid)
        if (
            entry is not None
            and entry.parsed_job.ownership is PodOwnership.POD
            and self._plain_pod_answered(entry, tag, result, now)
        ):
            return
        if result.is_done or result.status in (404, 409):
            return  # it goes, is gone, or another one has its name
        if result.status == 0:
            self._state.pods.suspect(tag.uid)
            self._track_unknown(tag, now)
            return
        self._state.pods.call_back(tag.uid)
        if entry is not None:
            if pod is not None and not is_not_leader(result):
                self._recorder.record_delete_failure(entry, pod, _server_message(result), now)
            self._count(entry, now)
            entry.retry.at = now + min(_SOON_SECONDS * 2.0**entry.retry.count, _MOST_REFUSAL_SECONDS)
            self._timers.set(entry.retry.at, entry)

    def _plain_pod_answered(self, entry: JobEntry, tag: DeletedPod, result: WriteResult, now: float) -> bool:
        """Of a pod that is a job itself; whether that was all. If it was not as we knew it, it has ended, or somebody
        else deletes it: that is looked at first."""
        entry.writes_in_flight = max(0, entry.writes_in_flight - 1)
        self._state.work_queue.enqueue(entry)
        if result.status not in (404, 409):
            return False
        if self._state.pods.get(tag.uid) is None:
            entry.job.is_deleting = entry.job.is_deleting or not self._state.pods.is_asked(tag.uid)
        self._state.pods.call_back(tag.uid)
        entry.retry.at = now + _NEWS_SECONDS
        self._timers.set(entry.retry.at, entry)
        return True

    # Others.

    def _service_created(self, tag: CreatedService, result: WriteResult, now: float) -> None:
        entry = self._state.entries.get(tag.job)
        if entry is None:
            return
        row = self._pods.service_row(entry, tag.replica)
        is_there = result.reason == "AlreadyExists" and row is not None and row.owner == entry.parsed_job.ref.uid
        if result.is_done or is_there:
            entry.services[tag.replica] = True
            return
        entry.services.pop(tag.replica, None)
        if result.status in (400, 403, 422) and not is_not_leader(result):
            entry.retry.message = f"waits: the API server refuses its services ({_server_message(result)})."
        entry.retry.at = max(entry.retry.at, now + _TAKEN_SECONDS)
        self._timers.set(entry.retry.at, entry)

    def _service_deleted(self, tag: DeletedService, result: WriteResult, now: float) -> None:
        """One that is still there is asked to go again; not one that somebody else has made since."""
        entry = self._state.entries.get(tag.job)
        if entry is None or result.is_done or result.status in (404, 409):
            return
        row = self._pods.service_row(entry, tag.replica)
        if row is not None and row.owner == entry.parsed_job.ref.uid:
            entry.services[tag.replica] = True
            self._wait(entry, result, now)

    def _bound(self, tag: Bound, result: WriteResult, now: float) -> None:
        if result.is_done:
            return
        if result.status == 0:
            self._track_unknown(tag, now)
            return
        self._state.pods.unbind(tag.uid)
        self._wait(self._state.entries.get(tag.job), result, now)

    def _look_again(self, tag: DeletedJob | Patched, result: WriteResult, now: float) -> None:
        """A change to the object itself was made, or has to be tried again a little later."""
        entry = self._state.entries.get(tag.job)
        if entry is None:
            return
        if isinstance(tag, Patched):
            entry.writes_in_flight = max(0, entry.writes_in_flight - 1)
            if tag.what == FORGOTTEN and (result.is_done or result.status == 404):
                entry.retry.count = 0
                self._state.work_queue.enqueue(entry)
                if entry.move.record is not None:
                    self._state.drop_record(entry)
                return
        if result.is_done:
            entry.retry.count, entry.retry.message = 0, ""
            self._state.learn_spec(entry, result.body)
        else:
            if isinstance(tag, DeletedJob):
                entry.job.is_deleting = result.status == 404
            self._wait(entry, result, now)
        self._state.work_queue.enqueue(entry)

    def _wait(self, entry: JobEntry | None, result: WriteResult, now: float) -> None:
        if entry is None:
            return
        wait = min(_SOON_SECONDS * 2.0**entry.retry.count, _MOST_REFUSAL_SECONDS)
        entry.retry.count += 1
        entry.retry.at = now + (UNKNOWN_RESULT_SECONDS if result.status == 0 else wait)
        if result.status in (400, 403, 422) and not is_not_leader(result):
            entry.retry.message = (
                f"waits: the API server refuses a change ({_server_message(result)}); it is asked again."
            )
        self._state.work_queue.enqueue(entry)
        self._timers.set(entry.retry.at, entry)


def is_not_leader(result: WriteResult) -> bool:
    """Whether it was refused because another operator leads, which says nothing about the object."""
    return result.reason == NOT_LEADER or FENCE in result.message


def _server_message(result: WriteResult) -> str:
    return (result.message or result.reason or f"status {result.status}").strip().rstrip(".")
