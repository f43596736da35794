"""Undeclared CSV files: either metrics or data of a pod. Its output is used until that is decided."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sterna.backends.kubernetes.monitor.pods import NodePod
from sterna.backends.kubernetes.monitor.reader import PodReader
from sterna.kinds.labels import JOB_LABEL, PROGRESS
from tests.unit.backends.kubernetes.monitor.monitor_builders import NOW, node_pod, roots_in, volume_folder

MPI = {"training.kubeflow.org/job-name": "mnist", "training.kubeflow.org/operator-name": "mpi-operator"}
EMPTY = {"name": "data", "emptyDir": {}}


def with_start_time(pod: NodePod) -> NodePod:
    pod.status.start_time = datetime.fromtimestamp(NOW, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return pod


def prints(tmp_path: Path, pod: NodePod, *lines: str) -> None:
    meta = pod.metadata
    folder = roots_in(tmp_path).logs / f"{meta.namespace}_{meta.name}_{meta.uid}" / "main"
    folder.mkdir(parents=True, exist_ok=True)
    entries = [f"2027-01-15T08:00:0{number}.0Z stdout F {line}\n" for number, line in enumerate(lines)]
    (folder / "0.log").write_text("".join(entries))


def keeps(tmp_path: Path, pod: NodePod, name: str, text: str, written_at: float) -> Path:
    file = volume_folder(roots_in(tmp_path), pod, "data") / name
    file.write_text(text)
    os.utime(file, (written_at, written_at))
    return file


def sources(reader: PodReader) -> list[tuple[str, float | None]]:
    return [(report.source, report.step) for report in reader.poll(is_last=True)]


@pytest.mark.parametrize(
    "pod",
    [
        node_pod(args=["train.py", "--data", "/data/train.csv"], mounts={"data": "/data"}, volumes=[EMPTY]),
        node_pod(mounts={"data": "/metrics"}, volumes=[EMPTY]),
    ],
    ids=["data among the arguments", "a folder that is called as Voda's"],
)
def test_output_is_read_where_a_guessed_file_is_not_written(tmp_path: Path, pod: NodePod) -> None:
    pod = with_start_time(pod)
    keeps(tmp_path, pod, "train.csv", "step,loss\n900,0.1\n", NOW - 3600)
    prints(tmp_path, pod, "step=3 loss=0.5")
    reader = PodReader(pod, roots_in(tmp_path))
    assert sources(reader) == [("stdout", 3)]
    reader.close()


def test_a_guessed_file_counts_alone_once_the_pod_writes_it(tmp_path: Path) -> None:
    """DRAGON-80."""
    pod = with_start_time(node_pod(args=["/data/job1.csv"], mounts={"data": "/data"}, volumes=[EMPTY]))
    reader = PodReader(pod, roots_in(tmp_path))
    assert reader.poll() == []
    keeps(tmp_path, pod, "job1.csv", f"time,step,metric\n{NOW + 2},10,0.5\n", NOW + 2)
    prints(tmp_path, pod, "step=11 loss=0.5")
    assert sources(reader) == [("csv", 10)]
    reader.close()


@pytest.mark.parametrize(
    "pod",
    [
        node_pod(mounts={"data": "/metrics"}, volumes=[EMPTY], labels=MPI | {JOB_LABEL: "mnist"}),
        node_pod(mounts={"data": "/out"}, volumes=[EMPTY], annotations={PROGRESS: '{"csv": "/out/x.csv"}'}),
    ],
    ids=["Voda's", "declared"],
)
def test_where_a_file_is_certain_output_never_counts(tmp_path: Path, pod: NodePod) -> None:
    """Its steps may be batches where the file's are epochs."""
    pod = with_start_time(pod)
    prints(tmp_path, pod, "step=3 loss=0.5")
    reader = PodReader(pod, roots_in(tmp_path))
    assert sources(reader) == []
    reader.close()
