"""Views of cluster objects: states, reasons, times, progress; bounds as patches; positions in logs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sterna.backends.kubernetes.query.listing import EventObject, JobListing
from sterna.backends.kubernetes.query.logs import Logs
from sterna.backends.kubernetes.query.reader import ApiReader
from sterna.backends.kubernetes.query.scaling import bounds_asked, bounds_patch
from sterna.backends.kubernetes.query.views import job_view, seconds_in
from sterna.backends.kubernetes.status.status import duration_text
from sterna.errors import UserError
from sterna.kinds.mpi_job import MPI_JOBS
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.parse import parse_job
from sterna.kinds.pytorch_job import PYTORCH_JOBS
from sterna.kinds.resource import PODS, Resource
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from sterna.service.views import JobView
from tests.unit.cli.cluster_builders import Lab, tf_job, training_job

NOW = Lab().now + 100.0


def list_views(kube: Lab) -> list[JobView]:
    """Everything in a cluster, as people see it."""
    listing = JobListing()
    for resource, type_ in ((TRAINING_JOBS, JobObject), (TF_JOBS, JobObject), (MPI_JOBS, JobObject), (PODS, Pod)):
        for each in kube.items(resource):
            listing.add(resource, msgspec.convert(each, type_) if type_ is Pod else _decode(each))
    return [job_view(job, NOW) for job in listing.jobs()]


def _decode(each: dict[str, Any]) -> JobObject:
    return msgspec.json.decode(msgspec.json.encode(each), type=JobObject)


def a_job(kube: Lab, status: dict[str, Any] | None = None, pods: tuple[str, ...] = ()) -> JobView:
    job = kube.training_job("a", workers="1:4")
    if status is not None:
        kube.set_status("a", status)
    for index, phase in enumerate(pods):
        kube.pod_of(job, index, "node-1", phase)
    return list_views(kube)[0]


SUCCEEDED = {"type": "Succeeded", "status": "True", "message": "all replicas have ended."}
FAILED = {"type": "Failed", "status": "True", "message": "worker-0 ended with exit code 1."}
INVALID = {"type": "Failed", "status": "True", "reason": "InvalidTrainingJobSpec", "message": "spec.image is missing."}

EVICTED = {"type": "Failed", "status": "True", "reason": "MPIJobEvicted", "message": "1/2 workers are evicted"}
"""The condition that the MPI operator sets, and the job goes on."""


@pytest.mark.parametrize(
    ("status", "pods", "state"),
    [
        (None, (), "waiting"),
        ({"phase": "Waiting"}, (), "waiting"),
        ({"phase": "Starting"}, ("Pending",), "waiting"),
        ({"phase": "Starting"}, ("Running", "Pending"), "running"),
        ({"phase": "Running"}, ("Running",), "running"),
        ({"phase": "Suspended"}, (), "waiting"),
        ({"phase": "Succeeded"}, ("Succeeded",), "completed"),
        ({"conditions": [SUCCEEDED]}, (), "completed"),
        ({"conditions": [FAILED]}, ("Failed",), "failed"),
        ({"conditions": [INVALID]}, (), "failed"),
        ({"conditions": [EVICTED]}, ("Running",), "running"),
    ],
)
def test_states_are_those_of_a_local_cluster(status: dict[str, Any], pods: tuple[str, ...], state: str) -> None:
    job = a_job(Lab(), status, pods)
    assert job.state == state
    assert job.workers == (sum(phase in ("Running", "Pending") for phase in pods))


def test_a_job_whose_pods_all_leave_stops() -> None:
    kube = Lab()
    a_job(kube, {"phase": "Running"}, ("Running",))
    kube.delete(PODS, "a-worker-0")
    assert (list_views(kube)[0].state, list_views(kube)[0].workers) == ("stopping", 0)
    assert list_views(kube)[0].replicas[0].state == "stopping"


def test_a_job_in_deletion_is_shown_as_such() -> None:
    kube = Lab()
    a_job(kube)
    kube.patch(TRAINING_JOBS, "a", {"metadata": {"finalizers": ["x/y"]}})
    kube.delete(TRAINING_JOBS, "a")
    assert list_views(kube)[0].state == "deleting"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (None, "waits: no operator has looked at it yet; see that one runs."),
        ({"reason": "waits: 2 more devices needed (0 free)."}, "waits: 2 more devices needed (0 free)."),
        ({"conditions": [{"type": "Scheduled", "status": "False", "message": "waits."}]}, "waits."),
        ({"conditions": [{"type": "Scheduled", "message": "has its place."}, FAILED]}, FAILED["message"]),
    ],
    ids=["nobody", "status", "kubeflow", "ended"],
)
def test_the_reason_is_what_was_said_last(status: dict[str, Any], reason: str) -> None:
    assert a_job(Lab(), status).reason == reason


def test_times_add_up() -> None:
    """VODA: TOTAL is WAITING and RUNNING together."""
    kube = Lab()
    memory = {"executed": 30.0, "countedFrom": NOW - 20, "firstStartedAt": NOW - 90, "moves": 2, "restarts": 1}
    job = a_job(kube, {"phase": "Running", "sterna": memory}, ("Running",))
    assert (job.ran_seconds, job.waited_seconds) == (50.0, 50.0)
    assert (job.moves, job.restarts, job.first_started_at) == (2, 1, NOW - 90)
    kube.set_status("a", {"conditions": [SUCCEEDED], "sterna": {**memory, "countedFrom": None, "endedAt": NOW - 40}})
    job = list_views(kube)[0]
    assert (job.ran_seconds, job.waited_seconds, job.ended_at) == (30.0, 30.0, NOW - 40)


def test_progress_is_read_from_the_status() -> None:
    progress = {"step": 5, "total": 10, "metric": "loss", "value": 0.25, "growth": "watching", "eta": "3h20m"}
    job = a_job(Lab(), {"phase": "Running", "progress": progress}, ("Running",))
    assert (job.step, job.total, job.metric, job.value, job.growth) == (5, 10, "loss", 0.25, "watching")
    assert (job.eta_seconds, job.eta_low_seconds) == (12000.0, None)


@pytest.mark.parametrize("seconds", [0.0, 45.0, 720.0, 12_000.0, 190_800.0])
def test_spans_are_read_as_they_are_written(seconds: float) -> None:
    assert seconds_in(duration_text(seconds)) == seconds


def test_persisted_fields_of_foreign_kinds_are_in_an_annotation() -> None:
    kube = Lab()
    job = tf_job("t")
    job["metadata"]["annotations"] = {"sterna.dev/memory": '{"executed": 7, "step": 3}', "sterna.dev/reason": "runs."}
    kube.create(TF_JOBS, job)
    (view,) = list_views(kube)
    assert (view.kind, view.ran_seconds, view.step, view.reason) == ("TFJob", 7.0, 3, "runs.")


def test_a_plain_pod_is_its_own_worker() -> None:
    """DRAGON-80."""
    kube = Lab()
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "node-1"}
    kube.create(PODS, {"metadata": {"name": "p", "labels": {"sterna.dev/job": "true"}}, "spec": spec})
    kube.patch(PODS, "p", {"status": {"phase": "Running"}}, "status")
    (view,) = list_views(kube)
    assert (view.name, view.kind, view.state, view.workers, view.nodes) == ("p", "Pod", "running", 1, ["node-1"])


def test_a_plain_pod_waits_for_its_own_scheduler() -> None:
    """DRAGON-90."""
    kube = Lab()
    spec = {"containers": [{"name": "c", "image": "i"}]}
    kube.create(PODS, {"metadata": {"name": "p", "labels": {"sterna.dev/job": "true"}}, "spec": spec})
    (view,) = list_views(kube)
    assert (view.state, view.reason) == ("waiting", "waits: its own scheduler has not found it a node yet.")


def test_objects_that_cannot_be_read_are_shown_with_what_is_wrong() -> None:
    kube = Lab()
    kube.create(TRAINING_JOBS, training_job("a", workers="many"))
    (view,) = list_views(kube)
    assert view.state == "waiting"
    assert "spec.workers" in view.reason


def test_events_of_others_are_left_out() -> None:
    listing = JobListing()
    for number, kind in enumerate(("Deployment", "TFJob")):
        event = {"metadata": {"uid": str(number)}, "regarding": {"kind": kind, "name": "x"}}
        listing.add(TF_JOBS, msgspec.convert(event, EventObject))
    assert [event.regarding.kind for event in listing.events()] == ["TFJob"]


# Bounds.


def elastic(job: dict[str, Any]) -> dict[str, Any]:
    return {**job, "spec": {**job["spec"], "min-instances": 1, "max-instances": 4}}


def pytorch_job(is_elastic: bool) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}
    policy = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3}} if is_elastic else {}
    return {
        "metadata": {"name": "p"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}, **policy},
    }


def mpi_job() -> dict[str, Any]:
    spec = {"schedulerName": "sterna", "containers": [{"name": "c", "image": "i", "command": ["mpirun"]}]}
    group = {"replicas": 2, "template": {"spec": spec}}
    return {
        "metadata": {"name": "m"},
        "spec": {"mpiReplicaSpecs": {"Launcher": {**group, "replicas": 1}, "Worker": group}},
    }


ANNOTATED = {"sterna.dev/min-workers": "2", "sterna.dev/max-workers": "3"}


@pytest.mark.parametrize(
    ("resource", "job", "spec", "annotations"),
    [
        (TRAINING_JOBS, training_job("a"), {"workers": {"min": 2, "max": 3, "request": 2}}, None),
        (TF_JOBS, elastic(tf_job("t")), {"min-instances": 2, "max-instances": 3}, None),
        (TF_JOBS, tf_job("t"), None, ANNOTATED),
        (PYTORCH_JOBS, pytorch_job(True), {"elasticPolicy": {"minReplicas": 2, "maxReplicas": 3}}, None),
        (PYTORCH_JOBS, pytorch_job(False), None, ANNOTATED),
        (MPI_JOBS, mpi_job(), None, ANNOTATED),
    ],
    ids=["trainingjob", "tfjob", "tfjob-of-kubeflow", "pytorchjob-elastic", "pytorchjob", "mpijob"],
)
def test_bounds_are_said_in_the_words_of_the_kind(
    resource: Resource, job: dict[str, Any], spec: Any, annotations: Any
) -> None:
    object_ = _decode({**job, "metadata": {**job["metadata"], "namespace": "default", "resourceVersion": "7"}})
    patch = bounds_patch(object_, parse_job(object_, resource), 2, 3)
    assert patch.get("spec") == spec
    assert patch["metadata"].get("annotations") == annotations
    assert patch["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize(
    ("minimum", "maximum", "bounds"),
    [(1, 4, (1, 4)), (3, None, (3, 3)), (5, None, (5, 5)), (None, 1, (1, 1)), (None, 8, (2, 8))],
)
def test_one_bound_moves_the_other_where_it_must(
    minimum: int | None, maximum: int | None, bounds: tuple[int, int]
) -> None:
    object_ = _decode(training_job("a", workers="2:3"))
    assert bounds_asked(parse_job(object_, TRAINING_JOBS), minimum, maximum) == bounds


@pytest.mark.parametrize(("minimum", "maximum"), [(0, 4), (3, 2), (None, 0)])
def test_bounds_that_cannot_be_are_refused(minimum: int | None, maximum: int | None) -> None:
    object_ = _decode(training_job("a", workers="2:3"))
    with pytest.raises(UserError, match="workers are not possible"):
        bounds_asked(parse_job(object_, TRAINING_JOBS), minimum, maximum)


# Logs.


def reader(kube: Lab) -> Callable[..., tuple[str, int]]:
    logs = Logs(ApiReader(kube.client()))

    def read_log(offset: int, pod: str = "a-worker-0", limit: int = 1 << 20) -> tuple[str, int]:
        text, end = logs.read(msgspec.convert(kube.get(PODS, pod), Pod), ("u", "worker-0"), offset, limit)
        return text.decode(), end

    return read_log


def a_pod(kube: Lab) -> list[tuple[str, str]]:
    kube.pod_of(kube.training_job("a"), 0, "node-1")
    lines = kube.logs["default/a-worker-0"] = []
    return lines


def test_a_log_goes_on_where_it_was_left() -> None:
    kube = Lab()
    lines, read_log = a_pod(kube), reader(kube)
    lines += [("2025-06-15T15:06:40.1Z", "one\n"), ("2025-06-15T15:06:40.12Z", "two\n")]
    assert read_log(0) == ("one\ntwo\n", 8)
    assert read_log(8) == ("", 8)
    lines += [("2025-06-15T15:06:40.12Z", "three\n"), ("2025-06-15T15:06:40.2Z", "four\n")]
    assert read_log(8) == ("three\nfour\n", 19)
    assert read_log(19) == ("", 19)
    assert read_log(4) == ("two\nthree\nfour\n", 19)


def test_a_long_log_is_read_in_parts() -> None:
    kube = Lab()
    lines, read_log = a_pod(kube), reader(kube)
    lines += [(f"2025-06-15T15:06:4{n}Z", f"line {n}\n") for n in range(3)]
    assert read_log(0, limit=10) == ("line 0\nlin", 10)
    assert read_log(10, limit=10) == ("e 1\nline 2", 20)
    assert read_log(20, limit=10) == ("\n", 21)


def test_a_pod_in_another_s_place_goes_on_with_its_log() -> None:
    kube = Lab()
    lines, read_log = a_pod(kube), reader(kube)
    lines.append(("2025-06-15T15:06:40Z", "old\n"))
    assert read_log(0) == ("old\n", 4)
    kube.delete(PODS, "a-worker-0", gracePeriodSeconds=0)
    kube.pod_of(kube.get(TRAINING_JOBS, "a"), 0, "node-1")
    kube.logs["default/a-worker-0"] = [("2025-06-15T15:06:39Z", "new\n")]
    assert read_log(4) == ("new\n", 8)
    assert read_log(8) == ("", 8)


def test_the_end_of_a_log_is_read_alone() -> None:
    kube = Lab()
    lines, read_log = a_pod(kube), reader(kube)
    lines += [(f"2025-06-15T15:06:4{n}Z", f"line {n}\n") for n in range(9)]
    text, end = read_log(-32)
    assert text == "line 6\nline 7\nline 8\n"
    lines.append(("2025-06-15T15:06:59Z", "line 9\n"))
    assert read_log(end)[0] == "line 9\n"


def test_a_log_without_times_is_read_too() -> None:
    kube = Lab()
    lines, read_log = a_pod(kube), reader(kube)
    lines.append(("", "plain\n"))
    assert read_log(0)[0].strip() == "plain"
