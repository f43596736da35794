"""`PodCache`: pods of jobs as rows that are linked to their job; of all other pods only their usage.

Requested changes that the watch does not show yet are laid over what it shows: creations, bindings, deletions. Names of
pods whose job is gone are kept, because they are taken until those pods are gone too.
"""

from __future__ import annotations

from operator import attrgetter

from sterna.backends.kubernetes.api.job import KubeJob, PendingServingPod, PodRow, PodState
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.cache.job_index import JobIndex
from sterna.backends.kubernetes.cache.node_capacity import NodeCapacity, ResourceUsage
from sterna.backends.kubernetes.cache.progress import Progress
from sterna.backends.kubernetes.cache.work_queue import WorkQueue
from sterna.backends.kubernetes.pods.pod_rows import pending_serving_pod, pod_row
from sterna.kinds.labels import KIND_LABEL
from sterna.kinds.objects import Meta, Pod
from sterna.kinds.parsed_job import PodOwnership
from sterna.kinds.parsing.job_builder import parse_timestamp

_VGPU_PREFIX = "kubeshare-vgpu"
"""Name prefix of the pods with which KubeShare holds shared GPUs; the name ends with the GPU id."""


_relevant_fields = attrgetter(
    "state", "node", "is_terminated", "is_deleting", "deletes_at", "attempt", "exit_code", "reason", "message",
    "restarts", "assignment", "gpu_id", "cpus", "limit_cpus", "disruption", "withheld",
)  # fmt: skip
"""Fields of a pod whose change matters to its job."""


class PodCache:
    """Cache of all pods of the cluster."""

    def __init__(self, jobs: JobIndex, capacity: NodeCapacity, work_queue: WorkQueue, progress: Progress) -> None:
        self._jobs, self._capacity, self._work_queue, self._progress = jobs, capacity, work_queue, progress
        self.serving: dict[str, PendingServingPod] = {}
        """Unbound serving pods, by uid."""
        self._pods: dict[str, PodRow] = {}
        """Pods of jobs, by uid."""
        self._uid_of: dict[str, str] = {}
        """Uids of those pods, by `namespace/name`."""
        self._deleted: set[str] = set()
        """Uids of pods whose deletion was requested, until they are gone."""
        self._perhaps_deleted: set[str] = set()
        """Uids of pods whose deletion may have been requested: the result is unknown, or a previous leader sent it.
        Kept, because a result may arrive after the pod is gone."""
        self._bound: dict[str, str] = {}
        """Node of each requested binding, until the pod is gone or the binding is rejected."""
        self._strays: dict[str, set[str]] = {}
        """Uids of pods of unknown jobs, by the job's uid or name."""

    # Lookup.

    def get(self, uid: str) -> PodRow | None:
        return self._pods.get(uid)

    def find(self, uid: str) -> tuple[KubeJob, PodRow] | None:
        """Return the job and the row of a pod."""
        pod = self._pods.get(uid)
        entry = self._jobs.by_uid.get(pod.owner_uid) if pod is not None else None
        return (entry.job, pod) if entry is not None and pod is not None else None

    def find_by_name(self, key: str) -> PodRow | None:
        """Return the pod of this name, if it belongs to a job."""
        uid = self._uid_of.get(key)
        return self._pods[uid] if uid is not None else None

    def is_taken(self, key: str, owner_uid: str) -> bool:
        """Return True if a pod of another owner has this name, such as one of a deleted job."""
        uid = self._uid_of.get(key)
        return uid is not None and self._pods[uid].owner_uid != owner_uid

    # Watch events.

    def see(self, pod: Pod) -> PodRow:
        row = pod_row(pod)
        if row.owner_uid == row.uid and KIND_LABEL in pod.metadata.labels:
            row.job = ""  # a former replica whose job was deleted with orphaning
        if row.is_serving:
            self._update_serving(pod, row)
        if row.is_kubeshare:
            self._note_kubeshare(row)
        if row.job:
            if row.is_deleting and row.deletes_at is None:
                row.deletes_at = parse_timestamp(pod.metadata.deletion_timestamp)
            row.owner_uid = row.owner_uid or self._owner(row)
            self._enter(row)
        else:
            self.update_usage(row, None)
        return row

    def _owner(self, row: PodRow) -> str:
        """Return the job uid of a pod that another controller created, found by the job's name and ownership."""
        ownership = PodOwnership.KUBESHARE if row.is_kubeshare else PodOwnership.MPI_OPERATOR
        entry = self._jobs.find(row.job, ownership)
        return entry.parsed_job.ref.uid if entry is not None else _stray_key(ownership, row.job)

    def _enter(self, row: PodRow) -> None:
        old = self._pods.get(row.uid)
        if old is not None and row.version < old.version:
            return
        self.put(row)
        if old is not None and (old.owner_uid, old.type, old.index) != (row.owner_uid, row.type, row.index):
            self._unlink(old)  # its labels changed
        entry = self._jobs.by_uid.get(row.owner_uid)
        if entry is None:
            self._strays.setdefault(row.owner_uid, set()).add(row.uid)
            self.update_usage(row, None)
        elif entry.parsed_job.ownership.uses_kubeshare:
            self.update_usage(row, entry)
            entry.kubeshare.pods[row.type, row.index] = row
            self._work_queue.mark_changed(entry)
        else:
            self.link(entry, row)

    def put(self, row: PodRow) -> None:
        """Store a row with requested deletions and bindings laid over it."""
        if row.uid in self._deleted:
            row.is_deleting = True
        if row.uid in self._bound:
            row.node = row.node or self._bound[row.uid]
        self._pods[row.uid] = row
        self._uid_of[row.key] = row.uid

    def link(self, entry: JobEntry, row: PodRow) -> None:
        """Link a pod to its job."""
        present = entry.job.pods.get((row.type, row.index))
        if present is not None and not present.uid:
            self.release_expected(present)
        entry.job.pods[row.type, row.index] = row
        self.update_usage(row, entry)
        if present is None or _relevant_fields(present) != _relevant_fields(row):
            self._work_queue.mark_changed(entry)

    def adopt(self, entry: JobEntry) -> None:
        """Link pods that were seen before their job."""
        ref = entry.parsed_job.ref
        by_name = _stray_key(entry.parsed_job.ownership, ref.key)
        for uid in sorted((*self._strays.pop(ref.uid, ()), *self._strays.pop(by_name, ()))):
            row = self._pods[uid]
            row.owner_uid = ref.uid
            if entry.parsed_job.ownership.uses_kubeshare:
                entry.kubeshare.pods[row.type, row.index] = row
            else:
                entry.job.pods[row.type, row.index] = row

    def disown(self, entry: JobEntry) -> None:
        """Unlink the pods of a deleted job; they keep their names."""
        for pod in (*entry.job.pods.values(), *entry.kubeshare.pods.values()):
            if pod.uid in self._pods:
                self._strays.setdefault(pod.owner_uid, set()).add(pod.uid)
            elif not pod.uid:
                self.release_expected(pod)

    def lose(self, meta: Meta) -> PodRow | None:
        """Remove a deleted pod; return its row if it belonged to a job."""
        uid = meta.uid
        if self.serving.pop(uid, None) is not None:
            self._work_queue.request_round()
        self._capacity.gpu_fractions.remove_vgpu_pod(uid)
        if self._release(uid):
            self._work_queue.request_round()
            self._work_queue.wake_blocked()
        return self.drop(uid)

    def drop(self, uid: str) -> PodRow | None:
        row = self._pods.pop(uid, None)
        self._deleted.discard(uid)
        self._bound.pop(uid, None)
        if row is None:
            return None
        self._progress.forget_pod(uid)
        if self._uid_of.get(row.key) == uid:
            del self._uid_of[row.key]
        entry = self._jobs.by_uid.get(row.owner_uid)
        if entry is None:
            strays = self._strays.get(row.owner_uid, set())
            strays.discard(uid)
            if not strays:
                self._strays.pop(row.owner_uid, None)
            self._work_queue.wake_blocked()  # its name is free now
            return row
        self._unlink(row)
        return row

    def _unlink(self, row: PodRow) -> None:
        """Unlink a pod from its job."""
        entry = self._jobs.by_uid.get(row.owner_uid)
        if entry is None:
            self._strays.get(row.owner_uid, set()).discard(row.uid)
            return
        for pods in (entry.job.pods, entry.kubeshare.pods):
            if pods.get((row.type, row.index)) is row:
                del pods[row.type, row.index]
        self._work_queue.mark_changed(entry)

    # Usage.

    def update_usage(self, pod: PodRow, entry: JobEntry | None) -> None:
        """Update the usage of a pod, which lasts from its creation to the end of its containers."""
        is_ours = entry is not None and entry.wants_to_run
        if not pod.node or pod.is_terminated:
            is_news = self._release(usage_key(pod))
            if is_news:
                self._work_queue.wake_blocked()
        else:
            limits = pod.limit_cpus or pod.cpus, pod.limit_memory_bytes or pod.memory_bytes
            usage = ResourceUsage(pod.devices, pod.cpus, pod.memory_bytes, *limits)
            is_news = self._capacity.add_pod(usage_key(pod), pod.node, usage, is_ours)
        if is_news and not is_ours:
            self._work_queue.request_round()

    def update_job_usage(self, entry: JobEntry) -> None:
        """Update the usage of a job's pods after `wants_to_run` may have changed."""
        for pod in (*entry.job.pods.values(), *entry.kubeshare.pods.values()):
            self.update_usage(pod, entry)

    # Requested changes.

    def expect(self, entry: JobEntry, pod: PodRow) -> None:
        """Count a pod whose creation is sent."""
        entry.job.pods[pod.type, pod.index] = pod
        self.update_usage(pod, entry)
        if pod.gpu_id:
            self._capacity.gpu_fractions.hold(
                usage_key(pod), pod.node, pod.gpu_id, entry.shape.devices, is_planned=True
            )
        self._work_queue.mark_row_stale(entry)

    def release_expected(self, pod: PodRow) -> None:
        """Release the usage of a pod whose creation was sent."""
        self._release(usage_key(pod))

    def _release(self, key: str) -> bool:
        """Release node usage and GPU fraction; return True if there was any."""
        has_part = self._capacity.gpu_fractions.release(key)
        return self._capacity.remove_pod(key) or has_part

    def cancel_creation(self, entry: JobEntry, pod: PodRow) -> None:
        """Forget a pod whose creation failed."""
        if entry.job.pods.get((pod.type, pod.index)) is pod:
            del entry.job.pods[pod.type, pod.index]
        self.release_expected(pod)
        self._work_queue.mark_changed(entry)
        self._work_queue.wake_blocked()

    def mark_deleted(self, entry: JobEntry, pod: PodRow) -> None:
        """Count a pod as being deleted, because its deletion is sent."""
        pod.is_deleting = True
        self._deleted.add(pod.uid)
        self._work_queue.mark_row_stale(entry)

    def may_be_deleted_by_us(self, uid: str) -> bool:
        """Return True if this operator or a previous leader may have requested the deletion."""
        return uid in self._deleted or uid in self._perhaps_deleted

    def note_possible_deletion(self, uid: str) -> None:
        """Note that the deletion of a pod may have been requested."""
        self._perhaps_deleted.add(uid)

    def cancel_deletion(self, uid: str) -> None:
        """Undo `mark_deleted` after a rejection."""
        self._deleted.discard(uid)
        pod = self._pods.get(uid)
        if pod is not None and pod.deletes_at is None:
            pod.is_deleting = False
            self._note_owner(pod)

    def bind(self, entry: JobEntry, pod: PodRow, node: str) -> None:
        """Count a pod on its node, because its binding is sent."""
        self._bound[pod.uid] = pod.node = node
        self.update_usage(pod, entry)
        self._work_queue.mark_row_stale(entry)

    def unbind(self, uid: str) -> None:
        """Undo `bind` after a rejection."""
        pod = self._pods.get(uid)
        if self._bound.pop(uid, None) is None or pod is None or pod.state is not PodState.PENDING:
            return
        pod.node = ""
        self.update_usage(pod, self._jobs.by_uid.get(pod.owner_uid))
        self._note_owner(pod)

    def _note_owner(self, pod: PodRow) -> None:
        entry = self._jobs.by_uid.get(pod.owner_uid)
        if entry is not None:
            self._work_queue.mark_changed(entry)

    # Serving pods and KubeShare.

    def _update_serving(self, pod: Pod, row: PodRow) -> None:
        """Add or remove a serving pod that waits for a node."""
        waits = not row.node and not row.is_deleting and not row.is_terminated and not pod.spec.scheduling_gates
        if waits == (row.uid in self.serving):
            return
        self._work_queue.request_round()
        if waits:
            self.serving[row.uid] = pending_serving_pod(pod)
        else:
            del self.serving[row.uid]

    def _note_kubeshare(self, row: PodRow) -> None:
        """Note the pod with which KubeShare holds a shared GPU: it counts as that GPU, and the pods that share the GPU
        count with their other resources."""
        name = row.key.partition("/")[2]
        if not name.startswith(_VGPU_PREFIX):
            return
        if row.node and not row.is_terminated:
            self._capacity.gpu_fractions.add_vgpu_pod(row.uid, row.node, name.rpartition("-")[2])
        else:
            self._capacity.gpu_fractions.remove_vgpu_pod(row.uid)


def _stray_key(ownership: PodOwnership, name: str) -> str:
    """Return a key for pods of a job of which only the name is known; no uid looks like it."""
    return f"{ownership.name}:{name}"


def usage_key(pod: PodRow) -> str:
    """Return the key of a pod in `NodeCapacity`; a pod that is being created has no uid yet."""
    return pod.uid or f"new:{pod.key}"
