"""A monitor reads the pods of its node, forwards their reports, requests moves, and survives failures of its peers."""

from __future__ import annotations

import http.client
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sterna.backends.kubernetes.api.resources import Delta, DeltaKind
from sterna.backends.kubernetes.lifecycle.overload import NodeInfo
from sterna.backends.kubernetes.monitor.monitor import Monitor, MonitorOptions, MoveScope
from sterna.backends.kubernetes.monitor.pods import NodePod
from sterna.backends.kubernetes.monitor.sample_server import Sample, SampleService
from sterna.kinds.labels import INDEX_LABEL, JOB_LABEL
from sterna.kinds.resource import PODS
from sterna.model.growth import GrowthRule, Strict
from tests.unit.backends.kubernetes.monitor.monitor_builders import (
    NOW,
    Clock,
    FakeOperator,
    agent_line,
    node_pod,
    pod_deltas,
    roots_in,
    volume_folder,
)


class Node:
    """A monitor on a node of which the test holds everything else."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.roots, self.clock, self.operator = roots_in(folder), Clock(), FakeOperator()
        self.monitor = Monitor(MonitorOptions("node-1", self.roots, **options), self.operator, self.clock)

    def write(self, pod: NodePod, *lines: str) -> None:
        with (volume_folder(self.roots, pod, "sterna-agent") / "progress.jsonl").open("a") as file:
            file.writelines(lines)

    def poll(self, seconds: float = 1.0) -> None:
        self.clock.pass_by(seconds)
        self.monitor.poll()

    def post_sample(self, pod: str, value: float) -> None:
        assert self.monitor.put(Sample(pod, value))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.monitor.close()


def test_what_a_pod_reports_reaches_the_operator(node: Node) -> None:
    pod = node_pod()
    node.monitor.see(pod_deltas(pod))
    node.write(pod, agent_line(1))
    node.poll()
    batch = node.operator.batches[0]
    assert (batch.node, batch.sent_at, batch.memory) == ("node-1", NOW + 1, "first")
    assert (batch.pods[0].uid, batch.pods[0].namespace, batch.pods[0].name) == (
        pod.metadata.uid,
        "default",
        "mnist-worker-0",
    )
    assert node.operator.steps == [1]


def test_nothing_is_sent_while_nothing_happens(node: Node) -> None:
    pod = node_pod()
    node.monitor.see(pod_deltas(pod))
    node.write(pod, agent_line(1))
    for _ in range(10):
        node.poll()
    assert len(node.operator.batches) == 1


def test_pods_of_others_are_not_read(node: Node) -> None:
    pod = node_pod(labels={})
    node.monitor.see(pod_deltas(pod))
    node.write(pod, agent_line(1))
    node.poll()
    assert node.operator.batches == []


def test_a_pod_that_ends_is_read_to_its_end(node: Node) -> None:
    pod = node_pod()
    node.monitor.see(pod_deltas(pod))
    node.write(pod, agent_line(1))
    node.poll()
    node.write(pod, agent_line(2, NOW + 0.1), agent_line(3, NOW + 0.2, saved=True).rstrip("\n"))
    node.monitor.see(pod_deltas(node_pod(phase="Succeeded")))
    node.poll()
    assert node.operator.steps == [1, 3]
    node.monitor.see([Delta(DeltaKind.GONE, PODS, node_pod())])
    node.poll()
    assert node.operator.steps == [1, 3]


def test_a_pod_that_vanishes_is_read_to_its_end(node: Node) -> None:
    pod = node_pod()
    node.monitor.see(pod_deltas(pod))
    node.write(pod, agent_line(1))
    node.poll()
    node.write(pod, agent_line(2, NOW + 1.1, saved=True))
    node.monitor.see([Delta(DeltaKind.GONE, PODS, pod)])
    node.poll()
    assert node.operator.steps == [1, 2]


def test_workers_after_the_first_are_reported_rarely(node: Node) -> None:
    pod = node_pod("mnist-worker-3", labels={JOB_LABEL: "mnist", INDEX_LABEL: "3"})
    node.monitor.see(pod_deltas(pod))
    for second in range(1, 12):
        node.write(pod, agent_line(second, NOW + second))
        node.poll()
    assert node.operator.steps == [1, 11]


# The operator comes and goes.


def test_reports_of_an_outage_of_the_operator_arrive_later(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sterna")
    pod = node_pod()
    node.monitor.see(pod_deltas(pod))
    node.operator.is_away = True
    for second in range(1, 6):
        node.write(pod, agent_line(second, NOW + second))
        node.poll()
    assert len(caplog.messages) == 1, "an outage is logged once"
    node.operator.is_away = False
    node.poll(30)
    assert node.operator.steps == [1, 2, 3, 4, 5]
    assert caplog.messages[-1] == "Operator reachable again"


def test_an_operator_that_is_away_is_asked_less_and_less_often(node: Node) -> None:
    pod = node_pod()
    node.monitor.see(pod_deltas(pod))
    node.write(pod, agent_line(1))
    node.operator.is_away = True
    node.operator.memory = "never asked"
    pauses, last = [], node.clock.now
    for _ in range(200):
        before = node.monitor._not_before
        node.poll()
        if node.monitor._not_before != before:
            pauses.append(node.clock.now - last)
            last = node.clock.now
    assert pauses[-1] >= 30
    assert pauses[:3] == [1, 1, 2]


def test_another_operator_receives_the_whole_history(node: Node) -> None:
    pod = node_pod()
    node.monitor.see(pod_deltas(pod))
    for second in (1, 2):
        node.write(pod, agent_line(second, NOW + second))
        node.poll()
    node.operator.memory, node.operator.batches = "second", []
    node.write(pod, agent_line(3, NOW + 3))
    node.poll()
    assert node.operator.steps == [1, 2, 3]
    assert node.operator.batches[0].memory == "second"


# Samples and moves.


def test_samples_are_passed_on_as_reports(node: Node) -> None:
    node.monitor.see(pod_deltas(node_pod()))
    node.post_sample("mnist-worker-0", 0.25)
    node.poll()
    report = node.operator.batches[0].pods[0].reports[0]
    assert (report.at, report.step, report.metrics, report.source) == (NOW, None, {"value": 0.25}, "monitor")


def test_samples_of_pods_that_are_not_there_are_only_judged(node: Node) -> None:
    node.post_sample("not-here", 0.25)
    node.poll()
    assert node.operator.batches == []


def test_a_converged_pod_is_asked_to_leave(node: Node) -> None:
    """DRAGON-65."""
    node.monitor.see(pod_deltas(node_pod()))
    for number in range(8):
        node.post_sample("mnist-worker-0", 1.0 / (number + 1))
        node.poll(10)
    assert node.operator.requests == []
    for _ in range(2):
        node.post_sample("mnist-worker-0", 0.124)
        node.poll(10)
    request = node.operator.requests[0]
    assert (request.node, request.pod, request.namespace) == ("node-1", "mnist-worker-0", "default")


def test_an_overloaded_node_asks_for_its_pods(tmp_path: Path) -> None:
    """DRAGON-64 to 66: cluster info is asked for each minute."""
    node = Node(tmp_path, threshold=0.9)
    quiet = NodeInfo(cpu_total=10, mem_total=10)
    node.operator.infos = {"node-1": NodeInfo(cpu_total=10, mem_total=10, cpu_max_request=9), "node-2": quiet}
    for number in range(13):
        node.post_sample("p", float(number % 2))
        node.poll(10)
    assert node.operator.asked == 3
    assert len(node.operator.requests) == 12


def test_a_move_request_that_could_not_be_sent_is_dropped(node: Node) -> None:
    node.operator.infos = {"node-1": NodeInfo(cpu_total=1, cpu_max_request=9), "b": NodeInfo(), "c": NodeInfo()}
    node.post_sample("p", 1.0)
    node.poll()
    node.operator.is_away = True
    node.post_sample("p", 0.0)
    node.poll(5)
    node.operator.is_away = False
    node.poll(60)
    assert node.operator.requests == []


@pytest.mark.parametrize(
    ("move_scope", "asked"),
    [(MoveScope.POSTED, 0), (MoveScope.ALL, 1), (MoveScope.NONE, 0)],
    ids=lambda each: str(each),
)
def test_whether_pods_are_asked_for_that_report_by_files_is_a_choice(
    tmp_path: Path, move_scope: MoveScope, asked: int
) -> None:
    """DRAGON-80 to 84: SpeCon's agent of a node judges whatever its pods write."""
    node = Node(tmp_path, move_scope=move_scope, rule=GrowthRule(strict=Strict.SPECON, alpha=0.1, interval_seconds=1.0))
    pod = node_pod()
    node.monitor.see(pod_deltas(pod))
    for number in range(1, 12):
        node.write(pod, agent_line(number, NOW + 2.0 * number, metrics={"loss": 1.0 / min(number, 9)}))
        node.poll(2)
    assert len({request.pod for request in node.operator.requests}) == asked
    node.monitor.close()


# Survival.


def test_samples_beyond_what_can_wait_are_refused(node: Node) -> None:
    while node.monitor.put(Sample("p", 1.0)):
        pass
    node.poll()
    assert node.monitor.put(Sample("p", 1.0))


def test_missing_permission_to_list_pods_is_logged(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.monitor.see(
        [Delta(DeltaKind.ABSENT, PODS, why="Pods cannot be listed; grant it."), Delta(DeltaKind.SYNCED, PODS)]
    )
    assert caplog.messages == ["Pods cannot be listed; grant it."]


# The service.


@pytest.fixture
def service() -> Iterator[tuple[SampleService, list[Sample]]]:
    heard: list[Sample] = []

    def put(sample: Sample) -> bool:
        heard.append(sample)
        return len(heard) < 3

    made = SampleService("127.0.0.1:0", put, lambda address: "")
    made.start()
    yield made, heard
    made.stop()


def post(service: SampleService, body: bytes, path: str = "/monitor") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=10)
    try:
        connection.request("POST", path, body)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_a_sample_is_answered_before_anything_is_made_of_it(service: tuple[SampleService, list[Sample]]) -> None:
    """DRAGON-60."""
    listening, heard = service
    assert post(listening, b'{"pod": "mnist-worker-0", "value": 0.5}') == (200, "Ok")
    assert heard == [Sample("mnist-worker-0", 0.5)]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b"[]", 422),
        (b'{"pod": "p"}', 422),
        (b'{"pod": "p", "value": "much"}', 422),
        (b'{"pod": "", "value": 1}', 422),
        (b'{"pod": "p", "value": 1e999}', 422),
        (b'{"pod": "p", "value": null}', 422),
        (b"x" * 20_000, 413),
    ],
)
def test_bad_samples_are_answered_with_a_sentence(
    service: tuple[SampleService, list[Sample]], body: bytes, status: int
) -> None:
    """DRAGON-66: one bad body does not end a monitor."""
    listening, heard = service
    answered, sentence = post(listening, body)
    assert answered == status
    assert sentence.count("\n") == 1
    assert heard == []
    assert post(listening, msgspec.json.encode({"pod": "p", "value": 1})) == (200, "Ok")


def test_samples_beyond_the_queue_limit_get_status_503(service: tuple[SampleService, list[Sample]]) -> None:
    listening, _ = service
    answers = [post(listening, b'{"pod": "p", "value": 1}')[0] for _ in range(3)]
    assert answers == [200, 200, 503]


def test_a_pod_cannot_speak_for_another() -> None:
    service = SampleService("127.0.0.1:0", lambda sample: True, {"127.0.0.1": "somebody"}.get)  # type: ignore[arg-type]
    service.start()
    try:
        assert post(service, b'{"pod": "another", "value": 1}')[0] == 403
        assert post(service, b'{"pod": "somebody", "value": 1}')[0] == 200
    finally:
        service.stop()


def test_addresses_of_pods_are_known_while_they_run(node: Node) -> None:
    node.monitor.see(pod_deltas(node_pod(ip="10.0.0.7")))
    assert node.monitor.pod_at("10.0.0.7") == "mnist-worker-0"
    node.monitor.see(pod_deltas(node_pod(ip="10.0.0.7", phase="Failed")))
    assert not node.monitor.pod_at("10.0.0.7")
