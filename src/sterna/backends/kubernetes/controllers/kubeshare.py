"""Controller of jobs whose replicas are SharePods, from which KubeShare creates pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sterna.backends.kubernetes.api.job import PodRow, ReplicaAssignment
from sterna.backends.kubernetes.api.resources import Write
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.controllers.pods import PodController
from sterna.backends.kubernetes.pods.pod_builder import share_pod_of
from sterna.kinds.resource import PODS, Resource
from sterna.kinds.share_pod import SHARE_PODS


class KubeShareController(PodController):
    """Creates and deletes SharePods where `PodController` creates and deletes pods."""

    def reconcile(self, entry: JobEntry, now: float) -> list[Write]:
        self._state.share_pods.join(entry)
        return super().reconcile(entry, now)

    def prepare_recovery(self, entry: JobEntry) -> None:
        self._state.share_pods.join(entry)

    def _body(self, entry: JobEntry, replica: ReplicaAssignment, attempt: int) -> dict[str, Any]:
        memory_bytes = self._state.capacity.gpu_memory_bytes(replica.node)
        return share_pod_of(
            entry.parsed_job, replica, entry.replicas, attempt, self._domain, gpu_memory_bytes=memory_bytes
        )

    def _resource(self, entry: JobEntry, pod: PodRow | None = None) -> Resource:
        is_created_by_kubeshare = pod is not None and entry.kubeshare.pods.get((pod.type, pod.index)) is pod
        return PODS if is_created_by_kubeshare else SHARE_PODS

    def _deletions(self, entry: JobEntry, going: Sequence[PodRow], dead: Sequence[PodRow], now: float) -> list[Write]:
        """Also delete SharePods whose pod is being deleted; force-delete the pod, because a SharePod runs nowhere."""
        pods = [entry.kubeshare.pods.get((pod.type, pod.index), pod) for pod in dead]
        return super()._deletions(entry, [*going, *self._state.share_pods.without_pod(entry)], pods, now)
