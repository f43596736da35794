"""GPU fractions on a cluster in memory with KubeShare: by name, by memory, and only on GPUs with free capacity."""

from __future__ import annotations

import pytest

from sterna.backends.kubernetes.api.resources import EVENTS, NODES
from sterna.kinds.resource import PODS
from sterna.kinds.share_pod import SHARE_PODS
from sterna.kinds.tf_job import TF_JOBS
from tests.fakes.kube_nodes import GPU
from tests.fakes.kube_store import Object
from tests.simulation.kubernetes_kubeshare import GPU_ID, FakeKubeShare
from tests.simulation.kubernetes_runs import Cluster, gpus_of, is_over
from tests.simulation.test_kubernetes_controllers import a_sharing_job
from tests.unit.backends.kubernetes.backend.test_jobs import status_of
from tests.unit.backends.kubernetes.backend.test_reservations import an_urgent_share, place_of

GIB = 1 << 30


def a_cluster(*gpus_gib: int) -> Cluster:
    """One node per GPU memory size, and no operator yet."""
    cluster = Cluster()
    for number, gib in enumerate(gpus_gib):
        cluster.nodes.add(f"node-{number}", gpus=1)
        tell_memory(cluster, f"node-{number}", gib)
    FakeKubeShare(cluster.kube)
    return cluster


def tell_memory(cluster: Cluster, node: str, gib: int) -> None:
    cluster.kube.patch(NODES, node, {"metadata": {"annotations": {"kubeshare/gpu_info": f"uuid:{gib * 1024}"}}})


def a_job(name: str, request: str, gib: float, seconds: float = 1000.0) -> Object:
    job = a_sharing_job(name, request, seconds)
    template = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    template["metadata"]["annotations"]["kubeshare/gpu_mem"] = str(int(gib * GIB))
    return job


def places(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """Node and GPU of every worker."""
    names = [each["metadata"]["name"] for each in cluster.kube.items(SHARE_PODS)]
    return {name.removesuffix("-worker-0"): place_of(cluster, name) for name in names if "-ps-" not in name}


# Memory.


@pytest.mark.parametrize("is_there_first", [True, False], ids=["before the operator", "after it"])
def test_jobs_whose_memory_does_not_fit_together_do_not_share_a_gpu_whenever_they_came(is_there_first: bool) -> None:
    """DRAGON-36, 37."""
    cluster = a_cluster(8)
    if not is_there_first:
        cluster.start()
        cluster.run(2.0)
    for name in ("a", "b"):
        cluster.kube.create(TF_JOBS, a_job(name, "0.3", 6))
    if is_there_first:
        cluster.start()
    cluster.run(5.0)
    assert cluster.phases(TF_JOBS) == {"a": "Running", "b": "Waiting"}


def test_the_memory_of_gpus_counts_once_it_is_annotated() -> None:
    """DRAGON-37: also for pods that share one already."""
    cluster = a_cluster(0)
    cluster.start()
    cluster.kube.create(TF_JOBS, a_job("a", "0.3", 6))
    cluster.run(5.0)
    tell_memory(cluster, "node-0", 8)
    cluster.run(1.0)
    cluster.kube.create(TF_JOBS, a_job("b", "0.2", 3))
    cluster.kube.create(TF_JOBS, a_job("c", "0.2", 2))
    cluster.run(5.0)
    assert cluster.phases(TF_JOBS) == {"a": "Running", "b": "Waiting", "c": "Running"}
    for name in ("a", "b", "c"):
        cluster.kube.delete(TF_JOBS, name)
    cluster.kube.create(TF_JOBS, a_job("all", "1.0", 8))
    cluster.run(20.0)
    assert places(cluster) == {"all": ("node-0", "aaaaa")}, "what they held is given back to the last thousandth"


def test_a_gpu_fraction_with_more_memory_than_any_gpu_cannot_run_and_its_status_shows_why() -> None:
    """DRAGON-36."""
    cluster = a_cluster(8)
    cluster.start()
    cluster.kube.create(TF_JOBS, a_job("job", "0.5", 20))
    cluster.run(5.0)
    assert cluster.kube.items(SHARE_PODS) == []
    why = "the only node has no GPU with the 20 GiB of memory it needs."
    assert status_of(cluster, "job")["reason"].endswith(why)
    assert [each["note"].endswith(why) for each in cluster.kube.items(EVENTS)] == [True]
    cluster.nodes.add("node-1", gpus=1)
    tell_memory(cluster, "node-1", 32)
    cluster.run(5.0)
    assert places(cluster) == {"job": ("node-1", "aaaaa")}


def test_a_share_goes_to_a_gpu_that_has_the_memory_for_it() -> None:
    """DRAGON-36, 40."""
    cluster = a_cluster(8, 32)
    cluster.start()
    cluster.run(1.0)
    cluster.kube.create(TF_JOBS, a_job("job", "0.5", 20))
    urgent = an_urgent_share("urgent", "0.1")
    urgent["metadata"]["annotations"]["kubeshare/gpu_mem"] = str(10 * GIB)
    cluster.kube.create(SHARE_PODS, urgent)
    cluster.run(5.0)
    assert places(cluster) == {"job": ("node-1", "aaaaa"), "urgent": ("node-1", "aaaaa")}


# Names.


@pytest.mark.parametrize(("request_", "gib"), [("1.0", 1), ("0.5", 8)], ids=["all of its time", "all of its memory"])
def test_a_gpu_fraction_of_a_whole_gpu_gets_a_gpu_id_and_shares_it_with_no_other_pod(request_: str, gib: int) -> None:
    """DRAGON-35, 36, 40: KubeShare gives no GPU to a SharePod that names none."""
    cluster = a_cluster(8)
    cluster.start()
    cluster.run(1.0)
    cluster.kube.create(TF_JOBS, a_job("all", request_, gib, seconds=20.0))
    cluster.run(3.0)
    cluster.kube.create(TF_JOBS, a_job("other", "0.001", 0.001))
    cluster.run(5.0)
    assert places(cluster) == {"all": ("node-0", "aaaaa")}
    cluster.run(30.0)
    assert places(cluster) == {"other": ("node-0", "aaaaa")}


def test_an_urgent_fraction_of_a_whole_gpu_gets_a_gpu_id() -> None:
    """DRAGON-40."""
    cluster = a_cluster(8)
    cluster.start()
    cluster.kube.create(SHARE_PODS, an_urgent_share("urgent", "1.0"))
    cluster.run(5.0)
    assert place_of(cluster, "urgent") == ("node-0", "aaaaa")


def test_a_gpu_that_another_client_opened_keeps_its_id() -> None:
    """DRAGON-36: another name would be another GPU."""
    cluster = a_cluster(8)
    share = an_urgent_share("theirs", "0.4", nodeName="node-0")
    share["metadata"]["annotations"] |= {"lsalab.nthu/priority": "", GPU_ID: "FIRST"}
    cluster.kube.create(SHARE_PODS, share)
    cluster.start()
    cluster.run(1.0)
    cluster.kube.create(TF_JOBS, a_job("job", "0.4", 1))
    cluster.kube.create(SHARE_PODS, an_urgent_share("urgent", "0.1"))
    cluster.run(5.0)
    assert set(places(cluster).values()) == {("node-0", "FIRST")}


def test_a_worker_that_lost_its_gpu_id_while_no_operator_ran_is_created_again() -> None:
    """DRAGON-35, 48."""
    cluster = a_cluster(8)
    cluster.start()
    cluster.kube.create(TF_JOBS, a_job("job", "0.5", 1))
    cluster.run(5.0)
    cluster.kube.patch(SHARE_PODS, "job-worker-0", {"metadata": {"annotations": {GPU_ID: None}}})
    cluster.crash()
    cluster.run(15.0)
    assert places(cluster) == {"job": ("node-0", "aaaaa")}
    assert cluster.phases(TF_JOBS) == {"job": "Running"}
    assert "restarts" not in status_of(cluster, "job")["sterna"], "the end of the old pod is no failure of the new one"


# Room that is really free.


@pytest.mark.parametrize("request_", ["0.5", "1.0"])
def test_a_share_waits_until_the_gpu_that_it_opens_has_really_been_left(request_: str) -> None:
    """DRAGON-23, 36."""
    cluster = a_cluster(8)
    cluster.start()
    cluster.submit("low", seconds=1000.0, priority=-5, annotations={"fake/stop-seconds": "8"}, grace=20)
    cluster.run(3.0)
    job = a_job("high", request_, 1)
    job["metadata"]["annotations"]["sterna.dev/priority"] = "0"
    cluster.kube.create(TF_JOBS, job)
    cluster.run(4.0)
    assert cluster.kube.get(PODS, "low-worker-0")["metadata"]["deletionTimestamp"]
    assert cluster.kube.items(SHARE_PODS) == []
    cluster.run(10.0)
    assert places(cluster) == {"high": ("node-0", "aaaaa")}


def test_a_pod_waits_until_its_gpu_is_no_longer_shared() -> None:
    """DRAGON-41."""
    cluster = a_cluster(8)
    cluster.start()
    cluster.kube.create(TF_JOBS, a_job("share", "0.5", 1, seconds=10.0))
    cluster.submit("whole", seconds=1000.0)
    cluster.run(60.0)
    using = [pod for pod in cluster.pods() if not is_over(pod) and gpus_of(pod)]
    assert [pod["metadata"]["name"] for pod in using] == ["whole-worker-0"]


@pytest.mark.parametrize("is_deleted", [False, True], ids=["suspended", "deleted"])
def test_a_gpu_fraction_waits_until_its_previous_holder_has_terminated(is_deleted: bool) -> None:
    """DRAGON-23, 36: a SharePod goes at once, and its pod has its grace."""
    cluster = a_cluster(8)
    cluster.start()
    job = a_job("first", "0.7", 1)
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"]["fake/stop-seconds"] = "8"
    cluster.kube.create(TF_JOBS, job)
    cluster.run(5.0)
    if is_deleted:
        cluster.kube.delete(TF_JOBS, "first")
    else:
        cluster.kube.patch(TF_JOBS, "first", {"metadata": {"annotations": {"sterna.dev/suspend": "true"}}})
    cluster.kube.create(TF_JOBS, a_job("second", "0.7", 1))
    cluster.run(5.0)
    assert cluster.kube.get(PODS, "first-worker-0")["metadata"]["deletionTimestamp"]
    assert cluster.pods("second") == []
    cluster.run(10.0)
    assert places(cluster) == {"second": ("node-0", "aaaaa")}


def test_a_whole_gpu_that_a_share_pod_takes_for_itself_is_counted() -> None:
    """DRAGON-34, 38: KubeShare leaves the limits of its containers as they are."""
    cluster = a_cluster(8)
    container = {"name": "x", "image": "x", "resources": {"limits": {"cpu": "1", GPU: "1"}}}
    spec = {"nodeName": "node-0", "containers": [container]}
    cluster.kube.create(SHARE_PODS, {"metadata": {"name": "theirs", "annotations": {}}, "spec": spec})
    cluster.start()
    cluster.run(3.0)
    cluster.submit("whole", seconds=1000.0)
    cluster.run(5.0)
    assert cluster.phases() == {"whole": "Waiting"}


def test_a_pod_waits_until_a_share_pod_with_a_whole_gpu_has_really_left_it() -> None:
    """DRAGON-23, 34."""
    cluster = a_cluster(8)
    cluster.start()
    job = a_job("first", "0.5", 1)
    template = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    template["metadata"]["annotations"] = {"fake/stop-seconds": "8"}
    template["spec"]["containers"][0]["resources"]["limits"][GPU] = 1
    cluster.kube.create(TF_JOBS, job)
    cluster.run(5.0)
    assert gpus_of(cluster.kube.get(PODS, "first-worker-0")) == 1
    cluster.kube.patch(TF_JOBS, "first", {"metadata": {"annotations": {"sterna.dev/suspend": "true"}}})
    cluster.submit("whole", seconds=1000.0)
    cluster.run(5.0)
    assert cluster.pods("whole") == []
    cluster.run(10.0)
    assert cluster.phases() == {"first": "Suspended", "whole": "Running"}
