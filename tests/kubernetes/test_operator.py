"""TrainingJobs from submission to their end: the operator as a process, a real API server, fake kubelets."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.kubernetes.operated import EVENTS, JOBS, NODES, PODS, Operated, a_training_job, names_of, nodes_of


def test_a_job_runs_and_succeeds(cluster: Operated) -> None:
    cluster.submit(a_training_job("simple"))
    (pod,) = cluster.until_running("simple", 1)
    assert pod["metadata"]["name"] == "simple-worker-0"
    assert pod["metadata"]["ownerReferences"][0]["name"] == "simple"
    status = cluster.until_phase("simple", "Running")["status"]
    assert (status["workers"], status["nodes"]) == (1, [pod["spec"]["nodeName"]])
    cluster.nodes.end("simple-worker-0")
    cluster.until_phase("simple", "Succeeded")
    assert cluster.has_condition("simple", "Succeeded")
    assert cluster.job("simple")["status"]["completionTime"]


def test_a_gang_starts_whole_with_a_service_for_the_worker_at_which_it_meets(cluster: Operated) -> None:
    cluster.submit(a_training_job("gang", workers=6))
    pods = cluster.until_running("gang", 6)
    assert names_of(pods) == [f"gang-worker-{index}" for index in range(6)]
    services = cluster.api.items("/api/v1/namespaces/default/services")
    assert [name for name in names_of(services) if name.startswith("gang-")] == ["gang-worker-0"]


def test_gang_that_does_not_fit_has_no_pod_and_names_the_missing_devices(cluster: Operated) -> None:
    cluster.submit(a_training_job("first", workers=8))
    cluster.until_running("first", 8)
    cluster.submit(a_training_job("second", workers=6))
    cluster.until(lambda: cluster.condition("second", "Scheduled"), "a verdict")
    verdict = cluster.condition("second", "Scheduled")
    assert verdict["status"] == "False"
    assert "2 more" in verdict["message"]
    assert cluster.pods("second") == []
    for index in range(8):
        cluster.nodes.end(f"first-worker-{index}")
    cluster.until_running("second", 6)


def test_job_that_can_never_run_has_a_reason(cluster: Operated) -> None:
    cluster.submit(a_training_job("never", gpus=5))
    cluster.until(lambda: cluster.job("never").get("status", {}).get("reason"), "a verdict")
    assert "no node can hold" in cluster.job("never")["status"]["reason"]


def test_every_decision_is_recorded_as_an_event(cluster: Operated) -> None:
    cluster.submit(a_training_job("reported"))
    cluster.until_running("reported", 1)
    cluster.until(lambda: _events(cluster, "reported"), "an event")


def test_kubectl_shows_phase_and_workers(cluster: Operated) -> None:
    cluster.submit(a_training_job("shown", workers=2))
    cluster.until_phase("shown", "Running")
    heading, line = cluster.plane.kubectl("get", "trainingjobs").splitlines()
    assert heading.split() == ["NAME", "PHASE", "WORKERS", "PROGRESS", "ETA", "AGE"]
    assert line.split()[:3] == ["shown", "Running", "2"]


def test_a_deleted_job_leaves_nothing_and_its_devices_are_free(cluster: Operated) -> None:
    cluster.submit(a_training_job("goes", workers=12))
    cluster.until_running("goes", 12)
    cluster.submit(a_training_job("waits", workers=12))
    cluster.api.delete(f"{JOBS}/goes")
    cluster.until_running("waits", 12)
    assert cluster.pods("goes") == []


def test_a_job_recreated_at_once_runs_when_its_predecessors_pods_are_gone(cluster: Operated) -> None:
    cluster.submit(a_training_job("again", workers=2, fake={"stop_seconds": 2}))
    before = {pod["metadata"]["uid"] for pod in cluster.until_running("again", 2)}
    cluster.api.delete(f"{JOBS}/again")
    cluster.submit(a_training_job("again", workers=2))
    cluster.until(lambda: {pod["metadata"]["uid"] for pod in cluster.pods("again", "Running")} - before, "new pods")
    after = {pod["metadata"]["uid"] for pod in cluster.until_running("again", 2)}
    assert not before & after


def test_an_invalid_job_gets_a_sentence_and_others_go_on(cluster: Operated) -> None:
    bad = a_training_job("bad")
    bad["spec"]["command"] = "python 'train.py"
    cluster.submit(bad)
    cluster.until(lambda: cluster.has_condition("bad", "Failed"), "the condition Failed")
    assert "quotes" in cluster.condition("bad", "Failed")["message"]
    cluster.submit(a_training_job("good"))
    cluster.until_running("good", 1)


def test_bounds_the_wrong_way_round_are_refused_at_admission(cluster: Operated) -> None:
    text = json.dumps(a_training_job("odd", workers="4:1"))
    with pytest.raises(subprocess.CalledProcessError) as refused:
        cluster.plane.kubectl("create", "-f", "-", text=text)
    assert "min" in refused.value.stderr


def test_a_failed_worker_is_tried_again_and_in_the_end_the_job_fails(cluster: Operated) -> None:
    cluster.submit(a_training_job("fails", restartPolicy="Never", fake={"run_seconds": 1, "exit_code": 3}))
    cluster.until_phase("fails", "Failed")
    assert "3" in cluster.condition("fails", "Failed")["message"]


def test_an_elastic_job_grows_into_free_devices_and_gives_them_back(cluster: Operated) -> None:
    cluster.submit(a_training_job("elastic", workers="1:12", resizing="torchrun"))
    before = {pod["metadata"]["uid"] for pod in cluster.until_running("elastic", 12)}
    cluster.submit(a_training_job("rigid", workers=4))
    cluster.until_running("rigid", 4)
    staying = cluster.until_running("elastic", 8)
    assert "elastic-worker-0" in names_of(staying)
    assert {pod["metadata"]["uid"] for pod in staying} < before


def test_a_cordoned_node_gets_nothing_new(cluster: Operated) -> None:
    path = f"{NODES}/node-0000"
    cluster.api.patch(path, {"spec": {"unschedulable": True}})
    try:
        cluster.submit(a_training_job("careful", workers=8))
        assert "node-0000" not in nodes_of(cluster.until_running("careful", 8))
    finally:
        cluster.api.patch(path, {"spec": {"unschedulable": None}})


def test_other_peoples_pods_are_counted(cluster: Operated) -> None:
    for number in range(3):
        limits = {"nvidia.com/gpu": "4"}
        spec = {
            "nodeName": f"node-000{number}",
            "containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}],
        }
        meta = {"name": f"other-{number}"}
        cluster.submit({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    cluster.until(lambda: len([p for p in cluster.pods() if p["status"].get("phase") == "Running"]) == 3, "the others")
    cluster.submit(a_training_job("late", workers=4))
    cluster.until(lambda: cluster.condition("late", "Scheduled"), "a verdict")
    assert cluster.pods("late") == []
    cluster.api.delete(f"{PODS}/other-1", gracePeriodSeconds=0)
    assert nodes_of(cluster.until_running("late", 4)) == ["node-0001"] * 4


def test_a_lost_node_is_replanned(cluster: Operated) -> None:
    cluster.submit(a_training_job("moved", workers=2))
    lost = nodes_of(cluster.until_running("moved", 2))[0]
    cluster.nodes.lose(lost)
    try:
        cluster.until(lambda: lost not in nodes_of(cluster.pods("moved", "Running")), "no pod on the lost node")
        cluster.until(lambda: len(cluster.pods("moved", "Running")) == 2, "two workers elsewhere")
    finally:
        cluster.nodes.heal(lost)
        cluster.until(lambda: _is_ready(cluster, lost), "the node's return")


def test_a_plain_pod_on_a_lost_node_comes_again_elsewhere(cluster: Operated) -> None:
    """DRAGON-50."""
    lost, labels = "node-0000", {"sterna.dev/job": "plain"}
    container = {"name": "c", "image": "i"}
    spec = {"nodeName": lost, "terminationGracePeriodSeconds": 1, "containers": [container]}
    meta = {"name": "plain", "labels": labels}
    cluster.submit({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    cluster.until(lambda: nodes_of(cluster.pods("plain", "Running")) == [lost], "the pod")
    cluster.nodes.lose(lost)
    try:
        cluster.until(lambda: lost not in nodes_of(cluster.pods("plain", "Running") or [{"spec": spec}]), "its return")
        cluster.until(lambda: "PodRestarting" in _events(cluster, "plain"), "an event")
    finally:
        cluster.nodes.heal(lost)
        cluster.until(lambda: _is_ready(cluster, lost), "the node's return")


def _events(cluster: Operated, name: str) -> list[str]:
    return [each["reason"] for each in cluster.api.items(EVENTS) if each["regarding"].get("name") == name]


def _is_ready(cluster: Operated, node: str) -> bool:
    found = cluster.api.get(f"{NODES}/{node}")
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in found["status"]["conditions"])
    return ready and not found["spec"].get("taints")
