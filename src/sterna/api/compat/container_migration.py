"""Endpoints of container-migration, for jobs and monitors that know them: `/monitor`, `/migrate`, `/cluster-info`.

Each is a verb of the service. For daemons: an operator has endpoints of its own at these paths.
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
from sterna.api.responses import CurrentCaller, JsonResponse, Service, call, check_may_change, read_json
from sterna.errors import UserError
from sterna.service.cluster_service import ClusterService
from sterna.service.views import JobView, NodeView

router = APIRouter(tags=["other systems"])

_POD = re.compile(r"(?P<job>.+)-(?:worker|ps|chief|master|launcher|evaluator)-\d+(?:-[a-z0-9]{5})?")
_SERVER = re.compile(r".+-ps-\d+(?:-[a-z0-9]{5})?")
_MOST_MOVES = 3
"""Moves of one worker, at most; as in container-migration."""


class EvaluationSample(msgspec.Struct):
    """A value that a job reports to container-migration's monitor."""

    pod: str
    value: float


class MigrateBody(msgspec.Struct):
    """Request of container-migration's monitor that a pod leaves its node."""

    node: str
    pod: str


@router.post("/monitor", response_class=PlainTextResponse)
async def monitor(request: Request, service: Service, caller: CurrentCaller) -> Response:
    """Record a job's evaluation value."""
    sample = await read_json(request, EvaluationSample)
    if not math.isfinite(sample.value):
        raise Problem(422, "The value is not a finite number.")
    job = await _job_of(service, sample.pod, caller)
    await call(service.report, job.name, None, None, {"value": sample.value})
    return PlainTextResponse("Ok")


@router.post("/migrate", response_class=PlainTextResponse)
async def migrate(request: Request, service: Service, caller: CurrentCaller) -> Response:
    """Move a pod to the least loaded node. A request that cannot be met has no effect."""
    wanted = await read_json(request, MigrateBody)
    return PlainTextResponse("Ok", background=BackgroundTask(_move_away, service, wanted, caller))


async def _move_away(service: ClusterService, wanted: MigrateBody, caller: Caller) -> None:
    try:
        job = await _job_of(service, wanted.pod, caller)
        target = _least_loaded(wanted, job, await call(service.nodes))
        if target:
            await call(service.migrate, job.name, target)
    except (Problem, UserError):
        return  # the response was sent already


def _least_loaded(wanted: MigrateBody, job: JobView, nodes: list[NodeView]) -> str:
    """Return the schedulable node with the least load, if that is less than the pod's; empty: the pod stays."""
    if _SERVER.fullmatch(wanted.pod) or wanted.node not in job.nodes or job.moves >= _MOST_MOVES:
        return ""
    loads = {node.name: _load(node) for node in nodes if node.state == "ready" or node.name == wanted.node}
    best = min(loads, key=lambda name: (loads[name], name))
    return best if loads[best] < loads[wanted.node] - 1e-9 else ""


def _load(node: NodeView) -> float:
    """Mean of the used fractions of CPUs and memory."""
    cpus = 1 - node.cpus_free / node.cpus if node.cpus else 0.0
    memory = 1 - node.memory_free_bytes / node.memory_bytes if node.memory_bytes else 0.0
    return (cpus + memory) / 2


async def _job_of(service: ClusterService, pod: str, caller: Caller) -> JobView:
    """Find the job of a pod's name: the job's own, or with type, index and perhaps five letters after it."""
    match = _POD.fullmatch(pod)
    if match is not None:
        try:
            return await check_may_change(service, match["job"], caller)
        except Problem as problem:
            if problem.status != 404:
                raise
    return await check_may_change(service, pod, caller)


@router.get("/cluster-info")
async def cluster_info(service: Service) -> Response:
    """Capacity and free capacity of every node; CPUs in thousandths, memory in bytes."""
    return JsonResponse({node.name: _node_info(node) for node in await call(service.nodes)})


def _node_info(node: NodeView) -> dict[str, Any]:
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
