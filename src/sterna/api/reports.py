"""Ways in for progress and moves that other systems' jobs already know.

Kubeflow Trainer's status protocol, which unmodified Hugging Face jobs speak; container-migration's `/monitor`,
`/migrate` and `/cluster-info`. Each is turned into a verb of the cluster; nothing is remembered here.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.background import BackgroundTask
from starlette.responses import PlainTextResponse, Response

from sterna.api.auth import Caller
from sterna.api.problem_json import Problem
from sterna.api.responses import Answer, Asker, Cluster, asked, changeable, json_of
from sterna.service.views import ClusterService, JobView, NodeView
from sterna.errors import UserError

router = APIRouter(tags=["other systems"])

_POD = re.compile(r"(?P<job>.+)-(?:worker|ps|chief|master|launcher|evaluator)-\d+(?:-[a-z0-9]{5})?")
_SERVER = re.compile(r".+-ps-\d+(?:-[a-z0-9]{5})?")
_MOST_MOVES = 3
"""As in container-migration: a worker that has moved so often stays."""


class Metric(msgspec.Struct):
    """One value that a trainer reports, as text."""

    name: str
    value: str | float


class TrainerStatus(msgspec.Struct):
    """Kubeflow Trainer's `trainerStatus`."""

    progressPercentage: float | None = None  # noqa: N815
    metrics: list[Metric] = []


class StatusReport(msgspec.Struct):
    """What Kubeflow Trainer's clients send."""

    trainerStatus: TrainerStatus  # noqa: N815


class Sample(msgspec.Struct):
    """What jobs tell container-migration's monitor."""

    pod: str
    value: float


class MoveRequest(msgspec.Struct):
    """What container-migration's monitor asks for: that a pod leaves its node."""

    node: str
    pod: str


@router.post("/api/v1/jobs/{name}/trainer-status", response_class=PlainTextResponse)
@router.post("/apis/trainer.kubeflow.org/{version}/namespaces/{namespace}/trainjobs/{name}/status")
async def trainer_status(name: str, request: Request, cluster: Cluster, caller: Asker) -> Response:
    """Kubeflow Trainer's status protocol."""
    status = (await json_of(request, StatusReport)).trainerStatus
    await changeable(cluster, name, caller)
    metrics = {each.name: value for each in status.metrics if (value := _number(each.value)) is not None}
    step, total = metrics.pop("current_step", None), metrics.pop("total_steps", None)
    if step is None and status.progressPercentage is not None:
        total = total or 100.0
        step = total * status.progressPercentage / 100.0
    await asked(cluster.report, name, _whole(step), _whole(total), metrics)
    return PlainTextResponse("Ok")


def _number(value: str | float) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


@router.post("/monitor", response_class=PlainTextResponse)
async def monitor(request: Request, cluster: Cluster, caller: Asker) -> Response:
    """container-migration: a job's evaluation value."""
    sample = await json_of(request, Sample)
    if not math.isfinite(sample.value):
        raise Problem(422, "The value is not a finite number.")
    job = await _job_of(cluster, sample.pod, caller)
    await asked(cluster.report, job.name, None, None, {"value": sample.value})
    return PlainTextResponse("Ok")


@router.post("/migrate", response_class=PlainTextResponse)
async def migrate(request: Request, cluster: Cluster, caller: Asker) -> Response:
    """container-migration: a pod should leave its node for the least loaded. What cannot be done is left undone."""
    wanted = await json_of(request, MoveRequest)
    return PlainTextResponse("Ok", background=BackgroundTask(_leave, cluster, wanted, caller))


async def _leave(cluster: ClusterService, wanted: MoveRequest, caller: Caller) -> None:
    try:
        job = await _job_of(cluster, wanted.pod, caller)
        target = _least_loaded(wanted, job, await asked(cluster.nodes))
        if target:
            await asked(cluster.migrate, job.name, target)
    except (Problem, UserError):
        return  # answered already, and a request that cannot be met has no effect


def _least_loaded(wanted: MoveRequest, job: JobView, nodes: list[NodeView]) -> str:
    """The open node with the least load, if that is less than where the pod is; empty: it stays."""
    if _SERVER.fullmatch(wanted.pod) or wanted.node not in job.nodes or job.moves >= _MOST_MOVES:
        return ""
    loads = {node.name: _load(node) for node in nodes if node.state == "ready" or node.name == wanted.node}
    best = min(loads, key=lambda name: (loads[name], name))
    return best if loads[best] < loads[wanted.node] - 1e-9 else ""


def _load(node: NodeView) -> float:
    """Half the share of CPUs and half the share of memory that are taken."""
    cpus = 1 - node.cpus_free / node.cpus if node.cpus else 0.0
    memory = 1 - node.memory_free_bytes / node.memory_bytes if node.memory_bytes else 0.0
    return (cpus + memory) / 2


async def _job_of(cluster: ClusterService, pod: str, caller: Caller) -> JobView:
    """The job of a pod's name: the job's own, or with type, number and perhaps five letters behind it."""
    match = _POD.fullmatch(pod)
    if match is not None:
        try:
            return await changeable(cluster, match["job"], caller)
        except Problem as problem:
            if problem.status != 404:
                raise
    return await changeable(cluster, pod, caller)


@router.get("/cluster-info")
async def cluster_info(cluster: Cluster) -> Response:
    """container-migration: what every node has and has left; CPUs in thousandths, memory in bytes."""
    return Answer({node.name: _info(node) for node in await asked(cluster.nodes)})


def _info(node: NodeView) -> dict[str, Any]:
    return {
        "CpuTotal": round(node.cpus * 1000),
        "MemTotal": node.memory_bytes,
        "GpuTotal": math.floor(node.devices),
        "GpuMemTotal": 0,
        "CpuFree": round(node.cpus_free * 1000),
        "MemFree": node.memory_free_bytes,
        "CpuMaxRequest": round((node.cpus - node.cpus_free) * 1000),
        "MemMaxRequest": node.memory_bytes - node.memory_free_bytes,
        "GpuFreeCount": math.floor(node.devices_free),
        "GpuFree": {},
    }
