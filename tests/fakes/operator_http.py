"""The operator's endpoints behind the real HTTP server on loopback, without a cluster behind the REST API."""

from __future__ import annotations

from sterna.api.application import create_application
from sterna.api.auth import BearerAuthenticator, Caller
from sterna.api.server import serve_address
from sterna.backends.kubernetes.server.endpoints import PATHS, OperatorEndpoints
from sterna.service.cluster_service import ClusterService


class ServedEndpoints:
    """Serves until `stop`."""

    def __init__(self, endpoints: OperatorEndpoints) -> None:
        authenticator = BearerAuthenticator(lambda token: None)
        app = create_application(None, authenticator, [endpoints.router], service_for=_no_service, public_paths=PATHS)
        self._server = serve_address(app, "127.0.0.1:0")
        self.port = self._server.port

    def stop(self) -> None:
        self._server.stop()


def _no_service(caller: Caller) -> ClusterService:
    raise AssertionError("no caller is authenticated")
