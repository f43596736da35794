"""MPIJobs with Kubeflow's own MPI operator beside ours: it creates the pods, Sterna decides number and nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes.api import Object
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.fake_nodes import fleet
from tests.kubernetes.mpi_operator import mpi_operator
from tests.kubernetes.operated import MPI_JOBS, PODS, Operated, a_training_job, example, names_of, operated

GPUS = 4


@pytest.fixture(scope="module")
def cluster(scheduled_plane: ControlPlane) -> Iterator[Operated]:
    """Launchers are of the default scheduler, which must be there to bind them."""
    labels = {"vodascheduler/accelerator": "a100"}
    with mpi_operator(scheduled_plane), operated(scheduled_plane, fleet(1, gpus=GPUS, labels=labels)) as cluster:
        yield cluster


@pytest.fixture
def job(cluster: Operated) -> Iterator[Object]:
    yield cluster.submit(example("mpijob"))
    cluster.delete_all()


def workers(cluster: Operated) -> list[str]:
    """Return the running workers, without the launcher."""
    return [
        name for name in names_of(cluster.pods()) if name.startswith("keras-worker-") and _is_running(cluster, name)
    ]


def _is_running(cluster: Operated, name: str) -> bool:
    pod = cluster.api.find(f"{PODS}/{name}")
    return pod is not None and pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _is_launcher_running(cluster: Operated) -> bool:
    return any(_is_running(cluster, name) for name in names_of(cluster.pods()) if "launcher" in name)


def test_it_is_resumed_with_as_many_workers_as_there_is_room_for(cluster: Operated, job: Object) -> None:
    """VODA-58 to 63: suspended jobs are started; workers of the scheduler `sterna` are bound by Sterna."""
    names = [f"keras-worker-{index}" for index in range(4)]
    cluster.until(lambda: workers(cluster) == names, "four workers")
    now = cluster.job("keras", MPI_JOBS)
    assert now["spec"]["runPolicy"]["suspend"] is False
    assert now["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 4


def test_it_is_scaled_in_place_when_others_come(cluster: Operated, job: Object) -> None:
    """VODA-64 to 70: the number of replicas changes, the workers that stay are the same pods."""
    cluster.until(lambda: len(workers(cluster)) == 4, "four workers")
    # A launcher that starts after the resize reads the current host list, and is not annotated.
    cluster.until(lambda: _is_launcher_running(cluster), "a launcher that runs")
    uid = cluster.api.get(f"{PODS}/keras-worker-0")["metadata"]["uid"]
    cluster.submit(a_training_job("rigid", workers=2))
    cluster.until_running("rigid", 2)
    cluster.until(lambda: workers(cluster) == ["keras-worker-0", "keras-worker-1"], "two workers")
    assert cluster.api.get(f"{PODS}/keras-worker-0")["metadata"]["uid"] == uid
    cluster.until(lambda: hosts(cluster) == ["0-1"], "a launcher with its host list")


def hosts(cluster: Operated) -> list[str]:
    """The annotation that makes a launcher's kubelet refresh its hostfile."""
    launchers = [pod for pod in cluster.pods() if "launcher" in pod["metadata"]["name"]]
    return [pod["metadata"].get("annotations", {}).get("sterna.dev/hosts", "") for pod in launchers]


def test_it_waits_suspended_where_there_is_no_room(cluster: Operated) -> None:
    cluster.submit(a_training_job("full", workers=GPUS))
    cluster.until_running("full", GPUS)
    cluster.submit(example("mpijob"))
    cluster.until(lambda: "sterna" in str(cluster.job("keras", MPI_JOBS)["metadata"]), "a word of Sterna's")
    assert workers(cluster) == []
    assert cluster.job("keras", MPI_JOBS)["spec"]["runPolicy"]["suspend"] is True
    for index in range(GPUS):
        cluster.nodes.end(f"full-worker-{index}")
    cluster.until(lambda: len(workers(cluster)) == 4, "four workers")
    cluster.delete_all()
