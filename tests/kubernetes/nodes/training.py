"""Training on real nodes: pods that count steps, their counts so far, and nodes with declared GPUs.

Every step that a pod does is a line in a file that all nodes see.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.kubernetes.api import Api, Object, until
from tests.kubernetes.nodes.images import PYTHON
from tests.kubernetes.nodes.machines import Machines
from tests.kubernetes.operated import Sight
from tests.kubernetes.operator_process import OperatorProcess

ROOT = Path(__file__).resolve().parents[3]
GPU = "nvidia.com/gpu"


class Nodes(Sight):
    """An operator on real nodes."""

    def __init__(self, machines: Machines, operator: OperatorProcess, api: Api) -> None:
        super().__init__(machines.plane, operator, api)
        self.machines, self.operator = machines, operator

    def steps(self, job: str, index: int = 0) -> list[list[str]]:
        """Number, pod and node of every step, in order."""
        file = self.machines.shared / job / str(index) / "steps"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def ran_twice_at_once(self, job: str, index: int = 0) -> bool:
        return (self.machines.shared / job / str(index) / "twice").exists()


def give_gpus(api: Api, node: str) -> None:
    api.patch(f"/api/v1/nodes/{node}/status", {"status": {"capacity": {GPU: "2"}}})
    until(lambda: api.get(f"/api/v1/nodes/{node}")["status"]["allocatable"].get(GPU) == "2", what="GPUs of a node")


def a_counting_job(
    machines: Machines, name: str, total: int, workers: str | int = 1, save_every: int = 0, **more: Any
) -> Object:
    """One that begins with its first step, whatever a job of that name has saved in a test before."""
    shutil.rmtree(machines.shared / name, ignore_errors=True)
    source, shared = str(ROOT), str(machines.shared)
    mounts = [{"name": "source", "mountPath": "/source", "readOnly": True}, {"name": "shared", "mountPath": "/shared"}]
    volumes = [
        {"name": "source", "hostPath": {"path": source}},
        {"name": "shared", "hostPath": {"path": shared}},
    ]
    container = {"name": "worker", "volumeMounts": mounts}
    script = "/source/tests/kubernetes/nodes/counting.py"
    spec = {
        "image": PYTHON,
        "command": ["python3", script, str(total), "0.05", str(save_every)],
        "env": {"PYTHONPATH": "/source/src", "SHARED": "/shared"},
        "checkpoint": f"/shared/{name}",
        "workers": workers,
        "resources": {"cpu": "100m", "memory": "64Mi", "gpu": 1},
        "grace": "20s",
        "template": {"spec": {"containers": [container], "volumes": volumes}},
        **more,
    }
    return {"apiVersion": "sterna.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}


def numbers(steps: list[list[str]]) -> list[int]:
    return [int(step[0]) for step in steps]
