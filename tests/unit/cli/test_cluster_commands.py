"""Commands that ask a Kubernetes cluster, as a user types them: the real client on a cluster in memory."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sterna.backends.kubernetes.api.resources import EVENTS, NODES
from sterna.kinds.mpi_job import MPI_JOBS
from sterna.kinds.resource import PODS
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from sterna.service.views import EventView, JobView, NodeView
from tests.fakes.kube_http import HttpKube
from tests.unit.cli.cluster_builders import Lab, kubeconfig, tf_job, training_job, write_manifest
from tests.unit.cli.conftest import Sterna
from tests.unit.kinds.kind_builders import old_manifest

LAB = ("--context", "lab")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpKube]:
    monkeypatch.setenv("STERNA_STATE", str(tmp_path / "nowhere"))
    with HttpKube(Lab()) as http:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, http)))
        yield http


def kube_of(http: HttpKube) -> Lab:
    """Return the cluster; commands run in this thread, so no other client uses it meanwhile."""
    assert isinstance(http.kube, Lab)
    return http.kube


def names(http: HttpKube, resource: Any) -> list[str]:
    return [each["metadata"]["name"] for each in kube_of(http).items(resource)]


# Create.


def test_manifests_become_objects_in_the_namespace_of_the_context(
    sterna: Sterna, lab: HttpKube, tmp_path: Path
) -> None:
    path = write_manifest(tmp_path, training_job("a", workers="1:4"), tf_job("b"))
    run = sterna("create", "-f", path, *LAB)
    assert (run.code, run.err) == (0, "")
    assert run.out.splitlines() == [
        "a is submitted; follow it with: sterna logs -f a --context lab",
        "b is submitted; follow it with: sterna logs -f b --context lab",
    ]
    assert kube_of(lab).get(TRAINING_JOBS, "a")["spec"]["workers"] == "1:4"
    assert names(lab, TF_JOBS) == ["b"]


def test_a_namespace_is_chosen_with_n(sterna: Sterna, lab: HttpKube, tmp_path: Path) -> None:
    kube_of(lab).create_namespace("team")
    assert sterna("create", "-f", write_manifest(tmp_path, training_job("a")), *LAB, "-n", "team", "-q").out == "a\n"
    assert kube_of(lab).find(TRAINING_JOBS, "a", "team") is not None
    run = sterna("create", "-f", write_manifest(tmp_path, training_job("a")), *LAB, "-n", "none")
    assert (run.code, run.err.count("\n")) == (2, 1)
    assert "There is no namespace 'none'; create it, or choose another with -n." in run.err


def test_one_bad_manifest_refuses_all(sterna: Sterna, lab: HttpKube, tmp_path: Path) -> None:
    path = write_manifest(tmp_path, training_job("a"), training_job("b", workers="4:1"))
    run = sterna("create", "-f", path, *LAB)
    assert run.code == 2
    assert run.err.startswith(f"sterna: {path}, line ")
    assert "min 4 is more than max 1" in run.err
    assert names(lab, TRAINING_JOBS) == []


def test_what_only_the_server_knows_refuses_all_too(sterna: Sterna, lab: HttpKube, tmp_path: Path) -> None:
    """VODA-15."""
    kube_of(lab).training_job("b")
    run = sterna("create", "-f", write_manifest(tmp_path, training_job("a"), training_job("b")), *LAB)
    expected = "A TrainingJob named 'b' exists already in the namespace 'default'; choose another name."
    assert (run.code, run.err) == (2, f"sterna: {expected}\n")
    assert names(lab, TRAINING_JOBS) == ["b"]


def test_an_mpijob_of_voda_is_translated(sterna: Sterna, lab: HttpKube, tmp_path: Path) -> None:
    """VODA-1, VODA-3, VODA-65, VODA-66."""
    manifest = old_manifest("voda-mpijob.yaml")
    run = sterna("create", "-f", write_manifest(tmp_path, manifest), *LAB, "-q")
    name = run.out.strip()
    assert (run.code, run.err) == (0, "")
    assert re.fullmatch(rf"{manifest['metadata']['name']}-\d{{8}}-\d{{6}}", name)
    (made,) = kube_of(lab).items(MPI_JOBS)
    assert made["metadata"]["name"] == name
    assert made["apiVersion"] == "kubeflow.org/v2beta1"
    assert made["spec"]["runPolicy"]["suspend"] is True
    assert made["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"] == "sterna"
    header, row = sterna("get", "jobs", *LAB).out.splitlines()
    assert row.split()[:4] == [name, "Waiting", "0", _accelerator(manifest)]
    assert header.split()[3] == "SCHEDULER"


def test_defaults_for_a_manifest_of_voda_are_reported(sterna: Sterna, lab: HttpKube, tmp_path: Path) -> None:
    """VODA-10."""
    manifest = old_manifest("voda-mpijob.yaml")
    del manifest["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["nodeSelector"]
    run = sterna("create", "-f", write_manifest(tmp_path, manifest), *LAB)
    assert run.code == 0
    assert "it names no type of GPU, so that its workers may be on any node" in run.err


def _accelerator(manifest: dict[str, Any]) -> str:
    worker = manifest["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    return str(worker["nodeSelector"]["vodascheduler/accelerator"])


def test_a_pod_that_is_created_here_is_looked_after(sterna: Sterna, lab: HttpKube, tmp_path: Path) -> None:
    """DRAGON-80."""
    spec = {"containers": [{"name": "c", "image": "i"}]}
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": spec}
    assert sterna("create", "-f", write_manifest(tmp_path, pod), *LAB, "-q").out == "p\n"
    assert kube_of(lab).get(PODS, "p")["metadata"]["labels"] == {"sterna.dev/job": "p"}
    assert "p " in sterna("get", "jobs", *LAB).out


def test_what_is_no_job_is_left_to_kubectl(sterna: Sterna, lab: HttpKube, tmp_path: Path) -> None:
    reservation = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    serving = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "s", "annotations": {"SERVING_POD": "true"}}}
    run = sterna("create", "-f", write_manifest(tmp_path, reservation, training_job("a"), serving), *LAB, "-q")
    assert run.out == "a\n"
    assert "Pod is left out" in run.err
    assert "PersistentVolumeClaim is left out, because it is no job; create it with kubectl." in run.err
    run = sterna("create", "-f", write_manifest(tmp_path, {**training_job("c"), "kind": "TrainngJob"}), *LAB)
    assert run.code == 2
    assert "did you mean 'TrainingJob'?" in run.err


def test_an_answer_that_got_lost_creates_nothing_twice(sterna: Sterna, lab: HttpKube, tmp_path: Path) -> None:
    lost: list[str] = []

    def drop_connection(method: str, path: str) -> bool:
        if method == "POST" and kube_of(lab).find(TRAINING_JOBS, "a") is not None and not lost:
            lost.append(path)
            return True
        return False

    lab.cut_after = drop_connection
    assert sterna("create", "-f", write_manifest(tmp_path, training_job("a")), *LAB, "-q").out == "a\n"
    assert lost
    assert names(lab, TRAINING_JOBS) == ["a"]


def test_a_command_is_submitted_with_its_image(sterna: Sterna, lab: HttpKube) -> None:
    run = sterna(
        "submit", *LAB, "--name", "a", "--image", "team/x:1", "--workers", "1:2", "--gpus", "1", "-e", "LR=1", "--",
        "python", "train.py",
    )  # fmt: skip
    assert (run.code, run.out) == (0, "a is submitted; follow it with: sterna logs -f a --context lab\n")
    spec = kube_of(lab).get(TRAINING_JOBS, "a")["spec"]
    assert (spec["image"], spec["command"], spec["workers"]) == ("team/x:1", ["python", "train.py"], "1:2")
    assert (spec["env"], spec["resources"]) == ({"LR": "1"}, {"gpu": "1"})
    run = sterna("submit", "--image", "i", "--", "python")
    assert (run.code, "--image is for Kubernetes clusters" in run.err) == (2, True)


# Look.


def test_jobs_are_listed_in_the_same_columns_as_on_one_machine(sterna: Sterna, lab: HttpKube) -> None:
    assert sterna("get", "jobs", *LAB).err == "There are no jobs yet.\n"
    kube = kube_of(lab)
    job = kube.training_job("a", workers="1:4")
    kube.pod_of(job, 0, "node-1")
    kube.set_status("a", {"phase": "Running", "reason": "started with 1 worker.", "progress": {"step": 5, "total": 20}})
    header, row = sterna("get", "jobs", *LAB).out.splitlines()
    assert header.split() == ["NAME", "STATUS", "WORKERS", "SCHEDULER", "WAITING", "RUNNING", "TOTAL", "PROGRESS"]
    assert row.split()[:4] == ["a", "Running", "1", "kubernetes"]
    assert row.endswith("25 %")
    wide = sterna("get", "jobs", *LAB, "-o", "wide").out
    assert "1:4" in wide
    assert "started with 1 worker." in wide


def test_documents_have_everything_that_local_ones_have(sterna: Sterna, lab: HttpKube) -> None:
    kube = kube_of(lab)
    kube.nodes.add("node-1", gpus=2)
    kube.pod_of(kube.training_job("a"), 0, "node-1")
    _event(kube, "a", "TrainingJobFailed", "worker-0 ended with exit code 1.")
    for kind, view in (("jobs", JobView), ("nodes", NodeView), ("events", EventView)):
        (row,) = yaml.safe_load(sterna("get", kind, *LAB, "-o", "json").out)
        assert set(view.__struct_fields__) <= row.keys()
    (event,) = yaml.safe_load(sterna("get", "events", *LAB, "-o", "yaml").out)
    assert (event["job"], event["kind"], event["sentence"]) == ("a", "failed", "worker-0 ended with exit code 1.")
    (node,) = sterna("get", "nodes", *LAB, "-o", "json").document
    assert (node["name"], node["devices"], node["state"], node["jobs"]) == ("node-1", 2, "ready", ["default/a"])


def test_jobs_of_all_namespaces_are_distinguished(sterna: Sterna, lab: HttpKube) -> None:
    kube = kube_of(lab)
    kube.create_namespace("team")
    kube.training_job("a")
    kube.training_job("a", "team")
    rows = sterna("get", "jobs", *LAB, "-A").out.splitlines()[1:]
    assert sorted(row.split()[0] for row in rows) == ["default/a", "team/a"]
    assert sterna("get", "jobs", *LAB, "-n", "team").out.splitlines()[1].split()[0] == "a"
    assert sterna("get", "job", "team/a", *LAB, "-o", "json").document[0]["namespace"] == "team"


def test_a_name_that_means_several_jobs_is_refused_with_their_names(sterna: Sterna, lab: HttpKube) -> None:
    kube = kube_of(lab)
    kube.training_job("a")
    kube.create(TF_JOBS, tf_job("a"))
    run = sterna("describe", "job", "a", *LAB)
    assert run.code == 2
    assert "'a' may be several jobs; name one of: default/trainingjob/a, default/tfjob/a." in run.err
    assert "Kind:          TFJob" in sterna("describe", "job", "tfjob/a", *LAB).out
    assert "Kind:          TrainingJob" in sterna("describe", "job", "default/trainingjob/a", *LAB).out


@pytest.mark.parametrize("name", ["tain-1", "other/train-1", "-x", "A B"])
def test_a_name_that_means_nothing_is_refused(sterna: Sterna, lab: HttpKube, name: str) -> None:
    kube_of(lab).training_job("train-1")
    run = sterna("delete", *LAB, "--", name)
    assert run.code == 2
    assert run.err.startswith(f"sterna: There is no job '{name}'")
    if name == "tain-1":
        assert "did you mean 'train-1'?" in run.err


def test_a_job_is_described_with_its_replicas_and_events(sterna: Sterna, lab: HttpKube) -> None:
    kube = kube_of(lab)
    kube.pod_of(kube.training_job("a"), 0, "node-1")
    _event(kube, "a", "SuccessfulCreatePod", "Created 1 pod on node-1: a-worker-0.")
    _event(kube, "b", "SuccessfulCreatePod", "Of another job.")
    out = sterna("describe", "job", "a", *LAB).out
    assert "Namespace:     default" in out
    assert ["worker-0", "node-1", "running", "1", "-"] in [line.split() for line in out.splitlines()]
    assert "started   Created 1 pod on node-1: a-worker-0." in out
    assert "Of another job." not in out


def _event(kube: Lab, job: str, reason: str, note: str) -> None:
    found = kube.find(TRAINING_JOBS, job)
    uid = found["metadata"]["uid"] if found else "none"
    kube.create(
        EVENTS,
        {
            "metadata": {"name": f"{job}.{len(kube.items(EVENTS))}"},
            "eventTime": "2025-06-15T15:06:40.000000Z",
            "reason": reason,
            "note": note,
            "regarding": {"kind": "TrainingJob", "namespace": "default", "name": job, "uid": uid},
        },
    )


def test_logs_are_those_of_the_first_replica(sterna: Sterna, lab: HttpKube) -> None:
    kube = kube_of(lab)
    job = kube.training_job("a")
    run = sterna("logs", "a", *LAB)
    assert (run.code, "has no pods now, so that it has no log" in run.err) == (2, True)
    kube.pod_of(job, 0, "node-1")
    kube.pod_of(job, 1, "node-1")
    assert sterna("logs", "a", *LAB).out == ""  # its container waits to start
    kube.logs["default/a-worker-0"] = [(f"2025-06-15T15:06:4{n}.0000000{n}Z", f"step {n}\n") for n in range(5)]
    kube.logs["default/a-worker-1"] = [("2025-06-15T15:06:40Z", "other\n")]
    assert sterna("logs", "a", *LAB).out == "".join(f"step {n}\n" for n in range(5))
    assert sterna("logs", "a", *LAB, "--tail", "2").out == "step 3\nstep 4\n"
    assert sterna("logs", "a", *LAB, "-r", "worker-1").out == "other\n"
    assert "did you mean 'worker-1'?" in sterna("logs", "a", *LAB, "-r", "worker-7").err


def test_a_log_is_followed_until_the_job_has_ended(sterna: Sterna, lab: HttpKube) -> None:
    kube = kube_of(lab)
    kube.pod_of(kube.training_job("a"), 0, "node-1")
    kube.logs["default/a-worker-0"] = [("2025-06-15T15:06:40Z", "one\n")]
    asked = 0

    def go_on(method: str, path: str) -> None:
        nonlocal asked
        asked += path.endswith("/log")
        if asked == 3:
            kube.logs["default/a-worker-0"].append(("2025-06-15T15:06:41Z", "two\n"))
            kube.set_status("a", {"phase": "Succeeded", "conditions": [{"type": "Succeeded", "status": "True"}]})

    lab.answer_instead = go_on
    assert sterna("logs", "-f", "a", *LAB).out == "one\ntwo\n"


# Change.


def test_bounds_are_changed_in_the_object(sterna: Sterna, lab: HttpKube) -> None:
    kube_of(lab).training_job("a", workers=2)
    run = sterna("scale", "a", "1:4", *LAB)
    assert (run.code, run.out) == (0, "a may have 1 to 4 workers.\n")
    assert kube_of(lab).get(TRAINING_JOBS, "a")["spec"]["workers"] == {"min": 1, "max": 4, "request": 2}
    assert sterna("scale", "a", "4:1", *LAB).code == 2


def test_jobs_are_deleted_all_or_none(sterna: Sterna, lab: HttpKube) -> None:
    kube_of(lab).training_job("a")
    assert sterna("delete", "a", "b", *LAB).code == 2
    assert names(lab, TRAINING_JOBS) == ["a"]
    assert sterna("delete", "a", "default/a", *LAB).out == "a is deleted.\n"
    assert names(lab, TRAINING_JOBS) == []


def test_nodes_are_cordoned_and_drained(sterna: Sterna, lab: HttpKube) -> None:
    kube = kube_of(lab)
    kube.nodes.add("node-1", gpus=1)
    kube.pod_of(kube.training_job("a"), 0, "node-1")
    stranger = {"metadata": {"name": "s"}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "node-1"}}
    kube.create(PODS, stranger)
    assert sterna("cordon", "node-1", *LAB).out == "node-1 is cordoned.\n"
    assert kube.get(NODES, "node-1")["spec"]["unschedulable"] is True
    assert sterna("drain", "node-1", *LAB).out == "node-1 is draining.\n"
    assert [bool(pod["metadata"].get("deletionTimestamp")) for pod in kube.items(PODS)] == [True, False]
    assert sterna("uncordon", "node-1", *LAB).out == "node-1 is ready.\n"
    assert "did you mean 'node-1'?" in sterna("cordon", "node-2", *LAB).err


def test_rules_are_the_operator_s(sterna: Sterna, lab: HttpKube) -> None:
    run = sterna("policy", "set", "srjf", *LAB)
    assert (run.code, "--set operator.policy=srjf" in run.err) == (2, True)
    run = sterna("policy", "get", *LAB)
    assert (run.code, "see that one runs" in run.err) == (2, True)


def test_the_last_report_is_the_history(sterna: Sterna, lab: HttpKube) -> None:
    kube_of(lab).training_job("a")
    assert sterna("history", "a", *LAB).out == "a has reported nothing so far.\n"
    kube_of(lab).set_status("a", {"progress": {"step": 3, "total": 9, "metric": "loss", "value": 0.5}})
    (report,) = sterna("history", "a", *LAB, "-o", "json").document
    assert (report["step"], report["total"], report["loss"]) == (3, 9, 0.5)


# Wait and watch.


def test_waiting_ends_when_the_job_has_completed(sterna: Sterna, lab: HttpKube) -> None:
    kube_of(lab).training_job("a")
    end = {"phase": "Succeeded", "conditions": [{"type": "Succeeded", "status": "True"}]}
    with later(lab, lambda kube: kube.set_status("a", end)):
        run = sterna("wait", "a", "--for=completed", *LAB)
    assert (run.code, run.err) == (0, "")
    run = sterna("wait", "a", "--for=failed", *LAB)
    assert (run.code, run.err.startswith("sterna: a has completed")) == (1, True)


def test_waiting_ends_when_the_job_is_gone(sterna: Sterna, lab: HttpKube) -> None:
    kube_of(lab).training_job("a")
    with later(lab, lambda kube: kube.delete(TRAINING_JOBS, "a")):
        run = sterna("wait", "a", *LAB)
    assert (run.code, run.err) == (1, "sterna: a was deleted.\n")
    kube_of(lab).training_job("b")
    run = sterna("wait", "b", *LAB, "--timeout", "0.2")
    assert (run.code, run.err) == (1, "sterna: b did not come so far in time.\n")


class later:  # noqa: N801  (reads as a word of the test)
    """Do something to the cluster as soon as a command watches it."""

    def __init__(self, http: HttpKube, act: Any) -> None:
        self._http, self._act = http, act
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._wait)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _wait(self) -> None:
        while not self._is_over.wait(0.01):
            if self._http.watches() >= 5:
                self._http.do(self._act)
                return
