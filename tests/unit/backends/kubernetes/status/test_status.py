"""The status of a job: its content, and when a write is skipped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sterna.backends.kubernetes.api.job import KubeJob, PersistedState, PodState, ReplicaAssignment
from sterna.backends.kubernetes.api.resources import Urgency, Verb
from sterna.backends.kubernetes.cache.progress import JobProgressView
from sterna.backends.kubernetes.lifecycle.conditions import end_condition
from sterna.backends.kubernetes.lifecycle.verdict import Verdict, VerdictKind
from sterna.backends.kubernetes.status.status import (
    StatusInput,
    StatusStorage,
    annotations_write,
    duration_text,
    invalid_status,
    persisted_fields,
    progress_fields,
    status_of,
    status_storage,
    status_write,
)
from sterna.kinds.labels import MEMORY, PHASE, REASON
from sterna.kinds.parsed_job import CleanPods, PodOwnership
from sterna.model.reason import Code, Reason
from tests.unit.backends.kubernetes.replica_builders import kube_job, parsed_job, pod, tf_job, workers_at

PS = ReplicaAssignment("ps", 0, "a")
W = workers_at("a", "b")
COMPLETED = Verdict(VerdictKind.COMPLETED, reason="TFJobSucceeded", sentence="completed.")


def running(**more: Any) -> KubeJob:
    return kube_job(tf_job(), pod(PS), pod(W[0]), pod(W[1]), first_started_at=200.0, started_at=200.0, **more)


def standing(**more: Any) -> StatusInput:
    return StatusInput([PS, *W], Reason(0, "mnist", Code.STARTED, 2), **more)


# Content.


def test_a_status_names_the_nodes_of_a_job_and_the_reason() -> None:
    """DRAGON-8."""
    status = status_of(running(), standing(), 210.0)
    assert {key: status[key] for key in status if key not in ("conditions", "sterna")} == {
        "phase": "Running",
        "workers": 2,
        "nodes": ["a", "b"],
        "reason": "started with 2 workers.",
        "replicaStatuses": {
            "PS": {"active": 1, "succeeded": 0, "failed": 0},
            "Worker": {"active": 2, "succeeded": 0, "failed": 0},
        },
        "observedGeneration": 1,
        "enqueueTime": "1970-01-01T00:01:40Z",
        "startTime": "1970-01-01T00:03:20Z",
        "startRunTime": "1970-01-01T00:03:20Z",
    }
    assert status["sterna"] == {"attempt": 1, "enqueuedAt": 100.0, "firstStartedAt": 200.0, "startedAt": 200.0}


def test_the_end_of_a_job_is_dated_and_no_replica_is_active() -> None:
    """DRAGON-8, DRAGON-45."""
    job = kube_job(tf_job(), pod(PS), pod(W[0], PodState.SUCCEEDED), pod(W[1]), ended_at=300.0)
    status = status_of(job, standing(verdict=COMPLETED), 301.0)
    assert (status["phase"], status["workers"], status["nodes"], status["reason"]) == (
        "Succeeded", 0, [], "completed.",
    )  # fmt: skip
    assert status["completionTime"] == status["finishedTime"] == "1970-01-01T00:05:00Z"
    assert status["replicaStatuses"]["Worker"] == {"active": 0, "succeeded": 2, "failed": 0}


def test_pods_that_are_kept_running_stay_active() -> None:
    """DRAGON-46."""
    job = kube_job(tf_job(clean_pods=CleanPods.NONE), pod(PS), pod(W[0], PodState.SUCCEEDED))
    status = status_of(job, standing(verdict=COMPLETED), 301.0)
    assert status["replicaStatuses"]["PS"]["active"] == 1


def test_only_what_is_remembered_changes_after_the_end() -> None:
    job = running(ended_at=300.0)
    job.status = status_of(job, standing(verdict=COMPLETED), 300.0)
    job.pods.clear()
    job.persisted.lost_seconds = 5.0
    status = status_of(job, StatusInput(), 400.0)
    assert {**status, "sterna": {}} == {**job.status, "sterna": {}}
    assert status["sterna"]["lostSeconds"] == 5.0


def test_a_failed_job_has_a_reason_and_a_message() -> None:
    verdict = Verdict(VerdictKind.FAILED, reason="DeadlineExceeded", sentence="failed: too long.")
    status = status_of(running(), standing(verdict=verdict), 300.0)
    assert end_condition(status["conditions"]) == "Failed"
    assert (status["conditions"][-1]["reason"], status["reason"]) == ("DeadlineExceeded", "failed: too long.")


def test_a_pod_that_cannot_start_is_in_the_status() -> None:
    job = kube_job(parsed_job(), pod(W[0], PodState.PENDING, reason="ErrImagePull"))
    status = status_of(job, StatusInput(W[:1]), 10.0)
    assert status["reason"] == (
        "waits: worker-0 cannot start on a: its image cannot be pulled (ErrImagePull); check the image's name and the "
        "pull secret."
    )


@pytest.mark.parametrize(
    ("job", "stands", "sentence"),
    [
        pytest.param(
            kube_job(parsed_job()),
            StatusInput(W[:1]),
            "waits: its place is being cleared by those who leave it.",
            id="seated, no pod yet",
        ),
        pytest.param(kube_job(parsed_job()), StatusInput(), "waits for its turn.", id="nothing decided yet"),
        pytest.param(
            kube_job(parsed_job(is_suspended=True)),
            StatusInput(),
            "is suspended; set suspend to false to let it run.",
            id="suspended",
        ),
        pytest.param(
            kube_job(parsed_job()),
            StatusInput(sentence="waits: quota exceeded."),
            "waits: quota exceeded.",
            id="refused",
        ),
    ],
)
def test_every_state_has_its_sentence(job: KubeJob, stands: StatusInput, sentence: str) -> None:
    assert status_of(job, stands, 10.0)["reason"] == sentence


def test_progress_is_shown_in_figures_and_words() -> None:
    view = JobProgressView(50, 200, "loss", 0.5, "progressing", 750.0, 600.0, 12_000.0)
    assert progress_fields(view) == {
        "step": 50,
        "total": 200,
        "percent": 25,
        "metric": "loss",
        "value": 0.5,
        "growth": "progressing",
        "eta": "12m",
        "etaLow": "10m",
        "etaHigh": "3h20m",
    }


def test_progress_that_is_no_number_is_left_out() -> None:
    assert progress_fields(JobProgressView(value=float("nan"), eta_seconds=float("inf"))) == {}


def test_the_last_known_progress_stays() -> None:
    job = running(status={"progress": {"step": 5}})
    assert status_of(job, standing(), 210.0)["progress"] == {"step": 5}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0s"), (59.4, "59s"), (59.6, "1m"), (3569, "59m"), (3599, "1h"), (3661, "1h1m"), (86_399, "1d"),
        (90_000, "1d1h"),
    ],
)  # fmt: skip
def test_durations_have_two_figures(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_an_invalid_job_has_a_condition_and_keeps_its_status() -> None:
    """DRAGON-2."""
    status = invalid_status("TFJob", "mnist", {"startTime": "x", "nodes": ["a"]}, "no container.", 3, 10.0)
    assert (status["phase"], status["reason"], status["observedGeneration"]) == ("Failed", "no container.", 3)
    assert status["startTime"] == "x"


@pytest.mark.parametrize(
    "conditions", [None, "x", [1, "x", None], {"type": "Failed"}, [{"status": "True"}], [{"type": []}]]
)
def test_a_spoilt_status_does_no_harm(conditions: object) -> None:
    job = running(status={"conditions": conditions})
    assert status_of(job, standing(), 210.0)["phase"] == "Running"


# What is written.


def test_a_new_status_is_one_patch_that_tests_the_uid() -> None:
    job = running()
    write = status_write(
        job.parsed_job.ref, {}, status_of(job, standing(), 210.0), StatusStorage.WHOLE, Urgency.VERDICT
    )
    assert write is not None
    assert (write.verb, write.subresource, write.urgency, write.slot) == (
        Verb.JSON_PATCH, "status", Urgency.VERDICT, "status/uid-mnist",
    )  # fmt: skip
    test, add = json.loads(write.body)
    assert test == {"op": "test", "path": "/metadata/uid", "value": "uid-mnist"}
    assert (add["op"], add["path"], add["value"]["phase"]) == ("add", "/status", "Running")


def test_an_unchanged_status_is_not_written() -> None:
    job = running()
    job.status = json.loads(json.dumps(status_of(job, standing(), 210.0)))
    again = status_of(job, standing(), 999.0)
    assert status_write(job.parsed_job.ref, job.status, again, StatusStorage.WHOLE) is None


def test_kubeflows_definitions_get_only_what_they_keep() -> None:
    job = running()
    write = status_write(job.parsed_job.ref, {}, status_of(job, standing(), 210.0), StatusStorage.KUBEFLOW)
    assert write is not None
    value = json.loads(write.body)[1]["value"]
    assert sorted(value) == ["conditions", "replicaStatuses", "startTime"]


def test_what_kubeflow_drops_is_no_reason_to_write_again() -> None:
    job = running()
    status = status_of(job, standing(), 210.0)
    kept = {key: status[key] for key in ("conditions", "replicaStatuses", "startTime")}
    assert status_write(job.parsed_job.ref, kept, status, StatusStorage.KUBEFLOW) is None
    assert status_write(job.parsed_job.ref, status, status, StatusStorage.KUBEFLOW) is None


def test_what_others_put_into_a_status_stays() -> None:
    job = running()
    write = status_write(job.parsed_job.ref, {"lastReconcileTime": "t"}, {"phase": "Waiting"}, StatusStorage.WHOLE)
    assert write is not None
    assert json.loads(write.body)[1]["value"] == {"lastReconcileTime": "t", "phase": "Waiting"}


def test_memory_of_a_kubeflow_job_is_an_annotation() -> None:
    job = running()
    write = annotations_write(job, status_of(job, standing(), 210.0), {}, StatusStorage.KUBEFLOW)
    assert write is not None
    assert (write.verb, write.subresource) == (Verb.MERGE, "")
    meta = json.loads(write.body)["metadata"]
    assert meta["uid"] == "uid-mnist"
    assert json.loads(meta["annotations"][MEMORY])["attempt"] == 1
    assert list(meta["annotations"]) == [MEMORY]


def test_objects_with_a_foreign_status_have_phase_and_message_as_annotations() -> None:
    job = kube_job(parsed_job("MPIJob", 2), pod(W[0]), pod(W[1]))
    status = status_of(job, StatusInput(W), 10.0)
    assert status_write(job.parsed_job.ref, {}, status, StatusStorage.ANNOTATIONS) is None
    write = annotations_write(job, status, {}, StatusStorage.ANNOTATIONS)
    assert write is not None
    annotations = json.loads(write.body)["metadata"]["annotations"]
    assert (annotations[PHASE], annotations[REASON]) == ("Running", "has its place.")
    assert annotations_write(job, status, annotations, StatusStorage.ANNOTATIONS) is None


def test_kinds_of_ours_have_no_annotations() -> None:
    assert annotations_write(running(), {}, {}, StatusStorage.WHOLE) is None


@pytest.mark.parametrize(
    ("ownership", "is_ours", "expected"),
    [
        (PodOwnership.OPERATOR, True, StatusStorage.WHOLE),
        (PodOwnership.KUBESHARE, True, StatusStorage.WHOLE),
        (PodOwnership.OPERATOR, False, StatusStorage.KUBEFLOW),
        (PodOwnership.MPI_OPERATOR, False, StatusStorage.ANNOTATIONS),
        (PodOwnership.BARE_POD, False, StatusStorage.ANNOTATIONS),
    ],
)
def test_where_a_status_is_kept_depends_on_whose_definition_it_is(
    ownership: PodOwnership, is_ours: bool, expected: StatusStorage
) -> None:
    assert status_storage(ownership, is_ours) is expected


def test_what_is_no_number_is_not_remembered() -> None:
    assert persisted_fields(PersistedState(value=float("nan"), attained=float("inf"), moves=2)) == {"moves": 2}
