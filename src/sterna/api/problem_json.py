"""Error responses (RFC 9457): a status code, and the sentence that a command would print.

    400  the request cannot be parsed             404  no such job or node
    401  a token is needed                        409  the name is taken
    403  not allowed for this caller              422  valid, but it cannot be done
    413  the body is too large                    500  a bug of Sterna     503  try again

The body is `application/problem+json` with `title`, `status` and `detail`.
"""

from __future__ import annotations

import http
import logging

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sterna.errors import Retry, SternaError, UserError
from sterna.service.errors import ForbiddenError, MalformedError, NameTakenError, NotFoundError

_STATUSES = {NotFoundError: 404, NameTakenError: 409, ForbiddenError: 403, MalformedError: 400}
_log = logging.getLogger(__name__)


class Problem(SternaError):
    """An error response."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def status_of(error: UserError) -> int:
    """Return the status code of a rejection."""
    return next((status for type_, status in _STATUSES.items() if isinstance(error, type_)), 422)


def problem_response(problem: Problem) -> Response:
    body = {"title": http.HTTPStatus(problem.status).phrase, "status": problem.status, "detail": str(problem)}
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
    return Response(msgspec.json.encode(body), problem.status, headers, "application/problem+json")


def error_response(request: Request, error: Exception) -> Response:
    """Return the response to an exception that was raised while a request was served."""
    if isinstance(error, Problem):
        return problem_response(error)
    if isinstance(error, UserError):
        return problem_response(Problem(status_of(error), str(error)))
    if isinstance(error, Retry):
        return problem_response(Problem(503, f"{error}; try again."))
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_response(Problem(500, "This is a bug of Sterna, not your fault; its log says more."))
