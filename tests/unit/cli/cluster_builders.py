"""A Kubernetes cluster in memory behind HTTP, and a kubeconfig for it, for tests of commands."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import yaml

from sterna.backends.kubernetes.api.resources import LEASES
from sterna.kinds.resource import PODS
from sterna.kinds.training_job import TRAINING_JOBS
from tests.fakes.kube import FakeKube
from tests.fakes.kube_http import HttpKube
from tests.fakes.kube_nodes import FakeNodes
from tests.fakes.kube_requests import Response

Object = dict[str, Any]
_LOG = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/log")


class Lab(FakeKube):
    """A cluster that can rehearse, as servers do (`dryRun=All`), and whose pods have printed something."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[str, list[tuple[str, str]]] = {}
        """By `namespace/pod`: lines and their times."""
        self.nodes = FakeNodes(self)

    def handle(self, method: str, path: str, query: str = "", body: bytes = b"", content_type: str = "") -> Response:
        log = _LOG.fullmatch(path)
        if log is not None:
            return self._log(f"{log[1]}/{log[2]}", {key: values[0] for key, values in parse_qs(query).items()})
        if "dryRun=All" not in query:
            return super().handle(method, path, query, body, content_type)
        store = self.store
        kept = deepcopy((store.objects, store.history)), store.revision, store.listeners
        store.listeners = []
        response = super().handle(method, path, query, body, content_type)
        (store.objects, store.history), store.revision, store.listeners = kept
        return response

    def _log(self, pod: str, asked: dict[str, str]) -> Response:
        lines = self.logs.get(pod)
        if lines is None:
            message = 'container "training" in pod is waiting to start: ContainerCreating'
            return Response(400, json.dumps({"kind": "Status", "reason": "BadRequest", "message": message}).encode())
        lines = [each for each in lines if each[0][:19] >= asked.get("sinceTime", "")[:19]]
        lines = lines[-int(asked["tailLines"]) :] if "tailLines" in asked else lines
        text = "".join(f"{at} {line}" if asked.get("timestamps") == "true" else line for at, line in lines)
        return Response(200, text.encode())

    # What others have done.

    def training_job(self, name: str, namespace: str = "default", **spec: Any) -> Object:
        return self.create(TRAINING_JOBS, training_job(name, **spec), namespace)

    def set_status(self, name: str, status: Object, namespace: str = "default") -> None:
        """Write the status of a TrainingJob, as the operator would."""
        self.patch(TRAINING_JOBS, name, {"status": status}, "status", namespace)

    def pod_of(self, job: Object, index: int, node: str = "", phase: str = "Running") -> Object:
        """A worker of a job, as the operator makes them."""
        meta = job["metadata"]
        owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
        labels = {"sterna.dev/job": meta["name"], "sterna.dev/type": "worker", "sterna.dev/index": str(index)}
        name = f"{meta['name']}-worker-{index}"
        pod = {
            "metadata": {
                "name": name,
                "labels": labels | {"sterna.dev/attempt": "1"},
                "ownerReferences": [owner | {"controller": True}],
            },
            "spec": {"containers": [{"name": "training", "image": "i"}], "nodeName": node},
        }
        self.create(PODS, pod, meta["namespace"])
        return self.patch(PODS, name, {"status": {"phase": phase}}, "status", meta["namespace"])

    def hold_lease(self, at: str, **annotations: str) -> None:
        self.create_namespace("sterna-system")
        lease = {
            "metadata": {"name": "sterna-operator", "annotations": annotations},
            "spec": {"holderIdentity": "op-1", "renewTime": at},
        }
        self.create(LEASES, lease, "sterna-system")


def training_job(name: str, **spec: Any) -> Object:
    usual = {"image": "team/mnist:1", "command": ["python", "train.py"], "resizing": "restart"}
    return {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {**usual, **spec},
    }


def tf_job(name: str, **spec: Any) -> Object:
    def group(replicas: int) -> Object:
        container = {"name": "tensorflow", "image": "tf"}
        return {"replicas": replicas, "template": {"spec": {"containers": [container]}}}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"tfReplicaSpecs": {"PS": group(1), "Worker": group(2)}, **spec},
    }


def kubeconfig(folder: Path, http: HttpKube, namespace: str = "default") -> Path:
    """Write a kubeconfig with the contexts `lab` (current) and `away`, which is unreachable."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [
            {"name": "lab", "cluster": {"server": http.server}},
            {"name": "away", "cluster": {"server": "http://127.0.0.1:9"}},
        ],
        "users": [{"name": "me", "user": {"token": "t"}}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": "me", "namespace": namespace}}
            for name in ("lab", "away")
        ],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def write_manifest(folder: Path, *documents: Object) -> Path:
    path = folder / "jobs.yaml"
    path.write_text("---\n".join(yaml.safe_dump(each, sort_keys=False) for each in documents), encoding="utf-8")
    return path
