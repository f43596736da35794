"""A proxy before a real API server that counts writes, and can kill a client between any two of them.

The client speaks plain HTTP to it on loopback and is, to the server, the administrator. Watches are passed on as they
come. Leases and events are not counted (they hold no state of jobs), nor are rejected writes.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import aiohttp
from aiohttp import web

from tests.kubernetes.api import login_of

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_NOT_COUNTED = frozenset({"leases", "events"})
_OF_A_HOP = frozenset({"host", "connection", "transfer-encoding", "content-length", "content-encoding", "date"})


class Proxy:
    """Running, for as long as its block. Each life of the client is granted a number of writes; then `at_last` is
    called once, and no reply is sent until `grant` begins another life."""

    def __init__(self, kubeconfig: Path, folder: Path, at_last: Callable[[], None]) -> None:
        self._login = login_of(kubeconfig)
        self._at_last = at_last
        self.kubeconfig = folder / "proxy.conf"
        self.writes: list[str] = []
        """Method and path of all that changed something, in order."""
        self._left: int | None = None
        self._is_over = False
        self._order = asyncio.Lock()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def grant(self, writes: int | None) -> None:
        """To the next life of the client; None: as many as it likes."""

        async def granted() -> None:
            async with self._order:  # the last write ends before the next life begins
                self._left, self._is_over = writes, False

        asyncio.run_coroutine_threadsafe(granted(), self._loop).result()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._login.context)
        base = f"https://{self._login.host}:{self._login.port}"
        forever = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            base, connector=connector, timeout=forever, auto_decompress=False
        ) as self._session:
            app = web.Application(client_max_size=2**26)
            app.router.add_route("*", "/{path:.*}", self._pass_on)
            runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self._write_kubeconfig(runner.addresses[0][1])
            self._ready.set()
            await self._stop.wait()
            await runner.cleanup()
        await asyncio.sleep(0.25)  # what TLS connections take to close

    def _write_kubeconfig(self, port: int) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "proxy", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
            "current-context": "proxy",
        }
        self.kubeconfig.write_text(json.dumps(document), encoding="utf-8")

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if (
            request.method not in WRITES
            or request.path.rpartition("/")[2] in _NOT_COUNTED
            or "/leases/" in request.path
        ):
            return await self._exchange(request, body)
        async with self._order:  # one after the other, so that none slips through beside the last
            if self._is_over:
                raise web.HTTPServiceUnavailable  # the client is dead
            status, headers, text = await self._ask(request, body)
            if status < 300:
                self.writes.append(f"{request.method} {request.path}")
                self._left = None if self._left is None else self._left - 1
            if self._left != 0:
                return web.Response(status=status, headers=headers, body=text)
            self._is_over = True
            await self._loop.run_in_executor(None, self._at_last)
        raise web.HTTPServiceUnavailable

    async def _ask(self, request: web.Request, body: bytes) -> tuple[int, dict[str, str], bytes]:
        async with self._session.request(
            request.method, request.rel_url, data=body, headers=_end_to_end_headers(request.headers)
        ) as answer:
            return answer.status, _end_to_end_headers(answer.headers), await answer.read()

    async def _exchange(self, request: web.Request, body: bytes) -> web.StreamResponse:
        async with self._session.request(
            request.method, request.rel_url, data=body, headers=_end_to_end_headers(request.headers)
        ) as answer:
            response = web.StreamResponse(status=answer.status, headers=_end_to_end_headers(answer.headers))
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response


def _end_to_end_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OF_A_HOP}
