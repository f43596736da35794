"""Builders of the batches of pod reports that monitors send."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import structs

from sterna.backends.kubernetes.api.job import KubeJob, PodRow, ReplicaAssignment
from sterna.backends.kubernetes.api.monitor_protocol import Batch, PodReports
from sterna.backends.kubernetes.cache.progress import FindJob, Progress
from sterna.model.cluster import Shape
from sterna.progress.report import SourceReport
from tests.unit.backends.kubernetes.replica_builders import kube_job, parsed_job, pod

START = 1_000_000.0


def report(at: float, step: int | None = None, total: int | None = None, **more: Any) -> SourceReport:
    """A report `at` seconds after the start; further numbers are metrics."""
    known = {name: more.pop(name) for name in ("saved", "source", "cpu_seconds", "generation") if name in more}
    return SourceReport(START + at, step, total, more, **known)


def training(count: int, total: int = 1000, every: float = 1.0, first: int = 1, **more: Any) -> list[SourceReport]:
    """A training that makes a step each `every` seconds, and whose loss falls."""
    return [report(step * every, step, total, loss=10.0 / step, **more) for step in range(first, first + count)]


def batch(progress: Progress, reports: Iterable[SourceReport], uid: str = "uid-worker-0-1", **more: Any) -> Batch:
    """A batch of one pod, from a monitor that knows the operator and whose clock agrees with it."""
    pods = [PodReports(uid, "default", uid, list(reports))]
    last = max((each.at for each in pods[0].reports), default=START)
    usual: dict[str, Any] = {"node": "a", "sent_at": last, "memory": progress.memory, "pods": pods}
    return Batch(**(usual | more))


def running_job(workers: int = 1, key: int = 1, name: str = "mnist", devices: int = 1000, **memory: Any) -> KubeJob:
    """A job whose workers have run since the start."""
    pods = [pod(ReplicaAssignment("worker", index, "a"), job=name) for index in range(workers)]
    for each in pods:
        each.uid = f"uid-worker-{each.index}-1" if key == 1 else f"uid-{key}-{each.index}"
    of = parsed_job(workers=workers, name=name, devices=devices)
    job = kube_job(
        structs.replace(of, shape=Shape(devices, 1000)),
        *pods,
        **({"started_at": START, "first_started_at": START} | memory),
    )
    job.key = key
    return job


def find_in(*jobs: KubeJob) -> FindJob:
    """By the uid of any pod of theirs."""
    pods: dict[str, tuple[KubeJob, PodRow]] = {row.uid: (job, row) for job in jobs for row in job.pods.values()}
    return pods.get
