"""A cluster to measure on: a real control plane, fake nodes in a process of their own, Sterna's own kinds, an operator.

Each measurement has a new one. Nodes keep no leases, because nothing reads them and they would cost CPU.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.kubernetes_load import JOBS, PODS, job_body
from tests.kubernetes.api import Api, until
from tests.kubernetes.control_plane import ControlPlane, dying_with_us
from tests.kubernetes.operated import install
from tests.kubernetes.operator_process import OperatorProcess, cpu_seconds

ROOT = Path(__file__).resolve().parents[2]
FIRST = "warm-up"
READY_SECONDS = 60.0
_WRITES = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_VERBS = ("POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION")


@dataclass(frozen=True)
class Cluster:
    plane: ControlPlane
    nodes: subprocess.Popen[str] | None

    @property
    def kubeconfig(self) -> Path:
        return self.plane.kubeconfig

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU seconds so far, by process."""
        spent = {name: cpu_seconds(self.plane.pid(name)) for name in ("etcd", "kube-apiserver")}
        return spent | ({"fake nodes": cpu_seconds(self.nodes.pid)} if self.nodes else {})

    def writes(self) -> int:
        """Return the requests to the server since it started, without leases."""
        with self.plane.api() as api:
            text = str(api.get("/metrics"))
        return sum(
            int(float(count))
            for labels, count in _WRITES.findall(text)
            if 'resource="leases"' not in labels and any(f'verb="{verb}"' in labels for verb in _VERBS)
        )


@contextmanager
def a_cluster(nodes: int, gpus: int = 8, has_kubelets: bool = True) -> Iterator[Cluster]:
    with ControlPlane() as plane, ExitStack() as stack:
        with plane.api() as api:
            install(api)
        kubelets = stack.enter_context(_fake_nodes(plane, nodes, gpus)) if has_kubelets else None
        yield Cluster(plane, kubelets)


@contextmanager
def _fake_nodes(plane: ControlPlane, nodes: int, gpus: int) -> Iterator[subprocess.Popen[str]]:
    program = [*dying_with_us(), sys.executable, "-m", "tests.kubernetes.fake_nodes"]
    flags = ["--kubeconfig", str(plane.kubeconfig), "--nodes", str(nodes), "--gpus", str(gpus), "--renew-seconds", "0"]
    process = subprocess.Popen(
        [*program, *flags], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError("the fake nodes did not get ready")
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


@contextmanager
def an_operator(cluster: Cluster, *flags: str) -> Iterator[tuple[OperatorProcess, dict[str, Any]]]:
    """One that has proved to work, and the pod that it made to prove it."""
    with OperatorProcess(cluster.kubeconfig, *flags) as operator, cluster.plane.api() as api:
        api.ask("POST", JOBS, json.loads(job_body(FIRST)))
        path = f"{PODS}/{FIRST}-worker-0"
        try:
            until(lambda: _has_run(api, path) or not operator.is_running, READY_SECONDS, "the first pod")
        except AssertionError:
            raise RuntimeError(
                f"the operator ran no pod within {READY_SECONDS:g} s: {operator.output()[-2000:]}"
            ) from None
        if not operator.is_running:
            raise RuntimeError(f"the operator ended: {operator.output()[-2000:]}")
        pod = api.get(path)
        api.delete(f"{JOBS}/{FIRST}")
        api.remove(path)  # there is no garbage collector
        until(lambda: api.find(path) is None, what="the end of the first pod")
        yield operator, template_of(pod)


def template_of(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod as it was asked for: without what the server and the kubelet added, and without its owner."""
    metadata = {key: pod["metadata"].get(key, {}) for key in ("labels", "annotations")}
    spec = {key: value for key, value in pod["spec"].items() if key not in ("nodeName", "serviceAccount", "priority")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _has_run(api: Api, path: str) -> bool:
    pod = api.find(path)
    return pod is not None and pod["status"].get("phase") == "Running"
