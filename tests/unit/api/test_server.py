"""Addresses of the API, peer credentials from the kernel, and requests that are rejected early."""

from __future__ import annotations

import http.client
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from sterna.api.ownership import find_owner, find_owner_in_table
from sterna.api.peers import Transport, is_loopback, peer_of
from sterna.api.server import bind_address, parse_listen, read_token, serve
from sterna.errors import UserError
from tests.fakes.cluster import FakeCluster
from tests.fakes.http_server import MANIFEST, Served, served


class _Transport:
    """As much of a transport as is looked at."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def get_extra_info(self, name: str) -> socket.socket | None:
        return self._end if name == "socket" else None


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_kernel_reports_the_user_of_a_loopback_connection(family: socket.AddressFamily, host: str) -> None:
    try:
        listening = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"this machine has no {host}")
    with listening, socket.create_connection(listening.getsockname()[:2]) as client:
        end, _ = listening.accept()
        with end:
            peer = peer_of(_Transport(end))  # type: ignore[arg-type]
            assert (peer.transport, peer.uid) == (Transport.LOOPBACK, os.getuid())
            client.shutdown(socket.SHUT_RDWR)
            client.close()
            assert peer_of(_Transport(end)).uid is None  # type: ignore[arg-type]


def test_the_connection_table_agrees_with_the_kernel() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        theirs, ours = client.getsockname(), listening.getsockname()
        assert find_owner(theirs, ours) == find_owner_in_table(theirs, ours) == os.getuid()
        assert find_owner(ours, ours) is find_owner_in_table(ours, ours) is None  # that one only listens


def test_where_the_kernel_cannot_be_asked_its_table_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        monkeypatch.setattr(socket, "AF_NETLINK", -1)
        assert find_owner(client.getsockname(), listening.getsockname()) == os.getuid()


def test_an_answer_does_not_wait_for_the_receipt_of_its_first_part_to_be_confirmed() -> None:
    with bind_address("127.0.0.1", 0, may_be_another=False) as end:
        assert end.proto == socket.IPPROTO_TCP  # by which asyncio knows that it may send at once


def test_a_head_without_end_is_refused(api: Served) -> None:
    host, _, port = api.server.url.partition("://")[2].partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        with suppress(ConnectionError):  # it hangs up before it has heard all
            for _ in range(100):
                client.sendall(b"X-Long: " + b"x" * 4096 + b"\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 400 ")


def test_the_kernel_reports_the_user_of_a_unix_socket() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        peer = peer_of(_Transport(ours))  # type: ignore[arg-type]
        assert (peer.transport, peer.uid) == (Transport.SOCKET, os.getuid())


@pytest.mark.parametrize(("host", "expected"), [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True)])
def test_loopback_is_known_in_all_its_forms(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
    assert not is_loopback("10.1.2.3")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:80", ("::1", 80)),
        (":8470", ("0.0.0.0", 8470)),
        ("box:1", ("box", 1)),
    ],
)
def test_an_address_to_listen_on_is_read(text: str, place: tuple[str, int]) -> None:
    assert parse_listen(text) == place


@pytest.mark.parametrize("text", ["nonsense", "127.0.0.1", "127.0.0.1:99999", "::1:80", "a:b"])
def test_a_wrong_address_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="write HOST:PORT"):
        parse_listen(text)


def test_the_socket_and_the_token_are_their_owner_s_alone(api: Served) -> None:
    assert stat.S_IMODE((api.state / "api.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE((api.state / "token").stat().st_mode) == 0o600
    assert api.server.token_file is None


def test_a_token_is_made_once_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "token"
    first = read_token(path)
    path.chmod(0o644)
    assert read_token(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("short\n")
    with pytest.raises(UserError, match="this is no token"):
        read_token(path)


def test_a_port_that_is_taken_is_said_before_anything_runs(api: Served, tmp_path: Path) -> None:
    place = api.server.url.partition("://")[2]
    with pytest.raises(UserError, match="this port is taken; choose another"):
        serve(FakeCluster(), tmp_path / "other.sock", place, tmp_path / "token")
    assert not (tmp_path / "other.sock").exists()


def test_files_that_are_no_certificate_are_refused(tmp_path: Path) -> None:
    from sterna.api.server import Encryption

    wrong = tmp_path / "cert.pem"
    wrong.write_text("nothing\n")
    with pytest.raises(UserError, match="certificate"):
        serve(
            FakeCluster(),
            tmp_path / "api.sock",
            "127.0.0.1:0",
            tmp_path / "token",
            encryption=Encryption(str(wrong), str(wrong)),
        )


def test_a_long_path_of_the_state_folder_is_no_hindrance(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    with served(folder) as answering:
        assert answering.ask("GET", "/api/v1/version").status == 200
        assert (folder / "api.sock").is_socket()


def test_a_socket_that_a_killed_server_left_is_replaced(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "api.sock"))
    left.close()
    with served(tmp_path) as answering:
        assert answering.ask("GET", "/api/v1/version").status == 200


def test_every_address_asks_for_the_token_from_other_hosts(tmp_path: Path) -> None:
    with served(tmp_path, listen="0.0.0.0:0") as answering:
        assert answering.server.token_file == tmp_path / "token"
        port = int(answering.server.url.rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/api/v1/version")
        assert connection.getresponse().status == 200  # loopback is loopback, by whatever name the server listens
        connection.close()


def test_the_page_keeps_the_token_in_a_cookie(api: Served) -> None:
    token = (api.state / "token").read_text().strip()
    reply = api.ask("GET", f"/?token={token}")
    assert (reply.status, reply.headers["location"]) == (303, "/")
    assert "HttpOnly" in reply.headers["set-cookie"]
    assert "SameSite=strict" in reply.headers["set-cookie"]


def test_another_host_s_page_is_refused_over_the_wire(api: Served) -> None:
    assert api.ask("GET", "/api/v1/jobs", Host="evil.example").status == 403
    assert api.ask("POST", "/api/v1/jobs", MANIFEST.replace("NAME", "a"), Origin="http://evil.example").status == 403
    assert api.cluster.views == {}


def test_a_body_that_is_too_long_is_refused(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna.api.responses.MOST_BYTES", 1000)
    assert api.ask("POST", "/api/v1/jobs", "#" * 2000).status == 413
