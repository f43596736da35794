"""Requested moves on a cluster in memory: only into unreserved capacity, and explained."""

from __future__ import annotations

from typing import Any

import pytest

from sterna.backends.kubernetes.api.monitor_protocol import PodMoveRequest
from sterna.backends.kubernetes.api.resources import EVENTS
from sterna.backends.kubernetes.moves.manual import ManualMoves
from sterna.backends.kubernetes.server.request_processor import RequestProcessor
from sterna.kinds.resource import PODS
from sterna.kinds.tf_job import TF_JOBS
from tests.fakes.kube_store import Object
from tests.fakes.log import log_messages
from tests.fakes.replica import FakeReplica
from tests.simulation.kubernetes_kubeshare import FakeKubeShare
from tests.simulation.kubernetes_runs import Cluster
from tests.simulation.test_kubernetes_controllers import a_sharing_job
from tests.unit.backends.kubernetes.backend.test_jobs import condition, events, status_of
from tests.unit.backends.kubernetes.backend.test_reservations import place_of


class Moves:
    """A cluster of nodes with the given CPUs and GPUs, and an operator that processes requests."""

    def __init__(self, *nodes: tuple[int, int]) -> None:
        self.cluster = Cluster()
        for number, (cpus, gpus) in enumerate(nodes):
            self.cluster.nodes.add(f"node-{number}", cpus=cpus, gpus=gpus)
        FakeKubeShare(self.cluster.kube)
        operator = self.cluster.start()
        backend = operator.backend
        self.requests = RequestProcessor(backend, operator.client, FakeReplica())
        operator.before_reconcile += [self.requests.process_requests, ManualMoves(backend).process]

    def submit(self, name: str, cpus: int, on: str, workers: int = 1, **more: Any) -> None:
        """A TFJob whose workers request `cpus`, on a preferred node."""

        def replicas(count: int, cpu: str, steering: dict[str, str]) -> Object:
            container = {"name": "tensorflow", "image": "x", "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}}
            template = {"metadata": {"annotations": steering}, "spec": {"containers": [container]}}
            return {"replicas": count, "restartPolicy": "OnFailure", "template": template}

        specs = {"PS": replicas(1, "100m", {}), "Worker": replicas(workers, str(cpus), {"fake/run-seconds": "9000"})}
        bounds = {"min-instances": workers, "max-instances": more.pop("most", workers)}
        spec = {**bounds, "node-preference": on, "tfReplicaSpecs": specs}
        self.cluster.kube.create(TF_JOBS, {"metadata": {"name": name}, "spec": spec})
        self.cluster.run(5.0)

    def serve(self, cpus: int) -> None:
        """A serving pod that stays unbound."""
        container = {"name": "x", "image": "x", "resources": {"limits": {"cpu": str(cpus)}}}
        meta = {"name": "serve", "annotations": {"SERVING_POD": "true"}}
        self.cluster.kube.create(PODS, {"metadata": meta, "spec": {"containers": [container]}})
        self.cluster.run(10.0)

    def ask(self, *pods: str) -> None:
        """As their monitors do."""
        for pod in pods:
            self.requests.endpoints.move_requests.put(PodMoveRequest(self.node_of(pod), pod))
        self.cluster.run(15.0)

    def node_of(self, pod: str) -> str:
        return str(self.cluster.kube.get(PODS, pod)["spec"].get("nodeName", ""))


# Room, DRAGON-71.


def test_a_worker_is_not_moved_into_room_that_was_made_for_a_serving_pod() -> None:
    """DRAGON-59."""
    moves = Moves((8, 0), (8, 0))
    moves.submit("busy", 3, "node-0", workers=2)
    moves.submit("elastic", 2, "node-1", most=3)
    moves.serve(5)
    moves.ask("busy-worker-1")
    assert moves.node_of("busy-worker-1") == "node-0"


def test_nor_is_a_job_that_a_person_asks_to_move(caplog: pytest.LogCaptureFixture) -> None:
    """DRAGON-59."""
    moves = Moves((8, 0), (8, 0))
    moves.submit("busy", 3, "node-0", workers=2)
    moves.serve(5)
    wish = {"metadata": {"annotations": {"sterna.dev/migrate-to": "node-1 now"}}}
    moves.cluster.kube.patch(TF_JOBS, "busy", wish)
    moves.cluster.run(15.0)
    assert moves.node_of("busy-worker-0") == "node-0"
    assert "node-1 has no room for the 2 workers of 'busy'" in caplog.messages[0]


def test_a_worker_is_not_moved_into_room_that_was_given_to_another_a_moment_before() -> None:
    """DRAGON-75."""
    moves = Moves((8, 0), (4, 0))
    moves.submit("busy", 3, "node-0", workers=2)
    moves.ask("busy-worker-0", "busy-worker-1")
    assert sorted(map(moves.node_of, ("busy-worker-0", "busy-worker-1"))) == ["node-0", "node-1"]


def test_a_worker_on_a_part_of_a_gpu_moves_to_a_part_that_is_free() -> None:
    """DRAGON-36, 72: node-2 has most to spare and no GPU, the first GPU of node-1 is taken."""
    moves = Moves((2, 1), (8, 2), (64, 0))
    kube = moves.cluster.kube
    kube.create(TF_JOBS, a_sharing_job("moved", "0.5", seconds=9000.0))
    moves.cluster.run(5.0)
    assert place_of(moves.cluster, "moved-worker-0") == ("node-0", "aaaaa")
    other = a_sharing_job("other", "0.8", seconds=9000.0)
    other["spec"]["node-preference"] = "node-1"
    kube.create(TF_JOBS, other)
    moves.cluster.run(5.0)
    assert place_of(moves.cluster, "other-worker-0") == ("node-1", "aaaaa")
    moves.ask("moved-worker-0")
    assert place_of(moves.cluster, "moved-worker-0") == ("node-1", "aaaab")
    assert moves.node_of("moved-worker-0") == "node-1"
    assert "restarts" not in status_of(moves.cluster, "moved")["sterna"]
    later = a_sharing_job("later", "0.5", seconds=9000.0)
    later["spec"]["node-preference"] = "node-1"
    kube.create(TF_JOBS, later)
    moves.cluster.run(5.0)
    assert place_of(moves.cluster, "later-worker-0") == ("node-1", "aaaab")


# Events, DRAGON-53.


def test_a_move_that_a_monitor_requested_is_reported_like_any_decision() -> None:
    moves = Moves((8, 0), (8, 0))
    moves.submit("busy", 3, "node-0", workers=2)
    moves.ask("busy-worker-1")
    assert moves.node_of("busy-worker-1") == "node-1"
    why = "moved 1 worker to other nodes."
    assert events(moves.cluster, "busy").count(("Moved", why)) == 1
    assert status_of(moves.cluster, "busy")["reason"] == why
    assert condition(moves.cluster, "busy", "Scheduled")["message"] == why


def test_a_second_move_is_counted_on() -> None:
    moves = Moves((8, 0), (8, 0), (8, 0))
    moves.submit("busy", 3, "node-0", workers=2)
    moves.ask("busy-worker-1")
    moves.ask("busy-worker-0")
    (event,) = [each for each in moves.cluster.kube.items(EVENTS) if each["reason"] == "Moved"]
    assert event["series"]["count"] == 2


def test_a_move_that_a_person_asked_for_stands_in_the_status_too() -> None:
    moves = Moves((8, 0), (8, 0))
    moves.submit("busy", 3, "node-0")
    wish = {"metadata": {"annotations": {"sterna.dev/migrate-to": "node-1 now"}}}
    moves.cluster.kube.patch(TF_JOBS, "busy", wish)
    moves.cluster.run(15.0)
    assert status_of(moves.cluster, "busy")["reason"] == "moved 1 worker to other nodes."


def test_a_rejected_move_request_is_logged_once() -> None:
    """DRAGON-69: a monitor repeats it every few seconds."""
    moves = Moves((8, 0), (8, 0))
    moves.submit("alone", 3, "node-0")
    with log_messages() as messages:
        for _ in range(3):
            moves.ask("alone-worker-0")
        assert len(messages) == 1
        assert messages[0].startswith("A monitor's request to move a pod was rejected: No node with room for pod")
