"""How endpoints ask the cluster and answer: in a thread, as JSON, with a description for OpenAPI.

A cluster's verbs may wait for the disk, so they never run on the loop that serves everybody.
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
from sterna.service.views import ClusterService, JobView
from sterna.errors import UserError

P = ParamSpec("P")
T = TypeVar("T")

MOST_BYTES = 64 << 20
"""Of a request's body."""


# Asynchronous though they wait for nothing: FastAPI runs others in threads, which costs more than all the rest.
async def _cluster(request: Request) -> ClusterService:
    verbs: ClusterService = request.app.state.verbs
    return verbs


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


Cluster = Annotated[ClusterService, Depends(_cluster)]
Asker = Annotated[Caller, Depends(_caller)]


class Answer(Response):
    """A value as JSON; numbers that are none become null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


async def asked(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a verb answers."""
    return await run_in_threadpool(function, *args, **kwargs)


async def found(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a verb answers whose only input is a name: what it refuses is not there."""
    try:
        return await run_in_threadpool(function, *args, **kwargs)
    except UserError as error:
        raise Problem(404, str(error)) from None


async def changeable(verbs: ClusterService, name: str, caller: Caller) -> JobView:
    """The job that somebody wants to change, if it is there and theirs to change."""
    job = await found(verbs.job, name)
    if not caller.is_owner and job.user != caller.name:
        raise Problem(403, f"The job '{name}' belongs to {job.user}; only {job.user} may change it.")
    return job


async def readable(verbs: ClusterService, name: str, caller: Caller) -> None:
    """Raise unless a job is there and its output is this caller's to read."""
    job = await found(verbs.job, name)
    if not caller.is_owner and job.user != caller.name:
        raise Problem(403, f"The job '{name}' belongs to {job.user}; only {job.user} may read its output.")


def owner_only(caller: Caller) -> None:
    if not caller.is_owner:
        raise Problem(403, "Nodes and rules may be changed only by the user who started the cluster.")


async def body_of(request: Request) -> bytes:
    """All of a request's body, if it is not too long."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise Problem(413, f"A request may hold {MOST_BYTES >> 20} MiB at most; send fewer jobs at once.")
        parts.append(part)
    return b"".join(parts)


async def json_of(request: Request, shape: type[T]) -> T:
    """The body as a value of this shape."""
    body = await body_of(request)
    try:
        return msgspec.json.decode(body or b"{}", type=shape)
    except msgspec.ValidationError as error:
        raise Problem(422, f"The body has the wrong shape: {_plain(error)}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, f"The body is not JSON: {_plain(error)}.") from None


def _plain(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".").replace("`", "'")


def described(shape: Any, status: int = 200, words: str = "") -> dict[int | str, dict[str, Any]]:
    """What an endpoint answers, for OpenAPI. `schemas` supplies what is referred to."""
    (schema,), _ = msgspec.json.schema_components([shape], ref_template="#/components/schemas/{name}")
    content = {"application/json": {"schema": schema}}
    return {status: {"description": words or "Done.", "content": content}}


def taken_as(shape: Any) -> dict[str, Any]:
    """What an endpoint takes, for OpenAPI."""
    (schema,), _ = msgspec.json.schema_components([shape], ref_template="#/components/schemas/{name}")
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def schemas(shapes: list[Any]) -> dict[str, Any]:
    """Every structure that endpoints refer to, for OpenAPI."""
    _, components = msgspec.json.schema_components(shapes, ref_template="#/components/schemas/{name}")
    return components
