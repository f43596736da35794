"""HTTP client of the operator, for the monitor.

The holder of the Lease publishes its address in it; the Lease is read again when that address does not answer. Every
request carries a projected token that the kubelet renews. One kept-alive connection, a timeout of a few seconds; the
caller retries.
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

from sterna.backends.kubernetes.api.monitor_protocol import Batch, PodMoveRequest, Receipt
from sterna.backends.kubernetes.api.objects import Plain
from sterna.backends.kubernetes.api.resources import LEASES, ApiServer
from sterna.backends.kubernetes.leader import ADDRESS
from sterna.backends.kubernetes.lifecycle.overload import NodeInfo
from sterna.errors import Retry

_TIMEOUT_SECONDS = 5.0
_LEASE_SECONDS = 5.0
"""Minimum interval between two reads of the Lease."""
_MOST_ANSWER_BYTES = 1 << 24
_INFOS = msgspec.json.Decoder(dict[str, NodeInfo])


class OperatorClient(Protocol):
    """Requests of a monitor to the operator; `Retry` if it cannot be reached."""

    def send(self, batch: Batch) -> Receipt | None:
        """None: accepted. Else the memory id of an operator that does not have the earlier batches."""
        ...

    def ask_to_move(self, request: PodMoveRequest) -> None: ...

    def cluster_info(self) -> Mapping[str, NodeInfo]: ...


class OperatorReply(NamedTuple):
    """A response."""

    status: int
    body: bytes


FindOperator = Callable[[], str]
"""Returns the address of the operator's service, `http://HOST:PORT`; `Retry` if it is unknown."""


def address_in_lease(server: ApiServer, namespace: str, name: str) -> FindOperator:
    """Read the address from the Lease that the operator holds."""

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
    """Sends requests to the current operator."""

    def __init__(
        self, find: FindOperator, token_file: Path | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._find, self._token_file, self._clock = find, token_file, clock
        self._connection: http.client.HTTPConnection | None = None
        self._searched_at = -1e18

    def send(self, batch: Batch) -> Receipt | None:
        answer = self._ask("POST", "/progress", msgspec.json.encode(batch))
        if answer.status == 409:
            return _decode_receipt(answer.body)
        # It would be refused again: dropping it is better than blocking what follows.
        if answer.status not in (413, 422):
            self._check(answer, "/progress")
        return None

    def ask_to_move(self, request: PodMoveRequest) -> None:
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

    def _check(self, answer: OperatorReply, path: str) -> None:
        if answer.status >= 300:
            self.close()  # another replica may be the operator now
            text = answer.body[:200].decode("utf-8", "replace").strip()
            raise Retry(f"The operator answers {path} with {answer.status}: {text}")

    def _ask(self, method: str, path: str, body: bytes | None = None) -> OperatorReply:
        is_kept = self._connection is not None
        try:
            return self._once(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not is_kept:
                raise Retry(f"The operator cannot be reached ({type(error).__name__}: {error}).") from None
        try:  # the other side may have closed a kept connection
            return self._once(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Retry(f"The operator cannot be reached ({type(error).__name__}: {error}).") from None

    def _once(self, method: str, path: str, body: bytes | None) -> OperatorReply:
        connection = self._connect()
        headers = {"Content-Type": "application/json"} if body is not None else {}
        token = self._token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return OperatorReply(response.status, response.read(_MOST_ANSWER_BYTES))

    def _connect(self) -> http.client.HTTPConnection:
        if self._connection is None:
            now = self._clock()
            if now - self._searched_at < _LEASE_SECONDS:
                raise Retry("The operator was looked for a moment ago.")
            self._searched_at = now
            address = urlsplit(self._find())
            kind, port = (
                (http.client.HTTPSConnection, 443) if address.scheme == "https" else (http.client.HTTPConnection, 80)
            )
            self._connection = kind(address.hostname or "", address.port or port, timeout=_TIMEOUT_SECONDS)
        return self._connection

    def _token(self) -> str:
        """Read the token for each request: the kubelet renews it before it expires."""
        if self._token_file is not None:
            with suppress(OSError):
                return self._token_file.read_text(encoding="utf-8").strip()
        return ""


def _decode_receipt(body: bytes) -> Receipt:
    try:
        return msgspec.json.decode(body, type=Receipt)
    except (msgspec.DecodeError, ValueError):
        raise Retry("The operator's answer to a batch is not understood.") from None
