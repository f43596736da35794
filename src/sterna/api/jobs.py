"""Routes of jobs: create, list, get, scale, move, delete, logs, explanation, progress.

Bodies of `create` are manifests, as YAML or JSON, one or many; all are created or none.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from sterna.api.problem_json import Problem
from sterna.api.responses import (
    CurrentCaller,
    JsonResponse,
    Service,
    body_schema,
    call,
    call_by_name,
    check_may_change,
    check_may_read,
    read_body,
    read_json,
    response_schema,
)
from sterna.api.services import ServiceRegistry
from sterna.kinds.loading import NAME
from sterna.service.cluster_service import LOG_BYTES
from sterna.service.errors import NotFoundError
from sterna.service.requests import MoveTarget, ProgressRequest, ScaleRequest, Submission, Submitted
from sterna.service.views import Explanation, JobView, ProgressView

PATH = "/api/v1/jobs"
router = APIRouter(prefix=PATH, tags=["jobs"])

LOG_END = "Sterna-Log-End"
_LONGEST_KEY = 200
_MOST_LOG = 8 << 20


_CREATE: dict[str, Any] = {
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "Any text; jobs created under it once are not created again.",
            "schema": {"type": "string", "maxLength": _LONGEST_KEY},
        },
        {
            "name": "cwd",
            "in": "query",
            "description": "Folder that commands start in and relative paths begin at; local clusters only.",
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


@router.get("", responses=response_schema(list[JobView], words="Every job."))
async def jobs(service: Service) -> Response:
    return JsonResponse(await call(service.jobs))


@router.post("", status_code=201, responses=response_schema(Submitted, 201, "Durable."), openapi_extra=_CREATE)
async def create(request: Request, service: Service, caller: CurrentCaller) -> Response:
    """Create every job in the body, or none. The same Idempotency-Key again creates nothing."""
    key = request.headers.get("idempotency-key", "")
    if len(key) > _LONGEST_KEY:
        raise Problem(422, f"The Idempotency-Key is too long; at most {_LONGEST_KEY} letters.")
    submission = Submission(
        await read_body(request),
        "json" in request.headers.get("content-type", ""),
        request.query_params.get("cwd", ""),
        f"{caller.name}/{key}" if key else "",  # two users may choose the same key
        caller.name,
    )
    registry: ServiceRegistry = request.app.state.services
    submitted = await registry.batcher_of(service).submit(submission)
    headers = {"Location": f"/api/v1/jobs/{submitted.jobs[0].name}"} if len(submitted.jobs) == 1 else {}
    return JsonResponse(submitted, 201, headers)


@router.delete("", responses=response_schema(list[JobView], words="Being deleted."))
async def delete_some(service: Service, caller: CurrentCaller, name: Annotated[list[str], Query()]) -> Response:
    """Delete all of these jobs, or none."""
    for each in name:
        await check_may_change(service, each, caller)
    return JsonResponse(await call_by_name(service.delete, name))


@router.post("/{name:path}/migrate", responses=response_schema(JobView), openapi_extra=body_schema(MoveTarget))
async def migrate(name: str, request: Request, service: Service, caller: CurrentCaller) -> Response:
    """Move a job to a node."""
    move = await read_json(request, MoveTarget)
    await check_may_change(service, _check_name(name), caller)
    try:
        return JsonResponse(await call(service.migrate, name, move.node, move.by_checkpoint))
    except NotFoundError as error:  # of the node: the job was found
        raise Problem(422, str(error)) from None


@router.post("/{name:path}/progress", status_code=204, openapi_extra=body_schema(ProgressRequest))
async def progress(name: str, request: Request, service: Service, caller: CurrentCaller) -> Response:
    """Report a job's progress from outside the job."""
    report = await read_json(request, ProgressRequest)
    await check_may_change(service, _check_name(name), caller)
    await call(service.report, name, report.step, report.total, report.metrics)
    return Response(status_code=204)


@router.get("/{name:path}/log", response_class=Response)
async def log(
    name: str,
    service: Service,
    caller: CurrentCaller,
    replica: Annotated[str, Query(description="`worker-0`; empty: the first.", pattern=r"^[a-z0-9-]*$")] = "",
    offset: Annotated[int, Query(description="From this byte; negative: counted from the end.")] = 0,
    limit: Annotated[int, Query(ge=1, le=_MOST_LOG)] = LOG_BYTES,
) -> Response:
    """Part of a replica's output; the header Sterna-Log-End is the offset of its end."""
    await check_may_read(service, _check_name(name), caller)
    text, end = await call_by_name(service.log, name, replica, offset, limit)
    return Response(text, media_type="text/plain; charset=utf-8", headers={LOG_END: str(end)})


@router.get("/{name:path}/explain", responses=response_schema(Explanation, words="Events, and what would start it."))
async def explain(name: str, service: Service) -> Response:
    return JsonResponse(await call_by_name(service.explain, _check_name(name)))


@router.get(
    "/{name:path}/history", responses=response_schema(list[ProgressView], words="Its progress reports, oldest first.")
)
async def history(name: str, service: Service) -> Response:
    return JsonResponse(await call_by_name(service.history, _check_name(name)))


@router.get("/{name:path}", responses=response_schema(JobView))
async def job(name: str, service: Service) -> Response:
    return JsonResponse(await call_by_name(service.job, _check_name(name)))


@router.delete("/{name:path}", responses=response_schema(JobView, words="Being deleted."))
async def delete(name: str, service: Service, caller: CurrentCaller) -> Response:
    await check_may_change(service, _check_name(name), caller)
    return JsonResponse((await call_by_name(service.delete, [name]))[0])


@router.patch("/{name:path}", responses=response_schema(JobView), openapi_extra=body_schema(ScaleRequest))
async def scale(name: str, request: Request, service: Service, caller: CurrentCaller) -> Response:
    """Change the minimum and maximum of a job's workers."""
    bounds = await read_json(request, ScaleRequest)
    await check_may_change(service, _check_name(name), caller)
    return JsonResponse(await call(service.scale, name, bounds.minimum, bounds.maximum))


def _check_name(name: str) -> str:
    """Reject what cannot be a name, or `NAMESPACE/NAME`, before it reaches a file system or an API server."""
    if not all(NAME.fullmatch(part) for part in name.split("/")):
        raise Problem(404, f"There is no job '{name[:80]}'; see the names with: sterna get jobs.")
    return name
