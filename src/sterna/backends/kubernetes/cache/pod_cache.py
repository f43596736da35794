"""The book of pods: those of jobs as rows that find their job, everybody else's only as what they use.

What we asked for and the server has not shown yet is laid over what it shows: pods that are being made, bound or
deleted. Names of pods whose job is gone are kept, because they are taken until those pods are gone too.
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

_DUMMY = "kubeshare-vgpu"
"""How the names of the pods begin by which KubeShare holds shared GPUs; they end with the GPU's."""


_what_counts = attrgetter(
    "state", "node", "is_terminated", "is_deleting", "deletes_at", "attempt", "exit_code", "reason", "message",
    "restarts", "assignment", "gpu_id", "cpus", "limit_cpus", "disruption", "withheld",
)  # fmt: skip
"""Of a pod for its job. A pod that comes as it was asked for, or of which only conditions change, is no news."""


class PodCache:
    """All pods."""

    def __init__(self, jobs: JobIndex, capacity: NodeCapacity, work_queue: WorkQueue, progress: Progress) -> None:
        self._jobs, self._capacity, self._work_queue, self._progress = jobs, capacity, work_queue, progress
        self.serving: dict[str, PendingServingPod] = {}
        """Serving pods that are not bound yet, by uid."""
        self._pods: dict[str, PodRow] = {}
        """Pods of jobs, ours and our predecessors', by uid."""
        self._taken: dict[str, str] = {}
        """Names of those, and their uids."""
        self._asked: set[str] = set()
        """Uids of pods that were asked to go, until they are gone."""
        self._perhaps_asked: set[str] = set()
        """Uids of those that may have been: nobody knows whether that arrived, or a predecessor asked them. Kept,
        because an answer may come later than the end of a pod."""
        self._bound: dict[str, str] = {}
        """Nodes of pods that were bound, until they are gone or it turns out that they were not."""
        self._strays: dict[str, set[str]] = {}
        """Pods whose job is not known, by the job's uid or name."""

    # Who is there.

    def get(self, uid: str) -> PodRow | None:
        """A pod of a job."""
        return self._pods.get(uid)

    def find(self, uid: str) -> tuple[KubeJob, PodRow] | None:
        """The job of a pod, and what is known of the pod."""
        pod = self._pods.get(uid)
        entry = self._jobs.by_uid.get(pod.owner_uid) if pod is not None else None
        return (entry.job, pod) if entry is not None and pod is not None else None

    def named(self, key: str) -> PodRow | None:
        """The pod of a job that has this name."""
        uid = self._taken.get(key)
        return self._pods[uid] if uid is not None else None

    def is_taken(self, key: str, owner_uid: str) -> bool:
        """Whether somebody else's pod has this name: one of a job of that name which is no more."""
        uid = self._taken.get(key)
        return uid is not None and self._pods[uid].owner_uid != owner_uid

    # News.

    def see(self, pod: Pod) -> PodRow:
        """A pod is there, as given."""
        row = pod_row(pod)
        if row.owner_uid == row.uid and KIND_LABEL in pod.metadata.labels:
            row.job = ""  # it was a replica of ours, and whoever deleted its job let it go on
        if row.is_serving:
            self._take_serving(pod, row)
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
        """Of a pod that somebody else made for a job of ours: told by the name of the job, among those of its kind."""
        ownership = PodOwnership.KUBESHARE if row.is_kubeshare else PodOwnership.MPI_OPERATOR
        entry = self._jobs.find(row.job, ownership)
        return entry.parsed_job.ref.uid if entry is not None else _stray_of(ownership, row.job)

    def _enter(self, row: PodRow) -> None:
        old = self._pods.get(row.uid)
        if old is not None and row.version < old.version:
            return
        self.put(row)
        if old is not None and (old.owner_uid, old.type, old.index) != (row.owner_uid, row.type, row.index):
            self._unseat(old)  # somebody has changed its labels
        entry = self._jobs.by_uid.get(row.owner_uid)
        if entry is None:
            self._strays.setdefault(row.owner_uid, set()).add(row.uid)
            self.update_usage(row, None)
        elif entry.parsed_job.ownership.uses_kubeshare:
            self.update_usage(row, entry)
            entry.kubeshare.pods[row.type, row.index] = row
            self._work_queue.mark_changed(entry)
        else:
            self.assign(entry, row)

    def put(self, row: PodRow) -> None:
        """Lay what we asked for over what was seen, and keep it."""
        if row.uid in self._asked:
            row.is_deleting = True
        if row.uid in self._bound:
            row.node = row.node or self._bound[row.uid]
        self._pods[row.uid] = row
        self._taken[row.key] = row.uid

    def assign(self, entry: JobEntry, row: PodRow) -> None:
        """It is a replica of a job."""
        present = entry.job.pods.get((row.type, row.index))
        if present is not None and not present.uid:
            self.release_expected(present)
        entry.job.pods[row.type, row.index] = row
        self.update_usage(row, entry)
        if present is None or _what_counts(present) != _what_counts(row):
            self._work_queue.mark_changed(entry)

    def adopt(self, entry: JobEntry) -> None:
        """A job is known now: pods that were seen before it are its own."""
        ref = entry.parsed_job.ref
        by_name = _stray_of(entry.parsed_job.ownership, ref.key)
        for uid in sorted((*self._strays.pop(ref.uid, ()), *self._strays.pop(by_name, ()))):
            row = self._pods[uid]
            row.owner_uid = ref.uid
            if entry.parsed_job.ownership.uses_kubeshare:
                entry.kubeshare.pods[row.type, row.index] = row
            else:
                entry.job.pods[row.type, row.index] = row

    def disown(self, entry: JobEntry) -> None:
        """A job is gone: its pods are strangers that keep their names."""
        for pod in (*entry.job.pods.values(), *entry.kubeshare.pods.values()):
            if pod.uid in self._pods:
                self._strays.setdefault(pod.owner_uid, set()).add(pod.uid)
            elif not pod.uid:
                self.release_expected(pod)

    def lose(self, meta: Meta) -> PodRow | None:
        """A pod is not there any more; its row, if it was a job's."""
        uid = meta.uid
        if self.serving.pop(uid, None) is not None:
            self._work_queue.request_round()
        self._capacity.parts.stand_down(uid)
        if self._release(uid):
            self._work_queue.request_round()
            self._work_queue.wake_blocked()
        return self.drop(uid)

    def drop(self, uid: str) -> PodRow | None:
        row = self._pods.pop(uid, None)
        self._asked.discard(uid)
        self._bound.pop(uid, None)
        if row is None:
            return None
        self._progress.forget_pod(uid)
        if self._taken.get(row.key) == uid:
            del self._taken[row.key]
        entry = self._jobs.by_uid.get(row.owner_uid)
        if entry is None:
            strays = self._strays.get(row.owner_uid, set())
            strays.discard(uid)
            if not strays:
                self._strays.pop(row.owner_uid, None)
            self._work_queue.wake_blocked()  # it may have kept a name from somebody
            return row
        self._unseat(row)
        return row

    def _unseat(self, row: PodRow) -> None:
        """It is no replica of its job any more."""
        entry = self._jobs.by_uid.get(row.owner_uid)
        if entry is None:
            self._strays.get(row.owner_uid, set()).discard(row.uid)
            return
        for pods in (entry.job.pods, entry.kubeshare.pods):
            if pods.get((row.type, row.index)) is row:
                del pods[row.type, row.index]
        self._work_queue.mark_changed(entry)

    # What they use.

    def update_usage(self, pod: PodRow, entry: JobEntry | None) -> None:
        """What a pod uses of its node, from its creation to the end of its containers."""
        is_ours = entry is not None and entry.wants_to_run
        if not pod.node or pod.is_terminated:
            is_news = self._release(account(pod))
            if is_news:
                self._work_queue.wake_blocked()
        else:
            most = pod.limit_cpus or pod.cpus, pod.limit_memory_bytes or pod.memory_bytes
            charge = ResourceUsage(pod.devices, pod.cpus, pod.memory_bytes, *most)
            is_news = self._capacity.add_pod(account(pod), pod.node, charge, is_ours)
        if is_news and not is_ours:
            self._work_queue.request_round()

    def update_job_usage(self, entry: JobEntry) -> None:
        """Whether rules see a job's home or its pods may have changed."""
        for pod in (*entry.job.pods.values(), *entry.kubeshare.pods.values()):
            self.update_usage(pod, entry)

    # What we ask for.

    def expect(self, entry: JobEntry, pod: PodRow) -> None:
        """A pod is being made: it counts from now on."""
        entry.job.pods[pod.type, pod.index] = pod
        self.update_usage(pod, entry)
        if pod.gpu_id:
            self._capacity.parts.hold(account(pod), pod.node, pod.gpu_id, entry.shape.devices, is_planned=True)
        self._work_queue.mark_row_stale(entry)

    def release_expected(self, pod: PodRow) -> None:
        """A pod that was being made is there, or does not come: what stood for it uses nothing."""
        self._release(account(pod))

    def _release(self, account: str) -> bool:
        """It uses nothing any more, nor any part of a GPU; whether it did."""
        has_part = self._capacity.parts.release(account)
        return self._capacity.remove_pod(account) or has_part

    def give_up(self, entry: JobEntry, pod: PodRow) -> None:
        """A pod that was being made does not come."""
        if entry.job.pods.get((pod.type, pod.index)) is pod:
            del entry.job.pods[pod.type, pod.index]
        self.release_expected(pod)
        self._work_queue.mark_changed(entry)
        self._work_queue.wake_blocked()

    def ask_to_go(self, entry: JobEntry, pod: PodRow) -> None:
        """A pod is being deleted: it counts as on its way out from now on."""
        pod.is_deleting = True
        self._asked.add(pod.uid)
        self._work_queue.mark_row_stale(entry)

    def is_asked(self, uid: str) -> bool:
        """Whether it may be our doing that a pod goes."""
        return uid in self._asked or uid in self._perhaps_asked

    def suspect(self, uid: str) -> None:
        """A pod may have been asked to go."""
        self._perhaps_asked.add(uid)

    def call_back(self, uid: str) -> None:
        """A deletion was refused."""
        self._asked.discard(uid)
        pod = self._pods.get(uid)
        if pod is not None and pod.deletes_at is None:
            pod.is_deleting = False
            self._note_owner(pod)

    def bind(self, entry: JobEntry, pod: PodRow, node: str) -> None:
        """A pod is being bound: it counts as there from now on."""
        self._bound[pod.uid] = pod.node = node
        self.update_usage(pod, entry)
        self._work_queue.mark_row_stale(entry)

    def unbind(self, uid: str) -> None:
        """A binding was refused."""
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

    # Special ones.

    def _take_serving(self, pod: Pod, row: PodRow) -> None:
        """A serving pod waits for room, or does no longer (DRAGON-54, 58, 59)."""
        waits = not row.node and not row.is_deleting and not row.is_terminated and not pod.spec.scheduling_gates
        if waits == (row.uid in self.serving):
            return
        self._work_queue.request_round()
        if waits:
            self.serving[row.uid] = pending_serving_pod(pod)
        else:
            del self.serving[row.uid]

    def _note_kubeshare(self, row: PodRow) -> None:
        """DRAGON-38: the pod by which KubeShare holds a GPU counts as that GPU, the pods that share it count for the
        rest of what they use, whole GPUs of their own included."""
        name = row.key.partition("/")[2]
        if not name.startswith(_DUMMY):
            return
        if row.node and not row.is_terminated:
            self._capacity.parts.stand_for(row.uid, row.node, name.rpartition("-")[2])
        else:
            self._capacity.parts.stand_down(row.uid)


def _stray_of(ownership: PodOwnership, name: str) -> str:
    """Stands for the uid of a job of which only the name is known; no uid looks like it."""
    return f"{ownership.name}:{name}"


def account(pod: PodRow) -> str:
    """Under which name a pod is in the accounts: one that is being made has no uid yet."""
    return pod.uid or f"new:{pod.key}"
