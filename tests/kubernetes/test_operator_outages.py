"""Misconfigured or failing clusters: the operator names the cause in one sentence, and recovers by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes.api import PATIENCE_SECONDS, Api, until
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.fake_nodes import FakeNodes, fleet
from tests.kubernetes.operated import JOBS, PODS, Operated, a_training_job, install, names_of
from tests.kubernetes.operator_process import OperatorProcess

ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def nodes(plane: ControlPlane, api: Api) -> Iterator[FakeNodes]:
    """A new fleet; what earlier tests left is gone."""
    api.remove(JOBS)
    for pod in api.items(PODS):
        api.remove(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds=0)
    with FakeNodes(plane.kubeconfig, fleet(2, gpus=4)) as nodes:
        yield nodes


def runs(api: Api, name: str) -> bool:
    pod = api.find(f"{PODS}/{name}-worker-0")
    return pod is not None and pod["status"].get("phase") == "Running"


def test_operator_works_as_soon_as_missing_definitions_are_installed(
    plane: ControlPlane, api: Api, nodes: FakeNodes
) -> None:
    with OperatorProcess(plane.kubeconfig, "--no-leader-election") as operator:
        until(lambda: "trainingjobs.sterna.dev" in operator.output(), PATIENCE_SECONDS, "a sentence about TrainingJobs")
        install(api)
        api.create(a_training_job("late"))
        until(lambda: runs(api, "late"), PATIENCE_SECONDS, "the job")
        assert operator.is_running


def test_operator_works_as_soon_as_missing_permissions_are_granted(
    plane: ControlPlane, api: Api, nodes: FakeNodes
) -> None:
    install(api)
    api.create(a_training_job("patient"))
    with OperatorProcess(plane.user("robot"), "--no-leader-election") as operator:
        until(lambda: "not" in operator.output(), PATIENCE_SECONDS, "a sentence about rights")
        assert "Traceback" not in operator.output()
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "robot"}
        meta, version = {"name": "robot"}, "rbac.authorization.k8s.io/v1"
        binding = {"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": meta}
        api.create({**binding, "roleRef": role, "subjects": [subject]})
        until(lambda: runs(api, "patient"), 2 * PATIENCE_SECONDS, "the job")


def test_a_server_that_comes_back_with_an_empty_memory_finds_the_operator_at_work(
    plane: ControlPlane, api: Api, nodes: FakeNodes
) -> None:
    """Watches from before get a 410."""
    install(api)
    with OperatorProcess(plane.kubeconfig, "--no-leader-election") as operator:
        api.create(a_training_job("before", workers=2))
        until(lambda: runs(api, "before"), PATIENCE_SECONDS, "the job before")
        plane.kill("kube-apiserver")
        plane.compact()
        plane.start_api_server()
        api.create(a_training_job("after"))
        until(lambda: runs(api, "after"), PATIENCE_SECONDS, "the job after")
        pods = ["after-worker-0", "before-worker-0", "before-worker-1"]
        until(lambda: names_of(api.items(PODS)) == pods, what="the second worker of the job before")
        assert operator.is_running


def test_a_kind_that_is_taken_away_does_not_stop_the_others(plane: ControlPlane, api: Api, nodes: FakeNodes) -> None:
    install(api)
    with OperatorProcess(plane.kubeconfig, "--no-leader-election") as operator:
        until(lambda: operator.leads, PATIENCE_SECONDS, "an operator that leads")
        api.delete(f"{DEFINITIONS}/tfjobs.kubeflow.org")
        api.create(a_training_job("stays"))
        until(lambda: runs(api, "stays"), PATIENCE_SECONDS, "the job")
        assert operator.is_running


def test_a_second_replica_takes_over_when_the_first_is_killed(plane: ControlPlane, api: Api, nodes: FakeNodes) -> None:
    install(api)
    with OperatorProcess(plane.kubeconfig, "--identity", "one") as one:
        until(lambda: one.leads, PATIENCE_SECONDS, "the first replica's lead")
        api.create(a_training_job("first"))
        until(lambda: runs(api, "first"), PATIENCE_SECONDS, "the first job")
        with OperatorProcess(plane.kubeconfig, "--identity", "two") as two:
            cluster = Operated(plane, nodes, two, api)
            one.kill()
            cluster.until(lambda: two.leads, "the second replica's lead", PATIENCE_SECONDS)
            api.create(a_training_job("second"))
            cluster.until(lambda: runs(api, "second"), "the second job")
            assert names_of(api.items(PODS)) == ["first-worker-0", "second-worker-0"]


def test_terminated_replica_hands_over_at_once(plane: ControlPlane, api: Api, nodes: FakeNodes) -> None:
    install(api)
    with OperatorProcess(plane.kubeconfig, "--identity", "three") as three:
        until(lambda: three.leads, PATIENCE_SECONDS, "the first replica's lead")
        assert three.stop() == 0
        holder = api.items("/apis/coordination.k8s.io/v1/namespaces/default/leases")[0]["spec"].get("holderIdentity")
        assert not holder
