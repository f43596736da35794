"""Headless services of a job, and their deletion."""

from __future__ import annotations

import pytest

from sterna.backends.kubernetes.api.job import ReplicaAssignment
from sterna.backends.kubernetes.lifecycle.services import is_called_by_name, service_steps, services_to_delete
from sterna.kinds.parsed_job import CleanPods, ParsedJob
from tests.unit.backends.kubernetes.replica_builders import parsed_job, tf_job, workers_at

PS = ReplicaAssignment("ps", 0, "a")


def test_each_replica_has_one_service_and_those_of_removed_ones_go() -> None:
    """DRAGON-6, DRAGON-28."""
    found = service_steps(tf_job(), [PS, *workers_at("a", "b")], {("ps", 0), ("worker", 2)})
    assert found.create == [("worker", 0), ("worker", 1)]
    assert found.delete == [("worker", 2)]


def test_a_job_that_stopped_has_no_services() -> None:
    assert service_steps(tf_job(), [], {("ps", 0)}).delete == [("ps", 0)]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        pytest.param(parsed_job("TFJob", 1), True, id="TFJob, also alone"),
        pytest.param(parsed_job(), False, id="alone"),
        pytest.param(parsed_job(maximum=2), True, id="may grow"),
        pytest.param(parsed_job("MPIJob", 4), False, id="its operator's"),
        pytest.param(parsed_job("Pod"), False, id="plain pod"),
    ],
)
def test_only_replicas_that_talk_to_each_other_have_services(job: ParsedJob, expected: bool) -> None:
    assert is_called_by_name(job) is expected


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        pytest.param(parsed_job("TFJob", 3), [("worker", 0), ("worker", 1), ("worker", 2)], id="all are told of all"),
        pytest.param(parsed_job(maximum=3), [("worker", 0)], id="they meet at the first"),
    ],
)
def test_a_replica_that_no_other_reaches_has_no_service(job: ParsedJob, expected: list[tuple[str, int]]) -> None:
    assert service_steps(job, workers_at("a", "a", "b"), ()).create == expected
    assert service_steps(job, [ReplicaAssignment("ps", 1, "a")], ()).create == [("ps", 1)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(CleanPods.ALL, [("ps", 0), ("worker", 0)]), (CleanPods.RUNNING, [("ps", 0)]), (CleanPods.NONE, [])],
)
def test_services_follow_their_pods_at_the_end(policy: CleanPods, expected: list[tuple[str, int]]) -> None:
    """DRAGON-46."""
    existing = [("ps", 0), ("worker", 0)]
    assert services_to_delete(tf_job(clean_pods=policy), existing, staying={("worker", 0)}) == expected
