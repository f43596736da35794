"""Builders of jobs and pods as the operator holds them, with defaults for every field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sterna.backends.kubernetes.api.assignment import encode_assignment
from sterna.backends.kubernetes.api.job import KubeJob, PersistedState, PodRow, PodState, ReplicaAssignment
from sterna.kinds.mpi_job import MPI_JOBS
from sterna.kinds.parsed_job import CleanPods, JobRef, NodeNeeds, ParsedJob, PodOwnership
from sterna.kinds.pytorch_job import PYTORCH_JOBS
from sterna.kinds.resource import PODS
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from sterna.model.cluster import MILLI, Shape
from sterna.model.job import JobSpec, ReplicaSpec, Resizing, RestartPolicy

RESOURCES = {
    "TFJob": TF_JOBS,
    "PyTorchJob": PYTORCH_JOBS,
    "TrainingJob": TRAINING_JOBS,
    "MPIJob": MPI_JOBS,
    "Pod": PODS,
}
NODES = ("a", "b", "c", "d")
"""Node names by row."""


def parsed_job(
    kind: str = "TrainingJob",
    workers: int = 1,
    others: Mapping[str, int] | None = None,
    minimum: int | None = None,
    maximum: int | None = None,
    resizing: Resizing = Resizing.RESTART,
    restart: RestartPolicy = RestartPolicy.ON_FAILURE,
    backoff_limit: int = 6,
    ownership: PodOwnership | None = None,
    clean_pods: CleanPods = CleanPods.RUNNING,
    devices: int = MILLI,
    name: str = "mnist",
    is_suspended: bool = False,
    ttl_seconds: float | None = None,
    deadline_seconds: float | None = None,
) -> ParsedJob:
    servers = dict(others or {})
    replicas = [ReplicaSpec(type_, count, (), cpus=500) for type_, count in servers.items()]
    replicas.append(ReplicaSpec("worker", workers, (), devices=devices, cpus=1000))
    spec = JobSpec(
        name,
        kind,
        tuple(replicas),
        minimum if minimum is not None else workers,
        maximum if maximum is not None else workers,
        workers,
        restart=restart,
        backoff_limit=backoff_limit,
        resizing=resizing,
        ttl_seconds=ttl_seconds,
        deadline_seconds=deadline_seconds,
        is_done_by_first=kind == "TFJob",
    )
    if ownership is None:
        ownership = {"MPIJob": PodOwnership.MPI_OPERATOR, "Pod": PodOwnership.BARE_POD}.get(kind, PodOwnership.OPERATOR)
    shape = Shape(devices, 1000, ps=sum(servers.values()), ps_cpus=500)
    ref = JobRef(RESOURCES[kind], "default", name, f"uid-{name}")
    return ParsedJob(
        ref,
        spec,
        shape,
        NodeNeeds(),
        {},
        ownership,
        100.0,
        clean_pods,
        generation=1,
        is_suspended=is_suspended,
        survives_replica_loss=kind == "TFJob" and "ps" in servers,
    )


def tf_job(workers: int = 2, ps: int = 1, **more: Any) -> ParsedJob:
    return parsed_job("TFJob", workers, {"ps": ps}, **more)


def pod(
    where: ReplicaAssignment,
    state: PodState = PodState.RUNNING,
    attempt: int = 1,
    gang: Iterable[ReplicaAssignment] = (),
    is_deleting: bool = False,
    is_terminated: bool | None = None,
    job: str = "mnist",
    **more: Any,
) -> PodRow:
    """Return the pod of a replica."""
    ended = state in (PodState.SUCCEEDED, PodState.FAILED)
    row = PodRow(
        f"default/{job}-{where.type}-{where.ordinal}",
        f"uid-{where.type}-{where.ordinal}-{attempt}",
        1,
        where.node,
        state,
        ended if is_terminated is None else is_terminated,
        is_deleting,
        MILLI,
        1000,
        0,
        job=f"default/{job}",
        type=where.type,
        index=where.ordinal,
        attempt=attempt,
        gpu_id=where.gpu_id,
        assignment=encode_assignment(gang) if gang else "",
    )
    for field, value in more.items():
        setattr(row, field, value)
    return row


def kube_job(of: ParsedJob, *pods: PodRow, status: Mapping[str, Any] | None = None, **memory: Any) -> KubeJob:
    """Return a job in its first attempt; `memory` overrides its persisted fields."""
    kept = PersistedState(**{"attempt": 1, "enqueued_at": 100.0, **memory})
    return KubeJob(1, of, kept, 7, {(each.type, each.index): each for each in pods}, status or {})


def workers_at(*nodes: str) -> list[ReplicaAssignment]:
    """Worker 0 on the first node, and so on."""
    return [ReplicaAssignment("worker", index, node) for index, node in enumerate(nodes)]
