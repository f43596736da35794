"""The monitor's HTTP service, to which jobs of container-migration post their metric. Port 8081.

    POST /monitor {"pod": NAME, "value": NUMBER}    answered `Ok` before it is processed
    GET  /healthz

A pod may report for itself only: requests from the address of another pod of the node are refused.
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
    """One value of a pod's metric."""

    pod: str
    value: float
    namespace: str = ""
    """Empty in requests of container-migration's jobs."""


Put = Callable[[Sample], bool]
"""Queues a sample; false if the queue is full."""
PodAt = Callable[[str], str]
"""Returns the name of the pod of this node with an address; empty: there is none."""


class SampleService:
    """Accepts samples and queues them for the monitor."""

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
            raise Refusal(503, "Queue full, sample dropped; send the next value.")
        return web.Response(text="Ok")

    async def _healthz(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")


def _sample(body: bytes) -> Sample:
    try:
        sent = msgspec.json.decode(body, type=_Body)
    except msgspec.ValidationError as error:
        raise Refusal(422, f'Send {{"pod": NAME, "value": NUMBER}}: {error}.') from None
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise Refusal(400, 'The body is no JSON; send {"pod": NAME, "value": NUMBER}.') from None
    if not sent.pod or len(sent.pod) > _LONGEST_NAME or len(sent.namespace) > _LONGEST_NAME:
        raise Refusal(422, "The name of the pod is empty or too long; send metadata.name.")
    if not math.isfinite(sent.value):
        raise Refusal(422, "The value is not a finite number.")
    return Sample(sent.pod, sent.value, sent.namespace)
