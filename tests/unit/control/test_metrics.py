"""Metric families of jobs and nodes, shared by the local cluster and the operator."""

from __future__ import annotations

from prometheus_client.core import Metric

from sterna.api.metrics import ClusterMetrics
from sterna.backends.kubernetes.server.metrics import OperatorMetrics
from sterna.control.metrics import of_jobs, of_nodes, of_version
from sterna.model.job import JobSpec, ReplicaSpec
from tests.fakes.cluster import FakeCluster


def a_cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.create([JobSpec(name, "TrainingJob", (ReplicaSpec("worker", 1, ()),), 1, 1, 1) for name in ("a", "b")])
    cluster.views["a"].state, cluster.views["a"].step, cluster.views["a"].total = "running", 5, 20
    cluster.views["b"].state = "completed"
    return cluster


def samples(metrics: list[Metric]) -> dict[tuple[str, str], float]:
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value for each in metrics for sample in each.samples
    }


def test_jobs_are_counted_by_state_and_only_active_jobs_have_their_own_samples() -> None:
    found = samples(list(of_jobs(a_cluster().jobs())))
    assert found["sterna_jobs", "running"] == found["sterna_jobs", "completed"] == 1
    assert found["sterna_jobs", "waiting"] == 0
    assert found["sterna_job_progress_ratio", "a"] == 0.25
    assert [key for key in found if key[1] == "b"] == []


def test_local_cluster_and_operator_expose_the_same_metric_families() -> None:
    cluster = a_cluster()
    both = [of_version(), *of_jobs(cluster.jobs()), *of_nodes(cluster.nodes())]
    operator = list(OperatorMetrics(cluster.jobs, cluster.nodes, lambda: True).collect())
    for reported in (samples(list(ClusterMetrics(cluster).collect())), samples(operator)):
        assert samples(both).items() <= reported.items()
