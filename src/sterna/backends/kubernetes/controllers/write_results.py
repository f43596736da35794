"""Handling of API write results: what follows for the job that a write was for.

A creation that is rejected for good ends its job or makes it back off, with the server's message. While the result of
a write is unknown the write counts as done; then the watch shows it, or it is sent again: object names are
deterministic, so nothing is created twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from sterna.backends.kubernetes.api.rbac import FENCE
from sterna.backends.kubernetes.api.resources import NOT_LEADER, WriteResult
from sterna.backends.kubernetes.api.write_purpose import (
    RECORD_DELETED,
    BoundPod,
    CreatedPod,
    CreatedService,
    DeletedJob,
    DeletedPod,
    DeletedService,
    PatchedObject,
    PlacedSharePod,
    RecordedEvent,
    WroteStatus,
)
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.controllers.controller import Controller
from sterna.backends.kubernetes.controllers.pods import PodController
from sterna.backends.kubernetes.lifecycle.replicas import replaces_in_place
from sterna.backends.kubernetes.lifecycle.verdict import Verdict, VerdictKind
from sterna.backends.kubernetes.status.event_recorder import EventRecorder
from sterna.backends.kubernetes.status.status_writer import StatusWriter
from sterna.kinds.parsed_job import PodOwnership

UNKNOWN_RESULT_SECONDS = 5.0
"""Time after which a write of unknown result that the watch does not show counts as not done."""
_FIRST_RETRY_SECONDS = 1.0
_NAME_TAKEN_SECONDS = 3.0
_NAME_TAKEN_RETRIES = 2
"""Retries after which a pod that has the name is known to belong to another owner."""
_FIRST_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 10.0, 300.0


class WriteResults:
    """Dispatches write results by the purpose of the write."""

    def __init__(
        self,
        state: ClusterState,
        controllers: Mapping[PodOwnership, Controller],
        pods: PodController,
        status_writer: StatusWriter,
        recorder: EventRecorder,
    ) -> None:
        self._state, self._controllers, self._pods = state, controllers, pods
        self._status_writer, self._timers = status_writer, pods.timers
        self._recorder = recorder
        self._unknown: dict[int, tuple[float, object]] = {}
        """Writes of unknown result: until when they count as done, and their purpose."""
        self._next = 0

    def handle(self, result: WriteResult, now: float) -> None:
        tag = result.write.tag
        if isinstance(tag, CreatedPod):
            self._pod_created(tag, result, now)
        elif isinstance(tag, DeletedPod):
            self._pod_deleted(tag, result, now)
        elif isinstance(tag, WroteStatus):
            entry = self._state.entries.get(tag.job)
            if entry is not None:
                self._status_writer.on_write_result(entry, result, now)
        elif isinstance(tag, CreatedService):
            self._service_created(tag, result, now)
        elif isinstance(tag, DeletedService):
            self._service_deleted(tag, result, now)
        elif isinstance(tag, PlacedSharePod):
            if not result.is_done:
                self._state.share_pods.cancel_placement(tag.uid)
        elif isinstance(tag, RecordedEvent):
            self._recorder.on_write_result(result, now)
        elif isinstance(tag, BoundPod):
            self._bound(tag, result, now)
        elif isinstance(tag, DeletedJob | PatchedObject):
            self._object_patched(tag, result, now)

    def expire_unknown(self, now: float) -> None:
        """Undo the assumed effect of writes whose result stayed unknown for too long."""
        for number, (until, tag) in list(self._unknown.items()):
            if until > now:
                continue
            del self._unknown[number]
            if isinstance(tag, CreatedPod) and not tag.pod.uid:
                entry = self._state.entries.get(tag.job)
                if entry is not None and entry.job.pods.get((tag.pod.type, tag.pod.index)) is tag.pod:
                    self._state.pods.cancel_creation(entry, tag.pod)
            elif isinstance(tag, DeletedPod):
                self._state.pods.cancel_deletion(tag.uid)
            elif isinstance(tag, BoundPod):
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
            self._state.pods.cancel_creation(entry, tag.pod)
        is_reported = result.status in (400, 403, 404, 422) and not is_not_leader(result)
        self._recorder.record_create_failure(entry, tag.pod, _server_message(result) if is_reported else "", now)
        self._handle_rejection(entry, tag, result, now)

    def _handle_rejection(self, entry: JobEntry, tag: CreatedPod, result: WriteResult, now: float) -> None:
        """Retry, back off or end the job, depending on why its pod was rejected."""
        if is_not_leader(result):
            entry.retry.at = now + _FIRST_RETRY_SECONDS
        elif result.reason == "AlreadyExists":
            # Created before a crash, by a previous leader, or by another owner: the watch shows which.
            if self._count_rejection(entry, now) > _NAME_TAKEN_RETRIES:
                name = tag.pod.key.rpartition("/")[2]
                what = f"another pod is called {name}, which is none of its own"
                self._back_off(entry, what, "it is made when that one is gone", now)
            else:
                entry.retry.at = now + _NAME_TAKEN_SECONDS
        elif result.status in (400, 422):
            sentence = f"failed: the API server does not take its pods ({_server_message(result)})."
            verdict = Verdict(VerdictKind.FAILED, reason=f"{entry.parsed_job.spec.kind}Failed", sentence=sentence)
            self._pods.finish(entry, verdict, now)
        elif result.status in (403, 404):
            self._count_rejection(entry, now)
            self._back_off(entry, _refusal(result), "it is asked again", now)
        else:
            entry.retry.at = now + _FIRST_RETRY_SECONDS
        self._state.work_queue.enqueue(entry)

    def _count_rejection(self, entry: JobEntry, now: float) -> int:
        """Count consecutive rejections; those of one gang count as one."""
        is_new = now >= max(entry.retry.at, entry.job.persisted.not_before)
        entry.retry.count += is_new or not entry.retry.count
        return entry.retry.count

    def _back_off(self, entry: JobEntry, what: str, then: str, now: float) -> None:
        """Retry with exponential back-off; a job that has not started gives up its assignment meanwhile."""
        wait = min(_FIRST_BACKOFF_SECONDS * 2.0 ** (entry.retry.count - 1), _MAX_BACKOFF_SECONDS)
        entry.retry.message = f"waits: {what}; {then}."
        if entry.job.persisted.started_at is None or not replaces_in_place(entry.parsed_job):
            if entry.job.persisted.not_before <= now:  # the other pods of the gang are no further failures
                self._pods.note_failure(entry, what, None, now)
            entry.job.persisted.not_before = now + wait
            self._pods.unassign(entry, now)
        else:
            entry.retry.at = now + wait  # its other replicas keep running
        self._timers.set(now + wait, entry)

    def _pod_deleted(self, tag: DeletedPod, result: WriteResult, now: float) -> None:
        entry, pod = self._state.entries.get(tag.job), self._state.pods.get(tag.uid)
        controller = self._controllers[entry.parsed_job.ownership] if entry is not None else None
        if entry is not None and controller is not None and controller.on_pod_deletion(entry, tag.uid, result, now):
            return
        if result.is_done or result.status in (404, 409):
            return  # being deleted, gone, or replaced by another pod of its name
        if result.status == 0:
            self._state.pods.note_possible_deletion(tag.uid)
            self._track_unknown(tag, now)
            return
        self._state.pods.cancel_deletion(tag.uid)
        if entry is not None:
            if pod is not None and not is_not_leader(result):
                self._recorder.record_delete_failure(entry, pod, _server_message(result), now)
            self._count_rejection(entry, now)
            entry.retry.at = now + min(_FIRST_RETRY_SECONDS * 2.0**entry.retry.count, _MAX_BACKOFF_SECONDS)
            self._timers.set(entry.retry.at, entry)

    # Other objects.

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
        entry.retry.at = max(entry.retry.at, now + _NAME_TAKEN_SECONDS)
        self._timers.set(entry.retry.at, entry)

    def _service_deleted(self, tag: DeletedService, result: WriteResult, now: float) -> None:
        """Retry, unless the service is gone or another owner has created one of its name."""
        entry = self._state.entries.get(tag.job)
        if entry is None or result.is_done or result.status in (404, 409):
            return
        row = self._pods.service_row(entry, tag.replica)
        if row is not None and row.owner == entry.parsed_job.ref.uid:
            entry.services[tag.replica] = True
            self._retry_later(entry, result, now)

    def _bound(self, tag: BoundPod, result: WriteResult, now: float) -> None:
        if result.is_done:
            return
        if result.status == 0:
            self._track_unknown(tag, now)
            return
        self._state.pods.unbind(tag.uid)
        self._retry_later(self._state.entries.get(tag.job), result, now)

    def _object_patched(self, tag: DeletedJob | PatchedObject, result: WriteResult, now: float) -> None:
        """Process the result of a write to the job's object or its move record."""
        entry = self._state.entries.get(tag.job)
        if entry is None:
            return
        if isinstance(tag, PatchedObject):
            entry.writes_in_flight = max(0, entry.writes_in_flight - 1)
            if tag.what == RECORD_DELETED and (result.is_done or result.status == 404):
                entry.retry.count = 0
                self._state.work_queue.enqueue(entry)
                if entry.move.record is not None:
                    self._state.drop_record(entry)
                return
        if result.is_done:
            entry.retry.count, entry.retry.message = 0, ""
            self._state.update_spec(entry, result.body)
        else:
            if isinstance(tag, DeletedJob):
                entry.job.is_deleting = result.status == 404
            self._retry_later(entry, result, now)
        self._state.work_queue.enqueue(entry)

    def _retry_later(self, entry: JobEntry | None, result: WriteResult, now: float) -> None:
        if entry is None:
            return
        wait = min(_FIRST_RETRY_SECONDS * 2.0**entry.retry.count, _MAX_BACKOFF_SECONDS)
        entry.retry.count += 1
        entry.retry.at = now + (UNKNOWN_RESULT_SECONDS if result.status == 0 else wait)
        if result.status in (400, 403, 422) and not is_not_leader(result):
            entry.retry.message = (
                f"waits: the API server refuses a change ({_server_message(result)}); it is asked again."
            )
        self._state.work_queue.enqueue(entry)
        self._timers.set(entry.retry.at, entry)


def is_not_leader(result: WriteResult) -> bool:
    """Return True if the write was rejected because another operator leads, which is unrelated to the object."""
    return result.reason == NOT_LEADER or FENCE in result.message


def _refusal(result: WriteResult) -> str:
    """Return why the API server refused a pod, and what to do, as the beginning of a sentence."""
    message = _server_message(result)
    if "quota" in message:
        advice = "; free a part of the quota or raise it"
    elif "admission webhook" in message:
        advice = "; change the pod template as the webhook demands"
    else:
        advice = ""
    return f"the API server refuses its pods ({message}){advice}"


def _server_message(result: WriteResult) -> str:
    return (result.message or result.reason or f"status {result.status}").strip().rstrip(".")
