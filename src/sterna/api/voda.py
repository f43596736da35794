"""VodaScheduler's endpoints, for scripts that know them: its paths, bodies and texts, with real status codes.

`/training` takes one manifest, makes its name unique and answers in Voda's words; `/algorithm` and `/ratelimit` set the
rules; `/allocation` is its resource allocator: a decision for jobs that the caller describes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from sterna.api.auth import Caller
from sterna.api.durations import as_in_go
from sterna.api.problem_json import Problem
from sterna.api.responses import Answer, Asker, Cluster, asked, body_of, changeable, found, json_of, owner_only
from sterna.api.submit_batching import created
from sterna.control.cluster_service import ClusterService, JobView
from sterna.errors import UserError
from sterna.kinds.parsing.documents import Document, read_documents
from sterna.kinds.parsing.naming import numbered, stamped
from sterna.manifests.kubeflow import MPIJob
from sterna.manifests.loading import checked
from sterna.model.job import JobSpec
from sterna.service import plan

router = APIRouter(tags=["voda"])

SCHEDULER = "local"
"""Voda has one scheduler for each type of GPU; here there is one."""
_WIDTHS = (60, 10, 10, 25, 10, 10, 10)
_HEADER = ("NAME", "STATUS", "WORKERS", "SCHEDULER", "WAITING", "RUNNING", "TOTAL")
_MOST_TRIES = 100


@router.post("/training", response_class=PlainTextResponse)
async def create(request: Request, cluster: Cluster, caller: Asker) -> Response:
    """Create a job under a name of its own: what the manifest calls it, and the time."""
    job = await asked(_create, cluster, await body_of(request), caller)
    lines = (
        f"Training job created: {job.name}",
        "View your logs by:",
        f"    kubectl logs {job.name}-launcher (without Kubernetes: sterna logs {job.name})",
    )
    return PlainTextResponse("\n".join(lines) + "\n")


def _create(cluster: ClusterService, body: bytes, caller: Caller) -> JobView:
    """A name may be taken between the look and the deed: then the next one is tried."""
    for _ in range(_MOST_TRIES):
        spec = _unique(body, frozenset(job.name for job in cluster.jobs()))
        try:
            return created(cluster, [replace(spec, user=caller.name)])[0]
        except Problem as problem:
            if problem.status != 409:
                raise
    raise Problem(503, "No free name was found; try again.")


def _unique(body: bytes, taken: frozenset[str]) -> JobSpec:
    try:
        documents = read_documents(body.decode(), "the request")
    except UnicodeDecodeError:
        raise Problem(400, "The body is not text in UTF-8.") from None
    except UserError as error:
        raise Problem(400, str(error)) from None
    if len(documents) != 1 or not isinstance(documents[0].value, dict):
        raise Problem(422, "Send one manifest at a time; /api/v1/jobs takes many.")
    manifest, notices = checked(documents[0])
    if isinstance(manifest, MPIJob) and not manifest.accelerator:
        what = "The GPU type is not specified: give the workers the node selector vodascheduler/accelerator."
        raise Problem(422, what)
    category = manifest.metadata.name
    name = next(name for name in numbered(stamped(category, time.time())) if name not in taken)
    renamed = dict(documents[0].value)
    renamed["metadata"] = {**renamed["metadata"], "name": name}
    manifest, _ = checked(Document(renamed, "the request", documents[0].lines))
    return replace(manifest.job(), category=category, notices=tuple(notices))


@router.delete("/training", response_class=PlainTextResponse)
async def delete(request: Request, cluster: Cluster, caller: Asker) -> Response:
    name = await json_of(request, str)
    await changeable(cluster, name, caller)
    await found(cluster.delete, [name])
    return PlainTextResponse(f"Training job deleted: {name}\n")


@router.get("/training", response_class=PlainTextResponse)
async def table(cluster: Cluster) -> Response:
    return PlainTextResponse(table_of(await asked(cluster.jobs)))


def table_of(jobs: list[JobView]) -> str:
    """Voda's table: rows sorted as text, columns of fixed width."""
    rows = sorted(_line(_cells(job)) for job in jobs)
    return "\n".join([_line(_HEADER), *rows]) + "\n"


def _cells(job: JobView) -> tuple[str, ...]:
    times = (job.waited_seconds, job.ran_seconds, job.waited_seconds + job.ran_seconds)
    return (job.name, job.state.capitalize(), str(job.workers), SCHEDULER, *map(as_in_go, times))


def _line(cells: tuple[str, ...]) -> str:
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


@router.put("/algorithm", response_class=PlainTextResponse)
async def set_algorithm(request: Request, cluster: Cluster, caller: Asker) -> Response:
    owner_only(caller)
    name = await json_of(request, str)
    rules = await asked(cluster.set_rules, policy=name)
    return PlainTextResponse(f"Scheduler: {SCHEDULER}\nScheduling Algorithm: {rules.policy}\n")


@router.put("/ratelimit", response_class=PlainTextResponse)
async def set_rate_limit(request: Request, cluster: Cluster, caller: Asker) -> Response:
    owner_only(caller)
    seconds = await json_of(request, int)
    if not 0 <= seconds <= 86400:
        raise Problem(422, f"A rate limit of {seconds} seconds is not possible; give 0 to 86400.")
    rules = await asked(cluster.set_rules, rate_limit_seconds=str(seconds))
    return PlainTextResponse(f"Scheduler: {SCHEDULER}\nRe-scheduling ratelimit (sec): {rules.rate_limit_seconds:.0f}\n")


class Config(msgspec.Struct):
    """Bounds of a job that is described."""

    num_proc: int = 0
    min_num_proc: int = 1
    max_num_proc: int = 1
    epochs: int = 0


class Info(msgspec.Struct):
    """What is known of a job that is described."""

    estimate_remainning_time_seconds: float = 0.0
    speedup: dict[str, float] = {}


class ReadyJob(msgspec.Struct):
    """A job as Voda's scheduler describes it."""

    job_name: str
    config: Config
    priority: int = 0
    submit_timestamp: Any = None
    info: Info | None = None


class Allocation(msgspec.Struct):
    """What Voda's scheduler asks of its allocator."""

    NumGpu: int
    AlgorithmName: str
    ReadyJobs: list[ReadyJob]
    SchedulerID: str = ""


@router.post("/allocation")
async def allocate(request: Request) -> Response:
    """Workers for each of the jobs that the body describes."""
    wanted = await json_of(request, Allocation)
    if wanted.NumGpu < 0:
        raise Problem(422, f"NumGpu is {wanted.NumGpu}; give at least 0.")
    if not wanted.NumGpu or not wanted.ReadyJobs:
        return Answer({job.job_name: 0 for job in wanted.ReadyJobs})
    description = {
        "nodes": [{"name": "all", "gpus": wanted.NumGpu}],
        "jobs": [_description(job, order) for order, job in enumerate(wanted.ReadyJobs)],
    }
    answer = await asked(plan, description, wanted.AlgorithmName, "none")
    return Answer({job.job_name: int(answer["allocation"].get(job.job_name, 0)) for job in wanted.ReadyJobs})


def _description(job: ReadyJob, order: int) -> Mapping[str, object]:
    config, info = job.config, job.info or Info()
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
