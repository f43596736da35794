"""Building blocks of routes: call a verb in a thread, decode bodies, encode results, describe both for OpenAPI.

The verbs of a cluster block, on the disk or on an API server, so they never run on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ParamSpec, TypeVar

import msgspec
from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from sterna.api.auth import Caller
from sterna.api.problem_json import Problem
from sterna.api.services import ServiceRegistry
from sterna.errors import UserError
from sterna.service.cluster_service import ClusterService
from sterna.service.errors import ForbiddenError
from sterna.service.views import JobView

P = ParamSpec("P")
T = TypeVar("T")

MOST_BYTES = 64 << 20
"""Largest body of a request."""


# Asynchronous though they wait for nothing: FastAPI would run them in threads otherwise, which costs more.
async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


async def _service(request: Request) -> ClusterService:
    registry: ServiceRegistry = request.app.state.services
    return registry.service_of(request.state.caller)


Service = Annotated[ClusterService, Depends(_service)]
CurrentCaller = Annotated[Caller, Depends(_caller)]


class JsonResponse(Response):
    """A value as JSON; numbers that are not finite become null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


async def call(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a blocking function in a thread."""
    return await run_in_threadpool(function, *args, **kwargs)


async def call_by_name(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a verb whose only input is a name: a rejection is a 404."""
    try:
        return await run_in_threadpool(function, *args, **kwargs)
    except ForbiddenError:
        raise
    except UserError as error:
        raise Problem(404, str(error)) from None


async def check_may_change(service: ClusterService, name: str, caller: Caller) -> JobView:
    """Return the job; raise unless it exists and the caller may change it."""
    job = await call_by_name(service.job, name)
    if not caller.is_owner and job.user != caller.name:
        raise Problem(403, f"The job '{name}' belongs to {job.user}; only {job.user} may change it.")
    return job


async def check_may_read(service: ClusterService, name: str, caller: Caller) -> None:
    """Raise unless the job exists and the caller may read its output."""
    if caller.is_owner:
        return
    job = await call_by_name(service.job, name)
    if job.user != caller.name:
        raise Problem(403, f"The job '{name}' belongs to {job.user}; only {job.user} may read its output.")


def check_is_owner(caller: Caller) -> None:
    if not caller.is_owner:
        raise Problem(403, "Nodes and rules may be changed only by the user who started the cluster.")


async def read_body(request: Request) -> bytes:
    """Return the body of a request, if it is not too large."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise Problem(413, f"A request may hold {MOST_BYTES >> 20} MiB at most; send fewer jobs at once.")
        parts.append(part)
    return b"".join(parts)


async def read_json(request: Request, type_: type[T]) -> T:
    """Decode the body of a request."""
    body = await read_body(request)
    try:
        return msgspec.json.decode(body or b"{}", type=type_)
    except msgspec.ValidationError as error:
        raise Problem(422, f"The body has the wrong shape: {_sentence(error)}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, f"The body is not JSON: {_sentence(error)}.") from None


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".").replace("`", "'")


def response_schema(type_: Any, status: int = 200, words: str = "") -> dict[int | str, dict[str, Any]]:
    """Describe the response of a route for OpenAPI; `component_schemas` holds the structures that it refers to."""
    (schema,), _ = msgspec.json.schema_components([type_], ref_template="#/components/schemas/{name}")
    content = {"application/json": {"schema": schema}}
    return {status: {"description": words or "Done.", "content": content}}


def body_schema(type_: Any) -> dict[str, Any]:
    """Describe the body of a request for OpenAPI."""
    (schema,), _ = msgspec.json.schema_components([type_], ref_template="#/components/schemas/{name}")
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def component_schemas(types: list[Any]) -> dict[str, Any]:
    """Return the schemas of all structures that routes refer to."""
    _, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    return components
