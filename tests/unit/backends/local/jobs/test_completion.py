"""Completion and restart of a job after a process exits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sterna.backends.local.jobs.completion import (
    AttemptResult,
    ProcessExit,
    after_failure,
    decides,
    is_complete,
    is_done,
)
from sterna.backends.local.store.records import AttemptRecord, JobRecord, ReplicaRecord
from sterna.control.restart_policy import backoff_seconds
from sterna.model.job import JobSpec, ReplicaSpec, RestartPolicy

SAVED = ProcessExit(143, 0.0, asked=True, saved=True)


@pytest.mark.parametrize(
    ("ending", "step", "total", "done"),
    [
        (ProcessExit(0, 0.0, asked=False, saved=False), None, None, True),
        (ProcessExit(1, 0.0, asked=False, saved=False), 10, 10, False),
        (SAVED, 10, 10, False),
        (ProcessExit(0, 0.0, asked=True, saved=True), 10, 10, False),
        (ProcessExit(0, 0.0, asked=True, saved=False), 10, 10, True),
        (ProcessExit(0, 0.0, asked=True, saved=False), 9, 10, False),
        (ProcessExit(0, 0.0, asked=True, saved=False), None, None, False),
        (ProcessExit(0, 0.0, asked=False, saved=False, lost=True), 10, 10, False),
    ],
)
def test_process_is_done_only_if_it_exited_unasked_or_reported_its_last_step(
    ending: ProcessExit, step: int | None, total: int | None, done: bool
) -> None:
    assert is_done(ending, step, total) is done


def a_spec(kind: str, *types: str, restart: RestartPolicy = RestartPolicy.ON_FAILURE) -> JobSpec:
    replicas = tuple(ReplicaSpec(each, 1, ("run",)) for each in types)
    return JobSpec("job", kind, replicas, 1, 1, 1, restart=restart, backoff_limit=2)


def an_attempt(failed: str, code: int, lost: bool = False) -> AttemptRecord:
    return AttemptRecord(1, 0.0, [], [], failed=True, exit_code=code, failed_type=failed, lost=lost)


@pytest.mark.parametrize(
    ("spec", "deciding"),
    [
        (a_spec("TrainingJob", "worker"), {("worker", 0), ("worker", 1)}),
        (replace(a_spec("TFJob", "ps", "worker"), is_done_by_first=True), {("worker", 0)}),
        (a_spec("TFJob", "ps", "worker"), {("worker", 0), ("worker", 1)}),
        (a_spec("TFJob", "ps", "worker", "chief"), {("chief", 0)}),
        (a_spec("PyTorchJob", "master", "worker"), {("master", 0)}),
        (a_spec("MPIJob", "launcher", "worker"), {("launcher", 0)}),
    ],
)
def test_replicas_whose_success_completes_a_job(spec: JobSpec, deciding: set[tuple[str, int]]) -> None:
    types = [each.type for each in spec.replicas]
    assert {(kind, index) for kind in types for index in (0, 1) if decides(spec, kind, index)} == deciding


def test_job_is_complete_when_all_replicas_that_are_not_leaving_are_done() -> None:
    replicas = [ReplicaRecord("worker", index, index, "a", "t") for index in range(3)]
    attempt = AttemptRecord(1, 0.0, replicas, [("a", 3)])
    spec = a_spec("TrainingJob", "worker")
    assert not is_complete(spec, attempt, {"worker-0", "worker-1"})
    replicas[2].leaving = True
    assert is_complete(spec, attempt, {"worker-0", "worker-1"})
    assert not is_complete(spec, attempt, set())


@pytest.mark.parametrize(
    ("policy", "code", "lost", "restarts", "verdict"),
    [
        (RestartPolicy.NEVER, 1, False, 0, AttemptResult.FAILED),
        (RestartPolicy.ON_FAILURE, 1, False, 0, AttemptResult.RESTART),
        (RestartPolicy.ON_FAILURE, 1, False, 2, AttemptResult.FAILED),
        (RestartPolicy.EXIT_CODE, 1, False, 0, AttemptResult.FAILED),
        (RestartPolicy.EXIT_CODE, 130, False, 0, AttemptResult.RESTART),
        (RestartPolicy.EXIT_CODE, 137, False, 0, AttemptResult.RESTART),
        (RestartPolicy.EXIT_CODE, 138, False, 0, AttemptResult.RESTART),
        (RestartPolicy.EXIT_CODE, 143, False, 1, AttemptResult.RESTART),
        (RestartPolicy.EXIT_CODE, 143, False, 2, AttemptResult.FAILED),
        (RestartPolicy.NEVER, 137, True, 9, AttemptResult.RESTART),
    ],
)
def test_restart_policy_decides_about_another_attempt(
    policy: RestartPolicy, code: int, lost: bool, restarts: int, verdict: AttemptResult
) -> None:
    job = JobRecord(
        key=1,
        spec=a_spec("TrainingJob", "worker", restart=policy),
        submitted_at=0.0,
        minimum=1,
        maximum=1,
        restarts=restarts,
    )
    assert after_failure(job, an_attempt("worker", code, lost)) is verdict


def test_restart_policy_is_that_of_the_failed_replica_type() -> None:
    """DRAGON-42, 43."""
    spec = replace(a_spec("TFJob", "ps", "worker"), restarts=(("ps", RestartPolicy.EXIT_CODE),))
    job = JobRecord(key=1, spec=spec, submitted_at=0.0, minimum=1, maximum=1)
    assert after_failure(job, an_attempt("worker", 1)) is AttemptResult.RESTART
    assert after_failure(job, an_attempt("ps", 1)) is AttemptResult.FAILED
    assert after_failure(job, an_attempt("ps", 137)) is AttemptResult.RESTART


def test_job_without_a_backoff_limit_always_restarts() -> None:
    """DRAGON-43."""
    spec = replace(a_spec("TFJob", "worker"), backoff_limit=None)
    assert (
        after_failure(
            JobRecord(key=1, spec=spec, submitted_at=0.0, minimum=1, maximum=1, restarts=1000), an_attempt("worker", 1)
        )
        is AttemptResult.RESTART
    )


def test_back_off_doubles_up_to_its_maximum() -> None:
    assert [backoff_seconds(times, 1.0, 10.0) for times in (1, 2, 3, 4, 5, 60)] == [1, 2, 4, 8, 10, 10]
