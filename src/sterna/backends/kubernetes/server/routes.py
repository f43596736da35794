"""The operator's HTTP service: where monitors report and ask for moves, and where others look. Port 8769.

    POST /progress          reports of a node's pods, in batches
    POST /migrate           {"node", "pod"}: that a pod should leave its node; answered before anything is decided
    GET  /cluster-info      what each node has, has left, and may be asked for
    GET  /distribution.csv  where converged jobs were and where they went, as SpeCon's tools read it
    GET  /metrics
    GET  /healthz, /readyz  200, or 503 with a sentence

Nothing is decided here: what arrives waits in `heard` and `wishes` for the loop, which is woken. A replica that does
not lead takes nothing, so that nothing gets lost with it, and sends callers on to the one that does. DRAGON-68.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from aiohttp import web

from sterna.backends.kubernetes.api.monitor_protocol import MOST_BYTES, Batch, MoveRequest, Receipt
from sterna.backends.kubernetes.lifecycle.overload import NodeInfo
from sterna.backends.kubernetes.server.token_review import NOBODY, Caller, Tokens
from sterna.backends.kubernetes.transport.http_server import Listener, Refusal, Route, body_of
from sterna.control.health import HealthChecks, HealthStatus

PORT = 8769
_MOST_WAITING = 4096
_LONGEST_NAME = 253

Item = TypeVar("Item")


class Queue(Generic[Item]):
    """What threads leave for the loop. Bounded: whoever fills it is told to come again."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._items: list[Item] = []
        self._lock = threading.Lock()
        self._wake = wake

    def put(self, item: Item) -> bool:
        """False: it is full."""
        with self._lock:
            if len(self._items) >= _MOST_WAITING:
                return False
            self._items.append(item)
        self._wake()
        return True

    def take(self) -> list[Item]:
        """All there is, in order."""
        with self._lock:
            items, self._items = self._items, []
        return items


class MigrationWishes(Queue[MoveRequest]):
    """Requests to move a pod, for the loop to judge with `overload.relocated`."""


class Heard(Queue[Batch]):
    """Batches of reports, for the loop to give to `Progress.take`."""


class ReplicaState(HealthChecks, Protocol):
    """State of this replica of the operator. Any thread may ask."""

    def is_leading(self) -> bool: ...

    def leader_address(self) -> str:
        """`http://HOST:PORT` of another replica that leads; empty if there is none."""
        ...


@dataclass(frozen=True)
class Sources:
    """What the service tells of the operator. Called from its own threads: whatever they give is not changed later."""

    memory: Callable[[], str]
    """`Progress.memory`."""
    cluster_info: Callable[[], Mapping[str, NodeInfo]]
    metrics: Callable[[], bytes]
    """In Prometheus' text format."""
    distribution: Callable[[], str]
    replica: ReplicaState


class MigrationService:
    """Listens; what it hears is in `heard` and `wishes`."""

    def __init__(
        self, sources: Sources, tokens: Tokens | None, wake: Callable[[], None], listen: str = f":{PORT}"
    ) -> None:
        """Without `tokens` everybody may report and ask, as in container-migration: for networks that keep strangers
        out by other means."""
        self.heard, self.wishes = Heard(wake), MigrationWishes(wake)
        self._sources, self._tokens = sources, tokens
        routes = [
            Route("POST", "/progress", self._progress),
            Route("POST", "/migrate", self._migrate),
            Route("GET", "/cluster-info", self._cluster_info),
            Route("GET", "/distribution.csv", self._distribution),
            Route("GET", "/metrics", self._metrics),
            Route("GET", "/healthz", self._healthz),
            Route("GET", "/readyz", self._readyz),
        ]
        # Reports are counted, not measured, when a batch is made: some are longer than usual.
        self._listener = Listener(listen, routes, 4 * MOST_BYTES)

    @property
    def port(self) -> int:
        return self._listener.port

    def start(self) -> None:
        self._listener.start()

    def stop(self) -> None:
        self._listener.stop()

    async def _progress(self, request: web.Request) -> web.StreamResponse:
        caller = await self._caller(request)
        batch = _decoded(await body_of(request), Batch)
        _check_node(caller, batch.node)
        self._check_leading(request)
        memory = self._sources.memory()
        if batch.memory != memory:
            return _json(Receipt(memory), status=409)
        if batch.pods and not self.heard.put(batch):
            raise Refusal(503, "More was reported than could be taken in; send it again later.")
        return _json(Receipt(memory))

    async def _migrate(self, request: web.Request) -> web.StreamResponse:
        caller = await self._caller(request)
        wish = _decoded(await body_of(request), MoveRequest)
        if not wish.node or not wish.pod or max(map(len, (wish.node, wish.pod, wish.namespace))) > _LONGEST_NAME:
            raise Refusal(422, "Give the names of a node and a pod, as Kubernetes knows them.")
        _check_node(caller, wish.node)
        self._check_leading(request)
        if not self.wishes.put(wish):
            raise Refusal(503, "Too many requests wait already; ask again later.")
        return web.Response(text="Ok")

    async def _cluster_info(self, request: web.Request) -> web.StreamResponse:
        await self._caller(request)
        self._check_leading(request)
        return _json(await self._called(self._sources.cluster_info))

    async def _distribution(self, request: web.Request) -> web.StreamResponse:
        self._check_leading(request)
        return web.Response(text=await self._called(self._sources.distribution), content_type="text/csv")

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        body = await self._called(self._sources.metrics)
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _healthz(self, request: web.Request) -> web.StreamResponse:
        return _health(self._sources.replica.check_live())

    async def _readyz(self, request: web.Request) -> web.StreamResponse:
        return _health(self._sources.replica.check_ready())

    async def _called(self, source: Callable[[], Item]) -> Item:
        """In a thread, because it may take a while or wait for a lock."""
        return await asyncio.get_running_loop().run_in_executor(None, source)

    async def _caller(self, request: web.Request) -> Caller:
        """Who asks; refused if it is nobody who may."""
        if self._tokens is None:
            return NOBODY
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refusal(401, "Send the token of a service account that was made for the audience 'sterna'.")
        tokens, own = self._tokens, token.strip()
        caller = tokens.known(own)
        if caller is None:
            caller = await self._called(lambda: tokens.caller_of(own))
        if not caller.name:
            raise Refusal(401, "The token is not valid, or was not made for the audience 'sterna'.")
        if not tokens.is_allowed(caller):
            raise Refusal(403, f"{caller.name} may not do this; only monitors may.")
        return caller

    def _check_leading(self, request: web.Request) -> None:
        if self._sources.replica.is_leading():
            return
        leader = self._sources.replica.leader_address()
        if leader:
            raise web.HTTPTemporaryRedirect(f"{leader}{request.path}")
        raise Refusal(503, "No operator leads at the moment; ask again in a few seconds.")


def _check_node(caller: Caller, node: str) -> None:
    if caller.node and caller.node != node:
        raise Refusal(403, f"A monitor on node '{caller.node}' cannot speak for node '{node}'.")


def _decoded(body: bytes, type: type[Item]) -> Item:
    try:
        return msgspec.json.decode(body, type=type)
    except msgspec.ValidationError as error:
        raise Refusal(422, f"The body is not what is asked for: {error}.") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Refusal(400, f"The body is no JSON: {error}.") from None


def _health(status: HealthStatus) -> web.Response:
    return web.Response(text=status.sentence, status=200 if status.is_ok else 503)


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
