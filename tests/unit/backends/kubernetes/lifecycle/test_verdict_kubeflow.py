"""Ends and restarts of TFJobs and PyTorchJobs, with the semantics of Kubeflow."""

from __future__ import annotations

from typing import Any

import pytest

from sterna.backends.kubernetes.api.job import PodState, ReplicaAssignment
from sterna.backends.kubernetes.lifecycle.verdict import Verdict, VerdictKind, judge
from sterna.kinds.parsed_job import ParsedJob
from tests.unit.backends.kubernetes.replica_builders import kube_job, pod, workers_at
from tests.unit.kinds.kind_builders import group, parsed_job, pytorch_job, tf_job

PS = ReplicaAssignment("ps", 0, "a")
W0, W1, W2 = workers_at("a", "b", "c")


def judge_pods(of: ParsedJob, *states: tuple[ReplicaAssignment, PodState, int | None], **more: Any) -> Verdict:
    """Judge a job all of whose replicas have pods."""
    pods = [pod(replica, state, exit_code=code, **more) for replica, state, code in states]
    return judge(kube_job(of, *pods), 20.0, [replica for replica, _, _ in states])


RUNS, DONE = PodState.RUNNING, PodState.SUCCEEDED


@pytest.mark.parametrize(
    ("servers", "workers", "code", "expected"),
    [
        pytest.param("ExitCode", "Never", 137, VerdictKind.REPLACE, id="a server that may come again"),
        pytest.param("ExitCode", "OnFailure", 1, VerdictKind.FAILED, id="a server that may not"),
        pytest.param("Never", "OnFailure", 137, VerdictKind.FAILED, id="never"),
    ],
)
def test_a_replica_is_judged_by_the_restart_policy_of_its_own_type(
    servers: str, workers: str, code: int, expected: VerdictKind
) -> None:
    """DRAGON-42, 43."""
    of = parsed_job(tf_job({"PS": group(restart=servers), "Worker": group(2, restart=workers)}))
    verdict = judge_pods(of, (PS, PodState.FAILED, code), (W0, RUNS, None), (W1, RUNS, None))
    assert verdict.kind is expected
    assert expected is not VerdictKind.FAILED or f"(restart policy {servers})" in verdict.sentence


def a_led_job(kind: str = "PyTorchJob", master: str = "OnFailure") -> ParsedJob:
    """Its Master has a GPU as its workers have, so that the Master is the first of three seats."""
    name = "pytorch" if kind == "PyTorchJob" else "tensorflow"
    groups = {
        "Master": group(restart=master, name=name, gpus=1),
        "Worker": group(2, restart="OnFailure", name=name, gpus=1),
    }
    of = parsed_job(pytorch_job(groups) if kind == "PyTorchJob" else tf_job(groups, low=None, high=None))
    assert of.leading == ("master",)
    return of


@pytest.mark.parametrize("kind", ["PyTorchJob", "TFJob"])
def test_a_job_whose_master_has_a_gpu_ends_with_its_master(kind: str) -> None:
    """DRAGON-45."""
    of = a_led_job(kind)
    assert judge_pods(of, (W0, DONE, 0), (W1, RUNS, None), (W2, RUNS, None)).kind is VerdictKind.COMPLETED
    assert judge_pods(of, (W0, DONE, 0), (W1, PodState.FAILED, 1), (W2, RUNS, None)).kind is VerdictKind.COMPLETED
    assert judge_pods(of, (W0, RUNS, None), (W1, DONE, 0), (W2, DONE, 0)).kind is VerdictKind.CONTINUE


def test_a_master_with_a_gpu_has_its_own_restart_policy() -> None:
    """DRAGON-42."""
    of = a_led_job(master="Never")
    assert judge_pods(of, (W0, PodState.FAILED, 1), (W1, RUNS, None), (W2, RUNS, None)).kind is VerdictKind.FAILED
    assert judge_pods(of, (W0, RUNS, None), (W1, PodState.FAILED, 1), (W2, RUNS, None)).kind is VerdictKind.RESTART


def test_a_server_with_a_gpu_is_not_taken_for_worker_0() -> None:
    """DRAGON-45: the parameter server sits where the first worker would."""
    of = parsed_job(tf_job({"PS": group(gpus=1), "Worker": group(2, gpus=1)}, low=None, high=None))
    assert of.leading == ("ps",)
    assert judge_pods(of, (W0, DONE, 0), (W1, RUNS, None), (W2, RUNS, None)).kind is VerdictKind.CONTINUE
    assert judge_pods(of, (W0, RUNS, None), (W1, DONE, 0), (W2, RUNS, None)).kind is VerdictKind.COMPLETED


@pytest.mark.parametrize("bounds", [(1, 2), (None, None)], ids=["elastic", "fixed"])
def test_with_the_success_policy_all_workers_the_first_does_not_end_a_tfjob_alone(
    bounds: tuple[int | None, int | None],
) -> None:
    of = parsed_job(tf_job(low=bounds[0], high=bounds[1], successPolicy="AllWorkers"))
    assert judge_pods(of, (PS, RUNS, None), (W0, DONE, 0), (W1, RUNS, None)).kind is VerdictKind.CONTINUE
    assert judge_pods(of, (PS, RUNS, None), (W0, DONE, 0), (W1, DONE, 0)).kind is VerdictKind.COMPLETED


def test_a_server_that_ends_well_has_not_done_the_workers_work() -> None:
    of = parsed_job(tf_job(successPolicy="AllWorkers"))
    assert judge_pods(of, (PS, DONE, 0)).kind is VerdictKind.CONTINUE


def test_without_a_back_off_limit_containers_may_be_restarted_as_often_as_it_takes() -> None:
    """DRAGON-43: Kubeflow's operator counts only against a limit that was given."""
    groups = {"PS": group(restart="OnFailure"), "Worker": group(2, restart="OnFailure")}
    replicas = (PS, RUNS, None), (W0, RUNS, None), (W1, RUNS, None)
    assert judge_pods(parsed_job(tf_job(groups)), *replicas, restarts=100).kind is VerdictKind.CONTINUE
    assert judge_pods(parsed_job(tf_job(groups, backoffLimit=6)), *replicas, restarts=2).kind is VerdictKind.FAILED


def test_without_a_back_off_limit_a_replica_is_replaced_every_time() -> None:
    of = parsed_job(tf_job({"PS": group(), "Worker": group(2, restart="ExitCode")}))
    job = kube_job(of, pod(PS), pod(W0), pod(W1, PodState.FAILED, exit_code=137), restarts=100)
    verdict = judge(job, 20.0)
    assert verdict.kind is VerdictKind.REPLACE
    how = "exit code 137 (killed, often because memory ran out)"
    assert verdict.sentence == f"worker-1 ended with {how}; it is replaced in 300 s (restart 101)."
