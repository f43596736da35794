"""`RestCluster`: the `ClusterService` of commands, over the REST API of a daemon or an operator.

Imports little on purpose: a command that sends one request must end sooner than a larger library could be imported.
"""

from __future__ import annotations

import math
import os
import re
import socket
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from sterna.cli.connect.http import Reply, open_address, open_socket, send_request
from sterna.errors import Bug, Retry, SternaError, UserError
from sterna.service.cluster_service import LOG_BYTES
from sterna.service.errors import ForbiddenError, MalformedError, NameTakenError, NotFoundError
from sterna.service.requests import MoveTarget, ProgressRequest, RuleChanges, ScaleRequest, Submission, Submitted
from sterna.service.updates import KINDS, EventsUpdate, JobsUpdate, NodesUpdate, RulesUpdate, Update
from sterna.service.views import EventView, Explanation, JobView, LogPart, NodeView, PolicyView, ProgressView

SOCKET = "api.sock"
_TIMEOUT_SECONDS = 60.0
_JSON = "application/json"
_ERRORS: dict[int, type[SternaError]] = {
    400: MalformedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: NameTakenError,
    500: Bug,
    503: Retry,
}
_T = TypeVar("_T")


class SocketEndpoint:
    """The daemon of a state folder, on its unix socket."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self.headers = {"Host": "localhost"}

    def open(self, timeout_seconds: float | None) -> socket.socket:
        return open_socket(self._state / SOCKET, timeout_seconds)

    def unreachable(self, error: OSError) -> UserError:
        if isinstance(error, PermissionError):
            return UserError(f"You may not use the cluster of {self._state}; start your own: sterna up.")
        return UserError(f"No cluster runs in {self._state}; start one with: sterna up.")

    def __str__(self) -> str:
        return "The cluster"


class AddressEndpoint:
    """A daemon or operator at an address; the token is read from `$STERNA_TOKEN`."""

    def __init__(self, url: str) -> None:
        parts = re.fullmatch(r"(?:(https?)://)?(?:\[([0-9a-fA-F:.]+)\]|([\w.-]+))(?::([0-9]{1,5}))?/?", url)
        if parts is None or int(parts[4] or 0) > 65535:
            raise UserError(f"--server {url}: write an address such as http://127.0.0.1:8470.")
        self._url, self._is_secure = url, parts[1] == "https"
        self._host, self._port = parts[2] or parts[3], int(parts[4] or (443 if self._is_secure else 80))
        self.headers = {"Host": f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"}
        token = os.environ.get("STERNA_TOKEN", "").strip()
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def open(self, timeout_seconds: float | None) -> socket.socket:
        return open_address(self._host, self._port, self._is_secure, timeout_seconds)

    def unreachable(self, error: OSError) -> UserError:
        why = error.strerror or str(error)
        return UserError(f"--server {self._url}: no cluster answers there ({why}); check the address.")

    def __str__(self) -> str:
        return f"The cluster at {self._url}"


class RestCluster:
    """Implements `ClusterService` by requests to `/api/v1`. An error response raises its sentence."""

    def __init__(self, endpoint: AddressEndpoint | SocketEndpoint) -> None:
        self._endpoint = endpoint

    # Jobs.

    def submit(self, submission: Submission) -> Submitted:
        """Submit manifests; a lost response is retried once, which the idempotency key makes safe."""
        headers = {
            "Content-Type": _JSON if submission.is_json else "application/yaml",
            "Idempotency-Key": submission.key,
        }
        path = _path("jobs", **({"cwd": submission.cwd} if submission.cwd else {}))
        try:
            text, _ = self._exchange("POST", path, submission.body, headers)
        except Retry:
            text, _ = self._exchange("POST", path, submission.body, headers)
        return _decode(text, Submitted)

    def jobs(self) -> list[JobView]:
        return self._request(list[JobView], "GET", _path("jobs"))

    def job(self, name: str) -> JobView:
        return self._request(JobView, "GET", _path("jobs", name))

    def delete(self, names: Sequence[str]) -> list[JobView]:
        return self._request(list[JobView], "DELETE", _path("jobs", name=list(names)))

    def scale(self, name: str, minimum: int | None, maximum: int | None) -> JobView:
        return self._request(JobView, "PATCH", _path("jobs", name), ScaleRequest(minimum, maximum))

    def migrate(self, name: str, node: str, by_checkpoint: bool = False) -> JobView:
        return self._request(JobView, "POST", _path("jobs", name, "migrate"), MoveTarget(node, by_checkpoint))

    # Nodes.

    def nodes(self) -> list[NodeView]:
        return self._request(list[NodeView], "GET", _path("nodes"))

    def node(self, name: str) -> NodeView:
        return self._request(NodeView, "GET", _path("nodes", name))

    def cordon(self, name: str) -> NodeView:
        return self._request(NodeView, "POST", _path("nodes", name, "cordon"))

    def drain(self, name: str) -> NodeView:
        return self._request(NodeView, "POST", _path("nodes", name, "drain"))

    def uncordon(self, name: str) -> NodeView:
        return self._request(NodeView, "POST", _path("nodes", name, "uncordon"))

    # Events, logs, explanations.

    def events(self, job: str = "", after: int = 0, limit: int = 1000) -> list[EventView]:
        return self._request(list[EventView], "GET", _path("events", job=job, after=after, limit=limit))

    def log(self, name: str, replica: str = "", offset: int = 0, limit: int = LOG_BYTES) -> LogPart:
        path = _path("jobs", name, "log", replica=replica, offset=offset, limit=limit)
        text, headers = self._exchange("GET", path)
        return LogPart(text, int(headers["sterna-log-end"]))

    def explain(self, name: str) -> Explanation:
        return self._request(Explanation, "GET", _path("jobs", name, "explain"))

    def history(self, name: str) -> list[ProgressView]:
        return self._request(list[ProgressView], "GET", _path("jobs", name, "history"))

    def report(self, name: str, step: int | None, total: int | None, metrics: dict[str, float]) -> None:
        body = msgspec.json.encode(ProgressRequest(step, total, metrics))
        self._exchange("POST", _path("jobs", name, "progress"), body, {"Content-Type": _JSON})

    def watch(self, kinds: Collection[str] = KINDS, until: float = math.inf) -> Iterator[Update]:
        with self._send("GET", _path("watch", kind=list(kinds)), b"", {}) as reply:
            kind = ""
            for line in _read_lines(reply, until):
                name, _, value = line.rstrip(b"\n").partition(b": ")
                if name == b"event":
                    kind = value.decode()
                elif name == b"data":
                    yield _decode_update(kind, value)

    # Rules.

    def rules(self) -> PolicyView:
        return self._request(PolicyView, "GET", _path("rules"))

    def set_rules(self, changes: RuleChanges) -> PolicyView:
        return self._request(PolicyView, "PATCH", _path("rules"), changes)

    # Requests.

    def _request(self, type_: type[_T], method: str, path: str, value: msgspec.Struct | None = None) -> _T:
        body = b"" if value is None else msgspec.json.encode(value)
        text, _ = self._exchange(method, path, body, {"Content-Type": _JSON})
        return _decode(text, type_)

    def _exchange(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[bytes, dict[str, str]]:
        with self._send(method, path, body, headers or {}) as reply:
            try:
                return reply.read(), reply.headers
            except OSError:
                raise Retry(f"{self._endpoint} ended while it answered; try again.") from None

    def _send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        """Send a request and read the head of its response; an error response is raised."""
        endpoint = self._endpoint
        try:
            reply = send_request(endpoint.open, _TIMEOUT_SECONDS, method, path, endpoint.headers | headers, body)
            if reply.status < 400:
                return reply
            with reply:
                raise _error(reply.status, reply.read())
        except TimeoutError:
            raise Retry(f"{endpoint} did not answer within {_TIMEOUT_SECONDS:.0f} s; try again.") from None
        except (ConnectionResetError, BrokenPipeError):
            raise Retry(f"{endpoint} ended while it was asked; try again.") from None
        except OSError as error:
            raise endpoint.unreachable(error) from None


def _read_lines(reply: Reply, until: float) -> Iterator[bytes]:
    """Yield lines until the stream ends or the time has come; a live cluster sends keep-alives."""
    lines = reply.lines()
    while (left := until - time.monotonic()) > 0:
        reply.set_timeout(min(left, _TIMEOUT_SECONDS))
        try:
            line = next(lines, b"")
        except TimeoutError:
            if left <= _TIMEOUT_SECONDS:
                return
            raise Retry("The cluster gave no sign of life; try again.") from None
        except OSError:
            return
        if not line:
            return
        yield line


def _decode_update(kind: str, data: bytes) -> Update:
    if kind == "jobs":
        return _decode(data, JobsUpdate)
    if kind == "nodes":
        return NodesUpdate(_decode(data, list[NodeView]))
    if kind == "rules":
        return RulesUpdate(msgspec.json.decode(data, type=PolicyView | None))
    return EventsUpdate(_decode(data, list[EventView]))


def _path(*parts: str, **query: Any) -> str:
    text = "/api/v1/" + "/".join(quote(part, safe="") for part in parts)
    return f"{text}?{urlencode(query, doseq=True)}" if query else text


def _decode(text: bytes, type_: type[_T]) -> _T:
    try:
        return msgspec.json.decode(text, type=type_)
    except msgspec.DecodeError as error:
        raise UserError(f"The response is not of Sterna's API ({error}); check the address and the versions.") from None


def _error(status: int, body: bytes) -> SternaError:
    try:
        sentence = str(msgspec.json.decode(body)["detail"])
    except (ValueError, KeyError, TypeError, msgspec.DecodeError):
        sentence = f"The cluster answered {status}; is there something else at this address?"
    return _ERRORS.get(status, UserError)(sentence)
