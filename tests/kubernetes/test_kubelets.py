"""Fake kubelets behave as real ones were observed to. Runs without a server."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from tests.kubernetes.kubelets import (
    EXIT_CODE,
    MESSAGE,
    RUN_SECONDS,
    STOP_MESSAGE,
    STOP_SECONDS,
    Call,
    Container,
    FakeNode,
    Kubelets,
    Metadata,
    Pod,
    Resources,
    Spec,
    Status,
    quantity,
)

ROOM = {"cpu": "8", "memory": "16Gi", "pods": "10", "nvidia.com/gpu": "8"}


def kubelets() -> Kubelets:
    return Kubelets({name: FakeNode(name, ROOM, {"zone": name}) for name in ("a", "b")})


def a_pod(name: str = "pod", node: str = "a", cpu: str = "1", policy: str = "Never", **annotations: str) -> Pod:
    written = {f"fake/{key.replace('_', '-')}": value for key, value in annotations.items()}
    containers = [Container("main", resources=Resources({"cpu": cpu}))]
    metadata = Metadata(name, "default", f"uid-of-{name}", annotations=written)
    return Pod(metadata, Spec(node, containers, restart_policy=policy))


def in_deletion(pod: Pod, grace: float = 30) -> Pod:
    metadata = Metadata(pod.metadata.name, "default", pod.metadata.uid, "", "now", grace, pod.metadata.annotations)
    return Pod(metadata, pod.spec, Status("Running"))


def statuses(calls: Iterable[Call]) -> list[dict[str, Any]]:
    return [json.loads(call.body)["status"] for call in calls if call.method == "PATCH"]


def test_one_write_takes_a_pod_to_running() -> None:
    (call,) = kubelets().see(a_pod(), 0)
    (status,) = statuses([call])
    assert call.path == "/api/v1/namespaces/default/pods/pod/status"
    assert status["phase"] == "Running"
    assert status["containerStatuses"][0]["state"] == {"running": {"startedAt": "1970-01-01T00:00:00Z"}}


def test_a_running_pod_seen_again_costs_nothing() -> None:
    nodes = kubelets()
    list(nodes.see(a_pod(), 0))
    assert list(nodes.see(a_pod(), 1)) == []


def test_pods_of_other_nodes_are_left_alone() -> None:
    assert list(kubelets().see(a_pod(node="c"), 0)) == []
    assert list(kubelets().see(a_pod(node=""), 0)) == []


def test_a_full_node_refuses_as_the_real_kubelet_does() -> None:
    nodes = kubelets()
    list(nodes.see(a_pod("first", cpu="7500m"), 0))
    (status,) = statuses(nodes.see(a_pod("second", cpu="1"), 0))
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfcpu")
    assert "requested: 1000, used: 7500, capacity: 8000" in status["message"]
    assert "conditions" not in status


def test_a_resource_that_the_node_does_not_have_is_not_checked() -> None:
    pod = a_pod()
    pod.spec.containers[0].resources.requests["example.com/tpu"] = "4"
    (status,) = statuses(kubelets().see(pod, 0))
    assert status["phase"] == "Running"


def test_a_node_without_the_labels_refuses() -> None:
    pod = a_pod()
    pod.spec.node_selector = {"zone": "elsewhere"}
    (status,) = statuses(kubelets().see(pod, 0))
    assert (status["phase"], status["reason"]) == ("Failed", "NodeAffinity")


@pytest.mark.parametrize(
    ("policy", "code", "phase", "restarts"),
    [
        ("Never", 0, "Succeeded", 0),
        ("Never", 3, "Failed", 0),
        ("OnFailure", 0, "Succeeded", 0),
        ("OnFailure", 3, "Running", 1),
        ("Always", 0, "Running", 1),
    ],
)
def test_restart_policy_decides_after_an_exit(policy: str, code: int, phase: str, restarts: int) -> None:
    nodes = kubelets()
    list(nodes.see(a_pod(policy=policy), 0))
    (status,) = statuses(nodes.end("default/pod", code, "a message", 5))
    assert (status["phase"], status["containerStatuses"][0]["restartCount"]) == (phase, restarts)
    last = status["containerStatuses"][0]["state" if phase != "Running" else "lastState"]["terminated"]
    assert (last["exitCode"], last["message"]) == (code, "a message")


def test_a_pod_may_end_by_itself() -> None:
    nodes = kubelets()
    list(nodes.see(a_pod(run_seconds="3", exit_code="7", message="bye"), 10))
    assert nodes.next_due() == 13
    assert list(nodes.tick(12.9)) == []
    (status,) = statuses(nodes.tick(13))
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
    assert {RUN_SECONDS, EXIT_CODE, MESSAGE} == {"fake/run-seconds", "fake/exit-code", "fake/message"}


def test_a_deleted_pod_reports_its_end_and_is_then_removed() -> None:
    nodes = kubelets()
    pod = a_pod(stop_seconds="5", stop_message='{"saved": true}')
    list(nodes.see(pod, 0))
    assert list(nodes.see(in_deletion(pod), 10)) == []
    assert list(nodes.tick(14.9)) == []
    report, removal = nodes.tick(15)
    assert statuses([report])[0]["containerStatuses"][0]["state"]["terminated"]["message"] == '{"saved": true}'
    assert (removal.method, json.loads(removal.body)["gracePeriodSeconds"]) == ("DELETE", 0)
    assert {STOP_SECONDS, STOP_MESSAGE} == {"fake/stop-seconds", "fake/stop-message"}


def test_grace_bounds_how_long_a_pod_takes_to_stop() -> None:
    nodes = kubelets()
    pod = a_pod(stop_seconds="500")
    list(nodes.see(pod, 0))
    list(nodes.see(in_deletion(pod, grace=2), 10))
    assert nodes.next_due() == 12


def test_room_is_free_again_when_containers_have_ended() -> None:
    nodes = kubelets()
    list(nodes.see(a_pod("first", cpu="8"), 0))
    list(nodes.end("default/first", 0, "", 1))
    (status,) = statuses(nodes.see(a_pod("second", cpu="8"), 2))
    assert status["phase"] == "Running"


def test_a_lost_node_is_silent_and_its_containers_are_dead_when_it_is_back() -> None:
    nodes = kubelets()
    pod = a_pod(policy="OnFailure")
    list(nodes.see(pod, 0))
    nodes.lose("a")
    assert list(nodes.see(in_deletion(pod), 5)) == []
    assert list(nodes.end("default/pod", 0, "", 5)) == []
    calls = list(nodes.heal("a", 9))
    assert statuses(calls)[0]["phase"] == "Failed"
    assert calls[-1].method == "DELETE"


def test_a_resize_without_room_is_deferred_until_withdrawn() -> None:
    nodes = kubelets()
    list(nodes.see(a_pod("other", cpu="4"), 0))
    list(nodes.see(a_pod(cpu="2"), 0))
    (status,) = statuses(nodes.see(a_pod(cpu="6"), 1))
    assert status["conditions"][-1]["reason"] == "Deferred"
    (status,) = statuses(nodes.see(a_pod(cpu="3"), 2))
    assert [each["type"] for each in status["conditions"]][-1] == "Ready"
    assert status["containerStatuses"][0]["resources"]["requests"] == {"cpu": "3"}


@pytest.mark.parametrize(("text", "value"), [("500m", 0.5), ("2", 2), (3, 3), ("2Gi", 2**31), ("1k", 1000)])
def test_quantities(text: str | int, value: float) -> None:
    assert quantity(text) == value
