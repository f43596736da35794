"""The operator's REST API acts with the rights of its caller. Real server and client, API server in memory."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from sterna.api.auth import Caller, RequestHead
from sterna.api.peers import Peer, Transport
from sterna.api.problem_json import Problem
from sterna.apps.operator_server import CallerAuthenticator, CallerServices, connect_as_caller
from sterna.backends.kubernetes.server.token_review import TokenReviewer
from sterna.backends.kubernetes.transport.kubeconfig import Access
from tests.fakes.kube_requests import Response
from tests.unit.apps.test_operator import Site, site  # noqa: F401 - a fixture
from tests.unit.backends.kubernetes.monitor.monitor_builders import FakeServer, service_account

USER = "token-of-ann"


def request(host: str = "localhost:8769", **headers: str) -> RequestHead:
    return RequestHead("GET", "/api/v1/jobs", "http", {"host": host, **headers})


def reviewer() -> TokenReviewer:
    server = FakeServer()
    server.tokens[USER] = service_account("team/ann", audiences=["https://kubernetes.default.svc"])
    return TokenReviewer(server)


def authenticate(allows_remote: bool, transport: Transport, **headers: str) -> Caller:
    authenticator = CallerAuthenticator(reviewer(), allows_remote)
    return asyncio.run(authenticator.authenticate(request(**headers), Peer(transport)))


def test_caller_has_the_name_and_the_token_of_its_service_account() -> None:
    caller = authenticate(False, Transport.LOOPBACK, authorization=f"Bearer {USER}")
    assert (caller.name, caller.token) == ("system:serviceaccount:team:ann", USER)


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer made-up"}])
def test_request_without_a_valid_token_is_rejected(headers: dict[str, str]) -> None:
    with pytest.raises(Problem) as rejected:
        authenticate(False, Transport.LOOPBACK, **headers)
    assert rejected.value.status == 401


def test_tokens_are_not_taken_from_the_network() -> None:
    with pytest.raises(Problem, match="kubectl port-forward") as rejected:
        authenticate(False, Transport.NETWORK, authorization=f"Bearer {USER}")
    assert rejected.value.status == 403


def test_tokens_are_taken_from_the_network_behind_a_proxy_with_tls() -> None:
    assert authenticate(True, Transport.NETWORK, authorization=f"Bearer {USER}").token == USER


def test_page_of_another_site_is_rejected() -> None:
    with pytest.raises(Problem) as rejected:
        authenticate(False, Transport.LOOPBACK, authorization=f"Bearer {USER}", origin="https://evil.example")
    assert rejected.value.status == 403


def test_callers_have_connections_of_their_own_which_are_closed_when_idle() -> None:
    now, closed = [0.0], list[str]()

    class Cluster:
        def __init__(self, token: str) -> None:
            self.token = token

        def close(self) -> None:
            closed.append(self.token)

    services = CallerServices(lambda caller: Cluster(caller.token), 600.0, lambda: now[0])  # type: ignore[arg-type, return-value]
    ann, bob = Caller("ann", True, "a"), Caller("bob", True, "b")
    first = services.service_for(ann)
    assert services.service_for(ann) is first
    assert services.service_for(bob) is not first
    now[0] = 599.0
    services.service_for(bob)
    now[0] = 700.0
    services.service_for(bob)
    assert closed == ["a"]
    services.close()
    assert closed == ["a", "b"]


def test_operators_credentials_are_not_used_for_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Access("http://127.0.0.1:1", certificate=b"c", key=b"k", token_file="/token", login=lambda: "Bearer operator")
    seen: list[Access] = []

    def record(access: Access) -> Any:
        seen.append(access)
        raise InterruptedError

    monkeypatch.setattr("sterna.apps.operator_server.Client", record)
    with pytest.raises(InterruptedError):
        connect_as_caller(own, "")(Caller("ann", True, USER))
    assert seen == [Access("http://127.0.0.1:1", token=USER)]


def get(url: str, token: str) -> tuple[int, Any]:
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_jobs_and_nodes_of_the_cluster_are_shown_to_a_caller_with_a_token(site: Site) -> None:  # noqa: F811
    review = Response(201, b'{"status": {"authenticated": true, "user": {"username": "ann"}}}')
    site.http.answer_instead = lambda method, path: review if path.endswith("/tokenreviews") else None
    with site.operator(leader_election=False) as operator:
        site.until(operator.is_leading, "the lead")
        site.submit("job", seconds=1000.0)
        site.until(lambda: site.phase("job") == "Running", "the job")
        url = f"http://{operator.http.address}/api/v1"
        status, jobs = get(f"{url}/jobs", USER)
        assert (status, [job["name"] for job in jobs]) == (200, ["default/job"])
        assert [node["name"] for node in get(f"{url}/nodes", USER)[1]] == ["node-0"]
