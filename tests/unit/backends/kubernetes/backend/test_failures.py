"""Failures: rejections by the server and by kubelets, evictions, taken names, lost nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sterna.backends.kubernetes.api.resources import NODES, Write
from sterna.kinds.resource import PODS
from sterna.kinds.training_job import TRAINING_JOBS
from tests.fakes.kube import RESOURCES, FakeKube
from tests.fakes.kube_client import FakeClient
from tests.fakes.kube_nodes import FakeNodes
from tests.fakes.kube_requests import Response
from tests.fakes.kube_store import Refused, encoded, status_of
from tests.simulation.kubernetes_runs import Cluster, Incarnation
from tests.unit.backends.kubernetes.backend.test_jobs import a_cluster, condition, events
from tests.unit.backends.kubernetes.backend.test_jobs import status_of as job_status


class RefusingClient(FakeClient):
    """A server that rejects some writes."""

    refusal: Callable[[Write], Refused | None] = staticmethod(lambda write: None)

    def _done(self, write: Write) -> Response:
        refused = self.refusal(write)
        if refused is None:
            return super()._done(write)
        return Response(refused.status, encoded(status_of(refused)))


class RefusingKube(FakeKube):
    def client(self, may_write: Callable[[], bool] = lambda: True, identity: str = "") -> RefusingClient:
        return RefusingClient(self, may_write, identity)


def a_refusing_cluster(refusal: Callable[[Write], Refused | None]) -> tuple[Cluster, RefusingClient]:
    cluster = Cluster(kube=RefusingKube())
    cluster.nodes.add("node-0", gpus=4)
    operator = cluster.start()
    assert isinstance(operator.client, RefusingClient)
    operator.client.refusal = refusal
    return cluster, operator.client


def refuse_pods(status: int, reason: str, message: str) -> Callable[[Write], Refused | None]:
    return lambda write: Refused(status, reason, message) if write.resource == PODS and write.body else None


def test_a_quota_makes_a_job_wait_with_the_servers_words_and_lets_others_have_its_room() -> None:
    cluster, client = a_refusing_cluster(refuse_pods(403, "Forbidden", "exceeded quota: gpus"))
    cluster.submit("job", 4, seconds=5.0)
    cluster.run(5.0)
    assert "exceeded quota: gpus" in job_status(cluster, "job")["reason"]
    assert job_status(cluster, "job")["phase"] in ("Waiting", "Restarting")
    assert ("FailedCreatePod", "Could not create job-worker-0 on node-0: exceeded quota: gpus") in events(
        cluster, "job"
    )
    before = len(client.sent)
    cluster.run(60.0)
    assert len(client.sent) - before < 60, "it is asked again less and less often"
    client.refusal = lambda write: None
    cluster.run(400.0)
    assert job_status(cluster, "job")["phase"] == "Succeeded"


def test_pods_that_the_server_cannot_take_fail_their_job_with_its_sentence() -> None:
    message = 'Pod "job-worker-0" is invalid: spec.containers[0].image: Required value'
    cluster, _ = a_refusing_cluster(refuse_pods(422, "Invalid", message))
    cluster.submit("job", seconds=5.0)
    cluster.run(5.0)
    assert job_status(cluster, "job")["phase"] == "Failed"
    assert "spec.containers[0].image: Required value" in condition(cluster, "job", "Failed")["message"]


def test_a_foreign_pod_of_the_same_name_is_waited_for() -> None:
    cluster = a_cluster()
    spec = {"containers": [{"name": "x", "image": "x"}], "nodeName": "node-1"}
    cluster.kube.create(PODS, {"metadata": {"name": "job-worker-0"}, "spec": spec})
    cluster.submit("job", seconds=3.0)
    cluster.run(30.0)
    assert "another pod is called job-worker-0" in job_status(cluster, "job")["reason"]
    cluster.kube.delete(PODS, "job-worker-0")
    cluster.run(30.0)
    assert job_status(cluster, "job")["phase"] == "Succeeded"


def test_a_kubelets_refusal_is_no_failure_of_the_job_and_its_node_is_left_alone_for_a_while() -> None:
    cluster = a_cluster(2, 4)
    cluster.submit("job", 1, seconds=5.0, backoffLimit=0)
    cluster.run(0.5)
    pod = cluster.kube.get(PODS, "job-worker-0")
    node = pod["spec"]["nodeName"]
    refusal = {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: OutOfcpu"}
    cluster.kube.patch(PODS, "job-worker-0", {"status": refusal}, "status")
    cluster.run(15.0)
    assert cluster.kube.get(PODS, "job-worker-0")["spec"]["nodeName"] != node
    cluster.run(20.0)
    assert job_status(cluster, "job")["phase"] == "Succeeded"
    assert job_status(cluster, "job")["sterna"].get("restarts", 0) == 0


def test_an_evicted_worker_is_replaced_and_its_job_goes_on() -> None:
    """DRAGON-50."""
    cluster = a_cluster(2, 4)
    cluster.submit_tf("job", 2, 2, seconds=60.0)
    cluster.run(5.0)
    ps = cluster.kube.get(PODS, "job-ps-0")["metadata"]["uid"]
    cluster.kube.patch(PODS, "job-worker-1", {"status": {"phase": "Failed", "reason": "Evicted"}}, "status")
    cluster.run(10.0)
    assert cluster.kube.get(PODS, "job-worker-1")["status"]["phase"] == "Running"
    assert cluster.kube.get(PODS, "job-ps-0")["metadata"]["uid"] == ps
    cluster.run(120.0)
    assert job_status(cluster, "job")["phase"] == "Succeeded"


def test_a_pod_that_vanishes_without_a_trace_is_made_again() -> None:
    """As NoExecute does to pods whose node is set."""
    cluster = a_cluster(2, 4)
    cluster.submit("job", 2, seconds=30.0)
    cluster.run(5.0)
    cluster.kube.delete(PODS, "job-worker-1", gracePeriodSeconds=0)
    cluster.run(90.0)
    assert job_status(cluster, "job")["phase"] == "Succeeded"
    assert job_status(cluster, "job")["sterna"]["attempt"] == 2


def test_an_error_of_its_own_restarts_a_job_after_a_while_and_in_the_end_fails_it() -> None:
    """DRAGON-43."""
    cluster = a_cluster()
    cluster.submit("job", seconds=1.0, backoffLimit=2, restartPolicy="OnFailure", annotations={"fake/exit-code": "1"})
    cluster.run(8.0)
    assert job_status(cluster, "job")["phase"] == "Restarting"
    assert "restart 1 of 2" in job_status(cluster, "job")["reason"]
    cluster.run(200.0)
    assert job_status(cluster, "job")["phase"] == "Failed"
    assert condition(cluster, "job", "Failed")["reason"] == "BackoffLimitExceeded"


def test_workers_of_a_lost_node_are_looked_for_elsewhere_while_the_others_train_on() -> None:
    """DRAGON-50: the parameter server, and with it the model, stays."""
    cluster = a_cluster(3, 2)
    cluster.submit_tf("job", 1, 3, seconds=500.0)
    cluster.run(5.0)
    assignments = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in cluster.pods("job")}
    ps = cluster.kube.get(PODS, "job-ps-0")["metadata"]["uid"]
    node = next(
        assignment
        for name, assignment in assignments.items()
        if "worker" in name and assignment != assignments["job-ps-0"]
    )
    cluster.lose(node, evicts=True)
    cluster.run(120.0)
    running = [pod for pod in cluster.pods("job") if pod["status"]["phase"] == "Running"]
    assert {pod["spec"]["nodeName"] for pod in running}.isdisjoint({node})
    assert cluster.kube.get(PODS, "job-ps-0")["metadata"]["uid"] == ps
    assert len(running) == 4


def test_a_job_that_is_suspended_on_a_lost_node_leaves_it_when_the_grace_of_its_pods_is_over() -> None:
    """DRAGON-50: no other event triggers a reconcile by then."""
    cluster = a_cluster(2, 4)
    cluster.submit("job", 2, seconds=500.0)
    cluster.run(5.0)
    cluster.lose(cluster.kube.get(PODS, "job-worker-0")["spec"]["nodeName"])
    cluster.kube.patch(TRAINING_JOBS, "job", {"spec": {"suspend": True}})
    cluster.run(60.0)
    assert cluster.pods("job") == []
    assert job_status(cluster, "job")["phase"] == "Suspended"


def test_a_node_that_is_deleted_takes_its_pods_with_it_and_the_job_begins_elsewhere() -> None:
    cluster = a_cluster(2, 4)
    cluster.submit("job", 2, seconds=20.0)
    cluster.run(5.0)
    node = cluster.kube.get(PODS, "job-worker-0")["spec"]["nodeName"]
    cluster.kube.delete(NODES, node)
    for pod in cluster.pods("job"):
        cluster.kube.delete(PODS, pod["metadata"]["name"], gracePeriodSeconds=0)
    cluster.run(60.0)
    assert job_status(cluster, "job")["phase"] == "Succeeded"


def test_a_kind_that_the_server_does_not_serve_is_reported_and_does_not_affect_other_kinds() -> None:
    kube = FakeKube(resources=[each for each in RESOURCES if each != TRAINING_JOBS])
    FakeNodes(kube).add("node-0", gpus=4)
    operator = Incarnation(kube)
    operator.run_until(kube.now + 5.0)
    assert "install its definition" in operator.backend.absent[TRAINING_JOBS]
    assert operator.backend.is_ready


@pytest.mark.parametrize("is_standing_by", [True, False])
def test_nothing_is_written_before_this_replica_leads(is_standing_by: bool) -> None:
    cluster = Cluster()
    cluster.nodes.add("node-0", gpus=4)
    cluster.submit("job", seconds=5.0)
    operator = Incarnation(cluster.kube)
    operator.backend.prepare(1.0)
    for _ in range(20):
        operator.backend.watch_only(0.2)
    assert operator.client.sent == []
    if not is_standing_by:
        operator.run_until(cluster.kube.now + 20.0)
        assert cluster.phases() == {"job": "Succeeded"}
