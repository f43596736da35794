"""`priorityClassName` of a pod template: its value is the job's priority."""

from __future__ import annotations

from sterna.backends.kubernetes.api.resources import PRIORITY_CLASSES
from sterna.kinds.labels import CHECKPOINT
from sterna.kinds.tf_job import TF_JOBS
from tests.simulation.kubernetes_runs import Chosen, Cluster
from tests.unit.backends.kubernetes.backend.test_jobs import a_cluster


def submit(cluster: Cluster, name: str, class_name: str = "", annotations: dict[str, str] | None = None) -> None:
    container = {"name": "tensorflow", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    template = {"spec": {"containers": [container], "priorityClassName": class_name}}
    spec = {"tfReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}}
    saving = {CHECKPOINT: "/checkpoints", **(annotations or {})}
    cluster.kube.create(TF_JOBS, {"metadata": {"name": name, "annotations": saving}, "spec": spec})


def define(cluster: Cluster, name: str, value: int) -> None:
    cluster.kube.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})


def priorities(cluster: Cluster) -> dict[str, int]:
    cluster.run(1.0)
    assert cluster.operator is not None
    jobs = cluster.operator.backend.observe().jobs
    return {jobs.name_of(row).rpartition("/")[2]: jobs.priority.item(row) for row in range(len(jobs))}


def test_job_has_the_value_of_its_priority_class() -> None:
    cluster = a_cluster(1, 1, Chosen("fifo", "stay"))
    define(cluster, "gold", 1000)
    submit(cluster, "plain")
    submit(cluster, "rich", "gold")
    submit(cluster, "critical", "system-node-critical")
    submit(cluster, "unknown", "silver")
    submit(cluster, "annotated", "gold", {"sterna.dev/priority": "-3"})
    assert priorities(cluster) == {"plain": 0, "rich": 1000, "critical": 2_000_001_000, "unknown": 0, "annotated": -3}


def test_job_follows_its_priority_class_when_it_appears_and_goes() -> None:
    cluster = a_cluster(1, 1, Chosen("fifo", "stay"))
    submit(cluster, "first")
    submit(cluster, "second", "gold")
    assert priorities(cluster) == {"first": 0, "second": 0}
    define(cluster, "gold", 7)
    assert priorities(cluster) == {"first": 0, "second": 7}
    cluster.run(60.0)
    assert cluster.phases() == {"first": "Waiting", "second": "Running"}
    cluster.kube.delete(PRIORITY_CLASSES, "gold")
    assert priorities(cluster) == {"first": 0, "second": 0}
