"""HTTP server of the operator: REST API, dashboard, endpoints of monitors, metrics and probes on one address.

The REST API acts with the rights of its caller, not with those of the operator: the bearer token of a request is
checked by a TokenReview and then used for every request to the API server, whose RBAC decides. Such tokens must not
cross the network in plain text, so the API answers loopback addresses only (`kubectl port-forward` comes from there),
unless `--remote-api` is set, for operators behind a proxy that terminates TLS.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from sterna.api.application import create_application
from sterna.api.auth import Authenticator, BearerAuthenticator, Caller, RequestHead, reject_other_sites
from sterna.api.health import HEALTH_PATHS, create_health_router
from sterna.api.peers import Peer, Transport
from sterna.api.problem_json import Problem
from sterna.api.server import Server, serve_address
from sterna.backends.kubernetes.query.cluster import KubernetesCluster, QueryScope
from sterna.backends.kubernetes.server.endpoints import PATHS, OperatorEndpoints
from sterna.backends.kubernetes.server.token_review import TokenReviewer
from sterna.backends.kubernetes.transport.client import Client
from sterna.backends.kubernetes.transport.kubeconfig import Access
from sterna.control.health import HealthChecks
from sterna.explain.starting_changes import find_starting_changes

_IDLE_SECONDS = 600.0
"""Connections of a caller that sent no request for this long are closed."""


class OperatorServer:
    """Serves the endpoints and the REST API until stopped."""

    def __init__(
        self,
        listen: str,
        endpoints: OperatorEndpoints,
        health: HealthChecks,
        services: CallerServices,
        authenticator: Authenticator,
    ) -> None:
        self._listen, self._services = listen, services
        self._application = create_application(
            None,
            authenticator,
            [endpoints.router, create_health_router(health)],
            service_for=services.service_for,
            public_paths=(*PATHS, *HEALTH_PATHS),
            title="Sterna operator",
        )
        self._server: Server | None = None

    @property
    def address(self) -> str:
        """`HOST:PORT` for other pods: the pod's own address if there is one."""
        return format_address(os.environ.get("POD_IP", ""), self._server.port if self._server is not None else 0)

    def start(self) -> None:
        self._server = serve_address(self._application, self._listen)

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
        self._services.close()


@dataclass(frozen=True)
class CallerAuthenticator:
    """Accepts bearer tokens that are valid at the API server, from loopback addresses or, if allowed, from any."""

    reviewer: TokenReviewer
    allows_remote: bool

    async def authenticate(self, request: RequestHead, peer: Peer) -> Caller:
        if peer.transport is Transport.NETWORK and not self.allows_remote:
            raise Problem(
                403,
                "The operator's API answers on loopback only, because it does not encrypt; use "
                "kubectl port-forward, or set --remote-api behind a proxy with TLS.",
            )
        reject_other_sites(request, peer)
        return await BearerAuthenticator(self._verify).authenticate(request, peer)

    def _verify(self, token: str) -> Caller | None:
        user = self.reviewer.review(token)
        return Caller(user.name, True, token) if user.name else None


class CallerServices:
    """One `KubernetesCluster` per caller, with the caller's own token. Any thread may call it."""

    def __init__(
        self,
        connect: Callable[[Caller], KubernetesCluster],
        idle_seconds: float = _IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect, self._idle_seconds, self._clock = connect, idle_seconds, clock
        self._services: dict[str, tuple[float, KubernetesCluster]] = {}
        """By token, with the time of the last request."""
        self._lock = threading.Lock()

    def service_for(self, caller: Caller) -> KubernetesCluster:
        now = self._clock()
        with self._lock:
            self._close_idle(now)
            found = self._services.get(caller.token)
            service = found[1] if found is not None else self._connect(caller)
            self._services[caller.token] = (now, service)
        return service

    def _close_idle(self, now: float) -> None:
        for token, (used_at, service) in list(self._services.items()):
            if now - used_at > self._idle_seconds:
                del self._services[token]
                service.close()

    def close(self) -> None:
        with self._lock:
            self._close_idle(float("inf"))


def connect_as_caller(access: Access, namespace: str) -> Callable[[Caller], KubernetesCluster]:
    """Return a function that opens the cluster of `access` with a caller's token; `namespace` empty: all."""
    scope = QueryScope(namespace or "default", not namespace)

    def connect(caller: Caller) -> KubernetesCluster:
        own = replace(access, token=caller.token, token_file="", login=None, certificate=b"", key=b"")
        return KubernetesCluster(lambda: Client(own), scope, find_starting_changes)

    return connect


def format_address(ip: str, port: int) -> str:
    """`HOST:PORT`, with brackets around an IPv6 address; without `ip` that of loopback."""
    host = ip or "127.0.0.1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
