"""A plain client for tests: one request at a time, answers as they come. Nothing of the product is in it, so that the
product is never tested by itself."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

MERGE, STRATEGIC, APPLY = (
    f"application/{kind}" for kind in ("merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")
)
JSON_PATCH = "application/json-patch+json"

PATIENCE_SECONDS = 180.0
"""Nothing here is about speed: a slow machine, or one with much else to do, needs its time. Tests that pass do not."""

Object = dict[str, Any]


class Refused(Exception):  # noqa: N818  (a test expects it)
    """The server rejected a request."""

    def __init__(self, status: int, answer: Mapping[str, Any]) -> None:
        self.status = status
        self.reason = str(answer.get("reason", ""))
        self.message = str(answer.get("message", ""))
        super().__init__(f"{status} {self.reason}: {self.message}")


class Login(NamedTuple):
    """Address and credentials of a server, from a kubeconfig."""

    host: str
    port: int
    context: ssl.SSLContext
    token: str
    pair: bytes
    """Certificate and key, if it holds any."""

    def load_pair(self, context: ssl.SSLContext) -> None:
        with tempfile.NamedTemporaryFile() as file:  # the ssl module reads keys from files only
            file.write(self.pair)
            file.flush()
            context.load_cert_chain(file.name)


def login_of(kubeconfig: Path) -> Login:
    """Read the current context; keys must be embedded, as a `ControlPlane` writes them."""
    document = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    parts = [user.get(f"client-{part}-data", "") for part in ("certificate", "key")]
    pair = b"\n".join(base64.b64decode(part) for part in parts).strip()
    address, context = urlsplit(cluster["server"]), ssl.create_default_context(cadata=authority)
    login = Login(address.hostname or "", address.port or 443, context, user.get("token", ""), pair)
    if pair:
        login.load_pair(context)
    return login


class Api:
    """One connection, reopened when the server has closed it."""

    def __init__(self, kubeconfig: Path, timeout_seconds: float = 30.0) -> None:
        self._login = login_of(kubeconfig)
        self._timeout_seconds = timeout_seconds
        self._connection: http.client.HTTPSConnection | None = None
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}

    def __enter__(self) -> Api:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Any:
        """The decoded answer; `Refused` if it is none."""
        data = None if body is None else json.dumps(body).encode()
        status, answer = self._exchange(method, path, data, content_type)
        deadline = time.monotonic() + self._timeout_seconds
        while status == 429 and time.monotonic() < deadline:  # a kind that was just installed, or a server under load
            time.sleep(0.1)
            status, answer = self._exchange(method, path, data, content_type)
        if status >= 300:
            raise Refused(status, answer if isinstance(answer, dict) else {"message": str(answer)})
        return answer

    def get(self, path: str) -> Any:
        return self.ask("GET", path)

    def find(self, path: str) -> Any | None:
        """None if it is not there."""
        try:
            return self.get(path)
        except Refused as error:
            if error.status == 404:
                return None
            raise

    def items(self, path: str) -> list[Object]:
        return list(self.get(path)["items"])

    def patch(self, path: str, body: object, content_type: str = MERGE) -> Any:
        return self.ask("PATCH", path, body, content_type)

    def delete(self, path: str, **options: object) -> Any:
        return self.ask("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})

    def remove(self, path: str, **options: object) -> None:
        """Delete the object if it still exists."""
        try:
            self.delete(path, **options)
        except Refused as error:
            if error.status != 404:
                raise

    def create(self, document: Object, namespace: str = "default") -> Object:
        return dict(self.ask("POST", self._collection(document, namespace), document))

    def apply(self, document: Object, namespace: str = "default") -> Object:
        """Created or changed, as kubectl's server-side apply does it; the field manager is `tests`."""
        path = f"{self._collection(document, namespace)}/{document['metadata']['name']}"
        return dict(self.patch(f"{path}?fieldManager=tests&force=true", document, APPLY))

    def apply_all(self, text: str, namespace: str = "default") -> list[Object]:
        """All documents of a YAML file, in order."""
        return [self.apply(document, namespace) for document in yaml.safe_load_all(text) if document]

    def watch(self, path: str, timeout_seconds: int = 60) -> Iterator[Object]:
        """Events until the server ends it; on a connection of its own."""
        with Api.__new__(Api) as other:
            other.__dict__.update(self.__dict__, _connection=None)
            connection = other._open()
            mark = "&" if "?" in path else "?"
            connection.request(
                "GET", f"{path}{mark}watch=1&timeoutSeconds={timeout_seconds}", headers=self._headers("")
            )
            with connection.getresponse() as response:
                for line in response:
                    yield json.loads(line)

    def _exchange(self, method: str, path: str, data: bytes | None, content_type: str) -> tuple[int, Any]:
        for is_last in (False, True):
            connection = self._open()
            try:
                connection.request(method, path, data, self._headers(content_type))
                response = connection.getresponse()
                text = response.read()
            except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLError):
                self.close()  # closed while idle; nothing was done
                if is_last:
                    raise
                continue
            is_json = (response.headers.get("Content-Type") or "").startswith("application/json")
            return response.status, json.loads(text) if is_json else text.decode(errors="replace")
        raise AssertionError("unreachable")

    def _open(self) -> http.client.HTTPSConnection:
        if self._connection is None:
            host, port, context = self._login[:3]
            self._connection = http.client.HTTPSConnection(host, port, timeout=self._timeout_seconds, context=context)
        return self._connection

    def _headers(self, content_type: str) -> dict[str, str]:
        headers = {"Content-Type": content_type} if content_type else {}
        if self._login.token:
            headers["Authorization"] = f"Bearer {self._login.token}"
        return headers

    def _collection(self, document: Object, namespace: str) -> str:
        version, kind = document["apiVersion"], document["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        deadline = time.monotonic() + self._timeout_seconds
        while (version, kind) not in self._plurals and time.monotonic() < deadline:  # it may have come just now
            for each in self.get(root)["resources"]:
                if "/" not in each["name"]:
                    self._plurals[version, each["kind"]] = each["name"], each["namespaced"]
        plural, is_namespaced = self._plurals[version, kind]
        place = document["metadata"].get("namespace", namespace)
        return f"{root}/namespaces/{place}/{plural}" if is_namespaced else f"{root}/{plural}"


def until(fact: Callable[[], object], within_seconds: float = PATIENCE_SECONDS, what: str = "") -> Any:
    """Poll until `what` is fulfilled and return its result; fail with a description after a timeout."""
    deadline = time.monotonic() + within_seconds
    while not (found := fact()):
        assert time.monotonic() < deadline, f"{what or 'it'} did not come true within {within_seconds:g} s"
        time.sleep(0.05)
    return found
