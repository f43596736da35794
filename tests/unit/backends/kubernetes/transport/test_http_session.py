"""`HttpSession` against a loopback server that answers as each test wants."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from sterna.backends.kubernetes.transport import http_session
from sterna.backends.kubernetes.transport.http_session import (
    HttpRequest,
    HttpSession,
    NoReplyError,
    NotConnectedError,
    StreamHandler,
    WithdrawnError,
)
from sterna.backends.kubernetes.transport.kubeconfig import Access

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
TIMEOUT_SECONDS = 20.0


class Server:
    """Records the requests it was sent and how many connections they came over."""

    def __init__(self, answer: Callable[[int], bytes | None]) -> None:
        self._answer = answer
        self.requests: list[bytes] = []
        self.address = ""
        self.connections = 0
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                _, _, length = head.partition(b"Content-Length: ")
                self.requests.append(head + await reader.readexactly(int(length.split()[0]) if length else 0))
                answer = self._answer(len(self.requests))
                if answer is None:
                    break
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.closed.set()
            writer.close()

    @property
    def targets(self) -> list[str]:
        return [head.split()[1].decode() for head in self.requests]


@asynccontextmanager
async def opened(address: str, **access: Any) -> AsyncIterator[HttpSession]:
    session = HttpSession(Access(address, **access))
    await session.open()
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            yield session
    finally:
        await session.close()
        for _ in range(3):
            await asyncio.sleep(0)


@asynccontextmanager
async def served(answer: Callable[[int], bytes | None], root: str = "") -> AsyncIterator[tuple[Server, HttpSession]]:
    server = Server(answer)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()[:2]
    server.address = f"http://{host}:{port}{root}"
    try:
        async with opened(server.address) as session:
            yield server, session
    finally:
        listening.close()
        await listening.wait_closed()


async def post(session: HttpSession, path: str = "/pods", body: bytes = b"{}", method: str = "POST") -> int:
    return (await session.exchange(HttpRequest(method, path, "fieldManager=sterna", body), TIMEOUT_SECONDS)).status


def test_request_carries_path_query_headers_and_body() -> None:
    async def run() -> bytes:
        async with served(lambda number: OK, "/clusters/one/") as (server, session):
            session.authorize("Bearer secret\n")
            await post(session, "/pods/a name", b'{"a":1}')
            return server.requests[0]

    first, *lines = asyncio.run(run()).split(b"\r\n")
    assert first == b"POST /clusters/one/pods/a%20name?fieldManager=sterna HTTP/1.1"
    assert {b"Authorization: Bearer secret", b"Accept: application/json", b"Content-Type: application/json"} < set(
        lines
    )
    assert b"Accept-Encoding: identity" in lines
    assert lines[-1] == b'{"a":1}'


def test_sequential_requests_share_one_connection() -> None:
    async def run() -> tuple[list[int], int]:
        async with served(lambda number: OK) as (server, session):
            return [await post(session) for _ in range(5)], server.connections

    assert asyncio.run(run()) == ([200] * 5, 1)


def test_concurrent_requests_use_one_connection_each() -> None:
    async def run() -> tuple[list[int], int]:
        async with served(lambda number: OK) as (server, session):
            return await asyncio.gather(*(post(session) for _ in range(4))), server.connections

    assert asyncio.run(run()) == ([200] * 4, 4)


def test_connection_that_the_server_closes_is_not_reused() -> None:
    async def run() -> tuple[list[int], int]:
        async with served(lambda number: LAST if number == 1 else OK) as (server, session):
            return [await post(session) for _ in range(3)], server.connections

    assert asyncio.run(run()) == ([200] * 3, 2)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "GET"])
@pytest.mark.parametrize("answer", [None, b"SSH-2.0-OpenSSH\r\n\r\n", OK[:-1]])
def test_request_without_a_complete_reply_is_never_sent_again(answer: bytes | None, method: str) -> None:
    """aiohttp repeats requests that HTTP calls idempotent; a repeated DELETE could delete a successor."""

    async def run() -> int:
        def reply(number: int) -> bytes | None:
            return answer if number == 2 else OK

        async with served(reply) as (server, session):
            await post(session)  # the failure hits a kept connection
            request = HttpRequest(method, "/pods")
            with pytest.raises(NoReplyError):
                await session.exchange(request, TIMEOUT_SECONDS, 0.1)
            assert len(server.requests) == 2
            return await post(session)

    assert asyncio.run(run()) == 200


@pytest.mark.parametrize(("total_seconds", "silence_seconds"), [(0.05, None), (TIMEOUT_SECONDS, 0.05)])
def test_missing_reply_times_out(total_seconds: float, silence_seconds: float | None) -> None:
    async def run() -> None:
        async with served(lambda number: b"") as (_, session):
            with pytest.raises(NoReplyError):
                await session.exchange(HttpRequest("POST", "/pods"), total_seconds, silence_seconds)

    asyncio.run(run())


def test_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_session, "_KEEP_ALIVE_SECONDS", 0.01)

    async def run() -> int:
        async with served(lambda number: OK) as (server, session):
            await post(session)
            await server.closed.wait()
            return await post(session)

    assert asyncio.run(run()) == 200


def test_request_to_a_dead_server_was_not_sent() -> None:
    async def run() -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            async with opened(f"http://127.0.0.1:{free.getsockname()[1]}") as session:
                with pytest.raises(NotConnectedError):
                    await post(session)

    asyncio.run(run())


def test_connection_that_cannot_be_opened_in_time_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_session, "_CONNECT_SECONDS", 0.05)

    async def never(*args: object, **options: object) -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        async with opened("http://127.0.0.1:9") as session:
            monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", never)
            with pytest.raises(NotConnectedError):
                await post(session)

    asyncio.run(run())


def test_second_address_is_tried_when_the_first_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> int:
        async with served(lambda number: OK) as (server, _):
            port = int(server.address.rpartition(":")[2])
            found = [
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("127.0.0.2", "127.0.0.1")
            ]

            async def getaddrinfo(*args: object, **options: object) -> object:
                return found

            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
            async with opened(f"http://kube.example:{port}") as session:
                return await post(session)

    assert asyncio.run(run()) == 200


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:99999", "http://127.0.0.1:808o", "http://kube..example"])
def test_request_through_an_impossible_proxy_was_not_sent(proxy: str) -> None:
    async def run() -> None:
        async with opened("http://127.0.0.1:9", proxy=proxy) as session:
            with pytest.raises(NotConnectedError):
                await post(session)

    asyncio.run(run())


def test_may_send_is_asked_once_the_connection_is_open() -> None:
    """A write that was started by the leader must not go out after the Lease was lost while connecting."""

    async def run() -> list[str]:
        async with served(lambda number: OK) as (server, session):
            with pytest.raises(WithdrawnError):
                await session.exchange(HttpRequest("POST", "/late"), TIMEOUT_SECONDS, may_send=lambda: False)
            assert await post(session, "/next") == 200
            assert server.connections > 0
            return server.targets

    assert asyncio.run(run()) == ["/next?fieldManager=sterna"]


def test_closed_session_sends_nothing() -> None:
    async def run() -> int:
        async with served(lambda number: OK) as (server, session):
            await session.close()
            with pytest.raises(NotConnectedError):
                await post(session)
            return server.connections

    assert asyncio.run(run()) == 0


def test_large_bodies_are_sent_whole() -> None:
    async def run() -> bytes:
        async with served(lambda number: OK) as (server, session):
            await post(session, body=b"x" * 2**21)
            return server.requests[0]

    assert asyncio.run(run()).endswith(b"\r\n\r\n" + b"x" * 2**21)


def test_retry_after_is_read_from_the_reply() -> None:
    busy = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"

    async def run() -> tuple[int, float]:
        async with served(lambda number: busy) as (_, session):
            reply = await session.exchange(HttpRequest("POST", "/pods"), TIMEOUT_SECONDS)
            return reply.status, reply.retry_after

    assert asyncio.run(run()) == (429, 7.0)


def test_redirect_is_not_followed() -> None:
    moved = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"

    async def run() -> tuple[int, list[str]]:
        async with served(lambda number: moved) as (server, session):
            return await post(session), server.targets

    assert asyncio.run(run()) == (307, ["/pods?fieldManager=sterna"])


def test_stream_is_passed_on_as_it_arrives_and_its_connection_is_kept() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = head + b"2\r\na\n\r\n4\r\nb\nc\n\r\n0\r\n\r\n"
    received: list[bytes] = []

    def on_data(data: bytes) -> bool:
        received.append(data)
        return True

    async def run() -> tuple[int, int, int]:
        async with served(lambda number: chunks if number == 1 else OK) as (server, session):
            handler = StreamHandler(lambda: received.append(b"open"), on_data)
            reply = await session.stream(HttpRequest("GET", "/pods", "watch=1"), handler, TIMEOUT_SECONDS)
            return reply.status, await post(session), server.connections

    assert asyncio.run(run()) == (200, 200, 1)
    assert received[0] == b"open"
    assert b"".join(received[1:]) == b"a\nb\nc\n"


def test_handler_that_returns_false_ends_the_stream() -> None:
    endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na\n\r\n"

    async def run() -> tuple[int, int]:
        async with served(lambda number: endless if number == 1 else OK) as (server, session):
            handler = StreamHandler(lambda: None, lambda data: False)
            await session.stream(HttpRequest("GET", "/pods", "watch=1"), handler, TIMEOUT_SECONDS)
            return await post(session), server.connections

    assert asyncio.run(run()) == (200, 2)


@pytest.mark.parametrize("end", [None, b""])
def test_stream_that_breaks_off_or_falls_silent_has_no_reply(end: bytes | None) -> None:
    cut = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na\n\r\n"

    async def run() -> None:
        async with served(lambda number: end if end is None else cut) as (_, session):
            handler = StreamHandler(lambda: None, lambda data: True)
            with pytest.raises(NoReplyError):
                await session.stream(HttpRequest("GET", "/pods", "watch=1"), handler, 0.1)

    asyncio.run(run())


def test_refused_stream_is_returned_whole() -> None:
    gone = b"HTTP/1.1 410 Gone\r\nContent-Length: 4\r\n\r\nlate"

    async def run() -> tuple[int, bytes]:
        async with served(lambda number: gone) as (_, session):
            handler = StreamHandler(lambda: pytest.fail("it was refused"), lambda data: pytest.fail("it was refused"))
            reply = await session.stream(HttpRequest("GET", "/pods", "watch=1"), handler, TIMEOUT_SECONDS)
            return reply.status, reply.body

    assert asyncio.run(run()) == (410, b"late")


def test_closed_session_leaves_no_socket_open() -> None:
    async def run() -> int:
        async with served(lambda number: OK) as (_, session):
            await asyncio.gather(*(post(session) for _ in range(4)))
        gc.collect()
        return sum(isinstance(each, aiohttp.TCPConnector) and not each.closed for each in gc.get_objects())

    assert asyncio.run(run()) == 0
