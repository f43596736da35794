"""Evicted plain pods are created again elsewhere; pods that a user deletes are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sterna.backends.kubernetes.api.resources import CONFIG_MAPS, EVENTS, NODES
from sterna.kinds.resource import PODS, Resource
from tests.fakes.kube_client import Faults
from tests.fakes.kube_store import Event
from tests.simulation.kubernetes_runs import Cluster
from tests.simulation.test_kubernetes_plain_pods import a_cluster, a_plain_pod, move

ROUGH = Faults(lost_before=0.05, lost_after=0.05, conflict=0.05, too_many=0.05, expired=0.02, broken=0.05)
MOMENTS = [0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 20.0, 29.9, 30.1, 31.0]
"""After a node was lost: what is written down at once, and the deletion without grace when that is over."""


def a_training_pod(seed: int = 0, faults: Faults | None = None, stop_seconds: float = 0.5) -> tuple[Cluster, str]:
    """A cluster on which a plain pod trains on the first of two nodes, and its uid."""
    cluster = a_cluster(seed, faults)
    cluster.start()
    steering = {"stop-seconds": str(stop_seconds)}
    uid: str = a_plain_pod(cluster, "job1", "node-0", 500.0, **steering)["metadata"]["uid"]
    cluster.run(5.0)
    return cluster, uid


def the_pod(cluster: Cluster) -> tuple[str, str]:
    pod = cluster.kube.get(PODS, "job1")
    return pod["spec"]["nodeName"], pod["status"]["phase"]


def test_a_plain_pod_on_a_lost_node_comes_again_elsewhere_and_that_is_said() -> None:
    """DRAGON-50."""
    cluster, uid = a_training_pod()
    cluster.lose("node-0", evicts=True)
    cluster.run(60.0)
    assert the_pod(cluster) == ("node-1", "Running")
    assert cluster.kube.get(PODS, "job1")["metadata"]["uid"] != uid
    assert cluster.kube.items(CONFIG_MAPS) == []
    message = "the cluster takes it from node-0 (DeletionByTaintManager); it comes again where there is room."
    assert message in [each["note"] for each in cluster.kube.items(EVENTS)]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_crash_while_a_lost_pod_is_made_again_loses_nothing(moment: float) -> None:
    cluster, _ = a_training_pod()
    cluster.lose("node-0", evicts=True)
    cluster.run(moment)
    cluster.crash()
    cluster.run(60.0)
    assert the_pod(cluster) == ("node-1", "Running")
    assert cluster.kube.items(CONFIG_MAPS) == []


@pytest.mark.parametrize("seed", range(8))
def test_no_fault_keeps_a_lost_pod_from_coming_again(seed: int) -> None:
    cluster, _ = a_training_pod(seed, ROUGH)
    cluster.lose("node-0", evicts=True)
    cluster.run(200.0)
    assert the_pod(cluster) == ("node-1", "Running")


@pytest.mark.parametrize("reason", ["DeletionByTaintManager", "EvictionByEvictionAPI", "PreemptionByScheduler"])
def test_a_pod_put_off_a_node_that_answers_ends_there_first(reason: str) -> None:
    cluster, _ = a_training_pod()
    cluster.kube.patch(NODES, "node-0", {"spec": {"unschedulable": True}})
    cluster.run(1.0)
    cluster.evict("job1", reason)
    cluster.run(30.0)
    assert the_pod(cluster) == ("node-1", "Running")


def test_a_pod_that_its_kubelet_evicts_comes_again() -> None:
    """DRAGON-50: it is not deleted, but stays as one that failed."""
    cluster, _ = a_training_pod()
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    status = {"phase": "Failed", "reason": "Evicted", "conditions": [condition]}
    cluster.kube.patch(PODS, "job1", {"status": status}, "status")
    cluster.run(20.0)
    assert the_pod(cluster)[1] == "Running"
    assert cluster.kube.items(CONFIG_MAPS) == []


def test_what_is_lost_on_its_way_to_the_server_is_written_down_again() -> None:
    """The pod is gone by then."""
    cluster, _ = a_training_pod()
    cluster.kube.faults = Faults(lost_before=1.0)
    cluster.evict("job1")
    cluster.run(1.0)
    assert cluster.pods() == []
    cluster.kube.faults = Faults()
    cluster.run(60.0)
    assert the_pod(cluster)[1] == "Running"


def _losing_answers_from_the_next_life_on(cluster: Cluster, uid: str) -> Callable[[Resource, Event], None]:
    def note(resource: Resource, event: Event) -> None:
        if resource == PODS and event.after is not None and event.after["metadata"]["uid"] != uid:
            cluster.kube.faults = Faults(lost_after=1.0)

    return note


def test_a_pod_is_written_down_though_something_else_is_not_answered_yet() -> None:
    """The removal of what was written down of its last move."""
    cluster, uid = a_training_pod()
    move(cluster, "job1", 1)
    cluster.kube.store.listeners.append(_losing_answers_from_the_next_life_on(cluster, uid))
    cluster.run(3.0)
    cluster.kube.store.listeners.pop()
    cluster.kube.faults = Faults()
    assert cluster.kube.items(CONFIG_MAPS) == []
    cluster.evict("job1")
    cluster.run(60.0)
    assert the_pod(cluster)[1] == "Running"


def test_a_pod_that_is_gone_before_it_could_be_written_down_is_said_to_be_lost() -> None:
    cluster, _ = a_training_pod()
    cluster.kube.faults = Faults(refused_ask=1.0)
    cluster.evict("job1")
    cluster.run(60.0)
    assert cluster.pods() == []
    message = "failed: the cluster took it from its node before it could be written down; create it again."
    assert message in [each["note"] for each in cluster.kube.items(EVENTS)]
    assert cluster.operator is not None
    assert cluster.operator.backend.state.entries == {}


def test_a_pod_waits_for_room_when_the_cluster_has_none_for_it() -> None:
    cluster, _ = a_training_pod()
    cluster.kube.patch(NODES, "node-1", {"spec": {"unschedulable": True}})
    cluster.lose("node-0", evicts=True)
    cluster.run(60.0)
    assert cluster.pods() == []
    assert len(cluster.kube.items(CONFIG_MAPS)) == 1
    cluster.kube.patch(NODES, "node-1", {"spec": {"unschedulable": None}})
    cluster.run(10.0)
    assert the_pod(cluster) == ("node-1", "Running")


def test_a_pod_of_a_deleted_node_is_created_again_before_garbage_collection() -> None:
    cluster, _ = a_training_pod()
    cluster.nodes.lose("node-0")
    cluster.kube.delete(NODES, "node-0")
    cluster.run(38.0)
    assert the_pod(cluster) == ("node-1", "Running")


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "while nobody acted"])
def test_a_pod_that_its_user_deletes_on_a_lost_node_does_not_come_back(is_seen: bool) -> None:
    cluster, _ = a_training_pod()
    cluster.nodes.lose("node-0")
    cluster.run(10.0)
    operator = cluster.operator
    if not is_seen:
        assert operator is not None
        operator.die()
        cluster.operator = None
    cluster.kube.delete(PODS, "job1")
    cluster.run(60.0)
    cluster.evict("job1")  # the taint manager deletes it regardless
    if not is_seen:
        cluster.start()
    cluster.run(60.0)
    assert cluster.kube.items(CONFIG_MAPS) == []
    assert cluster.kube.get(PODS, "job1")["metadata"]["deletionTimestamp"]


def test_a_pod_that_moves_off_a_node_which_is_lost_meanwhile_arrives() -> None:
    """DRAGON-89."""
    cluster, _ = a_training_pod(stop_seconds=20.0)
    move(cluster, "job1", 1)
    cluster.run(1.0)
    cluster.lose("node-0")
    cluster.run(60.0)
    assert the_pod(cluster) == ("node-1", "Running")


def test_a_pod_that_completes_while_it_is_put_off_is_not_run_again() -> None:
    cluster, _ = a_training_pod(stop_seconds=20.0)
    cluster.kube.patch(NODES, "node-0", {"spec": {"unschedulable": True}})
    cluster.evict("job1")
    cluster.run(1.0)
    cluster.nodes.end("job1")
    cluster.run(60.0)
    assert cluster.pods() == []
    assert cluster.kube.items(CONFIG_MAPS) == []
