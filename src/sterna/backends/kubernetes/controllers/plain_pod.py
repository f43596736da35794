"""Plain pods: SpeCon's jobs, which their own scheduler places first and we only move (DRAGON-80 to 90).

Nobody else makes such a pod again, so a move is written down before anything is deleted: a record with the whole pod
and where it shall go. Then the pod is asked to save and go, made anew under its name where there is room, and the
record is removed. Whoever finds a record after a crash goes on from there. A pod that is stopped for others is a move
whose end waits for its turn, and so is one that the cluster takes from its node (DRAGON-50); one that its user deletes
stays deleted.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sterna.backends.kubernetes.api.job import PodRow, PodState, ReplicaAssignment
from sterna.backends.kubernetes.api.resources import CONFIG_MAPS, ApiServer, Verb, Write
from sterna.backends.kubernetes.api.write_purpose import FORGOTTEN, CreatedPod, DeletedPod, Patched
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.cache.job_entry import JobEntry, Stage
from sterna.backends.kubernetes.controllers.cpu_resize import resizes
from sterna.backends.kubernetes.controllers.pods import Reconciler, deletion_of, expected
from sterna.backends.kubernetes.lifecycle.replicas import is_dead, need_of
from sterna.backends.kubernetes.lifecycle.verdict import Fate, Verdict, completed, is_done, judge, note_saved
from sterna.backends.kubernetes.pods.move_record import Move, move_record, record_name, redirection
from sterna.backends.kubernetes.pods.pod_rows import pod_row
from sterna.backends.kubernetes.status.status import memory_fields
from sterna.errors import Retry, UserError
from sterna.kinds.labels import MEMORY
from sterna.kinds.objects import Pod
from sterna.kinds.resource import PODS
from sterna.model.snapshot import NEVER

_ASK_SECONDS = 5.0


class PodCarrier:
    """Looks after plain pods."""

    def __init__(self, state: ClusterState, reconciler: Reconciler, server: ApiServer) -> None:
        self._world, self._reconciler, self._server = state, reconciler, server

    def look(self, entry: JobEntry, now: float) -> list[Write]:
        """The next writes for a job."""
        pod = next(iter(entry.job.pods.values()), None)
        if entry.stage is Stage.INVALID:
            self._reconciler.refuse(entry, now)
        if pod is None and entry.former is not None and entry.stage is Stage.ACTIVE and not entry.job.is_deleting:
            self._ended(entry, entry.former, now)
        if entry.stage is not Stage.ACTIVE or entry.job.is_deleting:
            return self._let_go(entry, pod)
        if pod is not None and entry.record is not None and not entry.record.is_about(pod.uid, str(pod.attempt)):
            return [] if entry.under_way else [self._forgotten(entry)]  # another one of that name
        if pod is not None:
            note_saved(entry.job.memory, pod, now)
            if self._is_lost(pod):
                self._world.pods.suspect(pod.uid)  # whoever deletes it now is not its user
            elif not entry.replicas and pod.node and entry.record is None and not pod.is_deleting:
                self._settled(entry, pod, now)  # its scheduler has found a node for it
        self._reconciler.time.count(entry, now)
        self._world.work_queue.changed.add(entry.key)
        if entry.record is None or (pod is not None and (not pod.is_deleting or is_done(entry.job, pod))):
            verdict = judge(entry.job, now, entry.replicas)
            if verdict.fate in (Fate.COMPLETED, Fate.FAILED):
                self._reconciler.end(entry, verdict, now)
                return [self._forgotten(entry)] if entry.record is not None else []
        is_going = pod is not None and entry.record is None and self._is_lost(pod)
        if pod is not None and is_going and _sits_at(entry, pod.node):
            self._put_off(entry, pod, now)
        is_urgent = is_going and entry.draft is None  # it may be gone before anything else is answered
        if (entry.under_way and not is_urgent) or entry.retry_at > now:
            self._reconciler.timers.set(entry.retry_at if entry.retry_at > now else NEVER, entry)
            return []
        return self._towards(entry, pod, now)

    def _let_go(self, entry: JobEntry, pod: PodRow | None) -> list[Write]:
        """It does not come again: what was written down is removed, and what may be under way is waited for."""
        if entry.record is not None and not entry.under_way:
            return [self._forgotten(entry)]
        if entry.record is None and pod is None and not entry.under_way:
            self._world.forget(entry)
        return []

    def _ended(self, entry: JobEntry, former: PodRow, now: float) -> None:
        """A life of it is over, as it was last seen: it comes again unless it was done."""
        entry.former = None
        note_saved(entry.job.memory, former, now)
        if is_done(entry.job, former):
            self._reconciler.end(entry, completed(entry.job), now)

    def _settled(self, entry: JobEntry, pod: PodRow, now: float) -> None:
        entry.seated_at = now
        self._world.reassign(entry, [ReplicaAssignment(pod.type, pod.index, pod.node)])
        self._world.reindex(entry)

    def _is_lost(self, pod: PodRow) -> bool:
        """Whether it cannot stay where it is, and nobody but us makes it again."""
        return bool(pod.uid) and (bool(pod.disruption) or self._world.capacity.is_gone(pod.node))

    def _put_off(self, entry: JobEntry, pod: PodRow, now: float) -> None:
        """It gives up its place and moves as any other that is stopped for others."""
        how = f"the cluster takes it from {pod.node} ({pod.disruption})" if pod.disruption else f"{pod.node} is gone"
        sentence = f"{how}; it comes again where there is room."
        self._reconciler.begin_again(entry, Verdict(Fate.RESTART, reason="PodRestarting", sentence=sentence), now)
        self._reconciler.unassign(entry, now)

    def _towards(self, entry: JobEntry, pod: PodRow | None, now: float) -> list[Write]:
        replica = entry.replicas[0] if entry.replicas else None
        if pod is not None and replica is not None and pod.node == replica.node and not pod.is_deleting:
            entry.draft = None
            if entry.record is not None:
                return [self._forgotten(entry)]
            return resizes(entry, now, self._reconciler.timers)
        if pod is not None and pod.node and (not pod.is_deleting or self._is_lost(pod)):
            if entry.record is None:
                return self._written_down(entry, pod, replica)
            if entry.record.uid not in ("", pod.uid):  # of the move before
                return [
                    self._redirected(entry, entry.record, replica.node if replica is not None else pod.node, pod.uid)
                ]
        if pod is not None and pod.node and entry.record is not None:
            return self._deleted(entry, pod, now)
        if pod is not None:
            return []
        self._reconciler.time.stop(entry, now)
        if entry.record is None:
            return self._unwritten(entry, now)
        entry.draft = None
        if replica is None:
            return []
        if entry.record.node != replica.node:
            return [self._redirected(entry, entry.record, replica.node, entry.record.uid)]
        return self._created(entry, entry.record, replica)

    def _deleted(self, entry: JobEntry, pod: PodRow, now: float) -> list[Write]:
        """Ask it to go; one that was asked, and whose node does not answer, is waited for until its grace is over."""
        lost = {pod.node} if self._reconciler.is_dead(pod.node) else set()
        is_over = is_dead(pod, lost, now)
        if pod.is_deleting and not is_over:
            self._reconciler.timers.set(pod.deletes_at if lost and pod.deletes_at is not None else NEVER, entry)
            return []
        self._world.pods.ask_to_go(entry, pod)
        entry.under_way += 1  # it is made anew only when we know that it was we who deleted it
        if not is_over:
            return [_deletion(entry, pod)]
        self._world.pods.suspect(pod.uid)  # asked twice, it may be gone when the second answer comes
        return [deletion_of(pod, DeletedPod(entry.key, pod.uid), force=True)]

    # The record.

    def _written_down(self, entry: JobEntry, pod: PodRow, replica: ReplicaAssignment | None) -> list[Write]:
        """The whole pod is asked for only now, because few are ever moved."""
        namespace, _, name = pod.key.partition("/")
        try:
            answer = self._server.ask("GET", PODS.path(namespace, name))
            attempt = max(entry.job.memory.attempt, pod.attempt) + 1
            target = replica.node if replica is not None else pod.node
            is_there = answer.is_done and _is_as_seen(pod, answer.body)
            record = move_record(_remembering(entry, answer.body), target, attempt) if is_there else None
        except (Retry, UserError, msgspec.MsgspecError):
            record = None
        if record is None:
            entry.retry_at = self._world.clock() + _ASK_SECONDS
            self._reconciler.timers.set(entry.retry_at, entry)
            return []
        entry.under_way += 1
        body = msgspec.json.encode(record)
        tag = Patched(entry.key, "record")
        entry.draft = Write(Verb.CREATE, CONFIG_MAPS, namespace, record_name(name), body, tag=tag)
        return [entry.draft]

    def _unwritten(self, entry: JobEntry, now: float) -> list[Write]:
        """The cluster was faster than what was written down, if anything was: nobody knows the pod any more."""
        if entry.draft is not None:
            entry.under_way += 1
            return [entry.draft]
        sentence = "failed: the cluster took it from its node before it could be written down; create it again."
        self._reconciler.end(entry, Verdict(Fate.FAILED, reason="PodFailed", sentence=sentence), now)
        self._world.forget(entry)
        return []

    def _redirected(self, entry: JobEntry, record: Move, node: str, uid: str) -> Write:
        """It goes elsewhere than was written down, or another life of it goes."""
        body = msgspec.json.encode(redirection(record, node, uid))
        entry.under_way += 1
        name, tag = record_name(record.name), Patched(entry.key, "record")
        return Write(Verb.MERGE, CONFIG_MAPS, record.namespace, name, body, tag=tag)

    def _forgotten(self, entry: JobEntry) -> Write:
        """The move is over, or there is nothing left to move."""
        entry.under_way += 1
        ref, tag = entry.parsed_job.ref, Patched(entry.key, FORGOTTEN)
        return Write(Verb.DELETE, CONFIG_MAPS, ref.namespace, record_name(ref.name), b"", tag=tag)

    # The pod.

    def _created(self, entry: JobEntry, record: Move, replica: ReplicaAssignment) -> list[Write]:
        need, capacity = need_of(entry.parsed_job, replica.type), self._world.capacity
        if not capacity.has_room(replica.node, need.devices, need.cpus, need.memory_bytes):
            self._world.work_queue.set_waiting(entry, True)
            if not capacity.is_open(replica.node):
                self._reconciler.unassign(entry, self._world.clock())
            return []
        self._world.work_queue.set_waiting(entry, False)
        entry.job.memory.attempt = record.attempt
        row = expected(entry, replica, record.name, record.attempt)
        self._world.pods.expect(entry, row)
        body = msgspec.json.encode(record.pod)
        return [Write(Verb.CREATE, PODS, record.namespace, record.name, body, tag=CreatedPod(entry.key, row))]


def _deletion(entry: JobEntry, pod: PodRow) -> Write:
    """Of the pod as we know it: if it has ended or was deleted since, that is looked at first."""
    options = {"preconditions": {"uid": pod.uid, "resourceVersion": str(pod.version)}}
    namespace, _, name = pod.key.partition("/")
    tag = DeletedPod(entry.key, pod.uid)
    return Write(Verb.DELETE, PODS, namespace, name, msgspec.json.encode(options), tag=tag)


def _is_as_seen(pod: PodRow, body: bytes) -> bool:
    """Whether it is still that pod, and neither goes nor has ended, unless the cluster ends it; if not, the watch will
    tell."""
    found = pod_row(msgspec.json.decode(body, type=Pod))
    is_at_work = not found.is_deleting and not found.is_terminated
    return found.uid == pod.uid and (is_at_work or (bool(found.disruption) and found.state is not PodState.SUCCEEDED))


def _sits_at(entry: JobEntry, node: str) -> bool:
    return any(replica.node == node for replica in entry.replicas)


def _remembering(entry: JobEntry, body: bytes) -> dict[str, Any]:
    """The pod, with what is remembered of its job as of now: it may be all that is left when somebody looks."""
    pod: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
    metadata = dict(pod.get("metadata") or {})
    memory = msgspec.json.encode(memory_fields(entry.job.memory)).decode()
    metadata["annotations"] = {**(metadata.get("annotations") or {}), MEMORY: memory}
    return {**pod, "metadata": metadata}
