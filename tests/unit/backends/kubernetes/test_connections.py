"""Kept connections, to a server that answers as each test wants. Loopback only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from sterna.backends.kubernetes.transport import connection_pool
from sterna.backends.kubernetes.transport.connection_pool import (
    Connections,
    NoReplyError,
    NotConnectedError,
    Outcome,
    Request,
    WithdrawnError,
)
from sterna.backends.kubernetes.transport.dial import Way
from sterna.backends.kubernetes.transport.http_parser import Stream

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
PATIENCE_SECONDS = 20.0


class Server:
    """Remembers what it was asked over which connection."""

    def __init__(self, answer: Callable[[int], bytes | None]) -> None:
        self._answer = answer
        self.asked: list[bytes] = []
        self.address = ""
        self.opened = 0
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.rpartition(b"Content-Length: ")[2])
                self.asked.append(head + await reader.readexactly(length))
                answer = self._answer(len(self.asked))
                if answer is None:
                    break
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.closed.set()
            writer.close()


@asynccontextmanager
async def served(answer: Callable[[int], bytes | None], root: str = "") -> AsyncIterator[tuple[Server, Connections]]:
    server = Server(answer)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()[:2]
    server.address = f"http://{host}:{port}{root}"
    kept = Connections(server.address, None)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield server, kept
    finally:
        kept.close()
        listening.close()
        await listening.wait_closed()


async def exchanged(kept: Connections, path: str = "/pods", body: bytes = b"{}") -> int:
    heard: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    kept.send(Request("POST", path, "fieldManager=sterna", body), heard.set_result)
    assert not heard.done()
    outcome = await heard
    if isinstance(outcome, Exception):
        raise outcome
    return outcome.status


def test_a_request_says_all_there_is_to_say() -> None:
    async def whole() -> bytes:
        async with served(lambda number: OK, "/clusters/one/") as (server, kept):
            kept.show({"Authorization": "Bearer secret\n", "Accept": "application/json"})
            await exchanged(kept, "/pods/a name", b'{"a":1}')
            return server.asked[0]

    first, *lines = asyncio.run(whole()).split(b"\r\n")
    assert first == b"POST /clusters/one/pods/a%20name?fieldManager=sterna HTTP/1.1"
    assert lines[0].startswith(b"Host: 127.0.0.1:")
    assert lines[1:] == [
        b"Authorization: Bearer secret",
        b"Accept: application/json",
        b"Content-Type: application/json",
        b"Content-Length: 7",
        b"",
        b'{"a":1}',
    ]


def test_one_connection_serves_one_request_after_the_other() -> None:
    async def whole() -> tuple[list[int], int]:
        async with served(lambda number: OK) as (server, kept):
            return [await exchanged(kept) for _ in range(5)], server.opened

    assert asyncio.run(whole()) == ([200] * 5, 1)


def test_requests_side_by_side_have_connections_of_their_own() -> None:
    async def whole() -> tuple[list[int], int]:
        async with served(lambda number: OK) as (server, kept):
            return await asyncio.gather(*(exchanged(kept) for _ in range(4))), server.opened

    assert asyncio.run(whole()) == ([200] * 4, 4)


def test_a_connection_that_the_server_ends_is_used_no_more() -> None:
    async def whole() -> tuple[list[int], int]:
        async with served(lambda number: LAST if number == 1 else OK) as (server, kept):
            return [await exchanged(kept) for _ in range(3)], server.opened

    assert asyncio.run(whole()) == ([200] * 3, 2)


@pytest.mark.parametrize("answer", [None, b"SSH-2.0-OpenSSH\r\n\r\n"])
def test_a_request_without_a_reply_is_told_so_and_the_next_one_is_not_hurt(answer: bytes | None) -> None:
    async def whole() -> int:
        async with served(lambda number: answer if number == 1 else OK) as (_, kept):
            with pytest.raises(NoReplyError):
                await exchanged(kept)
            return await exchanged(kept)

    assert asyncio.run(whole()) == 200


def test_half_a_reply_is_none_when_the_end_comes() -> None:
    async def whole() -> None:
        async with served(lambda number: OK[:-1]) as (server, kept):
            asking = asyncio.ensure_future(exchanged(kept))
            while not server.asked:
                await asyncio.sleep(0)
            kept.close()
            with pytest.raises(NoReplyError):
                await asking

    asyncio.run(whole())


def test_a_reply_that_does_not_come_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "SILENCE_SECONDS", 0.0)
    monkeypatch.setattr(connection_pool, "_LOOK_SECONDS", 0.01)

    async def whole() -> None:
        async with served(lambda number: b"") as (_, kept):
            with pytest.raises(NoReplyError, match="nothing came"):
                await exchanged(kept)

    asyncio.run(whole())


def test_a_connection_that_is_of_no_use_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "_KEPT_SECONDS", 0.0)
    monkeypatch.setattr(connection_pool, "_LOOK_SECONDS", 0.01)

    async def whole() -> int:
        async with served(lambda number: OK) as (server, kept):
            await exchanged(kept)
            await server.closed.wait()
            return await exchanged(kept)

    assert asyncio.run(whole()) == 200


def test_a_request_that_finds_no_server_was_not_sent() -> None:
    async def whole() -> None:
        async with served(lambda number: OK) as (_, kept):
            pass
        with pytest.raises(NotConnectedError):
            await exchanged(kept)

    asyncio.run(whole())


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:99999", "http://127.0.0.1:808o", "http://kube..example"])
def test_whoever_asks_by_a_way_that_cannot_be_hears_of_it(proxy: str) -> None:
    async def outcome() -> None:
        kept = Connections("http://127.0.0.1:9", None, proxy=proxy)
        with pytest.raises(NotConnectedError):
            await exchanged(kept)
        kept.close()

    asyncio.run(outcome())


def test_a_request_that_nobody_waits_for_any_more_is_not_sent() -> None:
    async def asked() -> list[bytes]:
        async with served(lambda number: OK) as (server, kept):
            with pytest.raises(NoReplyError):
                await kept.exchange(Request("GET", "/late"), 0.0)
            await exchanged(kept, "/next")
            return server.asked

    assert [head.split()[1] for head in asyncio.run(asked())] == [b"/next?fieldManager=sterna"]


def test_a_request_that_may_not_go_any_more_once_there_is_a_connection_is_not_sent() -> None:
    """Who led when it was decided on may not lead by then; the connection serves the next."""

    async def whole() -> tuple[Outcome, int, int]:
        async with served(lambda number: OK) as (server, kept):
            heard: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            kept.send(Request("POST", "/pods"), heard.set_result, lambda: False)
            outcome = await heard
            assert await exchanged(kept) == 200
            return outcome, len(server.asked), server.opened

    outcome, asked, opened = asyncio.run(whole())
    assert isinstance(outcome, WithdrawnError)
    assert (asked, opened) == (1, 1)


def test_after_the_end_nothing_is_asked_and_everybody_hears_of_it_once() -> None:
    async def whole() -> tuple[list[Outcome], int]:
        async with served(lambda number: OK) as (server, kept):
            told: list[Outcome] = []
            kept.send(Request("POST", "/before"), told.append)  # nothing has been done for it yet
            kept.close()
            kept.send(Request("POST", "/after"), told.append)
            assert told == []
            with pytest.raises(NotConnectedError):
                await kept.exchange(Request("GET", "/later"), PATIENCE_SECONDS)
            await asyncio.sleep(0)
            return told, server.opened

    told, opened = asyncio.run(whole())
    assert [type(outcome) for outcome in told] == [NotConnectedError, NotConnectedError]
    assert opened == 0


def test_a_connection_that_is_closed_as_soon_as_it_is_open_has_carried_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def outcome() -> None:
        async with served(lambda number: OK) as (server, kept):
            opened = Way.open

            async def open_and_lose(way: Way, protocol: asyncio.Protocol) -> None:
                await opened(way, protocol)
                assert isinstance(protocol, connection_pool._Connection)
                protocol.give_up("lost")

            monkeypatch.setattr(Way, "open", open_and_lose)
            with pytest.raises(NotConnectedError):
                await exchanged(kept)
            await server.closed.wait()
            assert server.asked == []

    asyncio.run(outcome())


def test_a_request_whose_connection_is_being_opened_hears_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def outcome() -> None:
        is_opening = asyncio.Event()

        async def open_never(way: Way, protocol: asyncio.Protocol) -> None:
            is_opening.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(Way, "open", open_never)
        kept = Connections("http://127.0.0.1:9", None)
        asked = asyncio.create_task(exchanged(kept))
        await is_opening.wait()
        kept.close()
        with pytest.raises(NotConnectedError):
            await asked

    asyncio.run(outcome())


def test_what_is_followed_is_told_as_it_comes_and_its_connection_is_kept() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    streamed = head + b"2\r\na\n\r\n4\r\nb\nc\n\r\n0\r\n\r\n"
    told: list[bytes] = []

    def take(piece: bytes) -> bool:
        told.append(piece)
        return True

    async def whole() -> tuple[int, int, int]:
        async with served(lambda number: streamed if number == 1 else OK) as (server, kept):
            stream = Stream(lambda: told.append(b"opened"), take)
            reply = await kept.follow(Request("GET", "/pods", "watch=1"), stream, PATIENCE_SECONDS)
            return reply.status, await exchanged(kept), server.opened

    assert asyncio.run(whole()) == (200, 200, 1)
    assert told[0] == b"opened"
    assert b"".join(told[1:]) == b"a\nb\nc\n"


def test_whoever_has_heard_enough_hears_no_more() -> None:
    endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na\n\r\n"

    async def whole() -> tuple[int, int]:
        async with served(lambda number: endless if number == 1 else OK) as (server, kept):
            stream = Stream(lambda: None, lambda piece: False)
            await kept.follow(Request("GET", "/pods", "watch=1"), stream, PATIENCE_SECONDS)
            return await exchanged(kept), server.opened

    assert asyncio.run(whole()) == (200, 2)


def test_a_refusal_to_be_followed_comes_whole() -> None:
    gone = b"HTTP/1.1 410 Gone\r\nContent-Length: 4\r\n\r\nlate"

    async def whole() -> tuple[int, bytes]:
        async with served(lambda number: gone) as (_, kept):
            stream = Stream(lambda: pytest.fail("it was refused"), lambda piece: pytest.fail("it was refused"))
            reply = await kept.follow(Request("GET", "/pods", "watch=1"), stream, PATIENCE_SECONDS)
            return reply.status, reply.body

    assert asyncio.run(whole()) == (410, b"late")


async def tunnel(answer: bytes, calls: list[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A proxy that leads to whatever is asked for."""
    head = await reader.readuntil(b"\r\n\r\n")
    calls.append(head)
    writer.write(answer)
    host, _, port = head.split()[1].decode().rpartition(":")
    if answer[9:12] == b"200":
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        far_writer.write(await reader.read(4096))
        writer.write(await far_reader.read(4096))
        far_writer.close()
    writer.close()


@asynccontextmanager
async def proxied(answer: bytes, calls: list[bytes]) -> AsyncIterator[Connections]:
    async with served(lambda number: OK) as (server, _):
        proxy = await asyncio.start_server(partial(tunnel, answer, calls), "127.0.0.1", 0)
        port = proxy.sockets[0].getsockname()[1]
        kept = Connections(server.address, None, proxy=f"http://me:secret%21@127.0.0.1:{port}")
        try:
            yield kept
        finally:
            kept.close()
            proxy.close()
            await proxy.wait_closed()


def test_a_proxy_is_asked_for_a_tunnel() -> None:
    calls: list[bytes] = []

    async def whole() -> int:
        async with proxied(b"HTTP/1.1 200 OK\r\n\r\n", calls) as kept:
            return await exchanged(kept)

    assert asyncio.run(whole()) == 200
    assert calls[0].startswith(b"CONNECT 127.0.0.1:")
    assert b"\r\nProxy-Authorization: Basic bWU6c2VjcmV0IQ==\r\n" in calls[0]


def test_what_a_proxy_refuses_was_not_sent() -> None:
    async def whole() -> None:
        async with proxied(b"HTTP/1.1 407 Who Are You\r\n\r\n", []) as kept:
            with pytest.raises(NotConnectedError, match="the proxy answers 407"):
                await exchanged(kept)

    asyncio.run(whole())
