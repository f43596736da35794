"""Replies of HTTP/1.1, however they are cut on the way."""

from __future__ import annotations

import pytest

from sterna.backends.kubernetes.transport.http_parser import GarbledError, Reply, ReplyReader

OBJECT = b'{"kind":"Pod","metadata":{"name":"a"}}'
WITH_LENGTH = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 38\r\n\r\n" + OBJECT
IN_CHUNKS = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n1e\r\n"
    + OBJECT[:30]
    + b"\r\n8;why=not\r\n"
    + OBJECT[30:]
    + b"\r\n0\r\n\r\n"
)
WITH_TRAILER = IN_CHUNKS[:-2] + b"Seen: yes\r\n\r\n"


@pytest.mark.parametrize(("sent", "status"), [(WITH_LENGTH, 201), (IN_CHUNKS, 200), (WITH_TRAILER, 200)])
def test_a_reply_is_whole_however_it_was_cut(sent: bytes, status: int) -> None:
    for size in range(1, len(sent) + 1):
        reader = ReplyReader()
        pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
        assert [reader.feed(piece) for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
        assert reader.feed(pieces[-1]) == Reply(status, OBJECT)
        assert reader.end() is None


def test_one_reply_follows_another() -> None:
    reader = ReplyReader()
    for sent in (WITH_LENGTH, IN_CHUNKS, WITH_LENGTH):
        reply = reader.feed(sent)
        assert reply is not None
        assert reply.body == OBJECT


def test_a_reply_without_a_length_ends_with_its_connection() -> None:
    reader = ReplyReader()
    assert reader.feed(b"HTTP/1.1 502 Bad Gateway\r\n\r\nno") is None
    assert reader.feed(b" server") is None
    assert reader.end() == Reply(502, b"no server", is_last=True)


def test_a_reply_that_breaks_off_is_none() -> None:
    reader = ReplyReader()
    reader.feed(WITH_LENGTH[:-1])
    assert reader.end() is None


@pytest.mark.parametrize(
    ("head", "reply"),
    [
        (b"HTTP/1.1 429 Too Many\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n", Reply(429, b"", 2.0)),
        (b"HTTP/1.1 503 No\r\nRetry-After: soon\r\nContent-Length: 0\r\n\r\n", Reply(503, b"")),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", Reply(200, b"", is_last=True)),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", Reply(200, b"", is_last=True)),
        (b"HTTP/1.1 204 No Content\r\n\r\n", Reply(204, b"")),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", Reply(204, b"")),
    ],
)
def test_headers_say_what_follows(head: bytes, reply: Reply) -> None:
    assert ReplyReader().feed(head) == reply


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nsize\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"x" * 70_000,
    ],
)
def test_what_is_no_reply_is_refused(sent: bytes) -> None:
    with pytest.raises(GarbledError):
        ReplyReader().feed(sent)
