"""Controller of plain pods (SpeCon's jobs), which their own scheduler binds first and Sterna only moves.

No other controller creates such a pod again, so a move is recorded before anything is deleted: a ConfigMap with the
whole pod and its target node. Then the pod is deleted gracefully, created again under its name when the target has
capacity, and the record is deleted. After a crash the move continues from the record. A pod that is stopped or evicted
is moved too, to a node that a later round chooses; a pod that its user deletes stays deleted.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sterna.backends.kubernetes.api.job import PodRow, PodState, ReplicaAssignment
from sterna.backends.kubernetes.api.resources import CONFIG_MAPS, ApiServer, Verb, Write, WriteResult
from sterna.backends.kubernetes.api.write_purpose import RECORD_DELETED, CreatedPod, DeletedPod, PatchedObject
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.cache.job_entry import JobEntry, Stage
from sterna.backends.kubernetes.controllers.controller import Controller, present_pods, replicas_on
from sterna.backends.kubernetes.controllers.cpu_resize import resizes
from sterna.backends.kubernetes.controllers.pods import PodController, deletion_of, expected_pod
from sterna.backends.kubernetes.lifecycle.replicas import is_dead, need_of
from sterna.backends.kubernetes.lifecycle.verdict import (
    Verdict,
    VerdictKind,
    completion,
    ignored_stop_request,
    is_done,
    judge,
    record_checkpoint,
    stop_verdict,
)
from sterna.backends.kubernetes.pods.move_record import MoveRecord, move_record, record_name, redirect_patch
from sterna.backends.kubernetes.pods.pod_rows import pod_row
from sterna.backends.kubernetes.status.status import persisted_fields
from sterna.errors import Retry, UserError
from sterna.kinds.labels import MEMORY
from sterna.kinds.objects import Pod
from sterna.kinds.resource import PODS
from sterna.model.snapshot import NEVER

_READ_RETRY_SECONDS = 5.0
_WATCH_SECONDS = 0.3
"""Upper bound on the delay of the watch behind the API server."""


class PlainPodController(Controller):
    """Moves plain pods and keeps their move records."""

    def __init__(self, state: ClusterState, pods: PodController, server: ApiServer) -> None:
        super().__init__(state)
        self._pods, self._server = pods, server

    def prepare_recovery(self, entry: JobEntry) -> None:
        """Continue a move of the previous leader, whose deletion may still arrive."""
        move = entry.move.record
        pod = next(iter(entry.job.pods.values()), None)
        if move is None or pod is None:
            return
        if pod.is_deleting and move.uid not in ("", pod.uid):  # its user deletes the pod that the move created
            entry.job.is_deleting = True
            self._state.reindex(entry)
        elif move.uid in ("", pod.uid):
            self._state.pods.note_possible_deletion(pod.uid)

    def find_replicas(self, entry: JobEntry) -> list[ReplicaAssignment]:
        """Return the target of the move in progress, else the node of the pod."""
        job, move = entry.job, entry.move.record
        if move is not None and all(move.is_about(pod.uid, str(pod.attempt)) for pod in job.pods.values()):
            worker = entry.parsed_job.spec.worker.type
            return [ReplicaAssignment(worker, 0, move.node)] if self._state.capacity.is_open(move.node) else []
        return self._complete(entry, replicas_on(present_pods(entry, job.persisted.attempt)))

    def on_pod_deletion(self, entry: JobEntry, uid: str, result: WriteResult, now: float) -> bool:
        """Return True if the pod was not as expected: it ended or another client deleted it, which is checked first."""
        entry.writes_in_flight = max(0, entry.writes_in_flight - 1)
        self._state.work_queue.enqueue(entry)
        if result.status not in (404, 409):
            return False
        if self._state.pods.get(uid) is None:
            entry.job.is_deleting = entry.job.is_deleting or not self._state.pods.may_be_deleted_by_us(uid)
        self._state.pods.cancel_deletion(uid)
        entry.retry.at = now + _WATCH_SECONDS
        self._pods.timers.set(entry.retry.at, entry)
        return True

    def reconcile(self, entry: JobEntry, now: float) -> list[Write]:
        pod, record, previous = next(iter(entry.job.pods.values()), None), entry.move.record, entry.move.previous_pod
        if entry.stage is Stage.INVALID:
            self._pods.report_invalid(entry, now)
        if pod is None and previous is not None and entry.stage is Stage.ACTIVE and not entry.job.is_deleting:
            self._handle_termination(entry, previous, now)
        if entry.stage is not Stage.ACTIVE or entry.job.is_deleting:
            return self._release(entry, pod)
        if pod is not None and record is not None and not record.is_about(pod.uid, str(pod.attempt)):
            return [] if entry.writes_in_flight else [self._delete_record(entry)]  # a different pod of that name
        if pod is not None:
            record_checkpoint(entry.job.persisted, pod, now)
            if ignored_stop_request(entry.job.persisted, pod):
                entry.unsaved_attempt = pod.attempt
            if self._is_lost(pod):
                self._state.pods.note_possible_deletion(pod.uid)  # a deletion from now on is not its user's
            elif not entry.replicas and pod.node and entry.move.record is None and not pod.is_deleting:
                self._adopt_binding(entry, pod, now)  # its scheduler has bound it
        self._pods.runtime.update(entry, now)
        self._state.work_queue.mark_row_stale(entry)
        if entry.move.record is None or (pod is not None and (not pod.is_deleting or is_done(entry.job, pod))):
            verdict = judge(entry.job, now, entry.replicas)
            if verdict.kind in (VerdictKind.COMPLETED, VerdictKind.FAILED):
                self._pods.finish(entry, verdict, now)
                return [self._delete_record(entry)] if entry.move.record is not None else []
        is_going = pod is not None and entry.move.record is None and self._is_lost(pod)
        if pod is not None and is_going and _is_assigned_to(entry, pod.node):
            self._requeue(entry, pod, now)
        is_urgent = is_going and entry.move.draft is None  # it may be gone before other writes are answered
        if (entry.writes_in_flight and not is_urgent) or entry.retry.at > now:
            self._pods.timers.set(entry.retry.at if entry.retry.at > now else NEVER, entry)
            return []
        return self._steps(entry, pod, now)

    def _release(self, entry: JobEntry, pod: PodRow | None) -> list[Write]:
        """Delete the record of a pod that does not come again, and forget the job when all writes are answered."""
        if entry.move.record is not None and not entry.writes_in_flight:
            return [self._delete_record(entry)]
        if entry.move.record is None and pod is None and not entry.writes_in_flight:
            self._state.forget(entry)
        return []

    def _handle_termination(self, entry: JobEntry, previous: PodRow, now: float) -> None:
        """Process the last seen state of a pod that is gone: it is created again unless it was complete."""
        entry.move.previous_pod = None
        record_checkpoint(entry.job.persisted, previous, now)
        if is_done(entry.job, previous):
            self._pods.finish(entry, completion(entry.job), now)

    def _adopt_binding(self, entry: JobEntry, pod: PodRow, now: float) -> None:
        entry.assigned_at = now
        self._state.reassign(entry, [ReplicaAssignment(pod.type, pod.index, pod.node)])
        self._state.reindex(entry)

    def _is_lost(self, pod: PodRow) -> bool:
        """Return True if the cluster removes the pod from its node, and no other controller creates it again."""
        return bool(pod.uid) and (bool(pod.disruption) or self._state.capacity.is_gone(pod.node))

    def _requeue(self, entry: JobEntry, pod: PodRow, now: float) -> None:
        """Return an evicted pod to the queue, like a stopped job."""
        how = f"the cluster takes it from {pod.node} ({pod.disruption})" if pod.disruption else f"{pod.node} is gone"
        sentence = f"{how}; it comes again where there is room."
        self._pods.restart(entry, Verdict(VerdictKind.RESTART, reason="PodRestarting", sentence=sentence), now)
        self._pods.unassign(entry, now)

    def _steps(self, entry: JobEntry, pod: PodRow | None, now: float) -> list[Write]:
        replica = entry.replicas[0] if entry.replicas else None
        if pod is not None and replica is not None and pod.node == replica.node and not pod.is_deleting:
            entry.move.draft = None
            if entry.move.record is not None:
                return [self._delete_record(entry)]
            return resizes(entry, now, self._pods.timers)
        if pod is not None and pod.node and (not pod.is_deleting or self._is_lost(pod)):
            if entry.move.record is None:
                return self._create_record(entry, pod, replica)
            if entry.move.record.uid not in ("", pod.uid):  # left by the previous move
                return [
                    self._update_record(
                        entry, entry.move.record, replica.node if replica is not None else pod.node, pod.uid
                    )
                ]
        if pod is not None and pod.node and entry.move.record is not None:
            return self._delete_pod(entry, pod, now)
        if pod is not None:
            return []
        if entry.job.persisted.started_at is not None:
            self._pods.apply_verdict(entry, stop_verdict(entry.job.persisted, now), now)
        if entry.move.record is None:
            return self._handle_missing_record(entry, now)
        entry.move.draft = None
        if replica is None:
            return []
        if entry.move.record.node != replica.node:
            return [self._update_record(entry, entry.move.record, replica.node, entry.move.record.uid)]
        return self._create_pod(entry, entry.move.record, replica)

    def _delete_pod(self, entry: JobEntry, pod: PodRow, now: float) -> list[Write]:
        """Delete the pod gracefully; on a dead node, force-delete it when its grace period is over."""
        lost = {pod.node} if self._pods.is_dead(pod.node) else set()
        is_over = is_dead(pod, lost, now)
        if pod.is_deleting and not is_over:
            self._pods.timers.set(pod.deletes_at if lost and pod.deletes_at is not None else NEVER, entry)
            return []
        self._state.pods.mark_deleted(entry, pod)
        entry.writes_in_flight += 1  # created again only when the deletion is known to be ours
        if not is_over:
            return [_deletion(entry, pod)]
        self._state.pods.note_possible_deletion(pod.uid)  # deleted twice: it may be gone when the second result arrives
        return [deletion_of(pod, DeletedPod(entry.key, pod.uid), force=True)]

    # Move record.

    def _create_record(self, entry: JobEntry, pod: PodRow, replica: ReplicaAssignment | None) -> list[Write]:
        """Read the whole pod, which the cache does not keep, and store it in a move record."""
        namespace, _, name = pod.key.partition("/")
        try:
            answer = self._server.ask("GET", PODS.path(namespace, name))
            attempt = max(entry.job.persisted.attempt, pod.attempt) + 1
            target = replica.node if replica is not None else pod.node
            is_there = answer.is_done and _is_unchanged(pod, answer.body)
            record = move_record(_with_persisted_state(entry, answer.body), target, attempt) if is_there else None
        except (Retry, UserError, msgspec.MsgspecError):
            record = None
        if record is None:
            entry.retry.at = self._state.clock() + _READ_RETRY_SECONDS
            self._pods.timers.set(entry.retry.at, entry)
            return []
        entry.writes_in_flight += 1
        body = msgspec.json.encode(record)
        tag = PatchedObject(entry.key, "record")
        entry.move.draft = Write(Verb.CREATE, CONFIG_MAPS, namespace, record_name(name), body, tag=tag)
        return [entry.move.draft]

    def _handle_missing_record(self, entry: JobEntry, now: float) -> list[Write]:
        """Send the draft again, or fail the job: the pod is gone and was never recorded."""
        if entry.move.draft is not None:
            entry.writes_in_flight += 1
            return [entry.move.draft]
        sentence = "failed: the cluster took it from its node before it could be written down; create it again."
        self._pods.finish(entry, Verdict(VerdictKind.FAILED, reason="PodFailed", sentence=sentence), now)
        self._state.forget(entry)
        return []

    def _update_record(self, entry: JobEntry, record: MoveRecord, node: str, uid: str) -> Write:
        """Change the target node of a move, or the pod that is moved."""
        body = msgspec.json.encode(redirect_patch(record, node, uid))
        entry.writes_in_flight += 1
        name, tag = record_name(record.name), PatchedObject(entry.key, "record")
        return Write(Verb.MERGE, CONFIG_MAPS, record.namespace, name, body, tag=tag)

    def _delete_record(self, entry: JobEntry) -> Write:
        entry.writes_in_flight += 1
        ref, tag = entry.parsed_job.ref, PatchedObject(entry.key, RECORD_DELETED)
        return Write(Verb.DELETE, CONFIG_MAPS, ref.namespace, record_name(ref.name), b"", tag=tag)

    # Pod.

    def _create_pod(self, entry: JobEntry, record: MoveRecord, replica: ReplicaAssignment) -> list[Write]:
        need, capacity = need_of(entry.parsed_job, replica.type), self._state.capacity
        if not capacity.has_room(replica.node, need.devices, need.cpus, need.memory_bytes):
            self._state.work_queue.set_blocked(entry, True)
            if not capacity.is_open(replica.node):
                self._pods.unassign(entry, self._state.clock())
            return []
        self._state.work_queue.set_blocked(entry, False)
        entry.job.persisted.attempt = record.attempt
        row = expected_pod(entry, replica, record.name, record.attempt)
        self._state.pods.expect(entry, row)
        body = msgspec.json.encode(record.pod)
        return [Write(Verb.CREATE, PODS, record.namespace, record.name, body, tag=CreatedPod(entry.key, row))]


def _deletion(entry: JobEntry, pod: PodRow) -> Write:
    """Build a deletion with uid and version preconditions: a pod that changed since is processed first."""
    options = {"preconditions": {"uid": pod.uid, "resourceVersion": str(pod.version)}}
    namespace, _, name = pod.key.partition("/")
    tag = DeletedPod(entry.key, pod.uid)
    return Write(Verb.DELETE, PODS, namespace, name, msgspec.json.encode(options), tag=tag)


def _is_unchanged(pod: PodRow, body: bytes) -> bool:
    """Return True if it is the same pod and runs, or is being evicted; otherwise the watch reports the change."""
    found = pod_row(msgspec.json.decode(body, type=Pod))
    is_at_work = not found.is_deleting and not found.is_terminated
    return found.uid == pod.uid and (is_at_work or (bool(found.disruption) and found.state is not PodState.SUCCEEDED))


def _is_assigned_to(entry: JobEntry, node: str) -> bool:
    return any(replica.node == node for replica in entry.replicas)


def _with_persisted_state(entry: JobEntry, body: bytes) -> dict[str, Any]:
    """Return the pod with the current persisted state as an annotation, because it may be all that is left of it."""
    pod: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
    metadata = dict(pod.get("metadata") or {})
    persisted = msgspec.json.encode(persisted_fields(entry.job.persisted)).decode()
    metadata["annotations"] = {**(metadata.get("annotations") or {}), MEMORY: persisted}
    return {**pod, "metadata": metadata}
