"""What is answered when something cannot be done: a status code, and the same sentence that the command line prints.

    400  the request itself cannot be read        404  no such job or node
    401  a token is needed                        409  the name is taken
    403  not for this caller                      422  understood, but it cannot be done
    413  too much at once                         500  a bug of ours      503  try again

The body is `application/problem+json` with `title`, `status` and `detail`.
"""

from __future__ import annotations

import http
import logging

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sterna.errors import Retry, SternaError, UserError

_log = logging.getLogger(__name__)


class Problem(SternaError):
    """An answer that is not what was asked for."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def problem_response(problem: Problem) -> Response:
    body = {"title": http.HTTPStatus(problem.status).phrase, "status": problem.status, "detail": str(problem)}
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
    return Response(msgspec.json.encode(body), problem.status, headers, "application/problem+json")


def answer_to(request: Request, error: Exception) -> Response:
    """The response to whatever was raised while a request was served."""
    if isinstance(error, Problem):
        return problem_response(error)
    if isinstance(error, UserError):
        return problem_response(Problem(422, str(error)))
    if isinstance(error, Retry):
        return problem_response(Problem(503, f"{error}; try again."))
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_response(Problem(500, "This is a bug of Sterna, not your fault; its log says more."))
