"""Endpoints that only the operator has, as a FastAPI router.

    POST /progress          progress reports of a node's pods, in batches
    POST /migrate           {"node", "pod"}: request that a pod leaves its node; answered before it is decided
    GET  /cluster-info      capacity, free capacity and load of each node
    GET  /distribution.csv  moves of converged jobs, as SpeCon's tools read them
    GET  /metrics           for Prometheus

They authenticate by themselves: the first three by the token of a monitor (TokenReview), the others are public. Nothing
is decided here: requests wait in a queue for the round loop, which is woken. A replica that does not lead accepts
nothing and redirects to the one that does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from sterna.backends.kubernetes.api.monitor_protocol import MOST_BYTES, Batch, PodMoveRequest, Receipt
from sterna.backends.kubernetes.lifecycle.overload import NodeInfo
from sterna.backends.kubernetes.server.token_review import INVALID_TOKEN, TokenReviewer, TokenUser
from sterna.errors import Retry

PATHS = ("/progress", "/migrate", "/cluster-info", "/distribution.csv", "/metrics")
"""Paths that need no authentication in front of this router."""

_MAX_QUEUED = 4096
_MAX_NAME_CHARS = 253
_MAX_BODY_BYTES = 4 * MOST_BYTES
"""Batches are limited by the number of reports, not by their length, so that some are longer than `MOST_BYTES`."""
_BODY_SECONDS = 10.0

Item = TypeVar("Item")
Endpoint = Callable[[Request], Awaitable[Response]]


class HandoffQueue(Generic[Item]):
    """Bounded queue from the HTTP threads to the round loop."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._items: list[Item] = []
        self._lock = threading.Lock()
        self._wake = wake

    def put(self, item: Item) -> bool:
        """Append an item and wake the loop; return False if the queue is full."""
        with self._lock:
            if len(self._items) >= _MAX_QUEUED:
                return False
            self._items.append(item)
        self._wake()
        return True

    def take(self) -> list[Item]:
        """Remove and return all items, in order."""
        with self._lock:
            items, self._items = self._items, []
        return items


class OperatorReplica(Protocol):
    """State of this replica of the operator. Any thread may ask."""

    def is_leading(self) -> bool: ...

    def leader_address(self) -> str:
        """`http://HOST:PORT` of another replica that leads; empty if there is none."""
        ...


@dataclass(frozen=True)
class EndpointSources:
    """Data behind the endpoints. Called from HTTP threads; returned values are not changed later."""

    memory: Callable[[], str]
    """`Progress.memory`."""
    cluster_info: Callable[[], Mapping[str, NodeInfo]]
    metrics: Callable[[], bytes]
    """In Prometheus' text format."""
    distribution: Callable[[], str]
    replica: OperatorReplica


class RequestError(Exception):
    """A rejected request: the HTTP status, and the sentence that is its body."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class _LeaderRedirect(Exception):  # noqa: N818 - a response, not an error
    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


class OperatorEndpoints:
    """The router, and the queues of what it accepted."""

    def __init__(
        self,
        sources: EndpointSources,
        reviewer: TokenReviewer | None,
        wake: Callable[[], None],
        monitors: Collection[str] = (),
    ) -> None:
        """`monitors`: service accounts that may report and request moves, as `NAMESPACE/NAME`. Without `reviewer` any
        client may, as in container-migration: for clusters whose network policy keeps other clients out."""
        self.batches: HandoffQueue[Batch] = HandoffQueue(wake)
        self.move_requests: HandoffQueue[PodMoveRequest] = HandoffQueue(wake)
        self._sources, self._reviewer = sources, reviewer
        self._monitors = frozenset(f"system:serviceaccount:{name.replace('/', ':', 1)}" for name in monitors)
        self.router = APIRouter()
        for method, path, endpoint in (
            ("POST", "/progress", self._take_progress),
            ("POST", "/migrate", self._take_move_request),
            ("GET", "/cluster-info", self._show_cluster_info),
            ("GET", "/distribution.csv", self._show_distribution),
            ("GET", "/metrics", self._show_metrics),
        ):
            self.router.add_api_route(path, _with_error_responses(endpoint), methods=[method])

    async def _take_progress(self, request: Request) -> Response:
        user = await self._authenticate(request)
        batch = _decode(await _read_body(request), Batch)
        _check_node(user, batch.node)
        self._check_leading()
        memory = self._sources.memory()
        if batch.memory != memory:
            return _json(Receipt(memory), status=409)
        if batch.pods and not self.batches.put(batch):
            raise RequestError(503, "More was reported than could be taken in; send it again later.")
        return _json(Receipt(memory))

    async def _take_move_request(self, request: Request) -> Response:
        user = await self._authenticate(request)
        wanted = _decode(await _read_body(request), PodMoveRequest)
        names = (wanted.node, wanted.pod, wanted.namespace)
        if not wanted.node or not wanted.pod or max(map(len, names)) > _MAX_NAME_CHARS:
            raise RequestError(422, "Give the names of a node and a pod, as Kubernetes knows them.")
        _check_node(user, wanted.node)
        self._check_leading()
        if not self.move_requests.put(wanted):
            raise RequestError(503, "Too many requests wait already; ask again later.")
        return PlainTextResponse("Ok")

    async def _show_cluster_info(self, request: Request) -> Response:
        await self._authenticate(request)
        self._check_leading()
        return _json(await run_in_threadpool(self._sources.cluster_info))

    async def _show_distribution(self, request: Request) -> Response:
        self._check_leading()
        return PlainTextResponse(await run_in_threadpool(self._sources.distribution), media_type="text/csv")

    async def _show_metrics(self, request: Request) -> Response:
        body = await run_in_threadpool(self._sources.metrics)
        return Response(body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _authenticate(self, request: Request) -> TokenUser:
        """Return the monitor that sent the request."""
        if self._reviewer is None:
            return INVALID_TOKEN
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise RequestError(401, "Send the token of a service account that was made for the audience 'sterna'.")
        user = self._reviewer.cached_user(token.strip())
        if user is None:
            user = await run_in_threadpool(self._reviewer.review, token.strip())
        if not user.name:
            raise RequestError(401, "The token is not valid, or was not made for the audience 'sterna'.")
        if user.name not in self._monitors:
            raise RequestError(403, f"{user.name} may not do this; only monitors may.")
        return user

    def _check_leading(self) -> None:
        if self._sources.replica.is_leading():
            return
        leader = self._sources.replica.leader_address()
        if leader:
            raise _LeaderRedirect(leader)
        raise RequestError(503, "No operator leads at the moment; ask again in a few seconds.")


def _check_node(user: TokenUser, node: str) -> None:
    if user.node and user.node != node:
        raise RequestError(403, f"A monitor on node '{user.node}' cannot speak for node '{node}'.")


def _with_error_responses(endpoint: Endpoint) -> Endpoint:
    @wraps(endpoint)
    async def respond(request: Request) -> Response:
        try:
            return await endpoint(request)
        except RequestError as error:
            return PlainTextResponse(f"{error.sentence}\n", error.status)
        except Retry as error:
            return PlainTextResponse(f"{error}\n", 503)
        except _LeaderRedirect as redirect:
            return RedirectResponse(f"{redirect.address}{request.url.path}", 307)

    return respond


async def _read_body(request: Request) -> bytes:
    """Read a body of limited size within a limited time."""
    chunks, size = [], 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():  # to its end: a client that still sends would not see the response
                size += len(chunk)
                if size <= _MAX_BODY_BYTES:
                    chunks.append(chunk)
    except TimeoutError:
        raise RequestError(408, f"The body did not arrive within {_BODY_SECONDS:.0f} seconds.") from None
    except ClientDisconnect:
        raise RequestError(400, "The connection ended within the body.") from None
    if size > _MAX_BODY_BYTES:
        raise RequestError(413, "The body is too large; send less at a time.")
    return b"".join(chunks)


def _decode(body: bytes, type: type[Item]) -> Item:
    try:
        return msgspec.json.decode(body, type=type)
    except msgspec.ValidationError as error:
        raise RequestError(422, f"The body is not what is asked for: {error}.") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise RequestError(400, f"The body is no JSON: {error}.") from None


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
