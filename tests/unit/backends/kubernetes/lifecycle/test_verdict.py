"""Verdict over the pods of a job: ends, restart policies, back-off, evictions, clean-up."""

from __future__ import annotations

from typing import Any

import pytest

from sterna.backends.kubernetes.api.job import KubeJob, PersistedState, PodRow, PodState, ReplicaAssignment
from sterna.backends.kubernetes.lifecycle.termination import TerminationCause, termination_cause, termination_message
from sterna.backends.kubernetes.lifecycle.verdict import (
    VerdictKind,
    expires_at,
    judge,
    lost_seconds,
    pods_to_delete,
    record_checkpoint,
    saved_step,
    wait_seconds,
)
from sterna.kinds.parsed_job import CleanPods
from sterna.model.job import Resizing, RestartPolicy
from sterna.model.snapshot import NEVER
from tests.unit.backends.kubernetes.replica_builders import kube_job, parsed_job, pod, tf_job, workers_at

PS = ReplicaAssignment("ps", 0, "a")
SAVED = '{"saved": true, "step": 70}'


def failed_pod(replica: ReplicaAssignment, code: int | None = 1, **more: Any) -> PodRow:
    return pod(replica, PodState.FAILED, exit_code=code, **more)


def one(*pods: PodRow, **more: Any) -> KubeJob:
    return kube_job(parsed_job(**more), *pods, started_at=10.0, first_started_at=10.0)


W0, W1 = workers_at("a", "b")

# Going on and succeeding.


def test_a_job_whose_pods_run_goes_on() -> None:
    assert judge(one(pod(W0)), 20.0).kind is VerdictKind.CONTINUE


def test_a_job_succeeds_when_its_only_worker_does() -> None:
    verdict = judge(one(pod(W0, PodState.SUCCEEDED)), 20.0)
    assert (verdict.kind, verdict.reason) == (VerdictKind.COMPLETED, "TrainingJobSucceeded")


def test_a_tfjob_succeeds_with_worker_0_though_others_still_run() -> None:
    """DRAGON-45."""
    job = kube_job(tf_job(), pod(PS), pod(W0, PodState.SUCCEEDED), pod(W1))
    assert judge(job, 20.0).kind is VerdictKind.COMPLETED


def test_a_tfjob_goes_on_when_another_worker_is_done() -> None:
    job = kube_job(tf_job(), pod(PS), pod(W0), pod(W1, PodState.SUCCEEDED))
    assert judge(job, 20.0).kind is VerdictKind.CONTINUE


def test_the_chief_decides_where_there_is_one() -> None:
    """DRAGON-45."""
    chief = ReplicaAssignment("chief", 0, "a")
    of = parsed_job("TFJob", 1, {"chief": 1})
    assert judge(kube_job(of, pod(chief), pod(W0, PodState.SUCCEEDED)), 20.0).kind is VerdictKind.CONTINUE
    assert judge(kube_job(of, pod(chief, PodState.SUCCEEDED), pod(W0)), 20.0).kind is VerdictKind.COMPLETED


def test_other_jobs_succeed_when_every_worker_has() -> None:
    of, replicas = parsed_job(workers=2), [W0, W1]
    first = pod(W0, PodState.SUCCEEDED)
    assert judge(kube_job(of, first, pod(W1)), 20.0, replicas).kind is VerdictKind.CONTINUE
    assert judge(kube_job(of, first), 20.0, replicas).kind is VerdictKind.CONTINUE
    assert judge(kube_job(of, first, pod(W1, PodState.SUCCEEDED)), 20.0, replicas).kind is VerdictKind.COMPLETED


def test_success_outweighs_the_failure_of_another_replica() -> None:
    job = kube_job(tf_job(), failed_pod(PS), pod(W0, PodState.SUCCEEDED))
    assert judge(job, 20.0).kind is VerdictKind.COMPLETED


def test_a_pod_that_ends_well_because_it_was_asked_to_go_has_not_done_its_work() -> None:
    asked = pod(W0, PodState.SUCCEEDED, is_deleting=True)
    assert judge(one(asked), 20.0).kind is VerdictKind.CONTINUE


def test_a_pod_that_was_asked_to_go_after_its_last_step_has_done_its_work() -> None:
    job = one(pod(W0, PodState.SUCCEEDED, is_deleting=True))
    job.persisted.step = job.persisted.total = 100
    assert judge(job, 20.0).kind is VerdictKind.COMPLETED


def test_a_job_that_has_ended_is_not_judged_again() -> None:
    """DRAGON-48: finished jobs are not run again."""
    assert judge(kube_job(parsed_job(), failed_pod(W0), ended_at=5.0), 20.0).kind is VerdictKind.CONTINUE


# Restart policies and exit codes.


@pytest.mark.parametrize(
    ("policy", "code", "expected"),
    [
        pytest.param(RestartPolicy.EXIT_CODE, 130, VerdictKind.REPLACE, id="130 comes again"),
        pytest.param(RestartPolicy.EXIT_CODE, 137, VerdictKind.REPLACE, id="137 comes again"),
        pytest.param(RestartPolicy.EXIT_CODE, 138, VerdictKind.REPLACE, id="138 comes again"),
        pytest.param(RestartPolicy.EXIT_CODE, 143, VerdictKind.REPLACE, id="143 comes again"),
        pytest.param(RestartPolicy.EXIT_CODE, 1, VerdictKind.FAILED, id="1 is final"),
        pytest.param(RestartPolicy.EXIT_CODE, 139, VerdictKind.FAILED, id="139 is final"),
        pytest.param(RestartPolicy.NEVER, 143, VerdictKind.FAILED, id="Never"),
        pytest.param(RestartPolicy.ON_FAILURE, 1, VerdictKind.REPLACE, id="OnFailure"),
    ],
)
def test_what_an_exit_code_means_is_up_to_the_restart_policy(
    policy: RestartPolicy, code: int, expected: VerdictKind
) -> None:
    """DRAGON-42, DRAGON-43."""
    job = kube_job(tf_job(restart=policy), pod(PS), pod(W0), failed_pod(W1, code))
    assert judge(job, 20.0).kind is expected


def test_a_single_replica_of_a_job_that_changes_in_place_is_replaced() -> None:
    verdict = judge(kube_job(tf_job(restart=RestartPolicy.EXIT_CODE), pod(PS), pod(W0), failed_pod(W1, 137)), 20.0)
    assert (verdict.replicas, verdict.is_counted, verdict.reason) == ((("worker", 1),), True, "TFJobRestarting")
    how = "exit code 137 (killed, often because memory ran out)"
    assert verdict.sentence == f"worker-1 ended with {how}; it is replaced in 10 s (restart 1 of 6)."


def test_a_gang_that_does_not_replace_in_place_restarts() -> None:
    verdict = judge(kube_job(parsed_job(workers=2), pod(W0), failed_pod(W1)), 20.0)
    assert (verdict.kind, verdict.replicas, verdict.exit_code) == (VerdictKind.RESTART, (), 1)


def test_a_failed_job_names_the_replica_and_its_exit_code() -> None:
    verdict = judge(one(failed_pod(W0, 3), restart=RestartPolicy.NEVER), 60.0)
    assert verdict.sentence == "failed: worker-0 ended with exit code 3 (restart policy Never)."
    assert (verdict.reason, verdict.exit_code, verdict.lost_seconds) == ("TrainingJobFailed", 3, 50.0)


# Back-off and deadlines.


def test_waits_between_restarts_double_from_10_s_to_300_s() -> None:
    assert [wait_seconds(number) for number in range(1, 8)] == [10, 20, 40, 80, 160, 300, 300]


def test_a_restart_waits_longer_each_time() -> None:
    job = kube_job(parsed_job(), failed_pod(W0), restarts=2)
    assert judge(job, 1000.0).not_before == 1040.0


def test_a_job_fails_when_its_back_off_limit_is_used_up() -> None:
    """DRAGON-43."""
    verdict = judge(kube_job(parsed_job(backoff_limit=2), failed_pod(W0), restarts=2), 20.0)
    assert (verdict.kind, verdict.reason) == (VerdictKind.FAILED, "BackoffLimitExceeded")


@pytest.mark.parametrize(
    ("limit", "restarts", "expected"),
    [
        (3, 2, VerdictKind.CONTINUE),
        (3, 3, VerdictKind.FAILED),
        (0, 0, VerdictKind.CONTINUE),
        (0, 1, VerdictKind.FAILED),
    ],
)
def test_restarts_of_containers_in_place_count_together(limit: int, restarts: int, expected: VerdictKind) -> None:
    """DRAGON-43: as many as the limit, or any at all if it is 0."""
    first = pod(W0, restarts=restarts // 2)
    second = pod(W1, restarts=restarts - restarts // 2)
    assert judge(kube_job(parsed_job(workers=2, backoff_limit=limit), first, second), 20.0).kind is expected


def test_a_deadline_counts_from_the_first_start() -> None:
    """DRAGON-44."""
    job = one(pod(W0), deadline_seconds=60.0)
    assert (judge(job, 69.0).kind, judge(job, 69.0).until) == (VerdictKind.CONTINUE, 70.0)
    verdict = judge(job, 70.0)
    assert (verdict.kind, verdict.reason) == (VerdictKind.FAILED, "DeadlineExceeded")


def test_a_job_that_waits_for_its_first_start_has_no_deadline_yet() -> None:
    assert judge(kube_job(parsed_job(deadline_seconds=60.0)), 1e9).kind is VerdictKind.CONTINUE


# What the cluster does to pods.


@pytest.mark.parametrize("reason", ["OutOfcpu", "OutOfmemory", "OutOfnvidia.com/gpu", "OutOfpods", "NodeAffinity"])
def test_a_pod_that_its_kubelet_refused_is_made_again_and_not_counted(reason: str) -> None:
    refused = failed_pod(W1, None, reason=reason)
    verdict = judge(kube_job(tf_job(restart=RestartPolicy.NEVER), pod(PS), pod(W0), refused, restarts=6), 20.0)
    assert (verdict.kind, verdict.replicas, verdict.is_counted) == (VerdictKind.REPLACE, (("worker", 1),), False)
    assert (set(verdict.refused_by), verdict.not_before) == ({"b"}, 30.0)


@pytest.mark.parametrize("reason", ["Evicted", "Preempting", "NodeShutdown", "Terminated", "NodeLost", ""])
def test_a_pod_that_was_evicted_or_lost_is_replaced_at_once_and_not_fatal(reason: str) -> None:
    """DRAGON-50."""
    gone = failed_pod(W1, None, reason=reason)
    verdict = judge(kube_job(tf_job(restart=RestartPolicy.NEVER, backoff_limit=0), pod(PS), pod(W0), gone), 20.0)
    assert (verdict.kind, verdict.is_counted, verdict.not_before) == (VerdictKind.REPLACE, False, 0.0)


def test_an_eviction_beside_a_failure_of_its_own_does_not_hide_it() -> None:
    evicted = failed_pod(W0, None, reason="Evicted")
    verdict = judge(kube_job(tf_job(restart=RestartPolicy.NEVER), pod(PS), evicted, failed_pod(W1, 2)), 20.0)
    assert (verdict.kind, verdict.exit_code) == (VerdictKind.FAILED, 2)


def test_a_deleted_pod_is_no_failure_whatever_its_exit_code() -> None:
    job = one(failed_pod(W0, 143, is_deleting=True), restart=RestartPolicy.NEVER)
    assert judge(job, 20.0).kind is VerdictKind.CONTINUE


@pytest.mark.parametrize(
    ("row", "ailment", "words"),
    [
        pytest.param(failed_pod(W0, 3), TerminationCause.ENDED, "worker-0 ended with exit code 3", id="code"),
        pytest.param(
            failed_pod(W0, 137, reason="OOMKilled"),
            TerminationCause.ENDED,
            "worker-0 ended with exit code 137 (OOMKilled)",
            id="oom",
        ),
        pytest.param(
            failed_pod(W0, None, reason="OutOfcpu"),
            TerminationCause.REJECTED,
            "worker-0 was refused by a (OutOfcpu)",
            id="refused",
        ),
        pytest.param(
            failed_pod(W0, None, reason="Evicted"),
            TerminationCause.EVICTED,
            "worker-0 was evicted from a (Evicted)",
            id="evicted",
        ),
        pytest.param(
            failed_pod(W0, None),
            TerminationCause.LOST,
            "worker-0 was lost on a: it left no exit record",
            id="without a word",
        ),
        pytest.param(
            failed_pod(W0, None, reason="DeadlineExceeded"),
            TerminationCause.ENDED,
            "worker-0 ended: DeadlineExceeded",
            id="pod deadline",
        ),
    ],
)
def test_the_termination_cause_follows_from_the_pod_status(row: PodRow, ailment: TerminationCause, words: str) -> None:
    assert termination_cause(row) is ailment
    assert termination_message(row) == words


# Stopping, and what is saved.


def test_a_job_of_which_nothing_is_left_has_stopped() -> None:
    verdict = judge(one(), 70.0)
    assert (verdict.kind, verdict.lost_seconds) == (VerdictKind.STOPPED, 60.0)
    assert "60 s of work are lost" in verdict.sentence


def test_a_job_that_saved_when_asked_has_lost_nothing() -> None:
    """DRAGON-78, DRAGON-88."""
    job = one()
    asked = pod(W0, PodState.FAILED, is_deleting=True, exit_code=143, message=SAVED)
    assert record_checkpoint(job.persisted, asked, 60.0)
    verdict = judge(job, 70.0)
    assert (verdict.lost_seconds, verdict.sentence) == (0.0, "saved its work at step 70 and stopped.")
    assert (job.persisted.saved_step, job.persisted.saved_at) == (70, 60.0)


def test_work_is_lost_since_the_last_checkpoint_only() -> None:
    memory = PersistedState(attempt=2, started_at=10.0, saved_at=50.0, saved_attempt=1)
    assert lost_seconds(memory, 70.0) == 20.0


def test_an_attempt_that_never_ran_loses_nothing() -> None:
    assert lost_seconds(PersistedState(attempt=1), 70.0) == 0.0
    assert judge(kube_job(parsed_job()), 70.0).kind is VerdictKind.CONTINUE


@pytest.mark.parametrize(
    ("message", "step"),
    [
        (SAVED, 70),
        ('{"saved": true}', -1),
        ('{"saved": true, "step": -5}', -1),
        ('{"saved": false, "step": 70}', None),
        ('{"saved": "yes"}', None),
        ("Segmentation fault", None),
        ("[1]", None),
        ("", None),
    ],
)
def test_whether_a_pod_saved_is_in_its_termination_message(message: str, step: int | None) -> None:
    assert saved_step(pod(W0, message=message)) == step


def test_a_pod_that_still_runs_has_not_saved_for_good() -> None:
    memory = PersistedState()
    assert not record_checkpoint(memory, pod(W0, is_deleting=True, message=SAVED), 60.0)
    assert memory == PersistedState()


def test_a_crash_after_a_checkpoint_is_no_orderly_stop() -> None:
    memory = PersistedState(attempt=1, started_at=10.0)
    assert record_checkpoint(memory, failed_pod(W0, 1, message=SAVED), 60.0)
    assert (memory.saved_step, lost_seconds(memory, 60.0)) == (70, 50.0)


def test_a_crashed_pod_reports_the_time_of_its_last_checkpoint() -> None:
    """DRAGON-88: total work is not repeated beyond one checkpoint interval."""
    memory = PersistedState(attempt=1, started_at=10.0)
    assert not record_checkpoint(memory, failed_pod(W0, 1, message='{"saved": false, "step": 40, "at": 45.0}'), 60.0)
    assert (memory.saved_step, lost_seconds(memory, 60.0)) == (40, 15.0)


def test_a_clock_that_runs_ahead_saves_nothing_in_the_future() -> None:
    memory = PersistedState(attempt=1, started_at=10.0)
    record_checkpoint(memory, failed_pod(W0, 1, message='{"saved": false, "step": 40, "at": 1e9}'), 60.0)
    assert memory.saved_at == 60.0


def test_a_worker_that_leaves_a_job_which_goes_on_does_not_speak_for_it() -> None:
    memory = PersistedState(attempt=1, started_at=10.0)
    record_checkpoint(memory, pod(W1, PodState.FAILED, is_deleting=True, message=SAVED), 50.0)
    assert lost_seconds(memory, 90.0) == 80.0


def test_a_crash_of_a_gang_loses_its_work_since_the_last_checkpoint() -> None:
    assert judge(one(failed_pod(W0)), 60.0).lost_seconds == 50.0


# After the end.


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (CleanPods.ALL, ["ps-0", "worker-0", "worker-1"]),
        (CleanPods.RUNNING, ["ps-0", "worker-1"]),
        (CleanPods.NONE, []),
    ],
)
def test_which_pods_go_at_the_end_is_up_to_the_clean_pod_policy(policy: CleanPods, expected: list[str]) -> None:
    """DRAGON-46."""
    job = kube_job(tf_job(clean_pods=policy), pod(PS), pod(W0, PodState.SUCCEEDED), pod(W1))
    assert [f"{row.type}-{row.index}" for row in pods_to_delete(job)] == expected


def test_pods_that_are_not_ours_are_never_cleaned_up() -> None:
    assert pods_to_delete(kube_job(parsed_job("MPIJob", clean_pods=CleanPods.ALL), pod(W0))) == []


def test_a_job_expires_its_ttl_after_its_end() -> None:
    """DRAGON-47."""
    assert expires_at(kube_job(parsed_job(ttl_seconds=60.0), ended_at=100.0)) == 160.0
    assert expires_at(kube_job(parsed_job(ttl_seconds=60.0))) == NEVER
    assert expires_at(kube_job(parsed_job(), ended_at=100.0)) == NEVER


# MPI jobs.


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        pytest.param({"type": "Succeeded", "status": "True"}, VerdictKind.COMPLETED, id="VODA-72"),
        pytest.param({"type": "Failed", "status": "True", "message": "oom"}, VerdictKind.FAILED, id="VODA-73"),
        pytest.param({"type": "Running", "status": "True"}, VerdictKind.CONTINUE, id="VODA-76"),
        pytest.param({"type": "Failed", "status": "False"}, VerdictKind.CONTINUE, id="not any more"),
    ],
)
def test_an_mpi_job_is_judged_by_its_own_operator(condition: dict[str, str], expected: VerdictKind) -> None:
    job = kube_job(parsed_job("MPIJob", 2), failed_pod(W1), status={"conditions": [condition]})
    assert judge(job, 20.0).kind is expected


EVICTED = {"type": "Failed", "status": "True", "reason": "MPIJobEvicted", "message": "1/2 workers are evicted"}


def test_an_mpi_job_fails_by_its_operators_condition_and_not_by_an_evicted_worker() -> None:
    """VODA-73: the operator goes on with a job whose workers were evicted, and leaves it `Failed` meanwhile."""
    job = kube_job(parsed_job("MPIJob", 2), pod(W0), pod(W1), status={"conditions": [EVICTED]})
    assert judge(job, 20.0).kind is VerdictKind.CONTINUE
    job.status = {"conditions": [EVICTED], "completionTime": "2024-05-01T12:00:00Z"}
    assert judge(job, 20.0).kind is VerdictKind.FAILED


@pytest.mark.parametrize(
    ("resizing", "verdict_kind"), [(Resizing.IN_PLACE, VerdictKind.REPLACE), (Resizing.RESTART, VerdictKind.RESTART)]
)
def test_a_worker_that_its_node_refused_is_replaced_as_those_of_other_jobs_are(
    resizing: Resizing, verdict_kind: VerdictKind
) -> None:
    refused = pod(W1, PodState.FAILED, reason="OutOfcpu")
    verdict = judge(kube_job(parsed_job("MPIJob", 2, resizing=resizing), pod(W0), refused), 20.0)
    assert (verdict.kind, verdict.refused_by, verdict.is_counted) == (verdict_kind, frozenset({refused.node}), False)


def test_an_elastic_job_succeeds_though_a_new_worker_has_not_come_yet() -> None:
    of = parsed_job(workers=2, resizing=Resizing.TORCHRUN)
    done = pod(W0, PodState.SUCCEEDED)
    assert judge(kube_job(of, done), 20.0, [W0, W1]).kind is VerdictKind.COMPLETED
