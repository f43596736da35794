"""Finished jobs: thousands may remain undeleted, so little is held of each, and nothing is written."""

from __future__ import annotations

import pytest

from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.kinds.mpi_job import MPI_JOBS
from sterna.kinds.resource import Resource
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from tests.simulation.kubernetes_mpi import FakeMpiOperator, an_mpi_job
from tests.simulation.kubernetes_runs import Cluster

KINDS = [TRAINING_JOBS, TF_JOBS, MPI_JOBS]


def a_cluster_after_work() -> Cluster:
    """One job of each kind, which have all ended."""
    cluster = Cluster()
    for number in range(2):
        cluster.nodes.add(f"node-{number}", gpus=4)
    FakeMpiOperator(cluster.kube)
    cluster.start()
    cluster.submit("trained", 1, seconds=5.0)
    cluster.submit_tf("served", 1, 1, seconds=5.0)
    cluster.kube.create(MPI_JOBS, an_mpi_job("spread", 2, seconds=5.0))
    cluster.run(60.0)
    return cluster


def entries_of(cluster: Cluster) -> dict[Resource, JobEntry]:
    assert cluster.operator is not None
    return {entry.parsed_job.ref.resource: entry for entry in cluster.operator.backend.state.entries.values()}


@pytest.mark.parametrize("is_another", [False, True], ids=["whoever saw it end", "whoever came later"])
def test_of_a_job_that_has_ended_neither_templates_nor_its_whole_status_are_held(is_another: bool) -> None:
    cluster = a_cluster_after_work()
    if is_another:
        cluster.crash()
        cluster.run(10.0)
    entries = entries_of(cluster)
    assert set(entries) == set(KINDS)
    for entry in entries.values():
        assert entry.is_compacted
        assert (entry.parsed_job.templates, entry.source.raw_spec) == ({}, b"{}")
        assert set(entry.job.status) <= {"phase", "conditions"}
    conditions = cluster.kube.get(TRAINING_JOBS, "trained")["status"]["conditions"]
    assert {each["type"]: each["status"] for each in conditions}["Succeeded"] == "True"
    assert all(each["message"] for each in conditions)


@pytest.mark.parametrize("is_another", [False, True], ids=["whoever saw it end", "whoever came later"])
def test_whatever_is_done_to_a_job_that_has_ended_nothing_is_written_of_it(is_another: bool) -> None:
    cluster = a_cluster_after_work()
    operator = cluster.crash() if is_another else cluster.operator
    assert operator is not None
    cluster.run(5.0)
    before = {resource: cluster.kube.items(resource)[0].get("status") for resource in KINDS}
    written = len(operator.client.sent)
    for resource in KINDS:
        name = cluster.kube.items(resource)[0]["metadata"]["name"]
        change = {"metadata": {"labels": {"mine": "yes"}, "annotations": {"sterna.dev/priority": "9"}}}
        cluster.kube.patch(resource, name, change)
    cluster.run(60.0)
    assert operator.client.sent[written:] == []
    assert {resource: cluster.kube.items(resource)[0].get("status") for resource in KINDS} == before
    for resource in KINDS:
        cluster.kube.delete(resource, cluster.kube.items(resource)[0]["metadata"]["name"])
    cluster.run(10.0)
    assert operator.backend.state.entries == {}


def test_a_standby_drops_the_run_data_of_a_job_when_the_leader_reports_its_end() -> None:
    cluster = Cluster()
    cluster.nodes.add("node-0", gpus=4)
    cluster.start()
    cluster.submit("trained", 1, seconds=5.0)
    cluster.run(1.0)
    standby = Cluster(kube=cluster.kube).start()
    cluster.run(30.0)
    standby.backend.prepare(1.0)
    [entry] = standby.backend.state.entries.values()
    assert entry.is_compacted
    assert entry.parsed_job.templates == {}
