"""Phase of a job, derived from its pods and its assignment. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from sterna.backends.kubernetes.api.job import KubeJob, PodState, ReplicaAssignment
from sterna.backends.kubernetes.lifecycle.replicas import replaces_in_place
from sterna.backends.kubernetes.lifecycle.verdict import VerdictKind

_ALIVE = (PodState.RUNNING, PodState.SUCCEEDED)


class JobPhase(Enum):
    """Values of `status.phase`."""

    WAITING = "Waiting"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"

    @property
    def is_over(self) -> bool:
        return self in (JobPhase.SUCCEEDED, JobPhase.FAILED)


_FINAL_PHASES = {VerdictKind.COMPLETED: JobPhase.SUCCEEDED, VerdictKind.FAILED: JobPhase.FAILED}


def phase_of(
    job: KubeJob, replicas: Sequence[ReplicaAssignment], now: float, kind: VerdictKind = VerdictKind.CONTINUE
) -> JobPhase:
    """Return the phase of a job that has not ended, or that ends with the given verdict."""
    if kind in _FINAL_PHASES:
        return _FINAL_PHASES[kind]
    is_held_back = now < job.persisted.not_before
    if not replicas:
        if any(not pod.is_terminated for pod in job.pods.values()):
            return JobPhase.STOPPING
        if job.parsed_job.is_suspended:
            return JobPhase.SUSPENDED
        return JobPhase.RESTARTING if is_held_back else JobPhase.WAITING
    if kind in (VerdictKind.REPLACE, VerdictKind.RESTART):
        return JobPhase.RESTARTING
    if is_running(job, replicas):
        return JobPhase.RUNNING
    is_leaving = any(pod.is_deleting for pod in job.pods.values())
    return JobPhase.RESTARTING if is_held_back or is_leaving else JobPhase.STARTING


def is_running(job: KubeJob, replicas: Sequence[ReplicaAssignment]) -> bool:
    """Return True if the job trains.

    All replicas must run; of a job that replaces in place, the minimum number of workers including worker 0, and all
    other replicas. Of an MPIJob any workers suffice, because its launcher leads them.
    """
    spec = job.parsed_job.spec
    running = {key for key, pod in job.pods.items() if pod.state in _ALIVE and not pod.is_deleting}
    wanted = {(replica.type, replica.ordinal) for replica in replicas}
    if not replaces_in_place(job.parsed_job):
        return bool(wanted) and wanted <= running
    worker = spec.worker.type
    workers = [key for key in running if key[0] == worker]
    others = {key for key in wanted if key[0] != worker}
    is_led = (worker, 0) in running or job.parsed_job.ownership.is_delegated
    return others <= running and is_led and len(workers) >= max(spec.minimum, 1)
