"""The way from a monitor to the operator: where it is, and how it is spoken to.

Whoever holds the Lease says in it where its service answers; when nobody answers there, the Lease is read again. Every
request bears a token that the kubelet renews, made for us alone. One connection, kept as long as it works; nobody is
waited for longer than a few seconds, and what does not arrive is for the caller to send again.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

from sterna.backends.kubernetes.api.monitor_protocol import Batch, MoveRequest, Receipt
from sterna.backends.kubernetes.api.objects import Plain
from sterna.backends.kubernetes.api.resources import LEASES, ApiServer
from sterna.backends.kubernetes.leader import ADDRESS
from sterna.backends.kubernetes.lifecycle.overload import NodeInfo
from sterna.errors import Retry

_TIMEOUT_SECONDS = 5.0
_LEASE_SECONDS = 5.0
"""Least time between two looks at the Lease."""
_MOST_ANSWER_BYTES = 1 << 24
_INFOS = msgspec.json.Decoder(dict[str, NodeInfo])


class Operator(Protocol):
    """What a monitor asks of the operator. `Retry` if it cannot be asked now."""

    def send(self, batch: Batch) -> Receipt | None:
        """None: taken. Else the memory of an operator for which the batch was not meant."""
        ...

    def ask_to_move(self, request: MoveRequest) -> None: ...

    def cluster_info(self) -> Mapping[str, NodeInfo]: ...


class Answered(NamedTuple):
    """A response."""

    status: int
    body: bytes


Find = Callable[[], str]
"""Where the operator's service answers now, `http://HOST:PORT`; `Retry` if nobody says."""


def address_in_lease(server: ApiServer, namespace: str, name: str) -> Find:
    """Found in the Lease that the operator holds."""

    def find() -> str:
        answer = server.ask("GET", LEASES.path(namespace, name))
        if not answer.is_done:
            raise Retry(f"The Lease {namespace}/{name} cannot be read ({answer.message or answer.status}).")
        try:
            lease = msgspec.json.decode(answer.body, type=Plain)
        except (msgspec.DecodeError, ValueError):
            raise Retry(f"The Lease {namespace}/{name} is not understood.") from None
        address = lease.metadata.annotations.get(ADDRESS, "")
        if not address:
            raise Retry(f"No operator holds the Lease {namespace}/{name} yet.")
        return address if "://" in address else f"http://{address}"

    return find


class OperatorLink:
    """Speaks HTTP to whoever is the operator."""

    def __init__(self, find: Find, token_file: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._find, self._token_file, self._clock = find, token_file, clock
        self._connection: http.client.HTTPConnection | None = None
        self._read_size = -1e18

    def send(self, batch: Batch) -> Receipt | None:
        answer = self._ask("POST", "/progress", msgspec.json.encode(batch))
        if answer.status == 409:
            return _decoded(answer.body)
        # Whatever it was, it would be refused again: better lost than in the way of all that follows.
        if answer.status not in (413, 422):
            self._check(answer, "/progress")
        return None

    def ask_to_move(self, request: MoveRequest) -> None:
        self._check(self._ask("POST", "/migrate", msgspec.json.encode(request)), "/migrate")

    def cluster_info(self) -> Mapping[str, NodeInfo]:
        answer = self._ask("GET", "/cluster-info")
        self._check(answer, "/cluster-info")
        try:
            return _INFOS.decode(answer.body)
        except (msgspec.DecodeError, ValueError):
            raise Retry("The operator's /cluster-info is not understood.") from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _check(self, answer: Answered, path: str) -> None:
        if answer.status >= 300:
            self.close()  # it may not be the operator any more
            row = answer.body[:200].decode("utf-8", "replace").strip()
            raise Retry(f"The operator answers {path} with {answer.status}: {row}")

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Answered:
        is_kept = self._connection is not None
        try:
            return self._once(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not is_kept:
                raise Retry(f"The operator cannot be reached ({type(error).__name__}: {error}).") from None
        try:  # a kept connection may have been closed by the other side long ago
            return self._once(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Retry(f"The operator cannot be reached ({type(error).__name__}: {error}).") from None

    def _once(self, method: str, path: str, body: bytes | None) -> Answered:
        connection = self._connected()
        headers = {"Content-Type": "application/json"} if body is not None else {}
        token = self._token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return Answered(response.status, response.read(_MOST_ANSWER_BYTES))

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            now = self._clock()
            if now - self._read_size < _LEASE_SECONDS:
                raise Retry("The operator was looked for a moment ago.")
            self._read_size = now
            address = urlsplit(self._find())
            kind, port = (
                (http.client.HTTPSConnection, 443) if address.scheme == "https" else (http.client.HTTPConnection, 80)
            )
            self._connection = kind(address.hostname or "", address.port or port, timeout=_TIMEOUT_SECONDS)
        return self._connection

    def _token(self) -> str:
        """Read each time: the kubelet puts a new one there before the old one ends."""
        if self._token_file is not None:
            with suppress(OSError):
                return self._token_file.read_text(encoding="utf-8").strip()
        return ""


def _decoded(body: bytes) -> Receipt:
    try:
        return msgspec.json.decode(body, type=Receipt)
    except (msgspec.DecodeError, ValueError):
        raise Retry("The operator's answer to a batch is not understood.") from None
