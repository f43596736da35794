"""Kubeflow's MPI operator as far as we depend on it, for a cluster in memory: makes workers and a launcher, removes the
last workers when there are fewer, takes all away while a job is suspended, and says when the launcher has ended.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from sterna.backends.kubernetes.apiserver import MPI_JOBS, PODS, Resource
from tests.fakes.kube import FakeKube
from tests.fakes.kube_nodes import GPU
from tests.fakes.kube_store import Event, Object, Refused

_LABEL = "training.kubeflow.org"
_SECONDS = 0.2


class FakeMpiOperator:
    """Level-triggered, like the real one."""

    def __init__(self, kube: FakeKube) -> None:
        self._kube = kube
        kube.store.listeners.append(self._note)

    def _note(self, resource: Resource, event: Event) -> None:
        about = event.after or event.before
        assert about is not None
        if resource == MPI_JOBS:
            self._kube.call_in(_SECONDS, lambda: self._look(about["metadata"]["name"]))
        elif resource == PODS and (name := about["metadata"].get("labels", {}).get(f"{_LABEL}/job-name")):
            self._kube.call_in(_SECONDS, lambda: self._look(name))

    def _look(self, name: str) -> None:
        job = self._kube.find(MPI_JOBS, name)
        if job is None or any(each["status"] == "True" for each in _ends(job)):
            return
        pods = {
            pod["metadata"]["name"]: pod
            for pod in self._kube.items(PODS)
            if pod["metadata"].get("labels", {}).get(f"{_LABEL}/job-name") == name
        }
        is_suspended = job["spec"].get("runPolicy", {}).get("suspend", False)
        count = 0 if is_suspended else job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"]
        wanted = [f"{name}-worker-{index}" for index in range(count)]
        for pod in [each for each in pods if each not in wanted and (is_suspended or "launcher" not in each)]:
            if not pods[pod]["metadata"].get("deletionTimestamp"):
                self._kube.delete(PODS, pod)
        for index, pod in enumerate(wanted):
            if pod not in pods:
                self._make(job, "worker", index, pod)
        workers = [pods.get(pod) for pod in wanted]
        launcher = f"{name}-launcher"
        are_up = bool(wanted) and all(pod is not None and pod["status"]["phase"] == "Running" for pod in workers)
        if are_up and launcher not in pods:
            self._make(job, "launcher", 0, launcher)
        if launcher in pods and pods[launcher]["status"]["phase"] == "Succeeded":
            self._finish(name)

    def _make(self, job: Object, role: str, index: int, name: str) -> None:
        template = job["spec"]["mpiReplicaSpecs"][role.title()]["template"]
        meta: Object = {
            "name": name,
            "namespace": "default",
            "annotations": template.get("metadata", {}).get("annotations", {}),
            "labels": {
                f"{_LABEL}/job-name": job["metadata"]["name"],
                f"{_LABEL}/job-role": role,
                f"{_LABEL}/operator-name": "mpi-operator",
                f"{_LABEL}/replica-index": str(index),
            },
        }
        spec = dict(template["spec"])
        if role == "worker":
            owner = {"apiVersion": MPI_JOBS.api_version, "kind": "MPIJob", "name": job["metadata"]["name"]}
            meta["ownerReferences"] = [{**owner, "uid": job["metadata"]["uid"], "controller": True}]
        else:
            spec["nodeName"] = "node-0"  # the default scheduler's choice
        with suppress(Refused):  # the one before it is not gone yet
            self._kube.create(PODS, {"metadata": meta, "spec": spec})

    def _finish(self, name: str) -> None:
        done = [{"type": "Succeeded", "status": "True", "reason": "MPIJobSucceeded", "message": "done"}]
        self._kube.patch(MPI_JOBS, name, {"status": {"conditions": done}}, "status")
        for pod in self._kube.items(PODS):
            if pod["metadata"]["name"].startswith(f"{name}-worker") and not pod["metadata"].get("deletionTimestamp"):
                self._kube.delete(PODS, pod["metadata"]["name"])


def _ends(job: Object) -> list[dict[str, Any]]:
    conditions: list[dict[str, Any]] = (job.get("status") or {}).get("conditions") or []
    return [each for each in conditions if each["type"] in ("Succeeded", "Failed")]


def an_mpi_job(name: str, workers: int = 2, most: int = 0, seconds: float = 20.0) -> Object:
    """Trains for so long once its launcher runs; elastic if it may have more workers."""
    bounds = {"sterna.dev/min-workers": str(workers), "sterna.dev/max-workers": str(most)} if most else {}
    worker = {"name": "mpi", "image": "train", "resources": {"limits": {GPU: 1}}}
    launcher = {"name": "mpi", "image": "train", "resources": {}}
    steering = {"annotations": {"fake/run-seconds": str(seconds)}}
    return {
        "metadata": {"name": name, "annotations": bounds},
        "spec": {
            "slotsPerWorker": 1,
            "runPolicy": {},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": {"metadata": steering, "spec": {"containers": [launcher]}}},
                "Worker": {
                    "replicas": workers,
                    "template": {"spec": {"schedulerName": "sterna", "containers": [worker]}},
                },
            },
        },
    }
