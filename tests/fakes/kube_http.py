"""A cluster in memory behind HTTP on loopback, for the real client.

Its time stands unless a test advances it; no TLS.

with HttpKube(FakeKube()) as http:
    client = Client(Access(http.server))
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from aiohttp import web

from sterna.kinds.resource import Resource
from tests.fakes.kube import FakeKube
from tests.fakes.kube_requests import Response
from tests.fakes.kube_store import Event, Refused, Selection, encoded, error_line, line_of, status_of

_T = TypeVar("_T")
_READY_SECONDS = 10.0


class HttpKube:
    """Serves a cluster until it is left. The cluster belongs to its thread: touch it by `do`."""

    def __init__(self, kube: FakeKube, port: int = 0) -> None:
        self.kube, self._port = kube, port
        self.server = ""
        self.answer_instead: Callable[[str, str], Response | None] = lambda method, path: None
        """A fault: what to answer without doing anything."""
        self.cut_after: Callable[[str, str], bool] = lambda method, path: False
        """A fault: whether to do what is asked and cut the connection instead of answering."""
        self.requests: list[tuple[str, str]] = []
        self._loop = asyncio.new_event_loop()
        self._queues: dict[asyncio.Queue[bytes | None], tuple[Resource, Selection]] = {}
        self._ready = threading.Event()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="fake-kube", daemon=True)

    def __enter__(self) -> HttpKube:
        self.kube.store.listeners.append(self._note)
        self._thread.start()
        assert self._ready.wait(_READY_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(_READY_SECONDS)
        self.kube.store.listeners.remove(self._note)

    def do(self, act: Callable[[FakeKube], _T]) -> _T:
        """Change the cluster as another client, on its own thread."""

        async def run() -> _T:
            return act(self.kube)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_READY_SECONDS)

    def end_watches(self, last: Refused | None = None) -> None:
        """In silence, or with an error event."""

        def end(kube: FakeKube) -> None:
            for queue in self._queues:
                if last is not None:
                    queue.put_nowait(error_line(last))
                queue.put_nowait(None)

        self.do(end)

    def watches(self) -> int:
        return self.do(lambda kube: len(self._queues))

    # The server's thread.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _serve(self) -> None:
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self._port)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.server = f"http://{host}:{port}"
        self._ready.set()
        await self._over.wait()
        for queue in self._queues:
            queue.put_nowait(None)
        await runner.cleanup()
        for _ in range(3):
            await asyncio.sleep(0)  # connections that clients cut in this moment get to close their sockets

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        body = await request.read()
        instead = self.answer_instead(request.method, request.path)
        if instead is not None:
            return _answer(instead)
        if request.method == "GET" and request.query.get("watch") in ("1", "true"):
            return await self._watch(request)
        content_type = request.headers.get("Content-Type", "")
        response = self.kube.handle(request.method, request.path, request.query_string, body, content_type)
        if self.cut_after(request.method, request.path) and request.transport is not None:
            request.transport.abort()
        return _answer(response)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = self.kube.rest.request("GET", request.path, request.query_string)
        except Refused as refused:
            return _answer(Response(refused.status, encoded(status_of(refused))))
        target, selection = asked.target, Selection.of(asked.target.namespace, asked.query)
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        try:
            lines = self.kube.store.since(target.resource, selection, int(asked.query.get("resourceVersion", 0)))
        except Refused as refused:  # too late for a status: it comes as an event, as from a real server
            await stream.prepare(request)
            await stream.write(error_line(refused))
            return stream
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._queues[queue] = (target.resource, selection)
        self._loop.call_later(float(asked.query.get("timeoutSeconds", 600)), queue.put_nowait, None)
        try:
            await stream.prepare(request)
            await stream.write(b"".join(lines))
            while (line := await queue.get()) is not None:
                await stream.write(line)
        finally:
            del self._queues[queue]
        return stream

    def _note(self, resource: Resource, event: Event) -> None:
        for queue, (watched, selection) in self._queues.items():
            if watched == resource and (line := line_of(event, selection)) is not None:
                queue.put_nowait(line)


def _answer(response: Response) -> web.Response:
    headers = {"Retry-After": "0"} if response.status == 429 else {}
    return web.Response(body=response.body, status=response.status, content_type="application/json", headers=headers)
