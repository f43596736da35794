"""`Controller`: the strategy for the jobs of one `PodOwnership`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from sterna.backends.kubernetes.api.assignment import decode_assignment
from sterna.backends.kubernetes.api.job import PodRow, PodState, ReplicaAssignment
from sterna.backends.kubernetes.api.resources import Write, WriteResult
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.lifecycle.replicas import replaces_in_place


class Controller(ABC):
    """Reconciles jobs, recovers their assignments after a restart, and processes the results of pod deletions."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    @abstractmethod
    def reconcile(self, entry: JobEntry, now: float) -> list[Write]:
        """Return the next writes for a job."""

    def prepare_recovery(self, entry: JobEntry) -> None:
        """Bring the entry up to date before `find_replicas` reads its pods."""
        return

    def find_replicas(self, entry: JobEntry) -> list[ReplicaAssignment]:
        """Return the assignment that the existing pods imply; empty if none.

        An attempt that has not run yet is completed from its pods' assignment annotation.
        """
        pods = present_pods(entry, entry.job.persisted.attempt)
        has_begun = replaces_in_place(entry.parsed_job) and entry.job.persisted.started_at is not None
        annotated = None
        if pods and not has_begun:
            annotated = decode_assignment(max(pods, key=lambda pod: pod.version).assignment)
        return self._complete(entry, annotated or replicas_on(pods))

    def on_pod_deletion(self, entry: JobEntry, uid: str, result: WriteResult, now: float) -> bool:
        """Process the result of a pod deletion; return True if that was all there is to do."""
        return False

    def _complete(self, entry: JobEntry, replicas: Sequence[ReplicaAssignment]) -> list[ReplicaAssignment]:
        """Drop replicas on unknown nodes; return nothing if the rest is not a valid gang."""
        worker = entry.parsed_job.spec.worker.type
        row_of = self._state.capacity.row_of
        kept = [replica for replica in replicas if replica.node in row_of and _has_gpu(entry, replica)]
        if len(kept) < len(replicas) and not replaces_in_place(entry.parsed_job):
            return []
        others = sum(each.count for each in entry.parsed_job.spec.replicas if each.type != worker)
        workers = sum(replica.type == worker for replica in kept)
        return [] if len(kept) - workers < others or not workers else kept


def present_pods(entry: JobEntry, attempt: int | None = None) -> list[PodRow]:
    """Return the bound pods of assigned replica types that stay, of one attempt or of all."""
    types = {each.type for each in entry.parsed_job.spec.replicas}
    return [
        pod
        for pod in entry.job.pods.values()
        if pod.type in types  # a launcher is bound by another scheduler and has no assignment
        if attempt in (None, pod.attempt) and pod.node and not pod.is_deleting
        if pod.state is not PodState.FAILED
    ]


def replicas_on(pods: Sequence[PodRow]) -> list[ReplicaAssignment]:
    return [ReplicaAssignment(pod.type, pod.index, pod.node, pod.gpu_id) for pod in pods]


def _has_gpu(entry: JobEntry, replica: ReplicaAssignment) -> bool:
    """Return False for a worker that uses a GPU fraction but lost the annotation that names the GPU."""
    return bool(replica.gpu_id) or not entry.shape.is_fraction or replica.type != entry.parsed_job.spec.worker.type
