"""Jobs over REST: create, list, look at, scale, move, delete, and everything that is known of one.

Bodies of `create` are manifests, as YAML or JSON, one or many; all are taken or none.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from sterna.api.problem_json import Problem
from sterna.api.responses import (
    Answer,
    Asker,
    Cluster,
    asked,
    body_of,
    changeable,
    described,
    found,
    json_of,
    readable,
    taken_as,
)
from sterna.api.submit_batching import Created, Intake, Submission
from sterna.service.views import JobView
from sterna.manifests.fields import NAME

PATH = "/api/v1/jobs"
router = APIRouter(prefix=PATH, tags=["jobs"])

LOG_END = "Sterna-Log-End"
_LONGEST_KEY = 200
_MOST_LOG = 8 << 20


class Bounds(msgspec.Struct, forbid_unknown_fields=True):
    """New bounds of a job; what is absent stays."""

    minimum: int | None = None
    maximum: int | None = None


class Move(msgspec.Struct, forbid_unknown_fields=True):
    """Where a job should go."""

    node: str
    by_checkpoint: bool = False


class Report(msgspec.Struct, forbid_unknown_fields=True):
    """Progress from outside."""

    step: int | None = None
    total: int | None = None
    metrics: dict[str, float] = {}


CREATE: dict[str, Any] = {
    "tags": ["jobs"],
    "summary": "Create",
    "description": "Create every job in the body, or none. The same Idempotency-Key again creates nothing.",
    "operationId": "create_api_v1_jobs_post",
    "responses": described(Created, 201, "On disk."),
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "Any text; what was created under it once is not created again.",
            "schema": {"type": "string", "maxLength": _LONGEST_KEY},
        },
        {
            "name": "cwd",
            "in": "query",
            "description": "The folder that commands start in and relative paths begin at.",
            "schema": {"type": "string"},
        },
    ],
    "requestBody": {
        "required": True,
        "description": "Manifests: one, a list, a Kubernetes List, or a YAML stream.",
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/TrainingJob"}},
            "application/yaml": {"schema": {"type": "string"}},
        },
    },
}
"""`create`, for OpenAPI: it is no endpoint of FastAPI's."""


@router.get("", responses=described(list[JobView], words="Every job that is not forgotten."))
async def jobs(cluster: Cluster) -> Response:
    return Answer(await asked(cluster.jobs))


async def create(request: Request, intake: Intake) -> Response:
    """Create every job in the body, or none. The same Idempotency-Key again creates nothing."""
    cwd, key = request.query_params.get("cwd", ""), request.headers.get("idempotency-key", "")
    if len(key) > _LONGEST_KEY:
        raise Problem(422, f"The Idempotency-Key is too long; at most {_LONGEST_KEY} letters.")
    body, kind = await body_of(request), request.headers.get("content-type", "")
    made = await intake.take(Submission(body, kind, cwd, request.state.caller, key))
    headers = {"Location": f"/api/v1/jobs/{made.jobs[0].name}"} if len(made.jobs) == 1 else {}
    return Answer(made, 201, headers)


@router.delete("", responses=described(list[JobView], words="Being deleted."))
async def delete_some(cluster: Cluster, caller: Asker, name: Annotated[list[str], Query()]) -> Response:
    """Delete every job that is named, or none."""
    for each in name:
        await changeable(cluster, each, caller)
    return Answer(await found(cluster.delete, name))


@router.get("/{name}", responses=described(JobView))
async def job(name: str, cluster: Cluster) -> Response:
    return Answer(await found(cluster.job, _named(name)))


@router.delete("/{name}", responses=described(JobView, words="Being deleted."))
async def delete(name: str, cluster: Cluster, caller: Asker) -> Response:
    await changeable(cluster, _named(name), caller)
    return Answer((await found(cluster.delete, [name]))[0])


@router.patch("/{name}", responses=described(JobView), openapi_extra=taken_as(Bounds))
async def scale(name: str, request: Request, cluster: Cluster, caller: Asker) -> Response:
    """Change the fewest and the most workers of a job."""
    bounds = await json_of(request, Bounds)
    await changeable(cluster, _named(name), caller)
    return Answer(await asked(cluster.scale, name, bounds.minimum, bounds.maximum))


@router.post("/{name}/migrate", responses=described(JobView), openapi_extra=taken_as(Move))
async def migrate(name: str, request: Request, cluster: Cluster, caller: Asker) -> Response:
    """Move a job to a node."""
    move = await json_of(request, Move)
    await changeable(cluster, _named(name), caller)
    return Answer(await asked(cluster.migrate, name, move.node, move.by_checkpoint))


@router.post("/{name}/progress", status_code=204, openapi_extra=taken_as(Report))
async def progress(name: str, request: Request, cluster: Cluster, caller: Asker) -> Response:
    """Tell of a job's progress from outside of it."""
    report = await json_of(request, Report)
    await changeable(cluster, _named(name), caller)
    await asked(cluster.report, name, report.step, report.total, report.metrics)
    return Response(status_code=204)


@router.get("/{name}/log", response_class=Response)
async def log(
    name: str,
    cluster: Cluster,
    caller: Asker,
    replica: Annotated[str, Query(description="`worker-0`; empty: the first.", pattern=r"^[a-z0-9-]*$")] = "",
    offset: Annotated[int, Query(description="From this byte; negative: counted from the end.")] = 0,
    limit: Annotated[int, Query(ge=1, le=_MOST_LOG)] = 1 << 20,
) -> Response:
    """A part of what a replica printed; the header Sterna-Log-End says where it ends."""
    await readable(cluster, _named(name), caller)
    text, end = await found(cluster.log, name, replica, offset, limit)
    return Response(text, media_type="text/plain; charset=utf-8", headers={LOG_END: str(end)})


@router.get("/{name}/explain", responses=described(dict[str, Any], words="Its story, and what would start it."))
async def explain(name: str, cluster: Cluster) -> Response:
    return Answer(await found(cluster.explain, _named(name)))


@router.get("/{name}/history", responses=described(list[dict[str, Any]], words="Its reports, oldest first."))
async def history(name: str, cluster: Cluster) -> Response:
    return Answer(await found(cluster.history, _named(name)))


def _named(name: str) -> str:
    """A name that could be one: anything else is not there, and never reaches a file system."""
    if not NAME.fullmatch(name):
        raise Problem(404, f"There is no job '{name[:80]}'; see the names with: sterna get jobs.")
    return name
