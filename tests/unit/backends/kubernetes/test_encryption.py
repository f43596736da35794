"""Connections with TLS, to a server with a certificate of the test's own. Loopback only."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from sterna.backends.kubernetes.transport.connection_pool import Connections, NoReplyError, NotConnectedError, Request
from sterna.backends.kubernetes.transport.tls import Encrypted
from tests.kubernetes.binaries import NotAvailable
from tests.kubernetes.certificates import Certificates

PATIENCE_SECONDS = 20.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
LARGE = bytes(range(256)) * 4096
"""A megabyte: many records."""

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


def trusting(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificates.file("ca.crt"))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers with what it was sent, as often as it is asked."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(int(head.rpartition(b"Content-Length: ")[2]))
            writer.write(HEAD % len(body) + body)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def answer_once(text: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """And end in good order."""
    await reader.readuntil(b"{}")
    writer.write(text)
    writer.close()


@asynccontextmanager
async def served(
    certificates: Certificates, serve: Serve = echo, name: str = "server", wants_certificate: bool = False
) -> AsyncIterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.file(f"{name}.crt"), certificates.file(f"{name}.key"))
    if wants_certificate:
        context.load_verify_locations(certificates.file("ca.crt"))
        context.verify_mode = ssl.CERT_REQUIRED
    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        await listening.wait_closed()


async def asked(kept: Connections, *bodies: bytes) -> list[bytes]:
    try:
        return [(await kept.exchange(Request("POST", "/", body=each), PATIENCE_SECONDS)).body for each in bodies]
    finally:
        await kept.shut()
        for _ in range(3):
            await asyncio.sleep(0)  # sockets get to be closed


def test_what_is_sent_and_answered_is_whole_however_large_it_is(certificates: Certificates) -> None:
    async def whole() -> list[bytes]:
        async with served(certificates) as address:
            return await asked(Connections(address, trusting(certificates)), b"small", LARGE, b"", LARGE)

    assert asyncio.run(whole()) == [b"small", LARGE, b"", LARGE]


def test_a_server_whose_authority_is_not_known_is_told_nothing(certificates: Certificates) -> None:
    async def whole() -> None:
        async with served(certificates) as address:
            with pytest.raises(NotConnectedError) as refused:
                await asked(Connections(address, ssl.create_default_context()), b"secret")
            assert isinstance(refused.value.cause, ssl.SSLCertVerificationError)

    asyncio.run(whole())


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
def test_a_certificate_must_be_made_out_to_the_server_that_is_meant(
    certificates: Certificates, name: str, server_name: str, is_trusted: bool
) -> None:
    async def whole() -> list[bytes]:
        async with served(certificates, name=name) as address:
            return await asked(Connections(address, trusting(certificates), server_name), b"hello")

    if is_trusted:
        assert asyncio.run(whole()) == [b"hello"]
    else:
        with pytest.raises(NotConnectedError, match="certificate"):
            asyncio.run(whole())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_whoever_shows_no_certificate_where_one_is_wanted_hears_that_it_was_refused(
    certificates: Certificates, version: ssl.TLSVersion
) -> None:
    async def whole() -> None:
        context = trusting(certificates)
        context.maximum_version = version
        async with served(certificates, wants_certificate=True) as address:
            with pytest.raises((NotConnectedError, NoReplyError), match=r"alert|reset|closed|EOF"):
                await asked(Connections(address, context), b"hello")

    asyncio.run(whole())


def test_a_certificate_of_ours_is_shown_where_one_is_wanted(certificates: Certificates) -> None:
    async def whole() -> list[bytes]:
        context = trusting(certificates)
        context.load_cert_chain(certificates.file("stranger.crt"), certificates.file("stranger.key"))
        async with served(certificates, wants_certificate=True) as address:
            return await asked(Connections(address, context), b"hello")

    assert asyncio.run(whole()) == [b"hello"]


def test_a_server_without_tls_is_not_spoken_to(certificates: Certificates) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
        writer.close()

    async def whole() -> None:
        listening = await asyncio.start_server(plain, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(NotConnectedError) as refused:
            await asked(Connections(f"https://127.0.0.1:{port}", trusting(certificates)), b"hello")
        assert isinstance(refused.value.cause, ssl.SSLError)
        listening.close()
        await listening.wait_closed()

    asyncio.run(whole())


def test_a_server_that_closes_instead_of_shaking_hands_was_not_told_anything(certificates: Certificates) -> None:
    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    async def whole() -> None:
        listening = await asyncio.start_server(closing, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(NotConnectedError):
            await asked(Connections(f"https://127.0.0.1:{port}", trusting(certificates)), b"hello")
        listening.close()
        await listening.wait_closed()

    asyncio.run(whole())


def test_a_reply_that_ends_with_its_connection_is_whole(certificates: Certificates) -> None:
    async def whole() -> list[bytes]:
        serve = partial(answer_once, b"HTTP/1.1 200 OK\r\n\r\n" + LARGE)
        async with served(certificates, serve) as address:
            return await asked(Connections(address, trusting(certificates)), b"{}")

    assert asyncio.run(whole()) == [LARGE]


def test_a_connection_that_ends_within_a_reply_gives_none(certificates: Certificates) -> None:
    async def whole() -> None:
        async with served(certificates, partial(answer_once, HEAD % 100 + b"half")) as address:
            with pytest.raises(NoReplyError):
                await asked(Connections(address, trusting(certificates)), b"{}")

    asyncio.run(whole())


def test_an_end_that_the_server_did_not_announce_is_no_end_of_a_reply(certificates: Certificates) -> None:
    """Somebody between may have cut it off."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf of the truth")
        await writer.drain()
        writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
        await reader.read()
        writer.close()

    async def whole() -> None:
        async with served(certificates, cut) as address:
            with pytest.raises(NoReplyError):
                await asked(Connections(address, trusting(certificates)), b"{}")

    asyncio.run(whole())


def test_nothing_is_left_of_a_connection_once_it_is_closed(certificates: Certificates) -> None:
    """Without waiting for a full collection, which an operator with a large memory seldom makes."""

    async def whole() -> int:
        async with served(certificates) as address:
            gc.collect()
            gc.disable()
            await asked(Connections(address, trusting(certificates)), b"hello")
            return sum(isinstance(each, Encrypted) for each in gc.get_objects())

    try:
        assert asyncio.run(whole()) == 0
    finally:
        gc.enable()


def test_the_next_request_goes_over_another_connection_once_the_server_has_ended_one(
    certificates: Certificates,
) -> None:
    async def whole() -> list[bytes]:
        async with served(certificates, partial(answer_once, HEAD % 2 + b"ok")) as address:
            kept = Connections(address, trusting(certificates))
            first = await kept.exchange(Request("POST", "/", body=b"{}"), PATIENCE_SECONDS)
            while any(each.is_open for each in kept._all):
                await asyncio.sleep(0)
            return [first.body, *await asked(kept, b"{}")]

    assert asyncio.run(whole()) == [b"ok", b"ok"]


async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A proxy that leads to whatever is asked for."""
    host, _, port = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode().rpartition(":")
    far_reader, far_writer = await asyncio.open_connection(host, int(port))
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(2**16):
            writer.write(data)
    except ConnectionError:
        pass
    finally:
        writer.close()


def test_what_passes_a_proxy_is_encrypted_from_end_to_end(certificates: Certificates) -> None:
    async def whole() -> list[bytes]:
        async with served(certificates) as address:
            proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
            through = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
            found = await asked(Connections(address, trusting(certificates), proxy=through), b"hello", LARGE)
            proxy.close()
            await proxy.wait_closed()
            return found

    assert asyncio.run(whole()) == [b"hello", LARGE]
