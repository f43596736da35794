"""VodaScheduler's endpoints, for scripts that know them: its paths, bodies and texts, with proper status codes.

`/training` creates one manifest under a unique name; `/algorithm` and `/ratelimit` set rules; `/allocation` is Voda's
resource allocator: a decision for the jobs in the body.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from sterna.api.auth import Caller
from sterna.api.durations import format_go_duration
from sterna.api.problem_json import Problem
from sterna.api.responses import (
    CurrentCaller,
    JsonResponse,
    Service,
    call,
    call_by_name,
    check_is_owner,
    check_may_change,
    read_body,
    read_json,
)
from sterna.errors import UserError
from sterna.kinds.loading import job_object, parse_document
from sterna.kinds.mpi_job import MPI_JOBS, accelerator_in
from sterna.kinds.parsing.documents import read_documents
from sterna.kinds.parsing.naming import name_candidates, stamp_name
from sterna.planning import plan
from sterna.service.cluster_service import ClusterService
from sterna.service.errors import NameTakenError
from sterna.service.requests import RuleChanges, Submission
from sterna.service.views import JobView

router = APIRouter(tags=["voda"])

SCHEDULER = "local"
"""Name of the one scheduler; Voda has one for each GPU type."""
_WIDTHS = (60, 10, 10, 25, 10, 10, 10)
_HEADER = ("NAME", "STATUS", "WORKERS", "SCHEDULER", "WAITING", "RUNNING", "TOTAL")
_MOST_TRIES = 100


@router.post("/training", response_class=PlainTextResponse)
async def create(request: Request, service: Service, caller: CurrentCaller) -> Response:
    """Create a job under a unique name: the name in the manifest, and the time."""
    job = await call(_create, service, await read_body(request), caller)
    lines = (
        f"Training job created: {job.name}",
        "View your logs by:",
        f"    kubectl logs {job.name}-launcher (without Kubernetes: sterna logs {job.name})",
    )
    return PlainTextResponse("\n".join(lines) + "\n")


def _create(service: ClusterService, body: bytes, caller: Caller) -> JobView:
    """Submit the manifest; if another job takes the name meanwhile, try the next one."""
    manifest = _read_manifest(body)
    category = str(manifest["metadata"]["name"])
    for _ in range(_MOST_TRIES):
        taken = frozenset(job.name for job in service.jobs())
        name = next(name for name in name_candidates(stamp_name(category, time.time())) if name not in taken)
        renamed = manifest | {"metadata": {**manifest["metadata"], "name": name}}
        submission = Submission(msgspec.json.encode(renamed), True, user=caller.name, category=category)
        try:
            return service.submit(submission).jobs[0]
        except NameTakenError:
            continue
    raise Problem(503, "No free name was found; try again.")


def _read_manifest(body: bytes) -> dict[str, Any]:
    try:
        documents = read_documents(body.decode(), "the request")
    except UnicodeDecodeError:
        raise Problem(400, "The body is not text in UTF-8.") from None
    except UserError as error:
        raise Problem(400, str(error)) from None
    if len(documents) != 1 or not isinstance(documents[0].value, dict):
        raise Problem(422, "Send one manifest at a time; /api/v1/jobs takes many.")
    parse_document(documents[0])
    kind, submitted, _ = job_object(documents[0])
    if kind.resource == MPI_JOBS and not accelerator_in(submitted):
        what = "The GPU type is not specified: give the workers the node selector vodascheduler/accelerator."
        raise Problem(422, what)
    found: dict[str, Any] = documents[0].value
    return found


@router.delete("/training", response_class=PlainTextResponse)
async def delete(request: Request, service: Service, caller: CurrentCaller) -> Response:
    name = await read_json(request, str)
    await check_may_change(service, name, caller)
    await call_by_name(service.delete, [name])
    return PlainTextResponse(f"Training job deleted: {name}\n")


@router.get("/training", response_class=PlainTextResponse)
async def table(service: Service) -> Response:
    return PlainTextResponse(format_table(await call(service.jobs)))


def format_table(jobs: list[JobView]) -> str:
    """Format Voda's table: rows sorted as text, columns of fixed width."""
    rows = sorted(_line(_cells(job)) for job in jobs)
    return "\n".join([_line(_HEADER), *rows]) + "\n"


def _cells(job: JobView) -> tuple[str, ...]:
    times = (job.waited_seconds, job.ran_seconds, job.waited_seconds + job.ran_seconds)
    return (job.name, job.state.capitalize(), str(job.workers), SCHEDULER, *map(format_go_duration, times))


def _line(cells: tuple[str, ...]) -> str:
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


@router.put("/algorithm", response_class=PlainTextResponse)
async def set_algorithm(request: Request, service: Service, caller: CurrentCaller) -> Response:
    check_is_owner(caller)
    name = await read_json(request, str)
    rules = await call(service.set_rules, RuleChanges(policy=name))
    return PlainTextResponse(f"Scheduler: {SCHEDULER}\nScheduling Algorithm: {rules.policy}\n")


@router.put("/ratelimit", response_class=PlainTextResponse)
async def set_rate_limit(request: Request, service: Service, caller: CurrentCaller) -> Response:
    check_is_owner(caller)
    seconds = await read_json(request, int)
    if not 0 <= seconds <= 86400:
        raise Problem(422, f"A rate limit of {seconds} seconds is not possible; give 0 to 86400.")
    rules = await call(service.set_rules, RuleChanges(rate_limit_seconds=float(seconds)))
    return PlainTextResponse(f"Scheduler: {SCHEDULER}\nRe-scheduling ratelimit (sec): {rules.rate_limit_seconds:.0f}\n")


class VodaConfig(msgspec.Struct):
    """Bounds of a job."""

    num_proc: int = 0
    min_num_proc: int = 1
    max_num_proc: int = 1
    epochs: int = 0


class VodaInfo(msgspec.Struct):
    """Estimates of a job."""

    estimate_remainning_time_seconds: float = 0.0
    speedup: dict[str, float] = {}


class VodaJob(msgspec.Struct):
    """A job in a request of Voda's scheduler."""

    job_name: str
    config: VodaConfig
    priority: int = 0
    submit_timestamp: Any = None
    info: VodaInfo | None = None


class AllocationRequest(msgspec.Struct):
    """Request of Voda's scheduler to its allocator."""

    NumGpu: int
    AlgorithmName: str
    ReadyJobs: list[VodaJob]
    SchedulerID: str = ""


@router.post("/allocation")
async def allocate(request: Request) -> Response:
    """Decide the number of workers of each job in the body."""
    wanted = await read_json(request, AllocationRequest)
    if wanted.NumGpu < 0:
        raise Problem(422, f"NumGpu is {wanted.NumGpu}; give at least 0.")
    if not wanted.NumGpu or not wanted.ReadyJobs:
        return JsonResponse({job.job_name: 0 for job in wanted.ReadyJobs})
    description = {
        "nodes": [{"name": "all", "gpus": wanted.NumGpu}],
        "jobs": [_description(job, order) for order, job in enumerate(wanted.ReadyJobs)],
    }
    answer = await call(plan, description, wanted.AlgorithmName, "none")
    return JsonResponse({job.job_name: int(answer["allocation"].get(job.job_name, 0)) for job in wanted.ReadyJobs})


def _description(job: VodaJob, order: int) -> Mapping[str, object]:
    config, info = job.config, job.info or VodaInfo()
    found: dict[str, object] = {
        "name": job.job_name,
        "submit": order,
        "min": config.min_num_proc,
        "max": config.max_num_proc,
        "workers": config.num_proc or config.min_num_proc,
        "priority": -job.priority,  # Voda: the lower number goes first
    }
    if info.estimate_remainning_time_seconds > 0:
        found["remaining"] = info.estimate_remainning_time_seconds
    speedups = [info.speedup[str(count)] for count in range(1, config.max_num_proc + 1) if str(count) in info.speedup]
    if speedups and min(speedups) > 0:
        found["speedup"] = speedups
    return found
