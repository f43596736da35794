"""Existing kinds on a real server: TFJob, PyTorchJob, plain pods, serving pods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.api import Object
from tests.kubernetes.binaries import KUBEFLOW, NotAvailable, module_folder
from tests.kubernetes.operated import (
    PODS,
    PYTORCH_JOBS,
    TF_JOBS,
    Operated,
    a_training_job,
    example,
    install,
    names_of,
    nodes_of,
)


def kubeflow_definition(name: str) -> Path:
    try:
        return module_folder(KUBEFLOW) / "manifests" / "base" / "crds" / f"kubeflow.org_{name}.yaml"
    except NotAvailable as error:
        pytest.skip(str(error))


def environment(pod: Object) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in pod["spec"]["containers"][0].get("env", [])}


def running(cluster: Operated, names: list[str]) -> bool:
    found = [each for each in cluster.pods() if each["status"].get("phase") == "Running"]
    return names_of(found) == names


def test_a_tfjob_gets_its_pods_services_and_cluster_description(cluster: Operated) -> None:
    """DRAGON-3 to 10: names, headless services, TF_CONFIG; it grows to its most workers where there is room."""
    cluster.submit(example("tfjob"))
    names = ["digits-ps-0", *(f"digits-worker-{index}" for index in range(4))]
    cluster.until(lambda: running(cluster, names), "a parameter server and four workers")
    worker = cluster.api.get(f"{PODS}/digits-worker-1")
    config = json.loads(environment(worker)["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 1}
    assert len(config["cluster"]["worker"]) == 4
    assert len(config["cluster"]["ps"]) == 1
    services = cluster.api.items("/api/v1/namespaces/default/services")
    assert set(names) <= {each["metadata"]["name"] for each in services}
    assert all(each["spec"]["clusterIP"] == "None" for each in services if each["metadata"]["name"] in names)


def test_a_tfjob_succeeds_with_its_worker_zero_and_cleans_up(cluster: Operated) -> None:
    """DRAGON-42: the job is done when worker 0 is; cleanPodPolicy All takes all pods."""
    cluster.submit(example("tfjob"))
    cluster.until(lambda: len(cluster.pods("digits", "Running")) == 5, "all pods")
    for index in range(4):
        cluster.nodes.end(f"digits-worker-{index}")
    cluster.until(lambda: cluster.has_condition("digits", "Succeeded", TF_JOBS), "success")
    cluster.until(lambda: not cluster.pods("digits"), "no pods")


def test_a_tfjob_gives_workers_back_but_never_its_first(cluster: Operated) -> None:
    """DRAGON-28: the last come goes first; worker 0 and the parameter server stay."""
    cluster.submit(example("tfjob"))
    cluster.until(lambda: len(cluster.pods("digits", "Running")) == 5, "all pods")
    kept = {each["metadata"]["name"]: each["metadata"]["uid"] for each in cluster.pods("digits")}
    cluster.submit(a_training_job("rigid", workers=10))
    cluster.until_running("rigid", 10)
    cluster.until(lambda: running_of(cluster, "digits") == ["digits-ps-0", "digits-worker-0", "digits-worker-1"], "two")
    now = {each["metadata"]["name"]: each["metadata"]["uid"] for each in cluster.pods("digits")}
    assert now["digits-worker-0"] == kept["digits-worker-0"]
    assert now["digits-ps-0"] == kept["digits-ps-0"]


def running_of(cluster: Operated, job: str) -> list[str]:
    return names_of(cluster.pods(job, "Running"))


def test_an_elastic_pytorchjob_meets_at_its_worker_zero(cluster: Operated) -> None:
    install(cluster.api, kubeflow_definition("pytorchjobs"))
    cluster.submit(example("pytorchjob"))
    cluster.until(lambda: len(cluster.pods("bert", "Running")) == 4, "four workers")
    worker = cluster.api.get(f"{PODS}/bert-worker-3")
    assert any("bert-worker-0" in str(value) for value in environment(worker).values())
    for index in range(4):
        cluster.nodes.end(f"bert-worker-{index}")
    cluster.until(lambda: cluster.has_condition("bert", "Succeeded", PYTORCH_JOBS), "success")


def test_a_serving_pod_gets_room_from_jobs_that_have_more_than_their_least(cluster: Operated) -> None:
    """DRAGON-54 to 59: the pod waits without a node until workers have left."""
    cluster.submit(a_training_job("elastic", workers="1:12", resizing="torchrun"))
    cluster.until_running("elastic", 12)
    pod = example("serving")
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "2"}}
    pod["spec"]["schedulerName"] = "nobody"  # binds it below, as its own scheduler would
    cluster.submit(pod)
    cluster.until(lambda: len(cluster.pods("elastic")) <= 10, "room for it")
    taken: dict[str, int] = {}
    for node in nodes_of(cluster.pods("elastic")):
        taken[node] = taken.get(node, 0) + 1
    free = [f"node-000{number}" for number in range(3) if taken.get(f"node-000{number}", 0) <= 2]
    assert free, "two devices of one node"
    target = {"apiVersion": "v1", "kind": "Node", "name": free[0]}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "model"}, "target": target}
    cluster.api.ask("POST", f"{PODS}/model/binding", binding)
    cluster.until(lambda: cluster.api.get(f"{PODS}/model")["status"].get("phase") == "Running", "the serving pod")


def test_a_plain_pod_is_left_alone_until_there_is_a_reason(cluster: Operated) -> None:
    pod = example("pod")
    pod["spec"].pop("volumes")
    pod["spec"]["containers"][0].pop("volumeMounts")
    pod["spec"]["nodeName"] = "node-0001"
    uid = cluster.submit(pod)["metadata"]["uid"]
    cluster.until(lambda: cluster.api.get(f"{PODS}/job1")["status"].get("phase") == "Running", "the pod")
    cluster.submit(a_training_job("beside"))
    cluster.until_running("beside", 1)
    assert cluster.api.get(f"{PODS}/job1")["metadata"]["uid"] == uid
