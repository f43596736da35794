"""Jobs whose pods another controller creates: MPIJobs and SharePods, also through crashes."""

from __future__ import annotations

import random

import pytest

from sterna.backends.kubernetes.api.assignment import gpu_number
from sterna.kinds.mpi_job import MPI_JOBS
from sterna.kinds.resource import PODS
from sterna.kinds.share_pod import SHARE_PODS
from sterna.kinds.tf_job import TF_JOBS
from tests.fakes.kube_client import Faults
from tests.fakes.kube_store import Object
from tests.simulation.kubernetes_kubeshare import GPU_ID, FakeKubeShare
from tests.simulation.kubernetes_mpi import FakeMpiOperator, an_mpi_job
from tests.simulation.kubernetes_runs import Cluster, is_over

ROUGH = Faults(lost_before=0.02, lost_after=0.02, conflict=0.05, too_many=0.05, expired=0.01, broken=0.01)


def a_cluster(seed: int = 0, faults: Faults | None = None, *, nodes: int = 2, gpus: int = 4) -> Cluster:
    cluster = Cluster(seed, faults)
    for number in range(nodes):
        cluster.nodes.add(f"node-{number}", gpus=gpus)
    return cluster


# MPIJobs.


def workers_of(cluster: Cluster, job: str) -> dict[str, str]:
    """Workers that run, and their nodes."""
    pods = [pod for pod in cluster.pods(f"{job}-worker") if pod["status"]["phase"] == "Running"]
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}


def test_an_mpi_job_is_scaled_in_place_and_its_workers_are_bound_by_us() -> None:
    """VODA-67: the first workers stay what they are."""
    cluster = a_cluster()
    FakeMpiOperator(cluster.kube)
    cluster.start()
    cluster.kube.create(MPI_JOBS, an_mpi_job("big", 2, 6, seconds=120.0))
    cluster.run(40.0)
    assert len(workers_of(cluster, "big")) == 6
    uid = cluster.kube.get(PODS, "big-worker-0")["metadata"]["uid"]
    cluster.kube.create(MPI_JOBS, an_mpi_job("late", 4, seconds=10.0))
    cluster.run(6.0)
    assert len(workers_of(cluster, "late")) == 4
    assert sorted(workers_of(cluster, "big")) == [f"big-worker-{index}" for index in range(4)]
    assert cluster.kube.get(PODS, "big-worker-0")["metadata"]["uid"] == uid
    cluster.run(120.0)
    assert [job["metadata"]["annotations"]["sterna.dev/phase"] for job in cluster.kube.items(MPI_JOBS)] == [
        "Succeeded",
        "Succeeded",
    ]


def test_an_mpi_job_without_room_is_suspended_and_resumed_under_its_name() -> None:
    """VODA-65."""
    cluster = a_cluster()
    FakeMpiOperator(cluster.kube)
    cluster.start()
    cluster.submit("holder", 6, seconds=20.0)
    cluster.run(3.0)
    cluster.kube.create(MPI_JOBS, an_mpi_job("waits", 4, seconds=5.0))
    cluster.run(5.0)
    waits = cluster.kube.get(MPI_JOBS, "waits")
    assert waits["spec"]["runPolicy"]["suspend"] is True
    assert waits["metadata"]["annotations"]["sterna.dev/phase"] == "Waiting"
    assert cluster.pods("waits") == []
    cluster.run(40.0)
    assert cluster.kube.get(MPI_JOBS, "waits")["metadata"]["annotations"]["sterna.dev/phase"] == "Succeeded"


def test_an_mpi_job_whose_start_was_not_answered_is_known_to_have_started() -> None:
    """VODA-66: what the watch shows of it counts, also while an answer is waited for."""
    cluster = a_cluster(faults=Faults(lost_after=1.0))
    FakeMpiOperator(cluster.kube)
    cluster.start()
    job = an_mpi_job("quiet", 2, seconds=5.0)
    job["spec"]["runPolicy"]["suspend"] = True
    cluster.kube.create(MPI_JOBS, job)
    cluster.run(3.0)
    assert cluster.kube.get(MPI_JOBS, "quiet")["spec"]["runPolicy"]["suspend"] is False
    cluster.kube.heal()
    cluster.run(40.0)
    assert _phase(cluster.kube.get(MPI_JOBS, "quiet")) == "Succeeded"


def test_a_launcher_is_nudged_when_other_workers_can_be_found() -> None:
    """VODA-70: its kubelet then refreshes `discover_hosts.sh`; the rest of the time nothing is written."""
    cluster = a_cluster()
    FakeMpiOperator(cluster.kube)
    cluster.start()
    cluster.kube.create(MPI_JOBS, an_mpi_job("big", 2, 6, seconds=300.0))
    cluster.run(60.0)
    launcher = cluster.kube.get(PODS, "big-launcher")["metadata"]
    assert "sterna.dev/hosts" not in launcher["annotations"]
    cluster.kube.create(MPI_JOBS, an_mpi_job("late", 4, seconds=20.0))
    cluster.run(10.0)
    nudged = cluster.kube.get(PODS, "big-launcher")["metadata"]
    assert (nudged["annotations"]["sterna.dev/hosts"], nudged["uid"]) == ("0-3", launcher["uid"])
    cluster.run(5.0)
    assert cluster.kube.get(PODS, "big-launcher")["metadata"]["resourceVersion"] == nudged["resourceVersion"]
    cluster.run(30.0)
    assert cluster.kube.get(PODS, "big-launcher")["metadata"]["annotations"]["sterna.dev/hosts"] == "0-5"


def test_a_deleted_mpi_job_leaves_its_devices_to_the_others() -> None:
    """VODA-16, VODA-17: a queued job has no pods."""
    cluster = a_cluster(nodes=1)
    FakeMpiOperator(cluster.kube)
    cluster.start()
    for name in ("first", "second", "third"):
        cluster.kube.create(MPI_JOBS, an_mpi_job(name, 2, 4, seconds=500.0))
        cluster.run(40.0)
    assert [len(workers_of(cluster, name)) for name in ("first", "second", "third")] == [2, 2, 0]
    before = workers_of(cluster, "second")
    _delete(cluster, "third")
    cluster.run(6.0)
    assert workers_of(cluster, "second") == before
    _delete(cluster, "first")
    cluster.run(10.0)
    assert len(workers_of(cluster, "second")) == 4


def _delete(cluster: Cluster, job: str) -> None:
    """With its pods, as the garbage collector of Kubernetes does it."""
    cluster.kube.delete(MPI_JOBS, job)
    for pod in cluster.pods(job):
        cluster.kube.delete(PODS, pod["metadata"]["name"])


def test_an_mpi_job_that_is_done_stays_as_it_is_until_it_is_deleted() -> None:
    """VODA-72, VODA-74, VODA-75: a repeated condition of its operator changes nothing."""
    cluster = a_cluster()
    FakeMpiOperator(cluster.kube)
    cluster.start()
    cluster.kube.create(MPI_JOBS, an_mpi_job("done", 2, seconds=5.0))
    cluster.run(20.0)
    done = cluster.kube.get(MPI_JOBS, "done")
    assert _phase(done) == "Succeeded"
    again = [{**each, "message": "again"} for each in done["status"]["conditions"]]
    cluster.kube.patch(MPI_JOBS, "done", {"status": {"conditions": again}}, "status")
    cluster.run(20.0)
    later = cluster.kube.get(MPI_JOBS, "done")
    assert later["metadata"]["annotations"] == done["metadata"]["annotations"]
    assert later["spec"] == done["spec"]


@pytest.mark.parametrize("seed", range(4))
def test_mpi_jobs_survive_faults_and_crashes(seed: int) -> None:
    cluster, luck = a_cluster(seed, ROUGH), random.Random(seed)
    FakeMpiOperator(cluster.kube)
    cluster.start()
    for number in range(5):
        least = luck.choice([1, 2, 4])
        most = least + luck.randrange(4)
        cluster.kube.create(MPI_JOBS, an_mpi_job(f"job-{number}", least, most, luck.uniform(5.0, 20.0)))
        cluster.run(luck.uniform(0.0, 5.0))
        if luck.random() < 0.5:
            cluster.crash(luck.uniform(0.1, 3.0))
    cluster.kube.heal()
    cluster.run(600.0)
    phases = {job["metadata"]["name"]: _phase(job) for job in cluster.kube.items(MPI_JOBS)}
    assert phases == {f"job-{number}": "Succeeded" for number in range(5)}


def _phase(job: Object) -> str:
    phase: str = job["metadata"]["annotations"].get("sterna.dev/phase", "")
    return phase


# SharePods.


def a_sharing_job(name: str, request: str, seconds: float = 15.0) -> Object:
    shares = {"kubeshare/gpu_request": request, "kubeshare/gpu_limit": "1.0", "kubeshare/gpu_mem": "1000000"}

    def replicas(annotations: dict[str, str]) -> Object:
        limits = {"cpu": "500m", "memory": "256Mi"}
        container = {"name": "tensorflow", "image": "train", "resources": {"limits": limits}}
        template = {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}
        return {"replicas": 1, "restartPolicy": "OnFailure", "template": template}

    return {
        "metadata": {"name": name, "annotations": {"DRAGON_KUBESHARE": "true"}},
        "spec": {
            "min-instances": 1,
            "max-instances": 1,
            "cleanPodPolicy": "All",
            "tfReplicaSpecs": {"PS": replicas({}), "Worker": replicas({**shares, "fake/run-seconds": str(seconds)})},
        },
    }


def shares_of(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """Node and number of the GPU of every worker."""
    return {
        each["metadata"]["name"]: (each["spec"]["nodeName"], gpu_number(each["metadata"]["annotations"][GPU_ID]))
        for each in cluster.kube.items(SHARE_PODS)
        if GPU_ID in each["metadata"]["annotations"]
    }


def test_workers_that_need_a_part_of_a_gpu_share_one_and_the_rest_waits() -> None:
    """DRAGON-35, 36, 41."""
    cluster = a_cluster(nodes=1, gpus=1)
    FakeKubeShare(cluster.kube)
    cluster.start()
    for name in ("a", "b", "c"):
        cluster.kube.create(TF_JOBS, a_sharing_job(name, "0.5"))
    cluster.run(8.0)
    assert shares_of(cluster) == {"a-worker-0": ("node-0", 0), "b-worker-0": ("node-0", 0)}
    assert cluster.phases(TF_JOBS) == {"a": "Running", "b": "Running", "c": "Waiting"}
    cluster.run(60.0)
    assert cluster.phases(TF_JOBS) == {"a": "Succeeded", "b": "Succeeded", "c": "Succeeded"}
    assert [pod["metadata"]["name"] for pod in cluster.pods() if not is_over(pod)] == []


@pytest.mark.parametrize("seed", range(4))
def test_jobs_on_parts_of_gpus_survive_faults_and_crashes_beside_those_on_whole_ones(seed: int) -> None:
    cluster, luck = a_cluster(seed, ROUGH, gpus=2), random.Random(seed)
    FakeKubeShare(cluster.kube)
    cluster.start()
    for number in range(8):
        request = luck.choice(["0.3", "0.5", "0.7", "1.0"])
        cluster.kube.create(TF_JOBS, a_sharing_job(f"job-{number}", request, luck.uniform(5.0, 20.0)))
        if luck.random() < 0.5:
            cluster.submit(f"whole-{number}", 1, most=2, seconds=luck.uniform(5.0, 20.0), priority=luck.randrange(9))
        cluster.run(luck.uniform(0.0, 4.0))
        if luck.random() < 0.4:
            cluster.crash(luck.uniform(0.1, 3.0))
        _no_gpu_is_shared_by_too_many(cluster)
    cluster.kube.heal()
    cluster.run(600.0)
    assert set(cluster.phases().values()) == {"Succeeded"}


def _no_gpu_is_shared_by_too_many(cluster: Cluster) -> None:
    """Also during the grace period of a pod whose SharePod is gone."""
    taken: dict[tuple[str, str], float] = {}
    for pod in cluster.pods():
        annotations = pod["metadata"].get("annotations", {})
        if GPU_ID in annotations and not is_over(pod):
            gpu = (pod["spec"]["nodeName"], annotations[GPU_ID])
            taken[gpu] = taken.get(gpu, 0.0) + float(annotations["kubeshare/gpu_request"])
    assert all(part <= 1.0 + 1e-9 for part in taken.values()), taken


def test_a_foreign_urgent_share_pod_gets_a_node_and_a_gpu_before_jobs_do() -> None:
    """DRAGON-40."""
    cluster = a_cluster(nodes=1, gpus=1)
    FakeKubeShare(cluster.kube)
    cluster.start()
    cluster.kube.create(TF_JOBS, a_sharing_job("job", "0.5", seconds=1000.0))
    cluster.run(3.0)
    annotations = {
        "lsalab.nthu/priority": "high",
        "kubeshare/gpu_request": "0.4",
        "kubeshare/gpu_limit": "1.0",
        "kubeshare/gpu_mem": "1000",
    }
    container = {"name": "x", "image": "x", "resources": {"limits": {"cpu": "1"}}}
    cluster.kube.create(
        SHARE_PODS, {"metadata": {"name": "urgent", "annotations": annotations}, "spec": {"containers": [container]}}
    )
    cluster.run(3.0)
    urgent = cluster.kube.get(SHARE_PODS, "urgent")
    assert urgent["spec"]["nodeName"] == "node-0"
    assert urgent["metadata"]["annotations"][GPU_ID] == "aaaaa"
