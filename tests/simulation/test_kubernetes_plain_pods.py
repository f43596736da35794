"""Moves of plain pods: a crash loses nothing, and finished or deleted pods are not created again."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sterna.backends.kubernetes.api.resources import CONFIG_MAPS, EVENTS
from sterna.backends.kubernetes.backend import BackendConfig
from sterna.backends.kubernetes.cache.job_entry import JobEvent
from sterna.kinds.resource import PODS
from sterna.model.cluster import Assignment
from sterna.model.plan import Action, ActionKind, Decision, Outcome, Plan
from sterna.model.snapshot import JobKey
from tests.fakes.kube_client import Faults
from tests.fakes.kube_store import Object
from tests.simulation.kubernetes_runs import Cluster, Incarnation

ROUGH = Faults(lost_before=0.05, lost_after=0.05, conflict=0.05, too_many=0.05, expired=0.02, broken=0.05)
SLOW = Faults(answer_seconds=(0.3, 0.4))
MOMENTS = [0.003 * step for step in range(15)] + [0.1 * step for step in range(1, 12)]
"""Of a move: what is written down and the deletion of the old pod in the first hundredths of a second, its end after
half a second, then the new one, and the removal of what was written down."""


def a_cluster(seed: int = 0, faults: Faults | None = None) -> Cluster:
    cluster = Cluster(seed, faults)
    for number in range(2):
        cluster.nodes.add(f"node-{number}", gpus=4)
    return cluster


def a_plain_pod(cluster: Cluster, name: str, node: str, seconds: float = 60.0, **steering: str) -> Object:
    """A pod as SpeCon's users submit it, bound by its own scheduler."""
    annotations = {"fake/run-seconds": str(seconds), **{f"fake/{key}": value for key, value in steering.items()}}
    meta = {"name": name, "labels": {"sterna.dev/job": name}, "annotations": annotations}
    spec = {"nodeName": node, "containers": [{"name": "train", "image": "train"}]}
    return cluster.kube.create(PODS, {"metadata": meta, "spec": spec})


def move(cluster: Cluster, name: str, node: int) -> None:
    assert cluster.operator is not None
    backend = cluster.operator.backend
    snapshot = backend.observe()
    row = next(row for row in range(len(snapshot.jobs)) if snapshot.jobs.name_of(row) == f"default/{name}")
    key = JobKey(snapshot.jobs.key.item(row))
    action = Action(ActionKind.MIGRATE, key, row, snapshot.assignment_of(row), Assignment(((node, 1),)))
    assert list(backend.apply(Decision(Plan([action])))) == [Outcome.APPLIED]


def test_a_plain_pod_is_left_to_its_own_scheduler_until_it_has_a_node() -> None:
    """DRAGON-90."""
    cluster = a_cluster()
    cluster.start()
    meta = {"name": "job1", "labels": {"sterna.dev/job": "job1"}}
    cluster.kube.create(PODS, {"metadata": meta, "spec": {"containers": [{"name": "x", "image": "x"}]}})
    cluster.run(10.0)
    assert cluster.operator is not None
    assert len(cluster.operator.backend.observe().jobs) == 0
    assert "nodeName" not in cluster.kube.get(PODS, "job1")["spec"]


def test_a_plain_pod_moves_under_its_name_and_what_was_written_down_is_removed() -> None:
    """DRAGON-88, 89."""
    cluster = a_cluster()
    cluster.start()
    a_plain_pod(cluster, "job1", "node-0")
    cluster.run(5.0)
    move(cluster, "job1", 1)
    cluster.run(5.0)
    pod = cluster.kube.get(PODS, "job1")
    assert (pod["spec"]["nodeName"], pod["status"]["phase"]) == ("node-1", "Running")
    assert cluster.kube.items(CONFIG_MAPS) == []
    cluster.run(100.0)
    assert cluster.kube.get(PODS, "job1")["metadata"]["annotations"]["sterna.dev/phase"] == "Succeeded"


def test_an_operator_of_one_namespace_leaves_the_plain_pods_of_others_alone() -> None:
    cluster = a_cluster()
    cluster.operator = Incarnation(cluster.kube, about=BackendConfig("training"))
    theirs = a_plain_pod(cluster, "job1", "node-0", seconds=10.0)
    cluster.run(30.0)
    assert len(cluster.operator.backend.state.entries) == 0
    assert cluster.kube.get(PODS, "job1")["metadata"]["annotations"] == theirs["metadata"]["annotations"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_crash_at_any_moment_of_a_move_loses_nothing(moment: float) -> None:
    cluster = a_cluster()
    cluster.start()
    a_plain_pod(cluster, "job1", "node-0")
    cluster.run(5.0)
    move(cluster, "job1", 1)
    cluster.run(moment)
    cluster.crash(0.3)
    cluster.run(20.0)
    pod = cluster.kube.get(PODS, "job1")
    assert pod["status"]["phase"] == "Running"
    assert cluster.kube.items(CONFIG_MAPS) == []
    cluster.run(100.0)
    assert cluster.kube.get(PODS, "job1")["status"]["phase"] == "Succeeded"


def test_a_plain_pod_that_its_user_deletes_is_gone_for_good() -> None:
    cluster = a_cluster()
    cluster.start()
    a_plain_pod(cluster, "job1", "node-0")
    cluster.run(5.0)
    cluster.kube.delete(PODS, "job1")
    cluster.run(20.0)
    assert cluster.pods() == []
    assert cluster.operator is not None
    assert cluster.operator.backend.state.entries == {}


def a_moving_pod(faults: Faults | None = None, stop_message: str = "") -> tuple[Cluster, list[JobEvent], str]:
    """A cluster whose only pod is being moved, the list of its job events, and its uid."""
    cluster, happened = a_cluster(0, faults), list[JobEvent]()
    operator = cluster.start()
    operator.on_job_event = lambda event, uid: happened.append(event)
    steering = {"stop-message": stop_message} if stop_message else {}
    uid: str = a_plain_pod(cluster, "job1", "node-0", 1000.0, **steering)["metadata"]["uid"]
    cluster.run(5.0)
    move(cluster, "job1", 1)
    return cluster, happened, uid


def runs_of(cluster: Cluster) -> list[str]:
    """The uids of all pods that there ever were from now on."""
    found: list[str] = []

    def note(resource: object, event: object) -> None:
        found.extend(pod["metadata"]["uid"] for pod in cluster.pods() if pod["metadata"]["uid"] not in found)

    cluster.kube.store.listeners.append(note)
    return found


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("faults", [Faults(), SLOW], ids=["usual", "slow"])
def test_a_pod_that_completes_while_it_is_moved_is_not_run_again(moment: float, faults: Faults) -> None:
    cluster, happened, _ = a_moving_pod(faults)
    cluster.run(moment)
    pod = cluster.kube.find(PODS, "job1")
    if pod is not None and pod["status"]["phase"] == "Running":
        cluster.nodes.end("job1")
    else:  # between two lives there is nothing that could complete
        cluster.run(3.0)
        cluster.nodes.end("job1")
    runs = runs_of(cluster)
    cluster.run(60.0)
    assert len(runs) <= 1
    assert happened.count(JobEvent.COMPLETED) == 1
    assert cluster.kube.items(CONFIG_MAPS) == []
    assert [pod["status"]["phase"] for pod in cluster.pods()] in ([], ["Succeeded"])
    assert any("completed" in event.get("note", "") for event in cluster.kube.items(EVENTS))


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("grace", [None, 0])
@pytest.mark.parametrize("faults", [Faults(), SLOW], ids=["usual", "slow"])
def test_a_pod_that_its_user_deletes_before_we_do_does_not_come_back(
    moment: float, grace: int | None, faults: Faults
) -> None:
    cluster, _, uid = a_moving_pod(faults)
    cluster.run(moment)
    pod = cluster.kube.find(PODS, "job1")
    is_ours = pod is None or bool(pod["metadata"].get("deletionTimestamp"))
    if is_ours:
        cluster.run(3.0)  # who is deleted already comes back, and may then be deleted for good
        assert cluster.kube.get(PODS, "job1")["metadata"]["uid"] != uid
    options: dict[str, Any] = {} if grace is None else {"gracePeriodSeconds": grace}
    cluster.kube.delete(PODS, "job1", **options)
    cluster.run(60.0)
    assert cluster.pods() == []
    assert cluster.kube.items(CONFIG_MAPS) == []
    assert cluster.operator is not None
    assert cluster.operator.backend.state.entries == {}


@pytest.mark.parametrize("seed", range(12))
def test_no_fault_and_no_crash_of_a_move_is_taken_for_a_deletion(seed: int) -> None:
    cluster, luck = a_cluster(seed, ROUGH), random.Random(seed)
    cluster.start()
    for number in range(4):
        a_plain_pod(cluster, f"job{number}", "node-0", 1000.0)
    cluster.run(10.0)
    for number in range(4):
        move(cluster, f"job{number}", 1)
        cluster.run(luck.uniform(0.0, 1.0))
        if luck.random() < 0.5:
            cluster.crash(luck.uniform(0.1, 3.0))
            cluster.run(5.0)
    cluster.kube.heal()
    cluster.run(120.0)
    assert {pod["metadata"]["name"]: pod["status"]["phase"] for pod in cluster.pods()} == {
        f"job{number}": "Running" for number in range(4)
    }
    assert cluster.kube.items(CONFIG_MAPS) == []


def test_a_pod_that_saved_when_it_was_asked_to_go_comes_again_though_it_ended_well() -> None:
    cluster, happened, uid = a_moving_pod(stop_message='{"saved": true, "step": 5}')
    cluster.run(10.0)
    pod = cluster.kube.get(PODS, "job1")
    assert (pod["spec"]["nodeName"], pod["status"]["phase"]) == ("node-1", "Running")
    assert pod["metadata"]["uid"] != uid
    assert JobEvent.COMPLETED not in happened


@pytest.mark.parametrize(("step", "nodes"), [(50, ["node-1"]), (100, [])])
def test_a_stopped_pod_that_exits_with_0_has_finished_unless_its_steps_are_incomplete(
    step: int, nodes: list[str]
) -> None:
    cluster, _, _ = a_moving_pod(stop_message="bye")
    assert cluster.operator is not None
    memory = next(iter(cluster.operator.backend.state.entries.values())).job.persisted
    memory.step, memory.total = step, 100
    cluster.run(10.0)
    assert [pod["spec"]["nodeName"] for pod in cluster.pods()] == nodes


@pytest.mark.parametrize("moment", MOMENTS[:15])
def test_a_pod_deleted_by_its_user_in_its_new_place_stays_gone_through_a_crash(moment: float) -> None:
    cluster, _, uid = a_moving_pod()
    while (pod := cluster.kube.find(PODS, "job1")) is None or pod["metadata"]["uid"] == uid:
        cluster.run(0.005)
    cluster.run(moment)
    cluster.kube.delete(PODS, "job1")
    cluster.crash(0.3)
    cluster.run(30.0)
    assert cluster.pods() == []
    assert cluster.kube.items(CONFIG_MAPS) == []


@pytest.mark.parametrize("is_stopped_between", [False, True])
def test_another_pod_that_its_user_makes_under_the_name_of_one_that_waits_is_let_run(is_stopped_between: bool) -> None:
    cluster = a_cluster()
    cluster.start()
    a_plain_pod(cluster, "job1", "node-0", 1000.0, which="old")
    cluster.run(5.0)
    move(cluster, "job1", 1)
    while cluster.kube.find(PODS, "job1") is not None:
        cluster.run(0.001)
    uid = a_plain_pod(cluster, "job1", "node-0", 60.0, which="new")["metadata"]["uid"]
    if is_stopped_between:
        cluster.crash(0.3)
    cluster.run(30.0)
    pod = cluster.kube.get(PODS, "job1")
    assert (pod["metadata"]["uid"], pod["status"]["phase"]) == (uid, "Running")
    assert cluster.kube.items(CONFIG_MAPS) == []


@pytest.mark.parametrize("moment", [0.0, 0.2, 0.3, 0.4])
def test_after_a_crash_in_one_move_a_pod_that_its_user_deletes_in_the_next_stays_gone(moment: float) -> None:
    cluster = a_cluster(0, SLOW)
    cluster.start()
    first = a_plain_pod(cluster, "job1", "node-0", 10_000.0)["metadata"]["uid"]
    cluster.run(5.0)
    move(cluster, "job1", 1)
    while (cluster.kube.find(PODS, "job1") or {"metadata": {"uid": first}})["metadata"]["uid"] == first:
        cluster.run(0.01)
    cluster.crash(0.3)
    cluster.run(20.0)
    move(cluster, "job1", 0)
    cluster.run(moment)
    cluster.kube.delete(PODS, "job1")
    cluster.run(30.0)
    assert cluster.kube.find(PODS, "job1") is None
