"""`/api/v1/watch`: changes as server-sent events, for `--watch` and the dashboard."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import StreamingResponse

from sterna.api.responses import Service
from sterna.api.services import ServiceRegistry
from sterna.service.updates import KINDS

router = APIRouter(prefix="/api/v1", tags=["cluster"])


@router.get("/watch", response_class=StreamingResponse)
async def watch(
    request: Request,
    service: Service,
    kind: Annotated[list[str] | None, Query(description="Only these of: jobs, nodes, rules, events.")] = None,
    job: Annotated[str, Query(description="Only changes of this job.")] = "",
) -> StreamingResponse:
    """Everything once, then what changes."""
    registry: ServiceRegistry = request.app.state.services
    stream = registry.hub_of(service).stream(frozenset(kind or KINDS), job)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)
