"""Endpoints of the operator: requests of monitors are queued for the loop, others are rejected with a sentence."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from sterna.api.application import create_application
from sterna.api.auth import BearerAuthenticator
from sterna.api.server import serve_address
from sterna.backends.kubernetes.api.monitor_protocol import MOST_BYTES, Batch, PodMoveRequest, PodReports
from sterna.backends.kubernetes.lifecycle.overload import NodeInfo
from sterna.backends.kubernetes.server.endpoints import EndpointSources, OperatorEndpoints
from sterna.backends.kubernetes.server.token_review import TokenReviewer
from sterna.errors import UserError
from sterna.progress.report import SourceReport
from tests.fakes.operator_http import ServedEndpoints
from tests.fakes.replica import FakeReplica
from tests.unit.backends.kubernetes.monitor.monitor_builders import Clock, FakeServer, service_account

TOKEN = "monitor-of-node-1"


class Reply(NamedTuple):
    status: int
    text: str


class Running:
    """A service on loopback, and what its operator is at the moment."""

    def __init__(self, is_open: bool = False) -> None:
        self.server, self.clock = FakeServer(), Clock()
        self.server.tokens[TOKEN] = service_account("sterna-system/sterna-monitor", "node-1")
        self.replica, self.woken = FakeReplica(), 0
        self.memory = "now"
        sources = EndpointSources(
            memory=lambda: self.memory,
            cluster_info=lambda: {"node-1": NodeInfo(cpu_total=4000)},
            metrics=lambda: b"sterna_jobs 3\n",
            distribution=lambda: "time,job,orginal_node,to_node\n",
            replica=self.replica,
        )
        reviewer = None if is_open else TokenReviewer(self.server, "sterna", self.clock)
        self.endpoints = OperatorEndpoints(sources, reviewer, self._wake, ["sterna-system/sterna-monitor"])
        self.http = ServedEndpoints(self.endpoints)

    def _wake(self) -> None:
        self.woken += 1

    def ask(self, method: str, path: str, body: Any = None, token: str = TOKEN) -> Reply:
        data = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        connection = http.client.HTTPConnection("127.0.0.1", self.http.port, timeout=10)
        try:
            connection.request(method, path, data, {"Authorization": f"Bearer {token}"} if token else {})
            response = connection.getresponse()
            return Reply(response.status, response.read().decode())
        finally:
            connection.close()


@pytest.fixture
def running() -> Iterator[Running]:
    started = Running()
    yield started
    started.http.stop()


def a_batch(memory: str = "now", node: str = "node-1") -> Batch:
    return Batch(node, 5.0, memory, [PodReports("uid", "default", "p", [SourceReport(1.0, 1, 9, {"loss": 0.5})])])


def test_a_request_to_move_a_pod_waits_for_the_loop(running: Running) -> None:
    """DRAGON-68."""
    assert running.ask("POST", "/migrate", {"node": "node-1", "pod": "mnist-worker-0"}) == (200, "Ok")
    assert running.woken == 1
    assert running.endpoints.move_requests.take() == [PodMoveRequest("node-1", "mnist-worker-0")]
    assert running.endpoints.move_requests.take() == []


def test_a_batch_waits_for_the_loop(running: Running) -> None:
    answer = running.ask("POST", "/progress", a_batch())
    assert (answer.status, msgspec.json.decode(answer.text)) == (200, {"memory": "now"})
    assert running.endpoints.batches.take() == [a_batch()]


def test_a_batch_for_another_memory_is_not_taken(running: Running) -> None:
    answer = running.ask("POST", "/progress", a_batch("before"))
    assert (answer.status, msgspec.json.decode(answer.text)) == (409, {"memory": "now"})
    assert running.endpoints.batches.take() == []


def test_a_replica_that_does_not_lead_takes_nothing(running: Running) -> None:
    running.replica.leads = False
    assert running.ask("POST", "/progress", a_batch()).status == 503
    assert running.ask("POST", "/migrate", {"node": "node-1", "pod": "p"}).status == 503
    answer = running.ask("GET", "/cluster-info")
    assert answer == (503, "No operator leads at the moment; ask again in a few seconds.\n")
    assert running.ask("GET", "/distribution.csv").status == 503
    assert running.endpoints.batches.take() == []
    assert running.endpoints.move_requests.take() == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/migrate", {"node": "node-1", "pod": "p"}),
        ("POST", "/progress", a_batch()),
        ("GET", "/cluster-info", None),
        ("GET", "/distribution.csv", None),
    ],
)
def test_a_replica_that_does_not_lead_sends_callers_on_to_the_one_that_does(
    running: Running, method: str, path: str, body: object
) -> None:
    running.replica.leads, running.replica.leader = False, "http://10.0.0.7:8769"
    connection = http.client.HTTPConnection("127.0.0.1", running.http.port, timeout=10)
    content = None if body is None else msgspec.json.encode(body)
    connection.request(method, path, content, {"Authorization": f"Bearer {TOKEN}"})
    response = connection.getresponse()
    assert (response.status, response.headers["Location"]) == (307, f"http://10.0.0.7:8769{path}")
    connection.close()


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/migrate", b"{", 400, "no JSON"),
        ("/migrate", b"\xff\xfe", 400, "no JSON"),
        ("/migrate", b'{"x":' + b"[" * 5000, 400, "no JSON"),
        ("/migrate", [1], 422, "object"),
        ("/migrate", {"node": "node-1"}, 422, "pod"),
        ("/migrate", {"node": 3, "pod": "p"}, 422, "node"),
        ("/migrate", {"node": "node-1", "pod": ""}, 422, "names of a node and a pod"),
        ("/migrate", {"node": "node-1", "pod": "x" * 999}, 422, "names of a node and a pod"),
        ("/progress", {"node": "node-1"}, 422, "sent_at"),
        ("/progress", b"", 400, "no JSON"),
        ("/progress", b"x" * (4 * MOST_BYTES + 1), 413, "too large"),
        ("/elsewhere", {}, 401, "asks for a token"),
        ("/metrics", {}, 405, "POST is not possible for /metrics"),
    ],
)
def test_bad_requests_are_answered_with_a_sentence(
    running: Running, path: str, body: Any, status: int, words: str
) -> None:
    answer = running.ask("POST", path, body)
    assert answer.status == status
    assert words in answer.text
    assert "Traceback" not in answer.text
    assert len(answer.text.splitlines()) == 1


def test_metrics_and_moves_are_public(running: Running) -> None:
    assert running.ask("GET", "/metrics", token="") == (200, "sterna_jobs 3\n")
    assert running.ask("GET", "/distribution.csv", token="") == (200, "time,job,orginal_node,to_node\n")


def test_cluster_info_lists_the_capacity_of_each_node(running: Running) -> None:
    answer = running.ask("GET", "/cluster-info")
    assert msgspec.json.decode(answer.text)["node-1"]["CpuTotal"] == 4000


# Who may.


def test_the_api_server_is_asked_about_a_token_once_a_minute(running: Running) -> None:
    for _ in range(3):
        assert running.ask("GET", "/cluster-info").status == 200
    assert running.server.reviews == [TOKEN]
    running.clock.pass_by(61)
    assert running.ask("GET", "/cluster-info").status == 200
    assert running.server.reviews == [TOKEN, TOKEN]


@pytest.mark.parametrize(
    ("token", "verdict", "status"),
    [
        ("", None, 401),
        ("made-up", None, 401),
        ("for-others", service_account("sterna-system/sterna-monitor", audiences=["kubernetes"]), 401),
        ("of-a-user", service_account("default/default"), 403),
        ("x" * 20_000, None, 401),
    ],
    ids=["none", "unknown", "made for another audience", "of another account", "absurdly long"],
)
def test_other_tokens_are_rejected(running: Running, token: str, verdict: dict[str, Any] | None, status: int) -> None:
    if verdict is not None:
        running.server.tokens[token] = verdict
    assert running.ask("POST", "/migrate", {"node": "node-1", "pod": "p"}, token).status == status
    assert running.endpoints.move_requests.take() == []


def test_a_monitor_cannot_speak_for_another_node(running: Running) -> None:
    assert running.ask("POST", "/migrate", {"node": "node-2", "pod": "p"}).status == 403
    assert running.ask("POST", "/progress", a_batch(node="node-2")).status == 403


def test_while_the_api_server_is_away_known_monitors_are_heard_and_others_asked_to_come_again(running: Running) -> None:
    assert running.ask("GET", "/cluster-info").status == 200
    running.server.is_away = True
    assert running.ask("GET", "/cluster-info").status == 200
    assert running.ask("GET", "/cluster-info", token="another").status == 503


def test_a_service_that_is_open_to_all_needs_no_token() -> None:
    """DRAGON-68: as container-migration's own monitors expect it."""
    running = Running(is_open=True)
    try:
        assert running.ask("POST", "/migrate", {"node": "n", "pod": "p"}, token="") == (200, "Ok")
    finally:
        running.http.stop()


# Trouble.


def test_reply_to_an_internal_error_has_no_traceback(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    running.memory = None  # type: ignore[assignment]
    del running.replica.leads
    answer = running.ask("POST", "/progress", a_batch())
    assert answer.status == 500
    assert "a bug of Sterna" in answer.text
    assert "File" not in answer.text
    assert "Traceback" in caplog.text
    assert running.ask("GET", "/metrics").status == 200


def test_full_queue_answers_503(running: Running) -> None:
    while running.endpoints.move_requests.put(PodMoveRequest("n", "p")):
        pass
    assert running.ask("POST", "/migrate", {"node": "node-1", "pod": "p"}).status == 503
    assert len(running.endpoints.move_requests.take()) == 4096


def test_rest_api_needs_a_token(running: Running) -> None:
    for path in ("/", "/api/v1/jobs", "/api/v1/nodes"):
        assert running.ask("GET", path, token="").status == 401
        assert running.ask("GET", path).status == 401, "the token of a monitor is no token of a user"


def test_address_that_is_taken_is_rejected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UserError, match="this port is taken"):
            serve_address(create_application(None, BearerAuthenticator(lambda token: None)), listen)
