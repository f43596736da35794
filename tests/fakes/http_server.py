"""A fake cluster behind the real API, on a unix socket and on loopback, for as long as a test lasts."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sterna.api import Server, serve
from tests.fakes.cluster import FakeCluster

MANIFEST = """\
apiVersion: sterna.dev/v1alpha1
kind: TrainingJob
metadata: {name: NAME}
spec: {command: [python, train.py], workers: 1:2, resizing: restart}
"""


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def value(self) -> Any:
        return json.loads(self.text)

    @property
    def detail(self) -> str:
        return str(self.value["detail"])


@dataclass(frozen=True)
class Served:
    """A cluster, and a way to ask it."""

    cluster: FakeCluster
    server: Server
    state: Path

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Reply:
        """Ask over loopback; a body that is not text is sent as JSON."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, str):
            body, named["Content-Type"] = json.dumps(body), "application/json"
        connection = http.client.HTTPConnection(self.server.url.partition("://")[2], timeout=20)
        try:
            connection.request(method, path, body, named)
            reply = connection.getresponse()
            found = {name.lower(): value for name, value in reply.getheaders()}
            return Reply(reply.status, found, reply.read().decode())
        finally:
            connection.close()

    def create(self, *names: str) -> None:
        """Jobs of these names."""
        text = "---\n".join(MANIFEST.replace("NAME", name) for name in names)
        assert self.ask("POST", "/api/v1/jobs", text).status == 201


@contextmanager
def served(state: Path, **options: Any) -> Iterator[Served]:
    cluster = FakeCluster()
    listen = options.pop("listen", "127.0.0.1:0")
    server = serve(cluster, state / "api.sock", listen, state / "token", **options)
    try:
        yield Served(cluster, server, state)
    finally:
        server.stop()
