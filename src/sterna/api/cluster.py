"""The cluster over REST: nodes, events, the rules in force, and which Sterna this is."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from sterna import __version__
from sterna.api.problem_json import Problem
from sterna.api.responses import Answer, Asker, Cluster, asked, described, found, json_of, owner_only, taken_as
from sterna.service.views import EventView, NodeView, PolicyView
from sterna.planning import rules as known_rules

router = APIRouter(prefix="/api/v1", tags=["cluster"])


class Changes(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Rules to be changed, each as `name:key=value`; what is absent stays."""

    policy: str | None = None
    placement: str | None = None
    migration: str | None = None
    cpu_share: str | None = None
    reservation: str | None = None
    rate_limit_seconds: float | None = None


@router.get("/nodes", responses=described(list[NodeView]))
async def nodes(cluster: Cluster) -> Response:
    return Answer(await asked(cluster.nodes))


@router.get("/nodes/{name}", responses=described(NodeView))
async def node(name: str, cluster: Cluster) -> Response:
    every = await asked(cluster.nodes)
    for each in every:
        if each.name == name:
            return Answer(each)
    known = ", ".join(each.name for each in every)
    raise Problem(404, f"There is no node '{name[:80]}'; choose one of: {known}.")


@router.post("/nodes/{name}/{verb}", responses=described(NodeView))
async def change_node(
    name: str, verb: Literal["cordon", "drain", "uncordon"], cluster: Cluster, caller: Asker
) -> Response:
    """`cordon`: nothing new starts there. `drain`: and what runs there leaves. `uncordon`: open again."""
    owner_only(caller)
    return Answer(await found(cluster.cordon, name, verb == "uncordon", verb == "drain"))


@router.get("/events", responses=described(list[EventView], words="What happened, oldest first."))
async def events(
    cluster: Cluster,
    job: str = "",
    after: Annotated[int, Query(ge=0, description="Only those with a larger number.")] = 0,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 1000,
) -> Response:
    if job:
        await found(cluster.job, job)
    return Answer(await asked(cluster.events, job, after, limit))


@router.get("/rules", responses=described(PolicyView))
async def rules(cluster: Cluster) -> Response:
    return Answer(await asked(cluster.rules))


@router.patch("/rules", responses=described(PolicyView), openapi_extra=taken_as(Changes))
async def set_rules(request: Request, cluster: Cluster, caller: Asker) -> Response:
    """Change rules; the next round goes by them."""
    owner_only(caller)
    wanted = msgspec.to_builtins(await json_of(request, Changes))
    changes = {name: f"{value:g}" if isinstance(value, float) else value for name, value in wanted.items()}
    if not changes:
        raise Problem(422, "Nothing is to be changed; name a policy, placement, migration, share or claim.")
    return Answer(await asked(cluster.set_rules, **changes))


@router.get("/policies", responses=described(dict[str, Any], words="Every rule there is, with its parameters."))
async def policies() -> Response:
    return Answer(await asked(known_rules))


@router.get("/version", responses=described(dict[str, str]))
async def version() -> Response:
    return Answer({"version": __version__})
