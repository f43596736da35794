"""The application: every way in over HTTP, put together for one cluster.

The page is at `/`, the API below `/api/v1`, its description at `/api/v1/openapi.json`. Nothing is fetched from
elsewhere: the interactive pages that FastAPI would add need a script from the network, so they are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from sterna import __version__, dashboard
from sterna.api import cluster, jobs, metrics, reports, voda, watch
from sterna.api.problem_json import Problem, answer_to, problem_response
from sterna.api.responses import schemas
from sterna.api.submit_batching import Created, Intake
from sterna.service.views import ClusterService, EventView, JobView, NodeView, PolicyView
from sterna.errors import SternaError
from sterna.manifests.training_job import TrainingJob

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_OPENAPI = "/api/v1/openapi.json"
_SHAPES = [JobView, NodeView, EventView, PolicyView, Created, jobs.Bounds, jobs.Move, jobs.Report, cluster.Changes]
_PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Application:
    """All endpoints for one cluster. Who may ask is not decided here: see `gate`.

    New jobs have a door of their own: at a thousand a second, what FastAPI does for a request would be a third of the
    work.
    """

    def __init__(self, verbs: ClusterService) -> None:
        self.watching = watch.Watching(verbs)
        self._intake = Intake(verbs)
        self._others = _endpoints(verbs, self.watching)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == jobs.PATH and scope["method"] == "POST":
            request = Request(scope, receive)
            try:
                response = await jobs.create(request, self._intake)
            except Exception as error:
                response = answer_to(request, error)
            await response(scope, receive, send)
        else:
            await self._others(scope, receive, send)


def _endpoints(verbs: ClusterService, watched: watch.Watching) -> FastAPI:
    app = FastAPI(title="Sterna", version=__version__, openapi_url=None, docs_url=None, redoc_url=None)
    app.state.verbs = verbs
    app.state.metrics = metrics.registry_of(verbs)
    app.state.watching = watched
    for part in (jobs, cluster, watch, metrics, voda, reports):
        app.include_router(part.router)
    app.add_api_route("/", front, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route(_OPENAPI, openapi, include_in_schema=False)
    app.add_exception_handler(RequestValidationError, _wrong_parameter)
    app.add_exception_handler(HTTPException, _no_such_path)
    app.add_exception_handler(SternaError, answer_to)
    app.add_exception_handler(Exception, answer_to)
    return app


async def front(request: Request) -> Response:
    """The page for browsers; for others Voda's banner."""
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(dashboard.page(), headers=_PAGE_HEADERS)
    return PlainTextResponse(f"Sterna {__version__}, in place of Voda Scheduler: Training Service\n")


async def openapi(request: Request) -> dict[str, Any]:
    """The description of the API; made when it is first asked for."""
    app: FastAPI = request.app
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, routes=app.routes)
        made["paths"][jobs.PATH]["post"] = jobs.CREATE
        known = made.setdefault("components", {}).setdefault("schemas", {})
        known.update(schemas(_SHAPES))
        manifest = TrainingJob.model_json_schema(ref_template="#/components/schemas/{model}")
        known.update(manifest.pop("$defs", {}))
        known["TrainingJob"] = manifest
        app.openapi_schema = made
    return app.openapi_schema


async def _wrong_parameter(_: Request, error: Exception) -> Response:
    """A parameter of the address or of a header that cannot be read."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = str(first["loc"][-1])
    return problem_response(Problem(422, f"The parameter '{name}': {first['msg'][:1].lower()}{first['msg'][1:]}."))


async def _no_such_path(request: Request, error: Exception) -> Response:
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
