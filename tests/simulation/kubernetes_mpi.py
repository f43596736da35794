"""Kubeflow's MPI operator for a cluster in memory: creates workers and a launcher, removes the last workers when the
worker count is lowered, deletes all pods of a suspended job, and reports the end of the launcher.

As the real one (0.8.0): whatever has the name of a worker is that worker, also one that has failed or cannot end; those
that have ended stay where only running ones are to be cleaned up; a worker that was evicted makes the job `Failed`
without a time of completion, which stays so while it goes on.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from sterna.backends.kubernetes.api.resources import NODES
from sterna.kinds.mpi_job import MPI_JOBS
from sterna.kinds.resource import PODS, Resource
from tests.fakes.kube import FakeKube
from tests.fakes.kube_nodes import GPU
from tests.fakes.kube_rules import stamp
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
        if job is None:
            return
        pods = {
            pod["metadata"]["name"]: pod
            for pod in self._kube.items(PODS)
            if pod["metadata"].get("labels", {}).get(f"{_LABEL}/job-name") == name
        }
        wanted = [f"{name}-worker-{index}" for index in range(job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"])]
        launcher = f"{name}-launcher"
        if (job.get("status") or {}).get("completionTime"):
            if job["spec"].get("runPolicy", {}).get("cleanPodPolicy", "None") != "None":
                self._clean_up(job, [pods[each] for each in wanted if each in pods])
            return
        if job["spec"].get("runPolicy", {}).get("suspend", False):
            self._clean_up(job, [pods[each] for each in (*wanted, launcher) if each in pods])
            return
        extra = [each for each in pods if each not in (*wanted, launcher)]
        for pod in extra if len(pods) - (launcher in pods) > len(wanted) else ():
            self._remove(pods[pod])
        for index, pod in enumerate(wanted):
            if pod not in pods:
                self._make(job, "worker", index, pod)
        workers = [pods[pod] for pod in wanted if pod in pods]
        self._report_evictions(job, workers)
        are_up = len(workers) == len(wanted) and all(pod["status"]["phase"] == "Running" for pod in workers)
        if are_up and launcher not in pods:
            self._make(job, "launcher", 0, launcher)
        if launcher in pods and pods[launcher]["status"]["phase"] == "Succeeded":
            self._finish(job)

    def _clean_up(self, job: Object, pods: list[Object]) -> None:
        """Under the policy `Running` those that have ended stay."""
        is_sparing = job["spec"].get("runPolicy", {}).get("cleanPodPolicy") == "Running"
        for pod in pods:
            if not is_sparing or pod["status"]["phase"] in ("Pending", "Running"):
                self._remove(pod)

    def _remove(self, pod: Object) -> None:
        if not pod["metadata"].get("deletionTimestamp"):
            self._kube.delete(PODS, pod["metadata"]["name"])

    def _report_evictions(self, job: Object, workers: list[Object]) -> None:
        evicted = [pod for pod in workers if pod["status"].get("reason") == "Evicted"]
        if evicted and not any(each["status"] == "True" for each in _ends(job)):
            message = f"{len(evicted)}/{len(workers)} workers are evicted"
            failed = [{"type": "Failed", "status": "True", "reason": "MPIJobEvicted", "message": message}]
            self._kube.patch(MPI_JOBS, job["metadata"]["name"], {"status": {"conditions": failed}}, "status")

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
            open_nodes = [
                node["metadata"]["name"] for node in self._kube.items(NODES) if not node["spec"].get("taints")
            ]
            spec["nodeName"] = min(open_nodes, default="")  # the default scheduler's choice
        with suppress(Refused):  # the one before it is not gone yet
            self._kube.create(PODS, {"metadata": meta, "spec": spec})

    def _finish(self, job: Object) -> None:
        done = [{"type": "Succeeded", "status": "True", "reason": "MPIJobSucceeded", "message": "done"}]
        status = {"conditions": done, "completionTime": stamp(self._kube.now)}
        self._kube.patch(MPI_JOBS, job["metadata"]["name"], {"status": status}, "status")


def _ends(job: Object) -> list[dict[str, Any]]:
    conditions: list[dict[str, Any]] = (job.get("status") or {}).get("conditions") or []
    return [each for each in conditions if each["type"] in ("Succeeded", "Failed")]


def an_mpi_job(name: str, workers: int = 2, most: int = 0, seconds: float = 20.0) -> Object:
    """An MPIJob that trains for `seconds` once its launcher runs; elastic if it may have more workers."""
    bounds = {"sterna.dev/min-workers": str(workers), "sterna.dev/max-workers": str(most)} if most else {}
    worker = {"name": "mpi", "image": "train", "resources": {"limits": {GPU: 1}}}
    launcher = {"name": "mpi", "image": "train", "resources": {}}
    steering = {"annotations": {"fake/run-seconds": str(seconds)}}
    return {
        "metadata": {"name": name, "annotations": bounds},
        "spec": {
            "slotsPerWorker": 1,
            "runPolicy": {"cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": {"metadata": steering, "spec": {"containers": [launcher]}}},
                "Worker": {
                    "replicas": workers,
                    "template": {"spec": {"schedulerName": "sterna", "containers": [worker]}},
                },
            },
        },
    }
