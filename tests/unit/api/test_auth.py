"""Authentication: the owner on this machine, callers with a token elsewhere, never a web page of another site."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from sterna.api.auth import Caller, LocalAuthenticator, RequestHead
from sterna.api.peers import Peer, Transport
from sterna.api.problem_json import Problem

OWNER, OTHER = 4_000_001, 4_000_002  # numbers that no user of a machine has
TOKEN = "a-token-that-is-long-enough"
LOCAL = LocalAuthenticator(OWNER, TOKEN)
SOCKET, LOOPBACK, NETWORK = Peer(Transport.SOCKET, OWNER), Peer(Transport.LOOPBACK, OWNER), Peer(Transport.NETWORK)
BEARER = {"authorization": f"Bearer {TOKEN}"}


def asking(path: str = "/api/v1/jobs", method: str = "GET", query: str = "", **headers: str) -> RequestHead:
    named = {"host": "localhost:8470"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return RequestHead(method, path, "http", Headers(named), query)


def status(peer: Peer, request: RequestHead, authenticator: LocalAuthenticator = LOCAL) -> int:
    try:
        authenticator.identify(request, peer)
    except Problem as problem:
        return problem.status
    return 200


@pytest.mark.parametrize("transport", [Transport.SOCKET, Transport.LOOPBACK])
@pytest.mark.parametrize(("uid", "expected"), [(OWNER, 200), (0, 200), (OTHER, 403), (None, 403)])
def test_on_this_machine_only_the_owner_and_root_may_ask(transport: Transport, uid: int | None, expected: int) -> None:
    assert status(Peer(transport, uid), asking()) == expected


def test_from_elsewhere_the_token_is_needed() -> None:
    assert status(NETWORK, asking(host="box:8470")) == 401
    assert status(NETWORK, asking(host="box:8470", authorization="Bearer wrong")) == 401
    assert status(NETWORK, asking(host="box:8470", authorization=f"Basic {TOKEN}")) == 401
    assert status(NETWORK, asking(host="box:8470", **BEARER)) == 200
    assert status(NETWORK, asking(host="box:8470", cookie=f"x=1; sterna_token={TOKEN}")) == 200
    assert status(NETWORK, asking(host="box:8470", cookie="sterna_token=wrong")) == 401


def test_an_empty_token_is_rejected_where_none_is_configured() -> None:
    local = LocalAuthenticator(OWNER, "")
    assert status(NETWORK, asking(authorization="Bearer "), local) == 401
    assert status(NETWORK, asking(cookie="sterna_token="), local) == 401


def test_the_token_in_the_address_counts_for_the_page_alone() -> None:
    assert status(NETWORK, asking("/", query=f"token={TOKEN}")) == 200
    assert status(NETWORK, asking("/api/v1/jobs", query=f"token={TOKEN}")) == 401
    assert status(NETWORK, asking("/", query="token=wrong")) == 401


@pytest.mark.parametrize("host", ["localhost", "localhost:8470", "127.0.0.1:8470", "[::1]:8470", "127.8.9.1"])
def test_loopback_answers_to_its_own_names(host: str) -> None:
    assert status(LOOPBACK, asking(host=host)) == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8470", "localhost.evil.example", "10.0.0.1", ""])
def test_a_name_that_was_made_to_point_here_is_refused(host: str) -> None:
    assert status(LOOPBACK, asking(host=host)) == 403
    assert status(LOOPBACK, asking(host=host, **BEARER)) == 403


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "http://localhost:9999", "https://localhost:8470", "null", "http://localhost", "file://"],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_no_other_page_may_ask(origin: str, method: str) -> None:
    assert status(LOOPBACK, asking(method=method, origin=origin)) == 403


def test_the_own_page_may_ask() -> None:
    own = asking(method="POST", origin="http://localhost:8470", sec_fetch_site="same-origin")
    assert status(LOOPBACK, own) == 200
    assert status(LOOPBACK, asking(host="localhost", origin="http://localhost:80")) == 200


def test_a_link_from_elsewhere_opens_the_page_and_nothing_else() -> None:
    assert status(LOOPBACK, asking("/", sec_fetch_site="cross-site", sec_fetch_mode="navigate")) == 200
    assert status(LOOPBACK, asking("/metrics", sec_fetch_site="cross-site", sec_fetch_mode="navigate")) == 403
    assert status(LOOPBACK, asking("/", "POST", sec_fetch_site="cross-site", sec_fetch_mode="navigate")) == 403


def test_others_are_let_in_only_where_jobs_run_as_their_submitters() -> None:
    local = LocalAuthenticator(OWNER, TOKEN, allows_other_users=True)
    assert local.identify(asking(), Peer(Transport.SOCKET, OTHER)) == Caller(str(OTHER), False)
    assert local.identify(asking(), SOCKET) == Caller(str(OWNER), True)
    assert status(Peer(Transport.LOOPBACK, None), asking(), local) == 403
