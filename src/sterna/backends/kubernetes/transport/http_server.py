"""A small HTTP server on a thread of its own, for the few endpoints of a monitor.

Bodies are limited in size and time; a rejected request gets a status and a sentence, and no reply shows a traceback.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable

import msgspec
from aiohttp import web

from sterna.errors import Retry, UserError

_log = logging.getLogger(__name__)

_BODY_SECONDS = 10.0
_STOP_SECONDS = 5.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Refusal(Exception):  # noqa: N818 - a response, not an error of ours
    """A rejected request: the HTTP status, and the sentence that is its body."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class Route(msgspec.Struct, frozen=True):
    """An endpoint: method, path and its handler."""

    method: str
    path: str
    handler: Handler


class Listener:
    """Serves routes on one address until stopped."""

    def __init__(self, listen: str, routes: Iterable[Route], most_bytes: int) -> None:
        """`listen`: `HOST:PORT`; an empty host stands for all addresses, port 0 for any free one."""
        self._host, self._port = host_and_port(listen)
        self._app = web.Application(client_max_size=most_bytes, middlewares=[_handle_errors])
        for route in routes:
            self._app.router.add_route(route.method, route.path, route.handler)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._is_up = threading.Event()
        self._bind_error: OSError | None = None
        self._over = asyncio.Event()

    @property
    def port(self) -> int:
        return self._port

    def start(self) -> None:
        """Start the thread; returns once the server accepts connections."""
        self._thread.start()
        self._is_up.wait()
        if self._bind_error is not None:
            self._thread.join()
            where, why = f"{self._host or '*'}:{self._port}", self._bind_error.strerror or self._bind_error
            raise UserError(
                f"Nothing can listen on {where} ({why}); choose another address with --listen, or end what uses it."
            )

    def stop(self) -> None:
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        loop = self._loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._serve())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            self._is_up.set()
            loop.close()

    async def _serve(self) -> None:
        runner = web.AppRunner(self._app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host or None, self._port)
            await site.start()
            self._port = runner.addresses[0][1]
            self._is_up.set()
            await self._over.wait()
        except OSError as error:
            self._bind_error = error
        finally:
            await runner.cleanup()


def host_and_port(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UserError(f"--listen {listen}: this is no address; give HOST:PORT or :PORT.")
    return host.strip("[]"), int(port)


async def body_of(request: web.Request) -> bytes:
    """Read the whole body within `_BODY_SECONDS`."""
    try:
        return await asyncio.wait_for(request.read(), _BODY_SECONDS)
    except TimeoutError:
        raise Refusal(408, f"The body did not arrive within {_BODY_SECONDS:.0f} seconds.") from None


@web.middleware
async def _handle_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refusal as refusal:
        return _reply(refusal.status, refusal.sentence)
    except web.HTTPRequestEntityTooLarge:
        return _reply(413, "The body is too large; send less at a time.")
    except web.HTTPRedirection:
        raise
    except web.HTTPException as other:
        return _reply(other.status, f"{other.reason}: {request.method} {request.path[:200]}.")
    except Retry as failure:
        return _reply(503, str(failure))
    except UserError as error:
        return _reply(422, str(error))
    except Exception as error:
        _log.exception("%s %s failed.", request.method, request.path[:200])
        return _reply(500, f"This is a bug of Sterna, not your fault ({type(error).__name__}); see its log.")


def _reply(status: int, sentence: str) -> web.Response:
    return web.Response(status=status, text=f"{sentence}\n")
