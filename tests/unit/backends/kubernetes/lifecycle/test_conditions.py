"""The conditions of a job, and the phase that they follow."""

from __future__ import annotations

from typing import Any

import pytest

from sterna.backends.kubernetes.api.job import KubeJob, PodState, ReplicaAssignment
from sterna.backends.kubernetes.lifecycle.conditions import (
    Conditions,
    Scheduling,
    Subject,
    conditions_of,
    end_condition,
    format_time,
    invalid_conditions,
    reason_word,
    scheduling_of,
)
from sterna.backends.kubernetes.lifecycle.phase import JobPhase, phase_of
from sterna.backends.kubernetes.lifecycle.verdict import VerdictKind
from sterna.model.job import Resizing
from sterna.model.reason import Code, Reason
from tests.unit.backends.kubernetes.replica_builders import kube_job, parsed_job, pod, tf_job, workers_at

MNIST = Subject("TFJob", "mnist")
SEATED = Scheduling(True, "Started", "started with 2 workers.")
PS = ReplicaAssignment("ps", 0, "a")


def after(old: Conditions, phase: JobPhase, now: float, sentence: str = "so it is.", why: str = "") -> Conditions:
    return conditions_of(old, MNIST, phase, sentence, SEATED, now, why)


def of_type(conditions: Conditions, type_: str) -> dict[str, Any]:
    return next(each for each in conditions if each["type"] == type_)


def types(conditions: Conditions) -> list[tuple[str, str]]:
    return [(each["type"], each["status"]) for each in conditions]


# Conditions.


@pytest.mark.parametrize(
    ("phases", "state"),
    [
        ([JobPhase.WAITING], "Created"),
        ([JobPhase.RUNNING], "Running"),
        ([JobPhase.RUNNING, JobPhase.WAITING], "Created"),
        ([JobPhase.RUNNING, JobPhase.RESTARTING], "Restarting"),
        ([JobPhase.RUNNING, JobPhase.FAILED], "Failed"),
    ],
)
def test_the_last_condition_is_the_state_that_kubeflows_columns_show(phases: list[JobPhase], state: str) -> None:
    found: Conditions = []
    for now, phase in enumerate(phases):
        seated = Scheduling(phase is not JobPhase.WAITING, "Waits", "waits: 2 more devices needed.")
        found = conditions_of(found, MNIST, phase, "so it is.", seated, float(now))
    assert found[-1]["type"] == state
    assert found[-1]["status"] == "True"


def test_a_malformed_condition_of_another_client_does_no_harm() -> None:
    assert types(after([{"type": "Theirs", "status": "?"}, {"type": "Half"}], JobPhase.RUNNING, 1.0)[2:])[-1] == (
        "Running",
        "True",
    )


def test_conditions_follow_a_job_from_created_to_succeeded() -> None:
    """DRAGON-8."""
    found = after([], JobPhase.STARTING, 10.0)
    assert types(found) == [("Created", "True"), ("Scheduled", "True")]
    found = after(found, JobPhase.RUNNING, 20.0)
    assert types(found)[2:] == [("Running", "True")]
    found = after(found, JobPhase.SUCCEEDED, 30.0, "completed.")
    holding = [("Created", "True"), ("Scheduled", "True"), ("Succeeded", "True")]
    assert types(found) == [("Running", "False"), *holding]
    assert of_type(found, "Succeeded") == {
        "type": "Succeeded",
        "status": "True",
        "reason": "TFJobSucceeded",
        "message": "completed.",
        "lastUpdateTime": "1970-01-01T00:00:30Z",
        "lastTransitionTime": "1970-01-01T00:00:30Z",
    }


@pytest.mark.parametrize("phase", list(JobPhase))
def test_nothing_changes_after_the_end(phase: JobPhase) -> None:
    """DRAGON-8."""
    found = after(after([], JobPhase.RUNNING, 10.0), JobPhase.FAILED, 20.0, "failed.", "DeadlineExceeded")
    assert end_condition(found) == "Failed"
    assert after(found, phase, 30.0, "something else.") == found


def test_running_and_restarting_replace_each_other() -> None:
    """DRAGON-42."""
    running = after([], JobPhase.RUNNING, 10.0)
    restarting = after(running, JobPhase.RESTARTING, 20.0, "worker-1 ended with exit code 137.")
    assert types(restarting)[2:] == [("Restarting", "True")]
    assert of_type(restarting, "Restarting")["reason"] == "TFJobRestarting"
    assert types(after(restarting, JobPhase.RUNNING, 30.0))[2:] == [("Running", "True")]


def test_a_job_that_starts_elsewhere_after_it_ran_is_restarting() -> None:
    running = after([], JobPhase.RUNNING, 10.0)
    assert types(after(running, JobPhase.STARTING, 20.0))[2:] == [("Restarting", "True")]


@pytest.mark.parametrize(
    ("phase", "reason"), [(JobPhase.WAITING, "TFJobStopped"), (JobPhase.SUSPENDED, "TFJobSuspended")]
)
def test_a_job_that_was_stopped_no_longer_runs(phase: JobPhase, reason: str) -> None:
    found = after(after([], JobPhase.RUNNING, 10.0), phase, 20.0)
    assert types(found)[0] == ("Running", "False")
    assert of_type(found, "Running")["reason"] == reason


def test_a_job_that_never_ran_has_no_running_condition() -> None:
    assert types(after([], JobPhase.WAITING, 10.0)) == [("Created", "True"), ("Scheduled", "True")]


def test_the_same_said_again_changes_no_time() -> None:
    found = after([], JobPhase.RUNNING, 10.0)
    assert after(found, JobPhase.RUNNING, 99.0) == found


def test_a_transition_is_a_change_of_status_not_of_words() -> None:
    waits = Scheduling(False, "NeedsDevices", "waits: 3 more devices needed (1 free).")
    found = conditions_of([], MNIST, JobPhase.WAITING, "", waits, 10.0)
    found = conditions_of(found, MNIST, JobPhase.WAITING, "", waits._replace(sentence="waits: 2 more."), 20.0)
    said = of_type(found, "Scheduled")
    assert (said["lastUpdateTime"], said["lastTransitionTime"]) == ("1970-01-01T00:00:20Z", "1970-01-01T00:00:10Z")
    found = after(found, JobPhase.STARTING, 30.0)
    assert of_type(found, "Scheduled")["lastTransitionTime"] == "1970-01-01T00:00:30Z"


def test_scheduled_carries_the_reason_of_the_decision() -> None:
    reason = Reason(0, "mnist", Code.NEEDS_DEVICES, 3, 1)
    assert scheduling_of(False, reason) == Scheduling(False, "NeedsDevices", reason.sentence)
    assert scheduling_of(False, None) == Scheduling(False, "Waiting", "waits for its turn.")
    assert scheduling_of(True, None).code == "Scheduled"
    assert reason_word(Code.NOT_BESIDE_SERVERS) == "NotBesideServers"


def test_an_invalid_job_fails_with_a_message_and_may_be_corrected() -> None:
    """DRAGON-2."""
    found = invalid_conditions([], MNIST, "min-instances 4 is more than max-instances 2.", 10.0)
    assert of_type(found, "Failed")["reason"] == "InvalidTFJobSpec"
    assert end_condition(found) is None
    assert types(after(found, JobPhase.WAITING, 20.0)) == [("Created", "True"), ("Scheduled", "True")]


def test_a_job_that_has_ended_is_not_made_invalid() -> None:
    found = after([], JobPhase.SUCCEEDED, 10.0)
    assert invalid_conditions(found, MNIST, "wrong.", 20.0) == found


@pytest.mark.parametrize(("seconds", "text"), [(-5.0, "1970-01-01T00:00:00Z"), (1e300, "9999-12-31T23:59:59Z")])
def test_no_time_is_too_absurd_to_be_written(seconds: float, text: str) -> None:
    assert format_time(seconds) == text


# Phases.

W = workers_at("a", "b")


@pytest.mark.parametrize(
    ("job", "replicas", "expected"),
    [
        pytest.param(kube_job(parsed_job()), [], JobPhase.WAITING, id="no assignment"),
        pytest.param(kube_job(parsed_job(), not_before=60.0), [], JobPhase.RESTARTING, id="back-off"),
        pytest.param(kube_job(parsed_job(is_suspended=True)), [], JobPhase.SUSPENDED, id="suspended"),
        pytest.param(kube_job(parsed_job(), pod(W[0], is_deleting=True)), [], JobPhase.STOPPING, id="still ending"),
        pytest.param(kube_job(parsed_job()), W[:1], JobPhase.STARTING, id="an assignment, no pod"),
        pytest.param(kube_job(parsed_job(), pod(W[0], PodState.PENDING)), W[:1], JobPhase.STARTING, id="pending"),
        pytest.param(kube_job(parsed_job(), pod(W[0])), W[:1], JobPhase.RUNNING, id="runs"),
        pytest.param(kube_job(parsed_job(workers=2), pod(W[0])), W, JobPhase.STARTING, id="half a gang"),
        pytest.param(
            kube_job(parsed_job(), pod(W[0], is_deleting=True)), W[1:], JobPhase.RESTARTING, id="moving"
        ),
        pytest.param(
            kube_job(parsed_job(workers=2, minimum=1, resizing=Resizing.TORCHRUN), pod(W[0])),
            W, JobPhase.RUNNING, id="grows",
        ),
        pytest.param(kube_job(tf_job(minimum=1), pod(W[0])), [PS, *W], JobPhase.STARTING, id="no parameter server yet"),
        pytest.param(kube_job(tf_job(minimum=1), pod(PS), pod(W[1])), [PS, *W], JobPhase.STARTING, id="no worker 0"),
        pytest.param(kube_job(tf_job(minimum=1), pod(PS), pod(W[0])), [PS, *W], JobPhase.RUNNING, id="enough workers"),
    ],
)  # fmt: skip
def test_the_phase_of_a_job_follows_from_its_pods_and_replicas(
    job: KubeJob, replicas: list[ReplicaAssignment], expected: JobPhase
) -> None:
    assert phase_of(job, replicas, 30.0) is expected


@pytest.mark.parametrize(
    ("verdict_kind", "expected"),
    [
        (VerdictKind.COMPLETED, JobPhase.SUCCEEDED),
        (VerdictKind.FAILED, JobPhase.FAILED),
        (VerdictKind.REPLACE, JobPhase.RESTARTING),
    ],
)
def test_a_verdict_outweighs_what_pods_look_like(verdict_kind: VerdictKind, expected: JobPhase) -> None:
    assert phase_of(kube_job(parsed_job(), pod(W[0])), W[:1], 30.0, verdict_kind) is expected
