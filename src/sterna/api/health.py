"""`/healthz` and `/readyz` for probes: 200, or 503 with a sentence. They need no authentication."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from sterna.control.health import HealthChecks, HealthStatus

HEALTH_PATHS = ("/healthz", "/readyz")


def create_health_router(checks: HealthChecks) -> APIRouter:
    """Return the routes of a cluster's health checks."""
    router = APIRouter()

    @router.get("/healthz", response_class=PlainTextResponse)
    async def healthz() -> Response:
        """Fail when a restart of the process would help."""
        return _response(checks.check_live())

    @router.get("/readyz", response_class=PlainTextResponse)
    async def readyz() -> Response:
        """Fail while requests cannot be answered correctly yet."""
        return _response(checks.check_ready())

    return router


def _response(status: HealthStatus) -> Response:
    return PlainTextResponse(status.sentence, 200 if status.is_ok else 503)
