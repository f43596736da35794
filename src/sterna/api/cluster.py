"""Routes of the cluster: nodes, events, rules, and the version."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from sterna import __version__
from sterna.api.problem_json import Problem
from sterna.api.responses import (
    CurrentCaller,
    JsonResponse,
    Service,
    body_schema,
    call,
    call_by_name,
    check_is_owner,
    read_json,
    response_schema,
)
from sterna.planning import rules as known_rules
from sterna.service.requests import RuleChanges
from sterna.service.views import EventView, NodeView, PolicyView

router = APIRouter(prefix="/api/v1", tags=["cluster"])


@router.get("/nodes", responses=response_schema(list[NodeView]))
async def nodes(service: Service) -> Response:
    return JsonResponse(await call(service.nodes))


@router.get("/nodes/{name}", responses=response_schema(NodeView))
async def node(name: str, service: Service) -> Response:
    return JsonResponse(await call_by_name(service.node, name[:200]))


@router.post("/nodes/{name}/{verb}", responses=response_schema(NodeView))
async def change_node(
    name: str, verb: Literal["cordon", "drain", "uncordon"], service: Service, caller: CurrentCaller
) -> Response:
    """`cordon`: start no more jobs there. `drain`: and move its jobs away. `uncordon`: start jobs there again."""
    check_is_owner(caller)
    change = {"cordon": service.cordon, "drain": service.drain, "uncordon": service.uncordon}[verb]
    return JsonResponse(await call_by_name(change, name[:200]))


@router.get("/events", responses=response_schema(list[EventView], words="Events, oldest first."))
async def events(
    service: Service,
    job: str = "",
    after: Annotated[int, Query(ge=0, description="Only events with a larger number.")] = 0,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 1000,
) -> Response:
    if job:
        await call_by_name(service.job, job)
    return JsonResponse(await call(service.events, job, after, limit))


@router.get("/rules", responses=response_schema(PolicyView))
async def rules(service: Service) -> Response:
    return JsonResponse(await call(service.rules))


@router.patch("/rules", responses=response_schema(PolicyView), openapi_extra=body_schema(RuleChanges))
async def set_rules(request: Request, service: Service, caller: CurrentCaller) -> Response:
    """Change rules from the next round on."""
    check_is_owner(caller)
    changes = await read_json(request, RuleChanges)
    if changes.is_empty:
        raise Problem(422, "Nothing is to be changed; name a policy, placement, migration, cpu_share or reservation.")
    return JsonResponse(await call(service.set_rules, changes))


@router.get("/policies", responses=response_schema(dict[str, Any], words="All rules with their parameters."))
async def policies() -> Response:
    return JsonResponse(await call(known_rules))


@router.get("/version", responses=response_schema(dict[str, str]))
async def version() -> Response:
    return JsonResponse({"version": __version__})
