"""Rows of pods: owner, usage and phase."""

from __future__ import annotations

from typing import Any

import pytest

from sterna.backends.kubernetes.api.job import PodState, ReplicaAssignment
from sterna.backends.kubernetes.pods.pod_builder import pod_of
from sterna.backends.kubernetes.pods.pod_rows import pending_serving_pod, pod_row
from sterna.kinds.parse import parse_job
from sterna.kinds.parsed_job import PodOwnership
from sterna.kinds.pod import is_plain_job
from sterna.kinds.resource import PODS
from sterna.model.cluster import Shape
from tests.unit.kinds.kind_builders import group, parsed_job, pod_object, tf_job

Object = dict[str, Any]


def a_pod(
    spec: Object | None = None, status: Object | None = None, containers: tuple[str, ...] = ("main",), **meta: Any
) -> Object:
    names = [{"name": name, "resources": {"requests": {"cpu": "1"}}} for name in containers]
    return {
        "metadata": {"name": "p", **meta},
        "spec": {"containers": names, "nodeName": "a", **(spec or {})},
        "status": {"phase": "Running", **(status or {})},
    }


def terminated_container(name: str, code: int, message: str = "", reason: str = "") -> Object:
    return {"name": name, "state": {"terminated": {"exitCode": code, "message": message, "reason": reason}}}


def running(name: str, restarts: int = 0) -> Object:
    state = {"running": {"startedAt": "2024-05-01T12:00:10Z"}}
    return {"name": name, "restartCount": restarts, "state": state}


OURS: Object = {
    "labels": {"sterna.dev/job": "digits", "sterna.dev/type": "worker", "sterna.dev/index": "3"},
    "ownerReferences": [
        {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "digits", "uid": "u", "controller": True}
    ],
}


def test_a_pod_that_was_made_is_known_again() -> None:
    job = parsed_job(tf_job({"PS": group(), "Worker": group(2, gpus=1, cpu="500m", memory="1Gi")}))
    gang = [ReplicaAssignment("ps", 0, "a"), ReplicaAssignment("worker", 0, "b")]
    row = pod_row(pod_object(pod_of(job, gang[1], gang, attempt=4)))
    assert (row.key, row.node) == ("default/digits-worker-0", "b")
    assert (row.job, row.owner_uid) == ("default/digits", "uid-1")
    assert (row.type, row.index, row.attempt) == ("worker", 0, 4)
    assert (row.devices, row.cpus, row.memory_bytes) == (1000, 500, 1 << 30)
    assert row.assignment
    assert row.state is PodState.PENDING


def test_a_foreign_pod_is_only_counted() -> None:
    row = pod_row(pod_object(a_pod(status={"containerStatuses": [terminated_container("main", 1)]})))
    assert (row.job, row.type, row.index, row.exit_code) == ("", "", -1, None)
    assert row.cpus == 1000


def test_an_invalid_quantity_of_a_foreign_pod_counts_as_zero() -> None:
    odd = {"containers": [{"name": "x", "resources": {"requests": {"cpu": "lots"}}}]}
    assert pod_row(pod_object(a_pod(odd))).cpus == 0


PHASES = [
    ("Pending", PodState.PENDING, False),
    ("Running", PodState.RUNNING, False),
    ("Unknown", PodState.RUNNING, False),
    ("Succeeded", PodState.SUCCEEDED, True),
    ("Failed", PodState.FAILED, True),
    ("", PodState.PENDING, False),
]


@pytest.mark.parametrize(("phase", "state", "is_terminated"), PHASES)
def test_the_phase_of_a_pod_is_read(phase: str, state: PodState, is_terminated: bool) -> None:
    row = pod_row(pod_object(a_pod(status={"phase": phase})))
    assert (row.state, row.is_terminated) == (state, is_terminated)


DELETED: Object = {"deletionTimestamp": "2024-05-01T12:01:00Z"}


@pytest.mark.parametrize(
    ("statuses", "is_terminated"),
    [
        ([], False),
        ([running("main"), terminated_container("side", 0)], False),
        ([terminated_container("main", 143)], False),
        ([terminated_container("main", 143), terminated_container("side", 0)], True),
    ],
)
def test_a_deleted_pod_uses_its_node_until_its_containers_have_ended(
    statuses: list[Object], is_terminated: bool
) -> None:
    pod = a_pod(status={"containerStatuses": statuses}, containers=("main", "side"), **DELETED)
    row = pod_row(pod_object(pod))
    assert row.is_deleting
    assert row.deletes_at == 1714564860.0
    assert row.is_terminated is is_terminated


def test_the_termination_of_the_training_container_is_reported() -> None:
    statuses = [
        terminated_container("sidecar", 0, "bye"),
        terminated_container("tensorflow", 143, '{"saved": true, "step": 9}', "Error"),
    ]
    pod = a_pod(status={"phase": "Failed", "containerStatuses": statuses}, containers=("sidecar", "tensorflow"), **OURS)
    row = pod_row(pod_object(pod))
    assert (row.exit_code, row.reason) == (143, "Error")
    assert row.message == '{"saved": true, "step": 9}'


def test_a_container_that_comes_again_has_no_exit_code_but_its_last_words() -> None:
    status = {
        "name": "main",
        "restartCount": 2,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "message": "out of data"}},
    }
    row = pod_row(pod_object(a_pod(status={"containerStatuses": [status]}, **OURS)))
    assert (row.exit_code, row.restarts) == (None, 2)
    assert (row.reason, row.message) == ("CrashLoopBackOff", "out of data")


@pytest.mark.parametrize("reason", ["OutOfcpu", "NodeAffinity", "Evicted"])
def test_a_refusal_of_the_kubelet_has_its_reason(reason: str) -> None:
    row = pod_row(pod_object(a_pod(status={"phase": "Failed", "reason": reason, "message": "no room"}, **OURS)))
    assert (row.state, row.reason, row.message, row.exit_code) == (PodState.FAILED, reason, "no room", None)


def test_a_pod_that_is_only_being_prepared_is_in_no_trouble() -> None:
    waiting = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}
    assert pod_row(pod_object(a_pod(status={"phase": "Pending", "containerStatuses": [waiting]}, **OURS))).reason == ""


def test_when_it_began_is_when_the_container_began() -> None:
    row = pod_row(pod_object(a_pod(status={"containerStatuses": [running("main", 1)]}, **OURS)))
    assert (row.started_at, row.restarts) == (1714564810.0, 1)


def mpi_labels(role: str, **more: str) -> dict[str, str]:
    labels = {"job-name": "keras", "job-role": role, "operator-name": "mpi-operator", **more}
    return {f"training.kubeflow.org/{key}": value for key, value in labels.items()}


@pytest.mark.parametrize(
    ("at", "deleted", "reason"),
    [
        ("12:00:00", None, "DeletionByTaintManager"),
        ("12:00:00", "12:00:30", "DeletionByTaintManager"),
        ("12:00:02", "12:00:30", "DeletionByTaintManager"),
        ("12:05:00", "12:00:30", ""),
    ],
    ids=["before its deletion", "with it", "by a clock that is ahead", "after its user deleted it"],
)
def test_a_disruption_is_a_condition_from_before_the_deletion(at: str, deleted: str | None, reason: str) -> None:
    """DRAGON-50."""
    since = {"lastTransitionTime": f"2024-05-01T{at}Z"}
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", **since}
    meta: Object = {"deletionTimestamp": f"2024-05-01T{deleted}Z", "deletionGracePeriodSeconds": 30} if deleted else {}
    assert pod_row(pod_object(a_pod(status={"conditions": [condition]}, **OURS, **meta))).disruption == reason


@pytest.mark.parametrize(
    ("granted", "withheld"),
    [({"requests": {"cpu": "200m"}}, (1714564800.0, 200)), ({}, None), ({"requests": {"cpu": "?"}}, None), ("?", None)],
)
def test_a_resize_that_waits_for_room_is_known_with_what_the_pod_has(granted: object, withheld: object) -> None:
    since = {"lastTransitionTime": "2024-05-01T12:00:00Z"}
    condition = {"type": "PodResizePending", "status": "True", "reason": "Deferred", **since}
    status = {"conditions": [condition], "containerStatuses": [{**running("main"), "resources": granted}]}
    assert pod_row(pod_object(a_pod(status=status, **OURS))).withheld == withheld


def test_pods_of_the_mpi_operator_are_known_by_its_labels() -> None:
    owner = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "keras", "uid": "u", "controller": True}
    worker = a_pod(labels=mpi_labels("worker", **{"replica-index": "2"}), ownerReferences=[owner])
    row = pod_row(pod_object(worker))
    assert (row.job, row.owner_uid, row.type, row.index) == ("default/keras", "u", "worker", 2)
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "keras-launcher", "uid": "j", "controller": True}
    row = pod_row(pod_object(a_pod(labels=mpi_labels("launcher"), ownerReferences=[job])))
    assert (row.job, row.owner_uid, row.type, row.index) == ("default/keras", "", "launcher", 0)


def test_what_kubeshare_made_is_marked_so_that_it_is_not_charged_twice() -> None:
    """DRAGON-38."""
    dummy = pod_object(a_pod(name="kubeshare-vgpu-node1-abcde"))
    owner = {"apiVersion": "kubeshare.nthu/v1", "kind": "SharePod", "name": "digits-worker-0", "uid": "s"}
    labels = {"sterna.dev/job": "digits", "sterna.dev/type": "worker", "sterna.dev/index": "0"}
    made = a_pod(
        labels=labels,
        ownerReferences=[{**owner, "controller": True}],
        annotations={"kubeshare/GPUID": "abcde"},
    )
    row = pod_row(pod_object(made))
    assert pod_row(dummy).is_kubeshare
    assert row.is_kubeshare
    assert (row.job, row.type, row.index, row.gpu_id) == ("default/digits", "worker", 0, "abcde")
    assert not pod_row(pod_object(a_pod())).is_kubeshare


def test_limits_are_counted_for_the_possible_load_of_a_node() -> None:
    """DRAGON-64."""
    limits = {"containers": [{"name": "x", "resources": {"limits": {"cpu": "4", "memory": "8Gi"}}}]}
    row = pod_row(pod_object(a_pod(limits)))
    assert (row.limit_cpus, row.limit_memory_bytes) == (4000, 8 << 30)


PLAIN: Object = {"labels": {"sterna.dev/job": "p"}}


def test_a_labelled_pod_is_a_job_of_one_worker() -> None:
    """DRAGON-80."""
    pod = pod_object(
        a_pod({"terminationGracePeriodSeconds": 60}, annotations={"sterna.dev/csv": "/data/p.csv"}, **PLAIN)
    )
    assert is_plain_job(pod)
    job = parse_job(pod, PODS)
    assert (job.spec.minimum, job.spec.maximum, job.ownership) == (1, 1, PodOwnership.BARE_POD)
    assert job.shape == Shape(0, 1000)
    assert job.spec.grace_seconds == 60
    assert job.spec.progress.sources["csv"] == "/data/p.csv"
    row = pod_row(pod)
    assert (row.job, row.owner_uid, row.type, row.index) == ("default/p", "uid-1", "worker", 0)


@pytest.mark.parametrize("meta", [{}, {**PLAIN, **OURS}, {**PLAIN, "annotations": {"SERVING_POD": "true"}}])
def test_a_pod_that_others_look_after_is_no_plain_job(meta: Object) -> None:
    assert not is_plain_job(pod_object(a_pod(**meta)))


@pytest.mark.parametrize(("text", "is_serving"), [("true", True), ("True", True), ("false", False), ("", False)])
def test_a_serving_pod_is_recognized_by_its_annotation(text: str, is_serving: bool) -> None:
    """DRAGON-54."""
    pod = pod_object(a_pod({"nodeSelector": {"gpu": "yes"}}, annotations={"SERVING_POD": text}))
    assert pod_row(pod).is_serving is is_serving
    reservation = pending_serving_pod(pod)
    assert (reservation.name, reservation.since) == ("default/p", 1714564800.0)
    assert (reservation.shape, reservation.needs.selector) == (Shape(0, 1000), (("gpu", "yes"),))
