"""Events: bodies that the server accepts, names derived from their content."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sterna.backends.kubernetes.api.job import PodState, ReplicaAssignment
from sterna.backends.kubernetes.api.resources import EVENTS, Urgency, Verb, Write
from sterna.backends.kubernetes.lifecycle.verdict import CONTINUE, Verdict, VerdictKind
from sterna.backends.kubernetes.status.events import EventBuilder
from sterna.model.reason import Code, Reason
from tests.unit.backends.kubernetes.replica_builders import kube_job, parsed_job, pod, tf_job, workers_at

REPORTER = EventBuilder("sterna-0")
JOB = kube_job(tf_job())
W = workers_at("a", "b")


def body(write: Write | None) -> dict[str, Any]:
    assert write is not None
    found: dict[str, Any] = json.loads(write.body)
    return found


def reason(code: Code) -> Reason:
    return Reason(0, "mnist", code, 2, 1, ("big",))


def test_an_event_names_object_action_and_reason() -> None:
    write = REPORTER.decision(JOB, reason(Code.STARTED), 1.5)
    assert (write.verb, write.resource, write.namespace, write.urgency) == (
        Verb.CREATE, EVENTS, "default", Urgency.EVENT,
    )  # fmt: skip
    assert body(write) == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": write.name, "namespace": "default"},
        "eventTime": "1970-01-01T00:00:01.500000Z",
        "reportingController": "sterna.dev/operator",
        "reportingInstance": "sterna-0",
        "type": "Normal",
        "reason": "Scheduled",
        "action": "Schedule",
        "note": "started with 2 workers.",
        "regarding": {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "namespace": "default",
            "name": "mnist",
            "uid": "uid-mnist",
        },
    }


@pytest.mark.parametrize("code", list(Code))
def test_every_reason_has_an_event(code: Code) -> None:
    said = body(REPORTER.decision(JOB, reason(code), 1.0))
    words = ("Scheduled", "Resized", "Moved", "Stopped", "Shared", "Waiting")
    assert said["reason"] in words
    assert said["note"] == reason(code).sentence
    assert (said["type"] == "Warning") is said["note"].startswith("cannot run")


def test_the_same_words_have_the_same_name_and_others_another() -> None:
    first = REPORTER.decision(JOB, reason(Code.STARTED), 1.0)
    assert REPORTER.decision(JOB, reason(Code.STARTED), 99.0).name == first.name
    assert REPORTER.decision(JOB, reason(Code.GREW), 1.0).name != first.name
    assert REPORTER.decision(kube_job(tf_job(name="other")), reason(Code.STARTED), 1.0).name != first.name


def test_a_repeated_event_becomes_one_series() -> None:
    first = REPORTER.decision(JOB, reason(Code.STARTED), 1.0)
    again = REPORTER.repeat(first, 3, 60.0)
    assert (again.verb, again.name, again.slot) == (Verb.MERGE, first.name, f"event/default/{first.name}")
    assert body(again) == {"series": {"count": 3, "lastObservedTime": "1970-01-01T00:01:00.000000Z"}}


@pytest.mark.parametrize(
    ("verdict", "word", "type_"),
    [
        (Verdict(VerdictKind.COMPLETED, sentence="completed."), "TFJobSucceeded", "Normal"),
        (Verdict(VerdictKind.FAILED, sentence="failed."), "TFJobFailed", "Warning"),
        (Verdict(VerdictKind.REPLACE, sentence="again."), "TFJobRestarting", "Warning"),
        (Verdict(VerdictKind.RESTART, sentence="again."), "TFJobRestarting", "Warning"),
        (Verdict(VerdictKind.STOPPED, sentence="saved."), "Stopped", "Normal"),
        (Verdict(VerdictKind.STOPPED, sentence="lost.", lost_seconds=60.0), "Stopped", "Warning"),
    ],
)
def test_what_becomes_of_a_job_is_an_event(verdict: Verdict, word: str, type_: str) -> None:
    """DRAGON-53."""
    said = body(REPORTER.verdict(JOB, verdict, 1.0))
    assert (said["reason"], said["type"], said["note"]) == (word, type_, verdict.sentence)


def test_nothing_happened_is_no_event() -> None:
    assert REPORTER.verdict(JOB, CONTINUE, 1.0) is None


def test_pods_that_were_made_together_are_one_event_with_the_decision() -> None:
    """DRAGON-53."""
    said = body(REPORTER.pods_created(JOB, W, 1.0, "started with 2 workers."))
    assert said["reason"] == "SuccessfulCreatePod"
    assert said["note"] == "Created 2 pods on a, b: mnist-worker-0, mnist-worker-1. Started with 2 workers."


def test_a_large_gang_is_counted_not_listed() -> None:
    gang = workers_at(*["a"] * 512)
    note = body(REPORTER.pods_created(JOB, gang, 1.0))["note"]
    assert note == "Created 512 pods on a: mnist-worker-0, mnist-worker-1, mnist-worker-2 and 509 more."


@pytest.mark.parametrize(
    ("write", "word", "note"),
    [
        pytest.param(
            REPORTER.create_failure(JOB, W[0], "exceeded quota", 1.0),
            "FailedCreatePod",
            "Could not create mnist-worker-0 on a: exceeded quota",
            id="not created",
        ),
        pytest.param(
            REPORTER.pods_deleted(JOB, [pod(W[0])], 1.0, "it moves to b."),
            "SuccessfulDeletePod",
            "Deleted 1 pod: mnist-worker-0. It moves to b.",
            id="deleted",
        ),
        pytest.param(
            REPORTER.delete_failure(JOB, pod(W[0]), "forbidden", 1.0),
            "FailedDeletePod",
            "Could not delete mnist-worker-0: forbidden",
            id="not deleted",
        ),
        pytest.param(
            REPORTER.pod_exit(JOB, pod(W[0], PodState.FAILED, exit_code=137), 1.0),
            "ExitedWithCode",
            "Worker-0 ended with exit code 137 (killed, often because memory ran out).",
            id="exit code",
        ),
        pytest.param(
            REPORTER.pod_exit(JOB, pod(W[0], PodState.FAILED, reason="OutOfcpu"), 1.0),
            "OutOfcpu",
            "Worker-0 was refused by a (OutOfcpu).",
            id="refused",
        ),
        pytest.param(
            REPORTER.invalid(JOB.parsed_job.ref, "no container.", 1.0),
            "InvalidTFJobSpec",
            "no container.",
            id="invalid",
        ),
    ],
)
def test_what_became_of_pods_is_an_event(write: Write, word: str, note: str) -> None:
    """DRAGON-53."""
    assert (body(write)["reason"], body(write)["note"]) == (word, note)


def test_notes_and_names_are_never_longer_than_the_server_takes() -> None:
    job = kube_job(parsed_job(name="n" * 253))
    write = REPORTER.create_failure(job, ReplicaAssignment("worker", 0, "a"), "é" * 2000, 1.0)
    assert len(body(write)["note"].encode()) <= 1024
    assert len(write.name) <= 253
    assert body(write)["note"].endswith("é..")


def test_an_operator_without_a_name_reports_all_the_same() -> None:
    assert body(EventBuilder("").decision(JOB, reason(Code.STARTED), 1.0))["reportingInstance"] == "operator"
