"""`HttpSession` over TLS, against loopback servers with certificates made by the test."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sterna.backends.kubernetes.transport.http_session import HttpRequest, HttpSession, NoReplyError, NotConnectedError
from sterna.backends.kubernetes.transport.kubeconfig import Access
from tests.kubernetes.binaries import NotAvailable
from tests.kubernetes.certificates import Certificates

TIMEOUT_SECONDS = 20.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
LARGE = bytes(range(256)) * 4096
"""A megabyte: many TLS records."""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    try:
        made = Certificates(tmp_path_factory.mktemp("pki") / "own")
    except NotAvailable as error:
        pytest.skip(str(error))
    made.sign("server", "/CN=server", ["DNS:kube.example", "IP:127.0.0.1"])
    made.sign("stranger", "/CN=stranger", ["DNS:elsewhere.example"])
    return made


def access(certificates: Certificates, address: str, **more: Any) -> Access:
    return Access(address, authority=Path(certificates.file("ca.crt")).read_bytes(), **more)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request with its body."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(int(head.partition(b"Content-Length: ")[2].split()[0]))
            writer.write(HEAD % len(body) + body)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def answer_once(text: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"{}")
    writer.write(text)
    writer.close()


async def pass_plain_text(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
    writer.close()


async def abort(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.transport.abort()


@asynccontextmanager
async def listening(serve: Serve, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def served(
    certificates: Certificates, serve: Serve = echo, name: str = "server", wants_certificate: bool = False
) -> AsyncIterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.file(f"{name}.crt"), certificates.file(f"{name}.key"))
    if wants_certificate:
        context.load_verify_locations(certificates.file("ca.crt"))
        context.verify_mode = ssl.CERT_REQUIRED
    async with listening(serve, context) as port:
        yield f"https://127.0.0.1:{port}"


async def post(to: Access, *bodies: bytes) -> list[bytes]:
    session = HttpSession(to)
    await session.open()
    try:
        return [(await session.exchange(HttpRequest("POST", "/", body=each), TIMEOUT_SECONDS)).body for each in bodies]
    finally:
        await session.close()
        for _ in range(3):
            await asyncio.sleep(0)


def test_bodies_of_any_size_arrive_whole(certificates: Certificates) -> None:
    async def run() -> list[bytes]:
        async with served(certificates) as address:
            return await post(access(certificates, address), b"small", LARGE, b"", LARGE)

    assert asyncio.run(run()) == [b"small", LARGE, b"", LARGE]


def test_server_of_an_unknown_authority_is_sent_nothing(certificates: Certificates) -> None:
    async def run() -> None:
        async with served(certificates) as address:
            with pytest.raises(NotConnectedError) as refused:
                await post(Access(address), b"secret")
            assert isinstance(refused.value.cause, ssl.SSLCertVerificationError)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "server_name", "is_trusted"),
    [
        ("server", "", True),
        ("server", "kube.example", True),
        ("server", "elsewhere.example", False),
        ("stranger", "", False),
        ("stranger", "elsewhere.example", True),
    ],
)
def test_certificate_must_name_the_address_or_the_tls_server_name(
    certificates: Certificates, name: str, server_name: str, is_trusted: bool
) -> None:
    async def run() -> list[bytes]:
        async with served(certificates, name=name) as address:
            return await post(access(certificates, address, server_name=server_name), b"hello")

    if is_trusted:
        assert asyncio.run(run()) == [b"hello"]
    else:
        with pytest.raises(NotConnectedError, match="certificate"):
            asyncio.run(run())


def test_unchecked_certificate_is_accepted(certificates: Certificates) -> None:
    async def run() -> list[bytes]:
        async with served(certificates, name="stranger") as address:
            return await post(Access(address, is_checked=False), b"hello")

    assert asyncio.run(run()) == [b"hello"]


def test_missing_client_certificate_is_reported_as_a_failure(certificates: Certificates) -> None:
    async def run() -> None:
        async with served(certificates, wants_certificate=True) as address:
            with pytest.raises((NotConnectedError, NoReplyError), match=r"alert|reset|closed|EOF|disconnected"):
                await post(access(certificates, address), b"hello")

    asyncio.run(run())


def test_client_certificate_is_shown_where_one_is_wanted(certificates: Certificates) -> None:
    async def run() -> list[bytes]:
        pair = {
            "certificate": Path(certificates.file("stranger.crt")).read_bytes(),
            "key": Path(certificates.file("stranger.key")).read_bytes(),
        }
        async with served(certificates, wants_certificate=True) as address:
            return await post(access(certificates, address, **pair), b"hello")

    assert asyncio.run(run()) == [b"hello"]


@pytest.mark.parametrize(("serve", "cause"), [(pass_plain_text, ssl.SSLError), (abort, OSError)])
def test_failed_handshake_sends_nothing(certificates: Certificates, serve: Serve, cause: type[Exception]) -> None:
    async def run() -> None:
        async with listening(serve) as port:
            with pytest.raises(NotConnectedError) as refused:
                await post(access(certificates, f"https://127.0.0.1:{port}"), b"hello")
            assert isinstance(refused.value.cause, cause)

    asyncio.run(run())


def test_connection_that_ends_within_a_reply_gives_none(certificates: Certificates) -> None:
    async def run() -> None:
        async with served(certificates, partial(answer_once, HEAD % 100 + b"half")) as address:
            with pytest.raises(NoReplyError):
                await post(access(certificates, address), b"{}")

    asyncio.run(run())


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(2**16):
            writer.write(data)
    except ConnectionError:
        pass
    finally:
        writer.close()


async def tunnel(calls: list[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A proxy that connects to any address."""
    calls.append(await reader.readuntil(b"\r\n\r\n"))
    host, _, port = calls[-1].split()[1].decode().rpartition(":")
    far_reader, far_writer = await asyncio.open_connection(host, int(port))
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    await asyncio.gather(forward(reader, far_writer), forward(far_reader, writer))


async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 407 Who Are You\r\nContent-Length: 0\r\n\r\n")
    writer.close()


@pytest.mark.parametrize("server_name", ["", "kube.example"])
def test_traffic_through_a_proxy_is_encrypted_end_to_end(certificates: Certificates, server_name: str) -> None:
    calls: list[bytes] = []

    async def run() -> list[bytes]:
        async with served(certificates) as address, listening(partial(tunnel, calls)) as port:
            proxy = f"http://me:secret%21@127.0.0.1:{port}"
            return await post(access(certificates, address, proxy=proxy, server_name=server_name), b"hello", LARGE)

    assert asyncio.run(run()) == [b"hello", LARGE]
    assert calls[0].startswith(b"CONNECT 127.0.0.1:")
    assert b"\r\nProxy-Authorization: Basic bWU6c2VjcmV0IQ==\r\n" in calls[0]


def test_request_that_the_proxy_refuses_was_not_sent(certificates: Certificates) -> None:
    async def run() -> None:
        async with served(certificates) as address, listening(refuse) as port:
            with pytest.raises(NotConnectedError, match="the proxy answers 407"):
                await post(access(certificates, address, proxy=f"http://127.0.0.1:{port}"), b"{}")

    asyncio.run(run())
