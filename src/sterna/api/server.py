"""`serve`: the HTTP application of a daemon's cluster, on a unix socket and on an address, in a thread.

Both are bound before `serve` returns, so that a port that is taken is an error of the caller. Commands of this machine
use the socket; the dashboard, jobs that report over HTTP and other machines use the address.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.concurrency import run_in_threadpool
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sterna.api.application import Application, create_application
from sterna.api.auth import LocalAuthenticator
from sterna.api.compat import container_migration
from sterna.api.health import HEALTH_PATHS, create_health_router
from sterna.api.metrics import create_metrics_router
from sterna.api.peers import is_loopback, own_uid, peer_of
from sterna.control.health import HealthChecks
from sterna.errors import Bug, UserError
from sterna.service.cluster_service import ClusterService

DEFAULT_PORT = 8470
_LISTEN = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<four>[^:\[\]]*)):(?P<port>[0-9]{1,5})")
_START_SECONDS = 10.0
_STOP_SECONDS = 5.0
_BACKLOG = 1024
_LONGEST_HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class Encryption:
    """Files of a TLS certificate and its key."""

    certificate: str
    key: str


class Server:
    """A running server."""

    def __init__(self, url: str, token_file: Path | None, thread: _Thread) -> None:
        self.url = url
        self.port = int(url.rpartition(":")[2])
        self.token_file = token_file
        """None: the address is a loopback address, and needs no token."""
        self._thread = thread

    def stop(self) -> None:
        """Finish the requests in progress, then stop."""
        self._thread.stop()


def serve(
    service: ClusterService,
    socket_path: Path,
    listen: str = "",
    token_file: Path | None = None,
    *,
    health: HealthChecks | None = None,
    encryption: Encryption | None = None,
    as_submitter: bool = False,
) -> Server:
    """Serve a cluster until stopped. Default of `listen`: the default port on loopback, or a free one."""
    host, port = parse_listen(listen) if listen else ("127.0.0.1", DEFAULT_PORT)
    needs_token = not is_loopback(host)
    token = read_token(token_file) if token_file is not None else ""
    if needs_token and not token:
        raise Bug(f"{host} is open to others, and there is no token file")
    authenticator = LocalAuthenticator(own_uid(), token, as_submitter)
    routers = [container_migration.router, create_metrics_router(service)]
    if health is not None:
        routers.append(create_health_router(health))
    app = create_application(service, authenticator, routers, public_paths=HEALTH_PATHS)
    servers = [_create_server(app, None), _create_server(app, encryption)]
    address = bind_address(host, port, may_be_another=not listen)
    try:
        local = _bind_socket(socket_path, 0o666 if as_submitter else 0o600)
    except UserError:
        address.close()
        raise
    thread = _Thread(app, servers, [local, address], socket_path)
    thread.start()
    scheme = "https" if encryption else "http"
    return Server(f"{scheme}://{_format_address(address)}", token_file if needs_token else None, thread)


def serve_address(app: Application, listen: str) -> Server:
    """Serve an application on one address, without a unix socket and without TLS, until stopped."""
    address = bind_address(*parse_listen(listen), may_be_another=False)
    thread = _Thread(app, [_create_server(app, None)], [address])
    thread.start()
    return Server(f"http://{_format_address(address)}", None, thread)


def parse_listen(text: str) -> tuple[str, int]:
    """Parse the host and port of `127.0.0.1:8470`, `[::1]:8470`, `localhost:0` or `:8470` (every address)."""
    match = _LISTEN.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise UserError(
            f"--listen {text}: write HOST:PORT, e.g. 127.0.0.1:{DEFAULT_PORT}, with port 0 for any free one."
        )
    return match["six"] or match["four"] or "0.0.0.0", int(match["port"])


def read_token(path: Path) -> str:
    """Return the token of a file that only its owner can read; created if there is none."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _load_token(path)
    except OSError as error:
        raise UserError(f"{path}: the token cannot be written ({error.strerror}); choose another --state.") from None
    token = secrets.token_urlsafe(32)
    with os.fdopen(handle, "w") as file:
        file.write(f"{token}\n")
        file.flush()
        os.fsync(file.fileno())
    return token


def _load_token(path: Path) -> str:
    try:
        os.chmod(path, 0o600)
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{path}: the token cannot be read; delete the file, and a new one is made.") from None
    if len(token) < 16:
        raise UserError(f"{path}: this is no token; delete the file, and a new one is made.")
    return token


def bind_address(host: str, port: int, may_be_another: bool) -> socket.socket:
    """Bind an address; if the port is taken and `may_be_another`, a free port."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError:
        raise UserError(f"--listen {host}:{port}: there is no address '{host}'; use one of this machine's.") from None
    # With the protocol named, asyncio sets TCP_NODELAY, so that responses need not wait for an ACK.
    end = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        end.bind(place)
    except OSError as error:
        end.close()
        if may_be_another:
            return bind_address(host, 0, may_be_another=False)
        what = "this port is taken; choose another, or 0 for any" if error.errno == 98 else str(error.strerror).lower()
        raise UserError(f"--listen {host}:{port}: {what}.") from None
    return end


def _bind_socket(path: Path, mode: int) -> socket.socket:
    """Bind a unix socket; a file that a killed process left there is removed."""
    with suppress(FileNotFoundError):
        path.unlink()
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o777 & ~mode)
    try:
        with _short(path) as name:
            end.bind(name)
    except OSError as error:
        end.close()
        raise UserError(f"{path}: no socket can be made there ({error.strerror}); choose another --state.") from None
    finally:
        os.umask(mask)
    return end


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yield a short alias of a path: a socket's address holds 107 bytes."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _format_address(end: socket.socket) -> str:
    """Format an address that a browser on this machine can open."""
    host, port = end.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Connection(HttpToolsProtocol):
    """A connection that knows its peer, and rejects requests with too long a head."""

    _has_head = False
    _head_bytes = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.app_state = {**self.app_state, "peer": peer_of(transport)}

    def on_message_begin(self) -> None:
        self._has_head, self._head_bytes = False, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._has_head = True
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._has_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > _LONGEST_HEAD_BYTES:
                self.send_400_response("The head of this request is too long.")


def _create_server(app: Application, encryption: Encryption | None) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        http=_Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
        ssl_certfile=encryption.certificate if encryption else None,
        ssl_keyfile=encryption.key if encryption else None,
    )
    try:
        config.load()
    except (OSError, ValueError) as error:
        raise UserError(
            f"The certificate and its key cannot be used ({error}); give --tls-cert and --tls-key."
        ) from None
    return uvicorn.Server(config)


class _Thread:
    """The thread with the event loop of the servers."""

    def __init__(
        self, app: Application, servers: list[uvicorn.Server], ends: list[socket.socket], path: Path | None = None
    ) -> None:
        """`path`: of a unix socket, removed at the end."""
        self._app, self._servers, self._ends, self._path = app, servers, ends, path
        self._is_ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="sterna-api", daemon=True)

    def start(self) -> None:
        self._thread.start()
        if not self._is_ready.wait(_START_SECONDS):
            raise Bug("the API did not begin to listen")

    def stop(self) -> None:
        loop = self._loop
        if loop is None or not self._thread.is_alive():
            return
        for server in self._servers:
            server.should_exit = True
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(self._app.close)
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._is_ready.set()
            for end in self._ends:
                end.close()
            if self._path is not None:
                self._path.unlink(missing_ok=True)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        serving = [
            asyncio.create_task(server.serve(sockets=[end]))
            for server, end in zip(self._servers, self._ends, strict=True)
        ]
        while not all(server.started for server in self._servers) and not any(task.done() for task in serving):
            await asyncio.sleep(0.005)
        self._is_ready.set()
        await run_in_threadpool(os.getpid)  # imports what threads need, so that the first request does not wait
        await asyncio.gather(*serving)
