"""Jobs on GPU fractions that lose nodes and pods, with a KubeShare that recreates every pod on its node."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from sterna.kinds.resource import PODS, Resource
from sterna.kinds.share_pod import SHARE_PODS
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from tests.fakes.kube_client import Faults
from tests.fakes.kube_store import Event, Object
from tests.simulation.kubernetes_kubeshare import FakeKubeShare
from tests.simulation.kubernetes_runs import Cluster, is_over
from tests.simulation.test_kubernetes_controllers import ROUGH, a_sharing_job

GRACE_SECONDS = 30.0


class Scene:
    """Three nodes with a GPU each, a KubeShare, and an operator."""

    def __init__(self, *jobs: tuple[Resource, Object], seed: int = 0, faults: Faults | None = None) -> None:
        self.cluster = Cluster(seed, faults)
        self.kube = self.cluster.kube
        for number in range(3):
            self.cluster.nodes.add(f"node-{number}", gpus=1)
        FakeKubeShare(self.kube)
        self.made: list[tuple[str, str]] = []
        """Name and node of every pod that was ever made."""
        self.kube.store.listeners.append(self._note)
        self.cluster.start()
        for resource, job in jobs:
            self.kube.create(resource, job)
        self.cluster.run(8.0)

    def _note(self, resource: Resource, event: Event) -> None:
        if resource == PODS and event.before is None and event.after is not None:
            self.made.append((event.after["metadata"]["name"], event.after["spec"]["nodeName"]))

    @property
    def nodes(self) -> dict[str, str]:
        """Pods of running replicas that are not being deleted."""
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in self.cluster.pods()
            if pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp")
            if "kubeshare-vgpu" not in pod["metadata"]["name"]
        }

    def uid(self, pod: str) -> str:
        uid: str = self.kube.get(PODS, pod)["metadata"]["uid"]
        return uid


def a_tf_job(name: str = "job", request: str = "0.5", seconds: float = 1000.0) -> tuple[Resource, Object]:
    """A parameter server and a worker with a part of a GPU."""
    return TF_JOBS, a_sharing_job(name, request, seconds)


def a_gang(
    name: str = "gang",
    request: str = "0.6",
    seconds: float = 1000.0,
    workers: int = 2,
    steering: Mapping[str, str] | None = None,
) -> tuple[Resource, Object]:
    """A job whose workers restart together, each with a GPU fraction."""
    shares = {
        "kubeshare/gpu_request": request,
        "kubeshare/gpu_limit": "1.0",
        "kubeshare/gpu_mem": "1000000",
        "fake/run-seconds": str(seconds),
        **(steering or {}),
    }
    container = {"name": "train", "image": "train", "resources": {"limits": {"cpu": "1"}}}
    template = {"metadata": {"annotations": shares}, "spec": {"containers": [container]}}
    return TRAINING_JOBS, {"metadata": {"name": name}, "spec": {"workers": workers, "template": template}}


# Nodes.


def test_a_job_on_a_part_of_a_gpu_begins_elsewhere_when_its_node_is_lost() -> None:
    """DRAGON-50: its pods and its SharePods, and the pods not before their grace is over."""
    scene = Scene(a_tf_job())
    assert scene.nodes == {"job-ps-0": "node-0", "job-worker-0": "node-0"}
    scene.cluster.lose("node-0", evicts=True)
    scene.cluster.run(GRACE_SECONDS - 5.0)
    assert scene.nodes == {}
    scene.cluster.run(15.0)
    assert scene.nodes == {"job-ps-0": "node-1", "job-worker-0": "node-1"}
    assert {each["spec"]["nodeName"] for each in scene.kube.items(SHARE_PODS)} == {"node-1"}


def test_as_long_as_the_cluster_leaves_them_on_a_lost_node_they_are_thought_to_train() -> None:
    """DRAGON-50: as all others are; a node that was cut off for a moment costs nothing."""
    scene = Scene(a_tf_job())
    before = {name: scene.uid(name) for name in scene.nodes}
    scene.cluster.lose("node-0")
    scene.cluster.run(120.0)
    scene.cluster.heal("node-0")
    scene.cluster.run(30.0)
    assert {name: scene.uid(name) for name in scene.nodes} == before
    assert scene.cluster.phases() == {"job": "Running"}


def test_a_job_that_is_stopped_on_a_lost_node_leaves_it_and_begins_elsewhere() -> None:
    """DRAGON-50: pods whose SharePods are gone stay until they are force-deleted."""
    scene = Scene(a_tf_job())
    scene.cluster.lose("node-0")
    scene.kube.patch(TF_JOBS, "job", {"metadata": {"annotations": {"sterna.dev/suspend": "true"}}})
    scene.cluster.run(2 * GRACE_SECONDS + 5.0)
    assert scene.cluster.pods("job") == []
    scene.kube.patch(TF_JOBS, "job", {"metadata": {"annotations": {"sterna.dev/suspend": "false"}}})
    scene.cluster.run(5.0)
    assert scene.nodes == {"job-ps-0": "node-1", "job-worker-0": "node-1"}


def test_a_gang_on_parts_of_gpus_leaves_as_a_whole_and_comes_again_as_a_whole() -> None:
    """DRAGON-12, 50: nothing of it runs twice, and KubeShare makes nothing again on the lost node."""
    scene = Scene(a_gang())
    assert scene.nodes == {"gang-worker-0": "node-0", "gang-worker-1": "node-1"}
    scene.cluster.lose("node-0", evicts=True)
    scene.cluster.run(GRACE_SECONDS + 15.0)
    assert sorted(scene.nodes.values()) == ["node-1", "node-2"]
    workers = [each for each in scene.made if "worker" in each[0]]
    assert len(workers) == 4
    assert ("gang-worker-0", "node-0") not in workers[2:]


def test_the_gpu_of_a_lost_node_is_free_again_when_it_comes_back() -> None:
    """DRAGON-41, 50."""
    scene = Scene(a_tf_job("first", "0.7"), a_tf_job("second", "0.7"), a_tf_job("third", "0.7"))
    node = scene.nodes["first-worker-0"]
    scene.cluster.lose(node, evicts=True)
    scene.cluster.run(60.0)
    phases = scene.cluster.phases()
    assert sorted(phases.values()) == ["Running", "Running", "Waiting"]
    waiting = next(name for name, phase in phases.items() if phase == "Waiting")
    scene.cluster.heal(node)
    scene.cluster.run(15.0)
    assert scene.nodes[f"{waiting}-worker-0"] == node
    scene.kube.delete(TF_JOBS, waiting)
    scene.cluster.submit("whole", seconds=1000.0)
    scene.cluster.run(15.0)
    assert scene.nodes["whole-worker-0"] == node, "all of it"


def test_a_job_whose_operator_died_with_the_node_begins_elsewhere() -> None:
    """DRAGON-48, 50."""
    scene = Scene(a_tf_job(), a_gang(request="0.5"))
    scene.cluster.lose("node-0", evicts=True)
    scene.cluster.crash(5.0)
    scene.cluster.run(GRACE_SECONDS / 2)
    scene.cluster.crash(5.0)
    scene.cluster.run(60.0)
    assert set(scene.nodes.values()) == {"node-1", "node-2"}
    assert scene.cluster.phases() == {"job": "Running", "gang": "Running"}


# Pods.


def test_a_gang_one_of_whose_pods_a_user_deletes_restarts_as_a_whole() -> None:
    """DRAGON-12: KubeShare would make that one again, alone."""
    scene = Scene(a_gang())
    other = scene.uid("gang-worker-1")
    scene.kube.delete(PODS, "gang-worker-0")
    scene.cluster.run(15.0)
    assert sorted(scene.nodes) == ["gang-worker-0", "gang-worker-1"]
    assert scene.uid("gang-worker-1") != other
    labels = [pod["metadata"]["labels"]["sterna.dev/attempt"] for pod in scene.cluster.pods("gang")]
    assert labels == ["2", "2"]
    assert "restarts" not in scene.kube.get(TRAINING_JOBS, "gang")["status"]["sterna"]


def test_a_gang_waits_as_a_whole_for_pods_of_an_earlier_job_of_its_name() -> None:
    """DRAGON-12: their SharePods are gone, but KubeShare can make no others of those names."""
    scene = Scene(a_gang())
    scene.cluster.lose("node-0", evicts=True)
    scene.cluster.run(3.0)
    scene.kube.delete(TRAINING_JOBS, "gang")
    scene.cluster.run(0.3)
    scene.kube.create(*a_gang())
    scene.cluster.run(2 * GRACE_SECONDS)
    assert scene.nodes == {}
    scene.cluster.heal("node-0")
    scene.cluster.run(15.0)
    assert sorted(scene.nodes) == ["gang-worker-0", "gang-worker-1"]


def test_work_that_is_saved_after_its_share_pod_is_gone_counts_as_saved() -> None:
    """DRAGON-47: SharePods go at once, and their pods have their grace."""
    saved = {"fake/stop-seconds": "5", "fake/stop-message": '{"saved":true,"step":70}'}
    scene = Scene(a_gang(workers=1, steering=saved))
    scene.kube.patch(TRAINING_JOBS, "gang", {"spec": {"suspend": True}})
    scene.cluster.run(3.0)
    assert scene.kube.items(SHARE_PODS) == []
    assert scene.cluster.phases() == {"gang": "Stopping"}
    scene.cluster.run(10.0)
    assert scene.kube.get(TRAINING_JOBS, "gang")["status"]["sterna"]["savedStep"] == 70


# All of it.


@pytest.mark.parametrize("seed", range(6))
def test_jobs_on_parts_of_gpus_survive_lost_nodes_faults_and_crashes(seed: int) -> None:
    """DRAGON-48, 50."""
    luck = random.Random(seed)
    scene = Scene(seed=seed, faults=ROUGH)
    cluster = scene.cluster
    for number in range(6):
        kind, request = luck.choice([a_tf_job, a_gang]), luck.choice(["0.3", "0.5", "1.0"])
        scene.kube.create(*kind(f"job-{number}", request, luck.uniform(5.0, 30.0)))
        cluster.run(luck.uniform(0.0, 10.0))
        _mischief(cluster, luck)
    scene.kube.heal()
    for number in range(3):
        cluster.heal(f"node-{number}")
    cluster.run(900.0)
    assert set(cluster.phases().values()) == {"Succeeded"}
    assert [pod["metadata"]["name"] for pod in cluster.pods() if not is_over(pod)] == []


def _mischief(cluster: Cluster, luck: random.Random) -> None:
    """A node goes or comes back, a user deletes a pod, or the operator dies."""
    what, node = luck.randrange(4), f"node-{luck.randrange(3)}"
    if what == 0:
        cluster.lose(node, evicts=luck.random() < 0.8)
    elif what == 1:
        cluster.heal(node)
    elif what == 2:
        for pod in luck.sample(found := cluster.pods("job"), min(1, len(found))):
            cluster.kube.delete(PODS, pod["metadata"]["name"])
    else:
        cluster.crash(luck.uniform(0.1, 3.0))
