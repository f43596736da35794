"""The monitor's HTTP service: where jobs of container-migration tell their metric. Port 8081.

    POST /monitor {"pod": NAME, "value": NUMBER}    answered `Ok` before anything is made of it
    GET  /healthz

A pod may speak for itself only: what comes from the address of another pod of the node is refused. DRAGON-60.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from aiohttp import web

from sterna.backends.kubernetes.transport.http_server import Listener, Refusal, Route, body_of

PORT = 8081
_MOST_BYTES = 1 << 14
_LONGEST_NAME = 253


class _Body(msgspec.Struct):
    pod: str
    value: float
    namespace: str = ""


class Sample(NamedTuple):
    """What a pod measured."""

    pod: str
    value: float
    namespace: str = ""
    """Which jobs of container-migration do not say."""


Put = Callable[[Sample], bool]
"""False: too many wait already."""
PodAt = Callable[[str], str]
"""The name of the pod of this node that has an address of its own; empty: there is none."""


class SampleService:
    """Listens; what it hears is put where the monitor looks."""

    def __init__(self, listen: str, put: Put, pod_at: PodAt) -> None:
        self._put, self._pod_at = put, pod_at
        routes = [Route("POST", "/monitor", self._monitor), Route("GET", "/healthz", self._healthz)]
        self._listener = Listener(listen, routes, _MOST_BYTES)

    @property
    def port(self) -> int:
        return self._listener.port

    def start(self) -> None:
        self._listener.start()

    def stop(self) -> None:
        self._listener.stop()

    async def _monitor(self, request: web.Request) -> web.StreamResponse:
        sample = _sample(await body_of(request))
        sender = self._pod_at(request.remote or "")
        if sender and sender != sample.pod:
            raise Refusal(403, f"This comes from pod '{sender}', which cannot speak for '{sample.pod}'.")
        if not self._put(sample):
            raise Refusal(503, "More was told than could be taken in; go on, and tell the next value.")
        return web.Response(text="Ok")

    async def _healthz(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")


def _sample(body: bytes) -> Sample:
    try:
        row = msgspec.json.decode(body, type=_Body)
    except msgspec.ValidationError as error:
        raise Refusal(422, f'Send {{"pod": NAME, "value": NUMBER}}: {error}.') from None
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise Refusal(400, 'The body is no JSON; send {"pod": NAME, "value": NUMBER}.') from None
    if not row.pod or len(row.pod) > _LONGEST_NAME or len(row.namespace) > _LONGEST_NAME:
        raise Refusal(422, "The name of the pod is empty or too long; send metadata.name.")
    if not math.isfinite(row.value):
        raise Refusal(422, "The value is not a finite number.")
    return Sample(row.pod, row.value, row.namespace)
