"""MPIJobs that lose workers, with Kubeflow's own MPI operator, which keeps whatever has the name of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.kubernetes.api import Object
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.fake_nodes import fleet
from tests.kubernetes.mpi_operator import mpi_operator
from tests.kubernetes.operated import MPI_JOBS, NODES, PODS, Operated, example, is_going, operated


@pytest.fixture(scope="module")
def roomy(scheduled_plane: ControlPlane) -> Iterator[Operated]:
    """Three nodes of two GPUs, for jobs of four workers."""
    labels = {"vodascheduler/accelerator": "a100"}
    with mpi_operator(scheduled_plane), operated(scheduled_plane, fleet(3, gpus=2, labels=labels)) as cluster:
        yield cluster


@pytest.fixture
def cluster(roomy: Operated) -> Iterator[Operated]:
    yield roomy
    roomy.delete_all()


def a_job(most: int = 4, is_fixed: bool = False) -> Object:
    job = example("mpijob")
    specs = job["spec"]["mpiReplicaSpecs"]
    (container,) = specs["Launcher"]["template"]["spec"]["containers"]
    bounds = {} if is_fixed else {"NP": "1", "MIN_NP": "1", "MAX_NP": str(most)}
    container["env"] = [{"name": name, "value": value} for name, value in bounds.items()]
    specs["Worker"]["replicas"] = most
    for group in specs.values():
        group["template"]["spec"]["terminationGracePeriodSeconds"] = 2
    return job


def pods(cluster: Operated, role: str) -> dict[str, Object]:
    """Return the running pods by name."""
    found = cluster.pods(phase="Running")
    return {pod["metadata"]["name"]: pod for pod in found if f"-{role}" in pod["metadata"]["name"]}


def nodes(cluster: Operated) -> list[str]:
    return [pod["spec"]["nodeName"] for _, pod in sorted(pods(cluster, "worker").items())]


def uids(cluster: Operated, role: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods(cluster, role).values()}


def until_training(cluster: Operated, workers: int = 4, beside: set[str] | None = None) -> None:
    """All workers and a launcher, none of which is one of those."""

    def trains() -> bool:
        found = uids(cluster, "worker")
        return len(found) == workers and len(uids(cluster, "launcher")) == 1 and not found & (beside or set())

    cluster.until(trains, f"{workers} workers and their launcher")


@contextmanager
def lost(cluster: Operated, node: str) -> Iterator[None]:
    cluster.nodes.lose(node)
    try:
        yield
    finally:
        cluster.nodes.heal(node)
        cluster.until(lambda: _is_ready(cluster.api.get(f"{NODES}/{node}")), "the node's return")


def _is_ready(node: Any) -> bool:
    is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])
    return is_ready and not node["spec"].get("taints")


def test_workers_on_a_lost_node_come_again_elsewhere_while_the_others_stay(cluster: Operated) -> None:
    """VODA-98."""
    cluster.submit(a_job())
    until_training(cluster)
    before = pods(cluster, "worker")
    gone = before["keras-worker-3"]["spec"]["nodeName"]
    staying = {pod["metadata"]["uid"] for pod in before.values() if pod["spec"]["nodeName"] != gone}
    with lost(cluster, gone):
        cluster.until(lambda: [node != gone for node in nodes(cluster)] == [True] * 4, "four workers elsewhere")
        assert staying < uids(cluster, "worker")


def test_a_job_of_fixed_size_begins_again_as_a_whole_when_a_node_is_lost(cluster: Operated) -> None:
    """VODA-98."""
    cluster.submit(a_job(is_fixed=True))
    until_training(cluster)
    before, gone = uids(cluster, "worker"), nodes(cluster)[-1]
    with lost(cluster, gone):
        until_training(cluster, beside=before)
        assert gone not in nodes(cluster)
        assert cluster.job("keras", MPI_JOBS)["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 4


@pytest.mark.parametrize("reason", ["Evicted", "OutOfnvidia.com/gpu"])
@pytest.mark.parametrize("is_fixed", [False, True], ids=["elastic", "fixed"])
def test_a_worker_that_was_evicted_or_refused_is_replaced(cluster: Operated, is_fixed: bool, reason: str) -> None:
    """VODA-73: the MPI operator reports `Failed` for an eviction, and continues."""
    cluster.submit(a_job(is_fixed=is_fixed))
    until_training(cluster)
    old = pods(cluster, "worker")["keras-worker-2"]["metadata"]["uid"]
    cluster.api.patch(f"{PODS}/keras-worker-2/status", {"status": {"phase": "Failed", "reason": reason}})
    until_training(cluster, beside={old})
    cluster.until(lambda: _phase(cluster.job("keras", MPI_JOBS)) == "Running", "a job that runs")
    conditions = cluster.job("keras", MPI_JOBS)["status"]["conditions"]
    output = [each["reason"] for each in conditions if each["type"] == "Failed"]
    assert output in ([], ["MPIJobEvicted"])


def _phase(job: Object) -> str:
    return str(job["metadata"].get("annotations", {}).get("sterna.dev/phase", ""))


def test_a_job_of_which_every_worker_moves_begins_again_with_its_launcher(cluster: Operated) -> None:
    """VODA-87."""
    cluster.submit(a_job(most=2))
    until_training(cluster, 2)
    launcher, (origin, _) = uids(cluster, "launcher"), nodes(cluster)
    target = next(name for name in ("node-0000", "node-0001") if name != origin)
    cluster.sterna("migrate", "keras", target)
    cluster.until(lambda: nodes(cluster) == [target, target], f"two workers on {target}")
    until_training(cluster, 2)
    assert not launcher & uids(cluster, "launcher")
    assert not any(is_going(pod) for pod in cluster.pods())
