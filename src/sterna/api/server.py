"""`serve`: the API of one cluster on a unix socket and on an address, in a thread of whoever runs the cluster.

Both are bound before this returns, so that a port that is taken is an error of the caller and not of a thread. The
socket is for this machine's commands; the address is for the page, for jobs that report over HTTP, and for others.
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
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sterna.api.application import Application
from sterna.api.auth import Gate, Rules
from sterna.api.peers import is_loopback, own_uid, peer_of
from sterna.api.responses import asked
from sterna.api.watch import Watching
from sterna.service.views import ClusterService
from sterna.errors import Bug, UserError

DEFAULT_PORT = 8470
_LISTEN = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<four>[^:\[\]]*)):(?P<port>[0-9]{1,5})")
_START_SECONDS = 10.0
_STOP_SECONDS = 5.0
_BACKLOG = 1024
_LONGEST_HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class Encryption:
    """Files of a certificate and its key."""

    certificate: str
    key: str


class Server:
    """An API that is being served."""

    def __init__(self, url: str, token_file: Path | None, thread: _Thread) -> None:
        self.url = url
        self.token_file = token_file
        """None: the address is this machine's own, and asks for no token."""
        self._thread = thread

    def stop(self) -> None:
        """Finish what is being answered, then end."""
        self._thread.stop()


def serve(
    verbs: ClusterService,
    socket_path: Path,
    listen: str = "",
    token_file: Path | None = None,
    *,
    encryption: Encryption | None = None,
    as_submitter: bool = False,
) -> Server:
    """Answer for this cluster until stopped. Without `listen` it is loopback's usual port, or any that is free."""
    host, port = parse_listen(listen) if listen else ("127.0.0.1", DEFAULT_PORT)
    needs_token = not is_loopback(host)
    token = token_in(token_file) if token_file is not None else ""
    if needs_token and not token:
        raise Bug(f"{host} is open to others, and there is no token file")
    app = Application(verbs)
    gate = Gate(app, Rules(own_uid(), token, as_submitter))
    servers = [_server(gate, None), _server(gate, encryption)]
    address = bound(host, port, may_be_another=not listen)
    try:
        local = _bound_socket(socket_path, 0o666 if as_submitter else 0o600)
    except UserError:
        address.close()
        raise
    thread = _Thread(app.watching, servers, [local, address], socket_path)
    thread.begin()
    scheme = "https" if encryption else "http"
    return Server(f"{scheme}://{_shown(address)}", token_file if needs_token else None, thread)


def parse_listen(text: str) -> tuple[str, int]:
    """The host and port of `127.0.0.1:8470`, `[::1]:8470`, `localhost:0` or `:8470` (every address)."""
    match = _LISTEN.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise UserError(
            f"--listen {text}: write HOST:PORT, e.g. 127.0.0.1:{DEFAULT_PORT}, with port 0 for any free one."
        )
    return match["six"] or match["four"] or "0.0.0.0", int(match["port"])


def token_in(path: Path) -> str:
    """The token, made if it is not there yet; only its owner can read the file."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _kept_token(path)
    except OSError as error:
        raise UserError(f"{path}: the token cannot be written ({error.strerror}); choose another --state.") from None
    token = secrets.token_urlsafe(32)
    with os.fdopen(handle, "w") as file:
        file.write(f"{token}\n")
        file.flush()
        os.fsync(file.fileno())
    return token


def _kept_token(path: Path) -> str:
    try:
        os.chmod(path, 0o600)
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{path}: the token cannot be read; delete the file, and a new one is made.") from None
    if len(token) < 16:
        raise UserError(f"{path}: this is no token; delete the file, and a new one is made.")
    return token


def bound(host: str, port: int, may_be_another: bool) -> socket.socket:
    """A socket at an address, or on any free port of it where the one that was meant is taken and need not be."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError:
        raise UserError(f"--listen {host}:{port}: there is no address '{host}'; use one of this machine's.") from None
    # Said in full: only then does asyncio let small packets go at once, and answers need not wait for an ACK.
    end = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        end.bind(place)
    except OSError as error:
        end.close()
        if may_be_another:
            return bound(host, 0, may_be_another=False)
        what = "this port is taken; choose another, or 0 for any" if error.errno == 98 else str(error.strerror).lower()
        raise UserError(f"--listen {host}:{port}: {what}.") from None
    return end


def _bound_socket(path: Path, mode: int) -> socket.socket:
    """A unix socket; what a killed process left in its place goes."""
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
    """A name for a path that fits into a socket's address, which holds 107 bytes."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _shown(end: socket.socket) -> str:
    """An address that a browser on this machine can open."""
    host, port = end.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Connection(HttpToolsProtocol):
    """A connection that knows who is at its other end, and that ends when the head of a request does not."""

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
        if not self._has_head:
            self._head_bytes += len(data)
            if self._head_bytes > _LONGEST_HEAD_BYTES:
                self.send_400_response("The head of this request is too long.")
                return
        super().data_received(data)


def _server(app: Gate, encryption: Encryption | None) -> uvicorn.Server:
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
    """The loop on which everything is answered."""

    def __init__(
        self, watching: Watching, servers: list[uvicorn.Server], ends: list[socket.socket], path: Path
    ) -> None:
        self._watching, self._servers, self._ends, self._path = watching, servers, ends, path
        self._is_ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="sterna-api", daemon=True)

    def begin(self) -> None:
        self._thread.start()
        if not self._is_ready.wait(_START_SECONDS):
            raise Bug("the API did not begin to listen")

    def stop(self) -> None:
        loop = self._loop
        if loop is None or not self._thread.is_alive():
            return
        for server in self._servers:
            server.should_exit = True
        with suppress(RuntimeError):  # the loop has ended in between
            loop.call_soon_threadsafe(self._watching.close)
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._is_ready.set()
            for end in self._ends:
                end.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watching.start(self._loop)
        serving = [
            asyncio.create_task(server.serve(sockets=[end]))
            for server, end in zip(self._servers, self._ends, strict=True)
        ]
        while not all(server.started for server in self._servers) and not any(task.done() for task in serving):
            await asyncio.sleep(0.005)
        self._is_ready.set()
        await asked(os.getpid)  # anything: so that the first to ask does not wait for what is imported for threads
        await asyncio.gather(*serving)
