"""A cluster with an operator, for tests of the whole: submit objects, wait for their state.

A real control plane with its controllers, fake nodes, Sterna's definitions, and `sterna operator` as a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import yaml

from tests.kubernetes.api import PATIENCE_SECONDS, Api, Object, until
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.fake_nodes import FakeNodes
from tests.kubernetes.kubelets import FakeNode
from tests.kubernetes.operator_process import OperatorProcess

ROOT = Path(__file__).resolve().parents[2]
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
JOBS = "/apis/sterna.dev/v1alpha1/namespaces/default/trainingjobs"
TF_JOBS = "/apis/kubeflow.org/v1/namespaces/default/tfjobs"
PYTORCH_JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
MPI_JOBS = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs"
SHARE_PODS = "/apis/kubeshare.nthu/v1/namespaces/default/sharepods"
STEADY = ("--lease-duration=120", "--lease-renew=90")
"""On a busy machine a renewal may be late; an operator that loses the Lease exits and is not restarted here."""
OWN_KINDS = (JOBS, TF_JOBS, PYTORCH_JOBS, MPI_JOBS)


def install(api: Api, *files: Path) -> None:
    """Definitions, ready for objects; those of Sterna's own kinds, and what is refused at admission, if none are
    named."""
    for file in files or sorted((ROOT / "deploy" / "crds").rglob("*.yaml"), reverse=True):
        for document in api.apply_all(file.read_text(encoding="utf-8")):
            if document["kind"] != "CustomResourceDefinition":
                continue
            spec = document["spec"]
            path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
            until(partial(api.find, path), what=f"the kind at {path}")


class Speaker(Protocol):
    """An operator, wherever it runs."""

    def output(self) -> str: ...


class Sight:
    """A cluster with an operator, seen through an administrator's eyes."""

    def __init__(self, plane: ControlPlane, speaker: Speaker, api: Api) -> None:
        self.plane, self.api = plane, api
        self._speaker = speaker

    def submit(self, document: Object) -> Object:
        return self.api.create(document)

    def until(self, fact: Any, what: str, within_seconds: float = PATIENCE_SECONDS) -> Any:
        """Wait for a condition; a timeout shows the operator's log and the objects."""
        try:
            return until(fact, within_seconds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.picture()}") from None

    def job(self, name: str, kind: str = JOBS) -> Object:
        return dict(self.api.get(f"{kind}/{name}"))

    def phase(self, name: str, kind: str = JOBS) -> str:
        return str(self.job(name, kind).get("status", {}).get("phase", ""))

    def until_phase(self, name: str, phase: str, kind: str = JOBS, within_seconds: float = PATIENCE_SECONDS) -> Object:
        self.until(lambda: self.phase(name, kind) == phase, f"{name} being {phase}", within_seconds)
        return self.job(name, kind)

    def condition(self, name: str, type_: str, kind: str = JOBS) -> Mapping[str, Any]:
        """Empty if it has none of that type."""
        conditions = self.job(name, kind).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == type_), {})

    def has_condition(self, name: str, type_: str, kind: str = JOBS) -> bool:
        return self.condition(name, type_, kind).get("status") == "True"

    def pods(self, job: str = "", phase: str = "") -> list[Object]:
        """Count the pods of a job by phase; terminating pods have none."""
        selector = f"?labelSelector=sterna.dev/job%3D{job}" if job else ""
        found = self.api.items(PODS + selector)
        if phase:
            found = [each for each in found if each["status"].get("phase") == phase and not is_going(each)]
        return found

    def until_running(self, job: str, count: int, within_seconds: float = PATIENCE_SECONDS) -> list[Object]:
        what = f"{count} running pods of {job}"
        self.until(lambda: len(self.pods(job, "Running")) == count == len(self.pods(job)), what, within_seconds)
        return self.pods(job)

    def sterna(self, *words: str) -> str:
        """A command of a user's."""
        command = [sys.executable, "-m", "sterna.cli", *words, "--kubeconfig", str(self.plane.kubeconfig)]
        environment = dict(os.environ, PYTHONPATH=str(ROOT / "src"))
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def delete_all(self) -> None:
        """Empty the cluster for the next test."""
        for kind in OWN_KINDS:
            if self.api.find(kind) is not None:
                self.api.remove(kind)
                self.until(partial(self._is_empty, kind), "the end of all jobs")
        for pod in self.api.items(PODS):
            if not pod["metadata"].get("ownerReferences"):
                self.api.remove(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds=0)
        self.until(partial(self._is_empty, PODS), "the end of all pods")

    def _is_empty(self, path: str) -> bool:
        return not self.api.items(path)

    def picture(self) -> str:
        """For a test that failed."""
        try:
            jobs = [_job_line(each) for kind in OWN_KINDS for each in (self.api.find(kind) or {"items": ()})["items"]]
            pods = [_line(each) for each in self.api.items(PODS)]
        except Exception:  # whatever it is, the reason of the test counts more
            jobs, pods = [], [traceback.format_exc(limit=1)]
        output = self._speaker.output()[-3000:]
        return "\n".join(["the operator said:", output, "jobs:", *jobs, "pods:", *pods])


class Operated(Sight):
    """A cluster with fake nodes, steered by annotations."""

    def __init__(self, plane: ControlPlane, nodes: FakeNodes, operator: OperatorProcess, api: Api) -> None:
        super().__init__(plane, operator, api)
        self.nodes, self.operator = nodes, operator


@contextmanager
def operated(
    plane: ControlPlane, nodes: Sequence[FakeNode], *flags: str, definitions: Sequence[Path] = ()
) -> Iterator[Operated]:
    """With Sterna's own definitions, if no others are named."""
    with plane.api() as api:
        install(api, *definitions)
        with (
            FakeNodes(plane.kubeconfig, nodes) as fakes,
            OperatorProcess(plane.kubeconfig, *STEADY, *flags) as operator,
        ):
            cluster = Operated(plane, fakes, operator, api)
            cluster.until(lambda: operator.leads or not operator.is_running, "an operator that leads")
            assert operator.is_running, operator.output()
            yield cluster


def a_training_job(name: str, workers: str | int = 1, gpus: float = 1, **more: Any) -> Object:
    """A job of one-GPU workers that run until they are stopped; annotations steer the fake kubelets."""
    annotations = {f"fake/{key.replace('_', '-')}": str(value) for key, value in more.pop("fake", {}).items()}
    spec = {
        "image": "training:1",
        "command": ["python", "train.py"],
        "checkpoint": "/checkpoints",
        "workers": workers,
        "resources": {"cpu": 1, "memory": "1Gi", "gpu": gpus},
        "template": {"metadata": {"annotations": annotations}},
        "grace": "5s",
        **more,
    }
    return {"apiVersion": "sterna.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}


def example(name: str) -> Object:
    """A manifest as we show it to people."""
    file = ROOT / "examples" / "kubernetes" / f"{name}.yaml"
    return dict(yaml.safe_load(file.read_text(encoding="utf-8")))


def is_going(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def nodes_of(pods: Sequence[Object]) -> list[str]:
    return sorted(pod["spec"].get("nodeName", "") for pod in pods)


def names_of(pods: Sequence[Object]) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in pods)


def _job_line(job: Object) -> str:
    """Return status and events of a job, and the parts of its spec that others change."""
    meta, run = job["metadata"], job.get("spec", {}).get("runPolicy", {})
    return f"{meta['name']}: {json.dumps([job.get('status'), meta.get('annotations'), run])}"


def _line(pod: Object) -> str:
    going = " going" if is_going(pod) else ""
    status = pod["status"]
    where = f"{pod['metadata']['name']} on {pod['spec'].get('nodeName')}"
    return f"{where}: {status.get('phase')} {status.get('reason', '')}{going}"
