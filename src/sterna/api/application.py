"""`create_application`: the HTTP application of one cluster, local or Kubernetes.

The dashboard is at `/`, the API below `/api/v1`, its description at `/api/v1/openapi.json`. FastAPI's interactive pages
are left out: they load scripts from the network.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from sterna import __version__, dashboard
from sterna.api import cluster, jobs, watch
from sterna.api.auth import Authenticator, AuthMiddleware
from sterna.api.compat import trainer_status, voda
from sterna.api.problem_json import Problem, error_response, problem_response
from sterna.api.responses import component_schemas
from sterna.api.services import ServiceFactory, ServiceRegistry
from sterna.errors import SternaError
from sterna.kinds.training_job import TRAINING_JOBS, TrainingJobSpec
from sterna.service.cluster_service import ClusterService
from sterna.service.requests import MoveTarget, ProgressRequest, RuleChanges, ScaleRequest, Submitted
from sterna.service.views import EventView, Explanation, JobView, NodeView, PolicyView, ProgressView

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_OPENAPI = "/api/v1/openapi.json"
_STRUCTURES = [
    JobView, NodeView, EventView, PolicyView, ProgressView, Explanation,
    Submitted, ScaleRequest, MoveTarget, ProgressRequest, RuleChanges,
]  # fmt: skip
_PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Application:
    """An ASGI application with its authentication in front."""

    def __init__(self, fastapi: FastAPI, services: ServiceRegistry, middleware: AuthMiddleware) -> None:
        self.fastapi = fastapi
        self._services, self._middleware = services, middleware

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._middleware(scope, receive, send)

    def close(self) -> None:
        """End streams; called on the event loop before the server stops."""
        self._services.close()


def create_application(
    service: ClusterService | None,
    authenticator: Authenticator,
    routers: Iterable[APIRouter] = (),
    *,
    service_for: ServiceFactory | None = None,
    public_paths: Collection[str] = (),
    title: str = "Sterna",
) -> Application:
    """Return the application that serves a cluster.

    `routers` are endpoints of one kind of server (metrics, probes ..); they are not part of the API's description.
    `service_for` replaces `service` where each caller has a service of its own. `public_paths` need no authentication.
    """
    app = FastAPI(title=title, version=__version__, openapi_url=None, docs_url=None, redoc_url=None)
    app.state.services = ServiceRegistry(service, service_for)
    for part in (trainer_status, jobs, cluster, watch, voda):
        app.include_router(part.router)
    for router in routers:
        app.include_router(router, include_in_schema=False)
    app.add_api_route("/", show_dashboard, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route(_OPENAPI, describe_api, include_in_schema=False)
    app.add_exception_handler(RequestValidationError, _reject_parameter)
    app.add_exception_handler(HTTPException, _reject_path)
    app.add_exception_handler(SternaError, error_response)
    app.add_exception_handler(Exception, error_response)
    return Application(app, app.state.services, AuthMiddleware(app, authenticator, public_paths))


async def show_dashboard(request: Request) -> Response:
    """The dashboard for browsers; Voda's banner for other clients."""
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(dashboard.page(), headers=_PAGE_HEADERS)
    return PlainTextResponse(f"Sterna {__version__}, in place of Voda Scheduler: Training Service\n")


async def describe_api(request: Request) -> dict[str, Any]:
    """The OpenAPI document; made at the first request."""
    app: FastAPI = request.app
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.update(component_schemas([*_STRUCTURES, TrainingJobSpec]))
        schemas["TrainingJob"] = _training_job_schema()
        app.openapi_schema = document
    return app.openapi_schema


def _training_job_schema() -> dict[str, Any]:
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    metadata = {"name": {"type": "string"}, "labels": texts, "annotations": texts}
    return {
        "title": TRAINING_JOBS.kind,
        "type": "object",
        "properties": {
            "apiVersion": {"enum": [TRAINING_JOBS.api_version]},
            "kind": {"enum": [TRAINING_JOBS.kind]},
            "metadata": {"type": "object", "properties": metadata, "required": ["name"]},
            "spec": {"$ref": "#/components/schemas/TrainingJobSpec"},
        },
        "required": ["apiVersion", "kind", "metadata", "spec"],
    }


async def _reject_parameter(_: Request, error: Exception) -> Response:
    """Respond to a parameter of the address or of a header that cannot be parsed."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = str(first["loc"][-1])
    return problem_response(Problem(422, f"The parameter '{name}': {first['msg'][:1].lower()}{first['msg'][1:]}."))


async def _reject_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, method = request.url.path[:100], request.method
    if error.status_code == 405:
        what = f"{method} is not possible for {path}; see {_OPENAPI} for what is."
        response = problem_response(Problem(405, what))
        response.headers.update(error.headers or {})
        return response
    return problem_response(
        Problem(error.status_code, f"There is nothing at {path}; see {_OPENAPI} for what there is.")
    )
