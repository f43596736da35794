"""The progress spec of a job reaches the monitor of its node, which sees pods and no jobs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sterna.backends.kubernetes.api.job import ReplicaAssignment
from sterna.backends.kubernetes.monitor.pods import NodePod, is_csv_guessed, progress_of
from sterna.backends.kubernetes.pods.pod_builder import pod_of
from sterna.kinds.labels import PROGRESS
from sterna.model.job import ProgressSpec
from tests.unit.kinds.kind_builders import Object, group, parsed_job, pytorch_job, tf_job, training_job


def as_a_monitor_sees_it(manifest: Object) -> NodePod:
    """The first worker's pod."""
    job = parsed_job(manifest)
    replica = ReplicaAssignment(job.spec.worker.type, 0, "node-1")
    return msgspec.json.decode(msgspec.json.encode(pod_of(job, replica, [replica], 1)), type=NodePod)


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        ({"csv": "/data/run.csv", "metric": "accuracy"}, ProgressSpec({"csv": "/data/run.csv"}, metric="accuracy")),
        ({"stdout": r"step=(?P<step>\d+)", "total": 9}, ProgressSpec({"stdout": [r"step=(?P<step>\d+)"]}, total=9)),
        ({"tensorboard": "/data/runs", "goal": "max"}, ProgressSpec({"tensorboard": "/data/runs"}, goal="max")),
    ],
)
def test_progress_fields_of_a_training_job_reach_the_monitor(progress: dict[str, Any], expected: ProgressSpec) -> None:
    pod = as_a_monitor_sees_it(training_job(progress=progress))
    assert progress_of(pod) == expected
    assert is_csv_guessed(pod) is not ("csv" in expected.sources)


@pytest.mark.parametrize(
    "manifest", [tf_job(), pytorch_job({"Worker": group(2, name="pytorch")})], ids=lambda each: each["kind"]
)
def test_progress_annotations_of_another_kind_reach_the_monitor(manifest: Object) -> None:
    manifest["metadata"]["annotations"] = {"sterna.dev/csv": "/data/run.csv", "sterna.dev/metric": "loss"}
    assert progress_of(as_a_monitor_sees_it(manifest)) == ProgressSpec({"csv": "/data/run.csv"}, metric="loss")


def test_progress_annotations_of_a_plain_pod_are_read_from_the_pod() -> None:
    meta = {"name": "job1", "labels": {"sterna.dev/job": "job1"}, "annotations": {"sterna.dev/csv": "/data/run.csv"}}
    pod = msgspec.convert({"metadata": meta}, NodePod)
    assert progress_of(pod) == ProgressSpec({"csv": "/data/run.csv"})
    assert not is_csv_guessed(pod)


def test_invalid_progress_annotations_are_ignored() -> None:
    meta = {"name": "job1", "annotations": {"sterna.dev/csv": "/data/run.csv", "sterna.dev/total": "many"}}
    assert progress_of(msgspec.convert({"metadata": meta}, NodePod)) == ProgressSpec()


def test_a_pod_of_a_job_without_progress_fields_has_no_progress_annotations() -> None:
    assert PROGRESS not in as_a_monitor_sees_it(training_job()).metadata.annotations


def test_progress_annotations_of_a_template_are_kept() -> None:
    declared = '{"csv": "/own.csv"}'
    container = {"name": "train", "image": "train"}
    template = {"metadata": {"annotations": {PROGRESS: declared}}, "spec": {"containers": [container]}}
    assert progress_of(as_a_monitor_sees_it(training_job(template=template))) == ProgressSpec({"csv": "/own.csv"})
