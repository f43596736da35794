"""Names of jobs from manifests of Voda: the name there is the category, and each job gets a unique name."""

from __future__ import annotations

import re
from typing import Any

from sterna.backends.kubernetes.query.cluster import KubernetesCluster, QueryScope
from sterna.kinds.mpi_job import MPI_JOBS
from sterna.kinds.parsing.documents import Document
from tests.fakes.kube_requests import Response
from tests.unit.cli.cluster_builders import Lab
from tests.unit.kinds.kind_builders import mpi_job, old_manifest

CATEGORY = "tensorflow2-keras-mnist-elastic"


class Race(Lab):
    """Another client takes the name between the lookup and the creation."""

    def __init__(self) -> None:
        super().__init__()
        self.conflicts = 1

    def handle(self, method: str, path: str, query: str = "", body: bytes = b"", content_type: str = "") -> Response:
        if method == "POST" and path.endswith("/mpijobs") and "dryRun" not in query and self.conflicts:
            self.conflicts -= 1
            super().handle(method, path, query, body, content_type)
        return super().handle(method, path, query, body, content_type)


def create_jobs(lab: Lab, *manifests: dict[str, Any], key: str = "") -> list[str]:
    """All at the same instant."""
    cluster = KubernetesCluster(lab.client, QueryScope(), lambda *about: [], lambda: 1_700_000_000.0)
    submitted = cluster.create_documents([Document(each, "the request") for each in manifests], key)
    return [job.name for job in submitted.jobs]


def voda_job() -> dict[str, Any]:
    return old_manifest("voda-mpijob.yaml")


def test_jobs_of_one_manifest_have_names_of_their_own_also_within_a_second() -> None:
    """VODA-3, VODA-4, VODA-5."""
    lab = Lab()
    names = [*create_jobs(lab, voda_job(), voda_job()), *create_jobs(lab, voda_job())]
    first = names[0]
    assert re.fullmatch(rf"{CATEGORY}-\d{{8}}-\d{{6}}", first)
    assert names == [first, f"{first}-1", f"{first}-2"]
    for job in lab.items(MPI_JOBS):
        env = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["env"]
        assert [each["value"] for each in env if each["name"] == "JOB_NAME"] == [job["metadata"]["name"]]
        assert job["metadata"]["annotations"]["sterna.dev/category"] == CATEGORY


def test_a_name_that_is_taken_at_the_last_moment_is_replaced() -> None:
    """VODA-3."""
    lab = Race()
    (name,) = create_jobs(lab, voda_job())
    assert name.endswith("-1")
    assert len(lab.items(MPI_JOBS)) == 2


def test_a_job_of_the_present_operator_has_the_name_that_was_written() -> None:
    assert create_jobs(Lab(), mpi_job({"NP": "1"})) == ["keras"]
