"""Files of pods are found on their node in every kind of volume; links are not followed out of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sterna.backends.kubernetes.monitor.host_paths import place_of
from sterna.backends.kubernetes.monitor.output import ContainerOutput
from sterna.backends.kubernetes.monitor.pods import NodePod, progress_of
from sterna.backends.kubernetes.monitor.reader import PodReader
from sterna.kinds.labels import PROGRESS
from sterna.model.job import ProgressSpec
from sterna.progress.spec import progress_as_fields
from tests.unit.backends.kubernetes.monitor.monitor_builders import (
    NOW,
    agent_line,
    node_pod,
    roots_in,
    volume_folder,
)

CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "pvc1-nfs"}}


def agent_folder(pod: NodePod, folder: Path) -> Path:
    return volume_folder(roots_in(folder), pod, "sterna-agent")


# Pods of jobs, and their progress sources.


@pytest.mark.parametrize(
    ("pod", "job"),
    [
        (node_pod(), "mnist"),
        (node_pod("job7", labels={"sterna.dev/job": "true"}), "job7"),
        (node_pod(labels={"training.kubeflow.org/job-name": "vgg"}), "vgg"),
        (node_pod(labels={}, owners=[{"kind": "TFJob", "name": "resnet"}]), "resnet"),
        (node_pod(labels={}, owners=[{"kind": "ReplicaSet", "name": "web"}]), ""),
        (node_pod(labels={}), ""),
    ],
    ids=["ours", "a plain pod", "the MPI operator's", "by its owner", "somebody else's", "nobody's"],
)
def test_pods_of_jobs_are_distinguished_from_others(pod: NodePod, job: str) -> None:
    assert pod.job == job


@pytest.mark.parametrize(
    ("pod", "csv"),
    [
        (node_pod(args=["app.py", "150", "/data/job1.csv", "job1"], mounts={"data": "/data"}), "/data/job1.csv"),
        (node_pod(args=["--out=/data/job1.csv"], mounts={"data": "/data"}), "/data/job1.csv"),
        (node_pod(args=["job1.csv"], working_dir="/data", mounts={"data": "/data"}), "/data/job1.csv"),
        (node_pod(args=["/tmp/job1.csv"], mounts={"data": "/data"}), ""),
        (node_pod(mounts={"metrics": "/metrics/"}), "/metrics/mnist.csv"),
        (node_pod(), ""),
    ],
    ids=["SpeCon's argument", "in a flag", "from the working folder", "not in a volume", "Voda's", "none"],
)
def test_a_csv_file_is_found_without_being_declared(pod: NodePod, csv: str) -> None:
    """DRAGON-80: a plain pod takes part without a change."""
    assert progress_of(pod).sources.get("csv", "") == csv


def test_what_was_declared_counts_before_what_could_be_guessed() -> None:
    declared = ProgressSpec({"stdout": [r"at (?P<step>\d+)"]}, metric="bleu", goal="max", total=9)
    written = {PROGRESS: msgspec.json.encode(progress_as_fields(declared)).decode()}
    assert progress_of(node_pod(annotations=written, args=["/data/x.csv"], mounts={"d": "/data"})) == declared
    only_total = {PROGRESS: '{"total": 7}'}
    assert progress_of(node_pod(annotations=only_total, args=["/data/x.csv"], mounts={"d": "/data"})) == ProgressSpec(
        {"csv": "/data/x.csv"}, total=7
    )


@pytest.mark.parametrize("annotation", ["{", "[]", '{"csv": 3}', '{"total": -4}', "null"])
def test_a_declaration_that_is_none_changes_nothing(annotation: str) -> None:
    assert progress_of(node_pod(annotations={PROGRESS: annotation})) == ProgressSpec()


# Where files are.


@pytest.mark.parametrize(
    ("volume", "below"),
    [
        ({"emptyDir": {}}, "volumes/kubernetes.io~empty-dir/data"),
        ({"nfs": {"server": "s", "path": "/x"}}, "volumes/kubernetes.io~nfs/data"),
        ({"csi": {"driver": "d"}}, "volumes/kubernetes.io~csi/data/mount"),
    ],
    ids=["emptyDir", "nfs", "csi"],
)
def test_paths_in_a_container_are_found_below_the_kubelet_s_folder(
    tmp_path: Path, volume: dict[str, Any], below: str
) -> None:
    pod = node_pod(mounts={"data": "/data"}, volumes=[{"name": "data"} | volume])
    place = place_of(pod, "/data/run/x.csv", roots_in(tmp_path))
    assert place is not None
    assert place.path == tmp_path / "kubelet" / "pods" / pod.metadata.uid / below / "run" / "x.csv"


def test_a_hostpath_is_found_only_where_the_node_s_own_files_are_seen(tmp_path: Path) -> None:
    pod = node_pod(mounts={"data": "/data"}, volumes=[{"name": "data", "hostPath": {"path": "/mnt/export"}}])
    roots = roots_in(tmp_path)
    place = place_of(pod, "/data/x.csv", roots)
    assert place is not None
    assert place.path == tmp_path / "host" / "mnt" / "export" / "x.csv"
    assert place_of(pod, "/data/x.csv", type(roots)(roots.kubelet, roots.logs)) is None


def test_a_persistent_volume_is_the_folder_that_matches_no_other_volume_of_the_pod(tmp_path: Path) -> None:
    roots = roots_in(tmp_path)
    pod = node_pod(mounts={"data": "/data"}, volumes=[CLAIM, {"name": "cache", "emptyDir": {}}])
    assert place_of(pod, "/data/x.csv", roots) is None, "the pod is not set up yet"
    volume_folder(roots, pod, "cache")
    folder = volume_folder(roots, pod, "pv1-nfs", "kubernetes.io~nfs")
    place = place_of(pod, "/data/x.csv", roots)
    assert place is not None
    assert place.path == folder / "x.csv"


def test_among_several_persistent_volumes_the_one_with_the_file_is_used(tmp_path: Path) -> None:
    roots = roots_in(tmp_path)
    pod = node_pod(mounts={"data": "/data", "out": "/out"}, volumes=[CLAIM, CLAIM | {"name": "out"}])
    volume_folder(roots, pod, "pv-a", "kubernetes.io~nfs")
    folder = volume_folder(roots, pod, "pv-b", "kubernetes.io~csi") / "mount"
    folder.mkdir()
    assert place_of(pod, "/out/x.csv", roots) is None
    (folder / "x.csv").touch()
    place = place_of(pod, "/out/x.csv", roots)
    assert place is not None
    assert place.path == folder / "x.csv"


@pytest.mark.parametrize("path", ["", "/elsewhere/x.csv", "/data/../etc/passwd", "/database/x.csv"])
def test_paths_outside_of_what_is_mounted_are_nowhere(tmp_path: Path, path: str) -> None:
    pod = node_pod(mounts={"data": "/data"}, volumes=[{"name": "data", "emptyDir": {}}])
    assert place_of(pod, path, roots_in(tmp_path)) is None


# Reading.


def test_the_agent_s_reports_are_read_as_they_come(tmp_path: Path) -> None:
    pod = node_pod()
    reader = PodReader(pod, roots_in(tmp_path))
    assert reader.poll() == []
    file = agent_folder(pod, tmp_path) / "progress.jsonl"
    file.write_text(agent_line(1))
    assert [each.step for each in reader.poll()] == [1]
    with file.open("a") as more:
        more.write(agent_line(2) + agent_line(2, saved=True))
    assert [(each.step, each.saved) for each in reader.poll()] == [(2, False), (2, True)]
    reader.close()


def test_what_a_pod_wrote_last_is_read_though_its_files_are_gone(tmp_path: Path) -> None:
    pod = node_pod()
    reader = PodReader(pod, roots_in(tmp_path))
    file = agent_folder(pod, tmp_path) / "progress.jsonl"
    file.write_text(agent_line(1))
    reader.poll()
    with file.open("a") as more:
        more.write(agent_line(2).rstrip("\n"))
    file.unlink()
    assert [each.step for each in reader.poll(is_last=True)] == [2]
    reader.close()


def test_an_unreported_checkpoint_is_found_at_the_end(tmp_path: Path) -> None:
    pod = node_pod()
    reader = PodReader(pod, roots_in(tmp_path))
    folder = agent_folder(pod, tmp_path)
    (folder / "saved.json").write_text(f'{{"step": 41, "at": {NOW}}}')
    assert [(each.step, each.saved, each.at) for each in reader.poll(is_last=True)] == [(41, True, NOW)]
    assert reader.poll(is_last=True) == []
    reader.close()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"at": "then"}', '{"at": true}', '{"step": 1}'])
def test_a_record_of_a_checkpoint_that_is_none_is_passed_over(tmp_path: Path, content: str) -> None:
    pod = node_pod()
    reader = PodReader(pod, roots_in(tmp_path))
    (agent_folder(pod, tmp_path) / "saved.json").write_text(content)
    assert reader.poll(is_last=True) == []
    reader.close()


def test_a_csv_file_on_a_persistent_volume_is_read_once_it_is_mounted(tmp_path: Path) -> None:
    """DRAGON-80."""
    roots = roots_in(tmp_path)
    pod = node_pod(args=["/data/job1.csv"], mounts={"data": "/data"}, volumes=[CLAIM])
    reader = PodReader(pod, roots)
    assert reader.poll() == []
    file = volume_folder(roots, pod, "pv1-nfs", "kubernetes.io~nfs") / "job1.csv"
    file.write_text(f"time,step,metric\n{NOW},10,0.5\n")
    found = reader.poll()
    assert [(each.at, each.step, each.metrics) for each in found] == [(NOW, 10, {"metric": 0.5})]
    reader.close()


def test_rows_without_a_time_are_spread_over_the_life_of_the_pod(tmp_path: Path) -> None:
    pod = node_pod(args=["/data/x.csv"], mounts={"data": "/data"}, volumes=[{"name": "data", "emptyDir": {}}])
    pod.status.start_time = "2026-01-01T00:00:00Z"
    file = volume_folder(roots_in(tmp_path), pod, "data") / "x.csv"
    file.write_text("Steps,Loss,Accuracy\n10,0.5,0.1\n20,0.4,0.2\n")
    os.utime(file, (pod.started_at + 300, pod.started_at + 300))
    reader = PodReader(pod, roots_in(tmp_path))
    found = reader.poll()
    assert [(each.step, each.at - pod.started_at) for each in found] == [(10, 200.0), (20, 300.0)]
    reader.close()


@pytest.mark.parametrize("name", ["progress.jsonl", "saved.json", "x.csv"])
def test_links_out_of_a_volume_are_not_followed(tmp_path: Path, name: str) -> None:
    """A monitor may read more than a pod may; what it reads for a pod stays in the pod's own volumes."""
    secret = tmp_path / "secret"
    secret.write_text(agent_line(1) if name == "progress.jsonl" else f'{{"at": {NOW}}}\nstep,loss\n1,2\n')
    pod = node_pod(args=["/data/x.csv"], mounts={"data": "/data"}, volumes=[{"name": "data", "emptyDir": {}}])
    for folder in (agent_folder(pod, tmp_path), volume_folder(roots_in(tmp_path), pod, "data")):
        (folder / name).symlink_to(secret)
    reader = PodReader(pod, roots_in(tmp_path))
    assert reader.poll() == []
    assert reader.poll(is_last=True) == []
    reader.close()


def test_links_inside_of_a_volume_are_followed(tmp_path: Path) -> None:
    pod = node_pod()
    folder = agent_folder(pod, tmp_path)
    (folder / "real").write_text(agent_line(3))
    (folder / "progress.jsonl").symlink_to("real")
    reader = PodReader(pod, roots_in(tmp_path))
    assert [each.step for each in reader.poll()] == [3]
    reader.close()


# Output.


def entry(text: str, second: int = 0, tag: str = "F", stream: str = "stdout") -> str:
    return f"2026-01-31T12:00:{second:02}.500000000Z {stream} {tag} {text}\n"


def append_log(folder: Path, text: str, number: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{number}.log").open("a") as file:
        file.write(text)


def test_output_is_read_with_the_times_that_the_runtime_gives_it(tmp_path: Path) -> None:
    append_log(
        tmp_path,
        entry("starting") + entry("step=10/100 loss=0.5", 7) + entry("step=20/100 loss=0.4", 9, stream="stderr"),
    )
    output = ContainerOutput(tmp_path)
    found = output.poll(is_last=True)
    assert [(each.step, each.total, each.metrics) for each in found] == [
        (10, 100, {"loss": 0.5}),
        (20, 100, {"loss": 0.4}),
    ]
    assert found[1].at - found[0].at == 2.0
    output.close()


def test_lines_in_several_parts_are_one(tmp_path: Path) -> None:
    append_log(tmp_path, entry("step=1", tag="P") + entry("noise", stream="stderr") + entry("0/100 loss=0.5"))
    output = ContainerOutput(tmp_path)
    assert [each.step for each in output.poll(is_last=True)] == [10]
    output.close()


def test_redrawn_progress_bars_are_separate_lines(tmp_path: Path) -> None:
    append_log(tmp_path, entry("step=1/9 loss=3\rstep=2/9 loss=2\rstep=3/9 loss=1"))
    output = ContainerOutput(tmp_path)
    found = output.poll(is_last=True)
    assert [each.step for each in found] == [1, 2, 3]
    assert len({each.at for each in found}) == 1
    output.close()


def test_a_container_that_starts_again_goes_on_in_another_file(tmp_path: Path) -> None:
    append_log(tmp_path, entry("step=1/9 loss=3"))
    output = ContainerOutput(tmp_path)
    assert [each.step for each in output.poll(is_last=True)] == [1]
    append_log(tmp_path, entry("step=2/9 loss=3"))
    append_log(tmp_path, entry("step=3/9 loss=3"), number=1)
    assert [each.step for each in output.poll(is_last=True)] == [2, 3]
    output.close()


def test_patterns_of_the_job_are_used(tmp_path: Path) -> None:
    append_log(tmp_path, entry("zug 12 von 30, güte 0.25"))
    output = ContainerOutput(tmp_path, [r"zug (?P<step>\d+) von (?P<total>\d+), güte (?P<loss>\S+)"])
    assert [(each.step, each.total, each.metrics) for each in output.poll(is_last=True)] == [(12, 30, {"loss": 0.25})]
    output.close()


def test_a_flood_of_lines_is_sampled_and_its_end_is_seen(tmp_path: Path) -> None:
    append_log(tmp_path, "".join(entry(f"step={step} loss=1.{step}") for step in range(1, 20_000)))
    output = ContainerOutput(tmp_path)
    found = output.poll(is_last=True)
    assert len(found) <= 2000
    assert found[-1].step == 19_999
    output.close()


def test_a_pod_that_reports_by_the_agent_is_not_read_twice(tmp_path: Path) -> None:
    pod, roots = node_pod(), roots_in(tmp_path)
    (agent_folder(pod, tmp_path) / "progress.jsonl").write_text(agent_line(1))
    folder = roots.logs / "default_mnist-worker-0_uid-mnist-worker-0" / "main"
    append_log(folder, entry("step=1/100 loss=1.0"))
    reader = PodReader(pod, roots)
    assert [each.source for each in reader.poll()] == ["agent"]
    reader.close()
    silent = node_pod(uid="uid-2")
    append_log(roots.logs / "default_mnist-worker-0_uid-2" / "main", entry("step=1/100 loss=1.0"))
    other = PodReader(silent, roots)
    assert [each.source for each in other.poll()] == ["stdout"]
    other.close()
