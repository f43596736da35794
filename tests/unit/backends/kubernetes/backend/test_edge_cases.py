"""Edge cases: kills between two writes, edited labels, foreign pods, invalid values."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sterna.backends.kubernetes.api.resources import NODES, Write
from sterna.kinds.pytorch_job import PYTORCH_JOBS
from sterna.kinds.resource import PODS
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from tests.fakes.kube_nodes import GPU
from tests.fakes.kube_store import Event, Object, Refused
from tests.simulation.kubernetes_runs import Cluster, Incarnation
from tests.unit.backends.kubernetes.backend.test_jobs import a_cluster, condition, status_of


def operator_of(cluster: Cluster) -> Incarnation:
    assert cluster.operator is not None
    return cluster.operator


class CutOff:
    """A client of which nothing arrives any more but what is about pods: as if it were killed in between."""

    def __init__(self, cluster: Cluster) -> None:
        client = operator_of(cluster).client
        self._send = client.send
        client.send = self.send  # type: ignore[method-assign]

    def send(self, writes: Sequence[Write]) -> None:
        self._send([write for write in writes if write.resource == PODS])


@pytest.mark.parametrize("is_tf", [True, False])
def test_a_completed_job_is_not_run_again_by_the_next_operator_after_a_kill(is_tf: bool) -> None:
    """DRAGON-48: its pods are deleted only after its status reports the end."""
    cluster = a_cluster()
    if is_tf:
        cluster.submit_tf("job", 1, 1, seconds=10.0, cleanPodPolicy="All")
    else:
        cluster.submit("job", 1, seconds=10.0, cleanPodPolicy="All")
    cluster.run(5.0)
    CutOff(cluster)
    cluster.run(15.0)
    cluster.crash()
    cluster.run(10.0)
    assert status_of(cluster, "job")["phase"] == "Succeeded"
    assert status_of(cluster, "job")["sterna"]["attempt"] == 1
    assert cluster.pods() == []


def test_an_operator_that_comes_back_writes_nothing_where_nothing_has_changed() -> None:
    cluster = a_cluster(4, 4)
    for number in range(6):
        cluster.submit(f"runs-{number}", seconds=10_000.0)
        cluster.submit(f"ended-{number}", seconds=3.0)
    cluster.submit("waits", 20)
    cluster.run(60.0)
    before = [each["status"] for each in cluster.kube.items(TRAINING_JOBS)]
    cluster.crash()
    cluster.run(60.0)
    assert [write for write in operator_of(cluster).client.sent if write.subresource == "status"] == []
    assert [each["status"] for each in cluster.kube.items(TRAINING_JOBS)] == before


def test_a_job_that_runs_again_after_a_restart_is_shown_running() -> None:
    cluster = a_cluster()
    cluster.submit_tf("elastic", 2, 2, seconds=1000.0)
    cluster.submit("whole", 2, seconds=1000.0)
    cluster.run(5.0)
    cluster.nodes.end("elastic-worker-1", exit_code=137)
    cluster.kube.patch(PODS, "whole-worker-1", {"status": {"phase": "Failed", "reason": "Evicted"}}, "status")
    cluster.run(60.0)
    assert cluster.phases() == {"elastic": "Running", "whole": "Running"}
    assert condition(cluster, "elastic", "Restarting") == {}


def test_a_failed_parameter_server_that_goes_last_counts_as_one_failure() -> None:
    cluster = a_cluster()
    container = {"name": "ps", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    servers = {"count": 1, "template": {"spec": {"containers": [container]}}}
    slow = {"fake/stop-seconds": "8"}
    cluster.submit(
        "job", 2, seconds=1000.0, restartPolicy="OnFailure", backoffLimit=3, parameterServers=servers, annotations=slow
    )
    cluster.run(5.0)
    cluster.nodes.end("job-ps-0", exit_code=1)
    cluster.run(60.0)
    assert status_of(cluster, "job")["phase"] == "Running"
    assert status_of(cluster, "job")["sterna"]["restarts"] == 1


def test_the_only_node_is_tried_again_some_time_after_it_refused_a_pod() -> None:
    cluster = a_cluster(1, 4)
    cluster.submit("job", seconds=1000.0)
    cluster.run(0.5)
    cluster.kube.patch(PODS, "job-worker-0", {"status": {"phase": "Failed", "reason": "OutOfcpu"}}, "status")
    cluster.run(90.0)
    assert status_of(cluster, "job")["phase"] == "Running"


@pytest.mark.parametrize(
    "memory",
    [
        '{"moves": 100000000000000000000}',
        '{"attempt": 100000000000000000000}',
        '{"cpu_share": -5}',
        '{"startedAt": 1e300, "attained": -1e300}',
        '{"notBefore": 1e300}',
        '{"enqueuedAt": -1e300}',
        '{"saved',
    ],
)
def test_absurd_persisted_state_does_not_affect_other_jobs(memory: str) -> None:
    cluster = a_cluster()
    container = {"name": "pytorch", "image": "x", "resources": {"limits": {GPU: 1}}}
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers": [container]}}}}}
    meta = {"name": "odd", "annotations": {"sterna.dev/memory": memory}}
    cluster.kube.create(PYTORCH_JOBS, {"metadata": meta, "spec": spec})
    cluster.submit("good", seconds=5.0)
    cluster.run(20.0)
    assert status_of(cluster, "good")["phase"] == "Succeeded"
    assert cluster.kube.get(PODS, "odd-worker-0")["status"]["phase"] == "Running"


def test_a_pod_whose_labels_are_edited_is_replaced() -> None:
    cluster = a_cluster()
    cluster.submit("job", 2, seconds=1000.0)
    cluster.run(5.0)
    cluster.kube.patch(PODS, "job-worker-1", {"metadata": {"labels": {"sterna.dev/index": "7"}}})
    cluster.run(30.0)
    indices = [pod["metadata"]["labels"]["sterna.dev/index"] for pod in cluster.pods()]
    assert indices == ["0", "1"]
    assert status_of(cluster, "job")["phase"] == "Running"


@pytest.mark.parametrize("is_tf", [True, False])
def test_pods_that_a_taint_drives_away_are_made_elsewhere_and_not_there_again(is_tf: bool) -> None:
    cluster = a_cluster()
    cluster.submit_tf("job", 2, 2, seconds=1000.0) if is_tf else cluster.submit("job", 2, seconds=1000.0)
    cluster.run(5.0)
    node = cluster.pods()[0]["spec"]["nodeName"]
    drive_away(cluster, node)
    cluster.run(60.0)
    assert {pod["spec"]["nodeName"] for pod in cluster.pods()}.isdisjoint({node})
    assert status_of(cluster, "job")["phase"] == "Running"


def drive_away(cluster: Cluster, node: str) -> None:
    """A NoExecute taint that deletes present and future pods."""
    taint = {"key": "maintenance", "value": "x", "effect": "NoExecute"}
    cluster.kube.patch(NODES, node, {"spec": {"taints": [taint]}})

    def drive(pod: Object) -> None:
        try:
            cluster.kube.delete(PODS, pod["metadata"]["name"], preconditions={"uid": pod["metadata"]["uid"]})
        except Refused:
            return

    def note(resource: object, event: Event) -> None:
        pod = event.after
        is_here = resource == PODS and pod is not None and pod["spec"].get("nodeName") == node
        if is_here and pod is not None and not pod["metadata"].get("deletionTimestamp"):
            cluster.kube.call_in(0.1, lambda: drive(pod))

    for pod in cluster.pods():
        if pod["spec"].get("nodeName") == node:
            drive(pod)
    cluster.kube.store.listeners.append(note)


def test_no_pods_are_made_for_jobs_whose_kind_the_server_does_not_know_any_more() -> None:
    cluster = a_cluster()
    cluster.submit_tf("job", 2, 2, seconds=10_000.0)
    cluster.run(5.0)
    operator_of(cluster).client.break_watches()
    cluster.kube.rest.withdraw(TF_JOBS)
    cluster.run(60.0)
    before = len(operator_of(cluster).client.sent)
    for pod in cluster.pods():
        cluster.kube.delete(PODS, pod["metadata"]["name"])
    cluster.run(60.0)
    assert cluster.pods() == []
    assert [write for write in operator_of(cluster).client.sent[before:] if write.resource == PODS] == []


def test_a_foreign_mpi_job_of_the_same_name_is_left_alone() -> None:
    cluster = a_cluster()
    cluster.submit("same", seconds=1000.0)
    cluster.run(5.0)
    label = "training.kubeflow.org"
    labels = {f"{label}/job-name": "same", f"{label}/job-role": "launcher", f"{label}/operator-name": "mpi-operator"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "same-launcher", "uid": "u1", "controller": True}
    meta = {"name": "same-launcher", "labels": labels, "ownerReferences": [owner]}
    spec = {"nodeName": "node-1", "containers": [{"name": "x", "image": "x"}]}
    cluster.kube.collects_garbage = False
    cluster.kube.create(PODS, {"metadata": meta, "spec": spec})
    cluster.run(10.0)
    assert cluster.kube.get(PODS, "same-launcher")["status"]["phase"] == "Running"
    assert cluster.kube.get(PODS, "same-worker-0")["metadata"]["labels"]["sterna.dev/attempt"] == "1"


def test_a_gang_is_withdrawn_as_a_whole_if_a_foreign_pod_has_one_of_its_names() -> None:
    """DRAGON-12."""
    cluster = a_cluster()
    spec = {"nodeName": "node-1", "containers": [{"name": "x", "image": "x"}]}
    cluster.kube.create(PODS, {"metadata": {"name": "gang-worker-1"}, "spec": spec})
    cluster.submit("gang", 4, seconds=1000.0)
    cluster.run(120.0)
    assert "another pod is called gang-worker-1" in status_of(cluster, "gang")["reason"]
    assert len(cluster.pods("gang")) == 1
    cluster.kube.delete(PODS, "gang-worker-1")
    cluster.run(300.0)
    assert status_of(cluster, "gang")["phase"] == "Running"


def test_pods_that_outlive_their_job_are_not_jobs_themselves() -> None:
    cluster = a_cluster()
    cluster.submit("job", 2, seconds=1000.0)
    cluster.run(5.0)
    cluster.kube.patch(TRAINING_JOBS, "job", {"metadata": {"finalizers": ["orphan"]}})
    cluster.kube.delete(TRAINING_JOBS, "job")
    for pod in cluster.pods():
        cluster.kube.patch(PODS, pod["metadata"]["name"], {"metadata": {"ownerReferences": None}})
    cluster.kube.patch(TRAINING_JOBS, "job", {"metadata": {"finalizers": None}})
    cluster.run(10.0)
    assert operator_of(cluster).backend.state.entries == {}
    assert len(cluster.pods()) == 2


def test_half_a_gang_whose_capacity_is_taken_is_withdrawn_by_the_next_operator_after_a_kill() -> None:
    cluster = a_cluster(1, 2)
    cluster.submit("gang", 2, seconds=1000.0)
    cluster.run(0.3)
    operator_of(cluster).die()
    cluster.operator = None
    cluster.kube.delete(PODS, "gang-worker-1")
    cluster.run(60.0)
    container = {"name": "x", "image": "x", "resources": {"limits": {GPU: "1"}}}
    cluster.kube.create(
        PODS, {"metadata": {"name": "other"}, "spec": {"nodeName": "node-0", "containers": [container]}}
    )
    cluster.start()
    cluster.run(60.0)
    assert cluster.pods("gang") == []
    assert status_of(cluster, "gang")["phase"] == "Waiting"
    cluster.kube.delete(PODS, "other")
    cluster.run(60.0)
    assert status_of(cluster, "gang")["phase"] == "Running"
