"""How commands reach a running cluster: over the socket in its state folder, at an address, or through Kubernetes.

The state folder is `--state`, else `$STERNA_STATE`, else `sterna` in the user's data folder. Kept light on purpose: a
command that asks one question is over before a larger library would have been imported.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer

from sterna.cli.connect.http import Reply, ask, open_address, open_socket
from sterna.cli.connect.target import chosen
from sterna.errors import Bug, Retry, UserError

State = Annotated[
    str | None,
    typer.Option(
        "--state", metavar="DIR", help="The cluster's state folder.  [default: $STERNA_STATE or your data folder]"
    ),
]
ServerUrl = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="A cluster elsewhere; its token is read from $STERNA_TOKEN."),
]

SOCKET = "api.sock"
_TIMEOUT_SECONDS = 60.0


def state_folder(state: str | None) -> Path:
    """Where a cluster keeps what it knows."""
    chosen = state or os.environ.get("STERNA_STATE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser().absolute() / "sterna"


def client(state: str | None = None, server: str | None = None) -> Client:
    """The cluster that these options mean, and those for Kubernetes that the command was given (`where.py`)."""
    where = chosen(state, server)
    if where is not None:
        # By its name, because it carries all that Kubernetes needs, which other clusters do not.
        found: Client = import_module("sterna.cli.connect.kubernetes").opened(where)
        return found
    if server:
        return Client(_Address.of(server))
    return Client(_Socket(state_folder(state)))


class Client:
    """Asks a cluster; what it refuses comes back as the sentence that it gave."""

    def __init__(self, place: _Address | _Socket) -> None:
        self._place = place

    def get(self, *path: str, **query: object) -> Any:
        return self._json("GET", _path(path, query))

    def delete(self, *path: str, **query: object) -> Any:
        return self._json("DELETE", _path(path, query))

    def post(self, *path: str, value: object = None) -> Any:
        return self._json("POST", _path(path, {}), value)

    def patch(self, *path: str, value: object) -> Any:
        return self._json("PATCH", _path(path, {}), value)

    def create(self, manifests: bytes, is_json: bool, cwd: str, key: str) -> Any:
        """Jobs from manifests. The key makes it safe to ask again when the answer was lost, which is done once."""
        kind = "application/json" if is_json else "application/yaml"
        headers = {"Content-Type": kind, "Idempotency-Key": key}
        path = _path(("jobs",), {"cwd": cwd} if cwd else {})
        for is_last in (False, True):
            try:
                return json.loads(self._asked("POST", path, manifests, headers)[0])
            except Retry:
                if is_last:
                    raise
        raise Bug("unreachable")

    def log(self, name: str, replica: str, offset: int) -> tuple[bytes, int]:
        """A part of a replica's output, and where it ends."""
        text, headers = self._asked("GET", _path(("jobs", name, "log"), {"replica": replica, "offset": offset}))
        return text, int(headers["sterna-log-end"])

    def watch(self, until: float = math.inf, **query: object) -> Iterator[tuple[str, Any]]:
        """What changes, as (kind, value), until the cluster ends or this time of the monotonic clock has come."""
        with self._sent("GET", _path(("watch",), query), b"", {}) as reply:
            kind = ""
            for line in _lines(reply, until):
                name, _, value = line.rstrip(b"\n").partition(b": ")
                if name == b"event":
                    kind = value.decode()
                elif name == b"data":
                    yield kind, json.loads(value)

    def _json(self, method: str, path: str, value: object = None) -> Any:
        body = b"" if value is None else json.dumps(value).encode()
        text, _ = self._asked(method, path, body, {"Content-Type": "application/json"})
        return json.loads(text) if text else None

    def _asked(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[bytes, dict[str, str]]:
        with self._sent(method, path, body, headers or {}) as reply:
            try:
                return reply.read(), reply.headers
            except OSError:
                raise Retry(f"{self._place} ended while it answered; try again.") from None

    def _sent(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        """The head of an answer that is not a refusal."""
        try:
            reply = ask(self._place.opened, _TIMEOUT_SECONDS, method, path, self._place.headers | headers, body)
            if reply.status < 400:
                return reply
            with reply:
                raise _refusal(reply.status, reply.read())
        except TimeoutError:
            raise Retry(f"{self._place} did not answer within {_TIMEOUT_SECONDS:.0f} s; try again.") from None
        except (ConnectionResetError, BrokenPipeError):
            raise Retry(f"{self._place} ended while it was asked; try again.") from None
        except OSError as error:
            raise self._place.absence(error) from None


def _lines(reply: Reply, until: float) -> Iterator[bytes]:
    """Lines as they come; none any more when the time is up. A cluster that is there gives signs of life."""
    lines = reply.lines()
    while (left := until - time.monotonic()) > 0:
        reply.wait_at_most(min(left, _TIMEOUT_SECONDS))
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


class _Socket:
    """A cluster of this machine."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self.headers = {"Host": "localhost"}

    def opened(self, timeout_seconds: float | None) -> socket.socket:
        return open_socket(self._state / SOCKET, timeout_seconds)

    def absence(self, error: OSError) -> Exception:
        if isinstance(error, PermissionError):
            return UserError(f"You may not use the cluster of {self._state}; start your own: sterna up.")
        return UserError(f"No cluster runs in {self._state}; start one with: sterna up.")

    def __str__(self) -> str:
        return "The cluster"


class _Address:
    """A cluster at an address."""

    def __init__(self, url: str, is_secure: bool, host: str, port: int) -> None:
        self._url, self._is_secure, self._host, self._port = url, is_secure, host, port
        self.headers = {"Host": f"[{host}]:{port}" if ":" in host else f"{host}:{port}"}
        token = os.environ.get("STERNA_TOKEN", "").strip()
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    @classmethod
    def of(cls, url: str) -> _Address:
        parts = re.fullmatch(r"(?:(https?)://)?(?:\[([0-9a-fA-F:.]+)\]|([\w.-]+))(?::([0-9]{1,5}))?/?", url)
        if parts is None or int(parts[4] or 0) > 65535:
            raise UserError(f"--server {url}: write an address such as http://127.0.0.1:8470.")
        is_secure = parts[1] == "https"
        return cls(url, is_secure, parts[2] or parts[3], int(parts[4] or (443 if is_secure else 80)))

    def opened(self, timeout_seconds: float | None) -> socket.socket:
        return open_address(self._host, self._port, self._is_secure, timeout_seconds)

    def absence(self, error: OSError) -> Exception:
        why = error.strerror or str(error)
        return UserError(f"--server {self._url}: no cluster answers there ({why}); check the address.")

    def __str__(self) -> str:
        return f"The cluster at {self._url}"


def _path(parts: tuple[str, ...], query: dict[str, object]) -> str:
    text = "/api/v1/" + "/".join(quote(part, safe="") for part in parts)
    return f"{text}?{urlencode(query, doseq=True)}" if query else text


def _refusal(status: int, body: bytes) -> Exception:
    try:
        sentence = str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        sentence = f"The cluster answered {status}; is there something else at this address?"
    return Bug(sentence) if status == 500 else UserError(sentence)
