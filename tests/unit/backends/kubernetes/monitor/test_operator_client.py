"""From a pod's file to the operator's columns, over real HTTP on loopback, across changes of the leader."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sterna.backends.kubernetes.api.monitor_protocol import Batch, PodMoveRequest
from sterna.backends.kubernetes.cache.progress import Progress
from sterna.backends.kubernetes.lifecycle.overload import NodeInfo
from sterna.backends.kubernetes.monitor.main import MonitorAddresses, RunningMonitor
from sterna.backends.kubernetes.monitor.monitor import MonitorOptions
from sterna.backends.kubernetes.monitor.operator_client import OperatorLink, address_in_lease
from sterna.backends.kubernetes.server.endpoints import EndpointSources, OperatorEndpoints
from sterna.backends.kubernetes.server.token_review import TokenReviewer
from sterna.errors import Retry
from tests.fakes.operator_http import ServedEndpoints
from tests.fakes.replica import FakeReplica
from tests.unit.backends.kubernetes.cache.progress_builders import find_in, running_job
from tests.unit.backends.kubernetes.monitor.monitor_builders import (
    Clock,
    FakeServer,
    agent_line,
    node_pod,
    roots_in,
    service_account,
    volume_folder,
)

TOKEN = "monitor-of-node-1"


class AnOperator:
    """The service of an operator, with what a loop would do when it is woken."""

    def __init__(self, server: FakeServer) -> None:
        self.progress = Progress()
        self.woken = threading.Event()
        sources = EndpointSources(
            memory=lambda: self.progress.memory,
            cluster_info=lambda: {"node-1": NodeInfo(cpu_total=8)},
            metrics=lambda: b"",
            distribution=lambda: "",
            replica=FakeReplica(),
        )
        reviewer = TokenReviewer(server, "sterna")
        self.endpoints = OperatorEndpoints(sources, reviewer, self.woken.set, ["sterna-system/sterna-monitor"])
        self.http = ServedEndpoints(self.endpoints)
        server.address = f"127.0.0.1:{self.http.port}"


@pytest.fixture
def server() -> FakeServer:
    made = FakeServer()
    made.tokens[TOKEN] = service_account("sterna-system/sterna-monitor", "node-1")
    return made


@pytest.fixture
def operator(server: FakeServer) -> Iterator[AnOperator]:
    made = AnOperator(server)
    yield made
    made.http.stop()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


def link_to(server: FakeServer, token: Path, clock: Callable[[], float] | None = None) -> OperatorLink:
    return OperatorLink(address_in_lease(server, "sterna-system", "sterna-operator"), token, clock or Clock())


def test_the_operator_address_is_read_from_the_lease(server: FakeServer, operator: AnOperator, token: Path) -> None:
    link = link_to(server, token)
    link.ask_to_move(PodMoveRequest("node-1", "p"))
    assert operator.endpoints.move_requests.take() == [PodMoveRequest("node-1", "p")]
    assert link.cluster_info()["node-1"].cpu_total == 8
    link.close()


def test_an_operator_rejects_an_unknown_monitor(server: FakeServer, operator: AnOperator, token: Path) -> None:
    link = link_to(server, token)
    receipt = link.send(Batch("node-1", 1.0))
    assert receipt is not None
    assert receipt.memory == operator.progress.memory
    assert link.send(Batch("node-1", 1.0, receipt.memory)) is None
    link.close()


def test_the_lease_is_read_again_when_the_operator_is_elsewhere(server: FakeServer, token: Path) -> None:
    clock = Clock()
    first = AnOperator(server)
    link = link_to(server, token, clock)
    link.ask_to_move(PodMoveRequest("node-1", "p"))
    first.http.stop()
    second = AnOperator(server)
    try:
        with pytest.raises(Retry):
            link.ask_to_move(PodMoveRequest("node-1", "p"))
        clock.pass_by(6)
        link.ask_to_move(PodMoveRequest("node-1", "p"))
        assert len(second.endpoints.move_requests.take()) == 1
    finally:
        link.close()
        second.http.stop()


def test_tokens_are_read_again_because_they_are_renewed(server: FakeServer, operator: AnOperator, token: Path) -> None:
    token.write_text("not yet")
    clock = Clock()
    link = link_to(server, token, clock)
    with pytest.raises(Retry, match="401"):
        link.cluster_info()
    token.write_text(TOKEN)
    clock.pass_by(6)
    assert "node-1" in link.cluster_info()
    link.close()


def test_without_an_operator_there_is_a_sentence(server: FakeServer, token: Path) -> None:
    clock = Clock()
    link = link_to(server, token, clock)
    with pytest.raises(Retry, match="No operator holds the Lease sterna-system/sterna-operator yet"):
        link.cluster_info()
    clock.pass_by(6)
    server.address = "127.0.0.1:1"
    with pytest.raises(Retry, match="cannot be reached"):
        link.cluster_info()
    clock.pass_by(6)
    server.is_away = True
    with pytest.raises(Retry, match="API server"):
        link.cluster_info()


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for another thread; the limit is for a test that fails."""
    ends = time.monotonic() + 20
    waiting = threading.Event()
    while not condition():
        assert time.monotonic() < ends, what
        waiting.wait(0.01)


def test_what_a_pod_writes_becomes_what_the_operator_knows(
    server: FakeServer, operator: AnOperator, token: Path, tmp_path: Path
) -> None:
    pod = node_pod(uid="uid-worker-0-1")
    server._pods.append(pod)
    file = volume_folder(roots_in(tmp_path), pod, "sterna-agent") / "progress.jsonl"
    file.write_text(agent_line(3, time.time()))
    addresses = MonitorAddresses("127.0.0.1:0", lease_namespace="sterna-system", token_file=token)
    monitor = RunningMonitor(MonitorOptions("node-1", roots_in(tmp_path)), addresses, server)
    thread = threading.Thread(target=monitor.run)
    thread.start()
    try:
        assert operator.woken.wait(20)
        job = running_job()
        operator.progress.follow(job)
        operator.progress.take(operator.endpoints.batches.take(), find_in(job), time.time())
        assert job.persisted.step == 3
        assert server.followed[0].fields == "spec.nodeName=node-1"
    finally:
        monitor.stop()
        thread.join(20)
    assert server.is_closed.is_set()


def test_a_monitor_goes_on_after_a_look_that_failed(
    server: FakeServer, token: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    addresses = MonitorAddresses("127.0.0.1:0", server="127.0.0.1:1", token_file=token)
    monitor = RunningMonitor(MonitorOptions("node-1", roots_in(tmp_path)), addresses, server)
    looks: list[int] = []

    def poll() -> None:
        looks.append(1)
        if len(looks) == 1:
            raise OSError("the disk is gone")

    monitor._monitor.poll = poll  # type: ignore[method-assign]
    thread = threading.Thread(target=monitor.run)
    thread.start()
    until(lambda: len(looks) >= 2, "no second look")
    monitor.stop()
    thread.join(20)
    assert "will retry" in caplog.text
