"""`SharePodCache`: SharePods of jobs and of other owners, and the GPU fraction that each holds.

KubeShare creates a pod from every SharePod. To the rest of the operator the two are one replica (`join`), which exists
from the creation of the SharePod until both are gone: a pod outlives its SharePod by its grace period, or while its
node is lost.
"""

from __future__ import annotations

from msgspec import structs

from sterna.backends.kubernetes.api.assignment import Key
from sterna.backends.kubernetes.api.job import PendingServingPod, PodRow, PodState
from sterna.backends.kubernetes.cache.gpu_fractions import gpu_fraction_milli
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.cache.job_index import JobIndex
from sterna.backends.kubernetes.cache.node_capacity import NodeCapacity
from sterna.backends.kubernetes.cache.object_parser import replica_in
from sterna.backends.kubernetes.cache.pod_cache import PodCache
from sterna.backends.kubernetes.cache.work_queue import WorkQueue
from sterna.backends.kubernetes.pods.share_rows import ShareRow, share_row
from sterna.kinds.labels import ASSIGNMENT, ATTEMPT_LABEL
from sterna.kinds.objects import JobObject, Meta
from sterna.kinds.parsing.job_builder import parse_timestamp
from sterna.model.cluster import Shape


class SharePodCache:
    """Cache of all SharePods of the cluster."""

    def __init__(self, jobs: JobIndex, pods: PodCache, capacity: NodeCapacity, work_queue: WorkQueue) -> None:
        self._jobs, self._pods, self._capacity, self._work_queue = jobs, pods, capacity, work_queue
        self._rows: dict[str, ShareRow] = {}
        self._strays: dict[str, dict[Key, PodRow]] = {}
        """Replicas of unknown jobs, by the job's uid."""
        self.urgent: dict[str, ShareRow] = {}
        """Unplaced SharePods of other owners that precede all jobs, by uid."""

    def see(self, seen: JobObject) -> None:
        row = share_row(seen)
        self._rows[row.uid] = row
        entry = self._jobs.by_uid.get(row.owner_uid)
        self._hold(row, entry)
        self._update_urgent(row)
        replica = replica_in(seen.metadata)
        if not row.owner_uid or replica is None:
            return
        pod = _as_pod(row, seen.metadata, replica)
        if entry is None:
            self._strays.setdefault(row.owner_uid, {})[replica] = pod
        else:
            entry.kubeshare.share_pods[replica] = pod
            self._work_queue.mark_changed(entry)

    def lose(self, meta: Meta) -> None:
        row = self._rows.pop(meta.uid, None)
        self._pods.drop(meta.uid)
        left = self._pods.find_by_name(row.key) if row is not None else None
        if left is not None and not left.is_terminated:
            self._capacity.gpu_fractions.transfer(meta.uid, left.uid)
        elif self._capacity.gpu_fractions.release(meta.uid):
            self._work_queue.request_round()
        if self.urgent.pop(meta.uid, None) is not None:
            self._work_queue.request_round()
        self._capacity.remove_pod(meta.uid)
        self._work_queue.wake_blocked()
        if row is None:
            return
        entry = self._jobs.by_uid.get(row.owner_uid)
        share_pods = entry.kubeshare.share_pods if entry is not None else self._strays.get(row.owner_uid, {})
        for replica in [key for key, pod in share_pods.items() if pod.uid == meta.uid]:
            del share_pods[replica]
        if entry is not None:
            self._work_queue.mark_changed(entry)

    def adopt(self, entry: JobEntry) -> None:
        """Link SharePods that were seen before their job."""
        if entry.parsed_job.ownership.uses_kubeshare:
            entry.kubeshare.share_pods.update(self._strays.pop(entry.parsed_job.ref.uid, {}))
            self.join(entry)

    def update_job_usage(self, entry: JobEntry) -> None:
        """Update the fractions of a job's SharePods after `wants_to_run` may have changed."""
        for pod in entry.kubeshare.share_pods.values():
            if (row := self._rows.get(pod.uid)) is not None:
                self._hold(row, entry)

    def join(self, entry: JobEntry) -> None:
        """Merge each SharePod and the pod that KubeShare created from it into one replica."""
        pods, counted = entry.job.pods, {made.uid for made in entry.kubeshare.pods.values()}
        for replica in [key for key, pod in pods.items() if pod.uid and key not in entry.kubeshare.share_pods]:
            if (uid := pods.pop(replica).uid) not in counted:
                self._capacity.remove_pod(uid)
        for replica, left in entry.kubeshare.pods.items():
            if replica not in entry.kubeshare.share_pods and replica not in pods:  # else its SharePod is being created
                left.is_deleting = True  # its owner is gone: garbage collection deletes it
                pods[replica] = left
        for replica, share in entry.kubeshare.share_pods.items():
            made = entry.kubeshare.pods.get(replica)
            present = pods.get(replica)
            if present is not None and not present.uid:
                self._pods.release_expected(present)
            row = _merge(share, made)
            self._pods.put(row)
            pods[replica] = row
            if made is not None:
                self._pods.put(made)  # it keeps the name for longer
                self._capacity.remove_pod(row.uid)  # the pod itself is counted
            else:
                self._pods.update_usage(row, entry)

    def without_pod(self, entry: JobEntry) -> list[PodRow]:
        """Return SharePods whose pod another client deletes: KubeShare would create it again on the same node, even on
        a lost one."""
        goes = {replica for replica, made in entry.kubeshare.pods.items() if made.is_deleting}
        return [
            share for replica, share in entry.kubeshare.share_pods.items() if replica in goes and not share.is_deleting
        ]

    # GPU fractions.

    def _hold(self, row: ShareRow, entry: JobEntry | None) -> None:
        is_ours = entry is not None and entry.wants_to_run
        if row.gpu_fraction is None or not row.node or not row.gpu_id or row.is_terminated:
            is_news = self._capacity.gpu_fractions.release(row.uid)
        else:
            fraction = gpu_fraction_milli(row.gpu_fraction, self._capacity.gpu_memory_bytes(row.node))
            is_news = self._capacity.gpu_fractions.hold(row.uid, row.node, row.gpu_id, fraction, is_ours)
        if is_news:
            self._work_queue.wake_blocked()
            if not is_ours:
                self._work_queue.request_round()

    def refresh_fractions(self) -> None:
        """Compute all fractions again after GPU sizes changed."""
        for row in self._rows.values():
            self._hold(row, self._jobs.by_uid.get(row.owner_uid))

    def _update_urgent(self, row: ShareRow) -> None:
        waits = row.is_urgent and not row.node and not row.is_terminated and not row.is_deleting
        if waits != (row.uid in self.urgent):
            self._work_queue.request_round()
        if waits:
            self.urgent[row.uid] = row
        else:
            self.urgent.pop(row.uid, None)

    def cancel_placement(self, uid: str) -> None:
        """Undo the placement of an urgent SharePod after a rejection."""
        row = self._rows.get(uid)
        if row is not None:
            self._hold(row, self._jobs.by_uid.get(row.owner_uid))
            self._update_urgent(row)

    def reservation_of(self, row: ShareRow) -> PendingServingPod:
        """Return the reservation of an urgent SharePod."""
        return PendingServingPod(
            row.key, Shape(0, row.cpus, row.memory_bytes), row.needs, row.submitted_at, row.gpu_fraction
        )


def _as_pod(row: ShareRow, meta: Meta, replica: Key) -> PodRow:
    attempt = meta.labels.get(ATTEMPT_LABEL, "")
    return PodRow(
        row.key,
        row.uid,
        row.version,
        row.node,
        PodState.PENDING,
        row.is_terminated or row.is_deleting,
        row.is_deleting,
        row.devices,
        row.cpus,
        row.memory_bytes,
        f"{meta.namespace}/{next((each.name for each in meta.owner_references if each.controller), '')}",
        row.owner_uid,
        *replica,
        int(attempt) if attempt.isascii() and attempt.isdigit() else 0,
        assignment=meta.annotations.get(ASSIGNMENT, ""),
        gpu_id=row.gpu_id,
        deletes_at=parse_timestamp(meta.deletion_timestamp) if row.is_deleting else None,
    )


def _merge(share: PodRow, made: PodRow | None) -> PodRow:
    if made is None:
        return share
    return structs.replace(
        share,
        state=made.state,
        is_terminated=made.is_terminated,
        is_deleting=share.is_deleting or made.is_deleting,
        exit_code=made.exit_code,
        reason=made.reason,
        message=made.message,
        restarts=made.restarts,
        started_at=made.started_at,
        limit_cpus=made.limit_cpus,
        limit_memory_bytes=made.limit_memory_bytes,
        deletes_at=made.deletes_at,
    )
