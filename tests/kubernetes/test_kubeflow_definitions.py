"""TFJobs and PyTorchJobs where Kubeflow's own definitions are installed: bounds are annotations, statuses are theirs.

Those definitions drop what they do not know, of the specification and of the status. What must be remembered is an
annotation then. Kubeflow's operator does not run: one of the two looks after these kinds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubernetes.api import Object
from tests.kubernetes.binaries import KUBEFLOW, NotAvailable, module_folder
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.fake_nodes import fleet
from tests.kubernetes.operated import (
    PODS,
    PYTORCH_JOBS,
    ROOT,
    TF_JOBS,
    Operated,
    a_training_job,
    example,
    names_of,
    operated,
)

GPU = "nvidia.com/gpu"
BOUNDS = {"sterna.dev/min-workers": "1", "sterna.dev/max-workers": "4"}
MEMORY = "sterna.dev/memory"


@pytest.fixture(scope="module")
def kubeflow_cluster(full_plane: ControlPlane) -> Iterator[Operated]:
    """Six GPUs; TFJob and PyTorchJob are as Kubeflow defines them."""
    try:
        theirs = module_folder(KUBEFLOW) / "manifests" / "base" / "crds"
    except NotAvailable as error:
        pytest.skip(str(error))
    definitions = [theirs / f"kubeflow.org_{name}.yaml" for name in ("tfjobs", "pytorchjobs")]
    definitions += [ROOT / "deploy" / "crds" / "trainingjobs.yaml"]
    with operated(full_plane, fleet(2, gpus=3), definitions=definitions) as cluster:
        yield cluster


@pytest.fixture
def cluster(kubeflow_cluster: Operated) -> Iterator[Operated]:
    yield kubeflow_cluster
    kubeflow_cluster.delete_all()


def a_tf_job(clean_pods: str = "All") -> Object:
    """Our example, with a GPU for each worker."""
    job = example("tfjob-under-kubeflow")
    job["spec"]["runPolicy"]["cleanPodPolicy"] = clean_pods
    (container,) = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["resources"]["limits"] = {GPU: 1}
    return job


def a_pytorch_job(clean_pods: str = "Running") -> Object:
    """Our example without its elasticPolicy: bounds are annotations, a resize is a restart from the checkpoint."""
    job = example("pytorchjob")
    del job["spec"]["elasticPolicy"]
    job["metadata"]["annotations"] = BOUNDS | {"sterna.dev/checkpoint": "/checkpoints"}
    job["spec"]["runPolicy"] = {"cleanPodPolicy": clean_pods}
    return job


def running(cluster: Operated, job: str) -> list[str]:
    return names_of(cluster.pods(job, "Running"))


def until_running(cluster: Operated, job: str, *replicas: str) -> None:
    """Exactly these, and no terminating pod."""
    names = [f"{job}-{each}" for each in replicas]
    what = f"{job} to have {', '.join(replicas)}"
    cluster.until(lambda: running(cluster, job) == names == names_of(cluster.pods(job)), what)


def workers(count: int) -> list[str]:
    return [f"worker-{index}" for index in range(count)]


def state(cluster: Operated, kind: str, name: str) -> str:
    """Output of `kubectl get` with the columns of Kubeflow's definition."""
    heading, line = cluster.plane.kubectl("get", kind, name).splitlines()
    assert heading.split()[:2] == ["NAME", "STATE"]
    return line.split()[1]


def replica_statuses(cluster: Operated, kind: str, name: str) -> Any:
    return cluster.job(name, kind).get("status", {}).get("replicaStatuses")


def memory(cluster: Operated, name: str) -> Any:
    """The state of a TFJob that must survive."""
    return json.loads(cluster.job(name, TF_JOBS)["metadata"]["annotations"].get(MEMORY, "{}"))


def test_bounds_in_the_specification_are_dropped_and_the_job_stays_as_it_is(cluster: Operated) -> None:
    """Why annotations are needed at all; a job without them has the workers that it asks for."""
    job = example("tfjob")
    kept = cluster.submit(job)["spec"]
    assert "max-instances" in job["spec"]
    assert "max-instances" not in kept
    until_running(cluster, "digits", "ps-0", *workers(2))


def test_an_annotated_tfjob_grows_shrinks_and_succeeds(cluster: Operated) -> None:
    cluster.submit(a_tf_job())
    name = "digits-annotated"
    until_running(cluster, name, "ps-0", *workers(4))
    uid = cluster.api.get(f"{PODS}/{name}-worker-0")["metadata"]["uid"]
    cluster.submit(a_training_job("guest", workers=4))
    cluster.until_running("guest", 4)
    until_running(cluster, name, "ps-0", *workers(2))
    for index in range(4):
        cluster.nodes.end(f"guest-worker-{index}")
    until_running(cluster, name, "ps-0", *workers(4))
    assert cluster.api.get(f"{PODS}/{name}-worker-0")["metadata"]["uid"] == uid
    cluster.nodes.end(f"{name}-worker-0")
    cluster.plane.kubectl("wait", f"tfjob/{name}", "--for=condition=Succeeded", "--timeout=180s")
    assert state(cluster, "tfjob", name) == "Succeeded"
    cluster.until(lambda: not cluster.pods(name), "no pods: cleanPodPolicy is All")


def test_an_annotated_pytorchjob_is_resized_by_restarts_and_succeeds(cluster: Operated) -> None:
    cluster.submit(a_pytorch_job())
    until_running(cluster, "bert", *workers(4))
    cluster.submit(a_training_job("guest", workers=4))
    cluster.until_running("guest", 4)
    until_running(cluster, "bert", *workers(2))
    for index in range(4):
        cluster.nodes.end(f"guest-worker-{index}")
    until_running(cluster, "bert", *workers(4))
    for index in range(4):
        cluster.nodes.end(f"bert-worker-{index}")
    cluster.plane.kubectl("wait", "pytorchjob/bert", "--for=condition=Succeeded", "--timeout=180s")
    assert state(cluster, "pytorchjob", "bert") == "Succeeded"
    assert replica_statuses(cluster, PYTORCH_JOBS, "bert") == {"Worker": {"active": 0, "succeeded": 4, "failed": 0}}
    assert len(cluster.pods("bert")) == 4, "cleanPodPolicy is Running, and they had ended"


def test_a_status_has_kubeflows_shape_and_the_rest_is_an_annotation(cluster: Operated) -> None:
    name = cluster.submit(a_tf_job())["metadata"]["name"]
    cluster.until(lambda: cluster.has_condition(name, "Running", TF_JOBS), "the condition Running")
    four = {"PS": {"active": 1, "succeeded": 0, "failed": 0}, "Worker": {"active": 4, "succeeded": 0, "failed": 0}}
    cluster.until(lambda: replica_statuses(cluster, TF_JOBS, name) == four, "the counts of four workers")
    cluster.until(lambda: memory(cluster, name).get("firstStartedAt", 0.0) > 0.0, "its memory")
    assert set(cluster.job(name, TF_JOBS)["status"]) == {"conditions", "replicaStatuses", "startTime"}
    assert state(cluster, "tfjob", name) == "Running"


def test_people_scale_it_with_the_same_command(cluster: Operated) -> None:
    name = cluster.submit(a_tf_job())["metadata"]["name"]
    until_running(cluster, name, "ps-0", *workers(4))
    cluster.sterna("scale", f"tfjob/{name}", "1:2")
    until_running(cluster, name, "ps-0", *workers(2))
    assert cluster.job(name, TF_JOBS)["metadata"]["annotations"]["sterna.dev/max-workers"] == "2"


def test_a_job_of_another_controller_is_left_alone(cluster: Operated) -> None:
    theirs = a_pytorch_job()
    theirs["spec"]["runPolicy"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    cluster.submit(theirs)
    cluster.submit(a_training_job("ours"))
    cluster.until_phase("ours", "Running")
    assert "status" not in cluster.job("bert", PYTORCH_JOBS)
    assert cluster.pods("bert") == []


@pytest.mark.parametrize(("clean_pods", "left"), [("None", ["ps-0", *workers(4)]), ("Running", workers(4))])
def test_pods_that_are_to_stay_stay(cluster: Operated, clean_pods: str, left: list[str]) -> None:
    name = cluster.submit(a_tf_job(clean_pods))["metadata"]["name"]
    until_running(cluster, name, "ps-0", *workers(4))
    for index in reversed(range(4)):
        cluster.nodes.end(f"{name}-worker-{index}")
    cluster.until(lambda: cluster.has_condition(name, "Succeeded", TF_JOBS), "success")
    cluster.until(lambda: names_of(cluster.pods(name)) == [f"{name}-{each}" for each in left], f"{left} alone")


def test_a_new_operator_remembers_from_the_annotation(cluster: Operated) -> None:
    """No pod is created again, no time is counted again."""
    name = cluster.submit(a_tf_job())["metadata"]["name"]
    until_running(cluster, name, "ps-0", *workers(4))
    cluster.until(lambda: cluster.has_condition(name, "Running", TF_JOBS), "the condition Running")
    cluster.until(lambda: "firstStartedAt" in memory(cluster, name), "its memory")
    before = {pod["metadata"]["uid"] for pod in cluster.pods(name)}
    since = cluster.job(name, TF_JOBS)["status"]["startTime"]
    cluster.operator.kill()
    cluster.operator.restart()
    cluster.submit(a_training_job("beside"))
    cluster.until_running("beside", 1)
    assert {pod["metadata"]["uid"] for pod in cluster.pods(name)} == before
    for index in range(4):
        cluster.nodes.end(f"{name}-worker-{index}")
    cluster.until(lambda: cluster.has_condition(name, "Succeeded", TF_JOBS), "success")
    assert cluster.job(name, TF_JOBS)["status"]["startTime"] == since


def test_waiting_job_names_the_missing_devices(cluster: Operated) -> None:
    cluster.submit(a_training_job("ahead", workers=6))  # also by its name, should both come within a second
    cluster.until_running("ahead", 6)
    name = cluster.submit(a_tf_job())["metadata"]["name"]
    cluster.until(lambda: cluster.condition(name, "Scheduled", TF_JOBS).get("status") == "False", "a verdict")
    assert "more" in cluster.condition(name, "Scheduled", TF_JOBS)["message"]
    assert state(cluster, "tfjob", name) == "Created"
