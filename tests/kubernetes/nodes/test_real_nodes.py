"""Real training pods on two real nodes: run, scaled, moved, pre-empted; nodes are lost, and operators die.

Each test begins with a cluster without jobs. Every step that a pod does is a line in a file that both nodes see.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.api import Api, Object, until
from tests.kubernetes.nodes.images import PYTHON
from tests.kubernetes.nodes.machines import Machines, is_ready
from tests.kubernetes.operated import PODS, Sight, install, nodes_of
from tests.kubernetes.operator_process import OperatorProcess

ROOT = Path(__file__).resolve().parents[3]
GPU = "nvidia.com/gpu"
PATIENCE_SECONDS = 120.0


class Nodes(Sight):
    """An operator on real nodes."""

    def __init__(self, machines: Machines, operator: OperatorProcess, api: Api) -> None:
        super().__init__(machines.plane, operator, api)
        self.machines = machines

    def steps(self, job: str, index: int = 0) -> list[list[str]]:
        """Number, pod and node of every step, in order."""
        file = self.machines.shared / job / str(index) / "steps"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def ran_twice_at_once(self, job: str, index: int = 0) -> bool:
        return (self.machines.shared / job / str(index) / "twice").exists()

    def sterna(self, *words: str) -> str:
        """A command of a user's."""
        command = [sys.executable, "-m", "sterna.cli", *words, "--kubeconfig", str(self.plane.kubeconfig)]
        environment = dict(os.environ, PYTHONPATH=str(ROOT / "src"))
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def labelled(machines: Machines) -> Machines:
    """Each node says that it has two GPUs, which nothing here looks for."""
    with machines.plane.api() as api:
        install(api)
        for name in machines.names:
            give_gpus(api, name)
    return machines


def give_gpus(api: Api, node: str) -> None:
    api.patch(f"/api/v1/nodes/{node}/status", {"status": {"capacity": {GPU: "2"}}})
    until(lambda: api.get(f"/api/v1/nodes/{node}")["status"]["allocatable"].get(GPU) == "2", 30, "GPUs of a node")


@pytest.fixture
def nodes(labelled: Machines) -> Iterator[Nodes]:
    with (
        labelled.plane.api() as api,
        OperatorProcess(labelled.plane.kubeconfig, "--no-leader-election", "--no-authenticate") as operator,
    ):
        nodes = Nodes(labelled, operator, api)
        nodes.until(lambda: operator.leads, "an operator that leads")
        yield nodes
        nodes.delete_all()


def a_counting_job(
    machines: Machines, name: str, total: int, workers: str | int = 1, save_every: int = 0, **more: Any
) -> Object:
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
        "workers": workers,
        "resources": {"cpu": "100m", "memory": "64Mi", "gpu": 1},
        "grace": "20s",
        "template": {"spec": {"containers": [container], "volumes": volumes}},
        **more,
    }
    return {"apiVersion": "sterna.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}


def numbers(steps: list[list[str]]) -> list[int]:
    return [int(step[0]) for step in steps]


def test_a_job_trains_to_its_end(nodes: Nodes) -> None:
    nodes.submit(a_counting_job(nodes.machines, "plain", 40))
    nodes.until_phase("plain", "Succeeded", within_seconds=PATIENCE_SECONDS)
    assert numbers(nodes.steps("plain")) == list(range(40))


def test_logs_are_those_of_the_pod(nodes: Nodes) -> None:
    nodes.submit(a_counting_job(nodes.machines, "speaks", 10_000))
    nodes.until_running("speaks", 1, PATIENCE_SECONDS)
    nodes.until(lambda: "step 3 of" in nodes.api.get(f"{PODS}/speaks-worker-0/log"), "its words")


def test_a_job_is_moved_to_another_node_and_no_step_is_lost(nodes: Nodes) -> None:
    nodes.submit(a_counting_job(nodes.machines, "moves", 200))
    (pod,) = nodes.until_running("moves", 1, PATIENCE_SECONDS)
    there = pod["spec"]["nodeName"]
    nodes.until(lambda: len(nodes.steps("moves")) > 20, "some steps")
    other = next(name for name in nodes.machines.names if name != there)
    nodes.sterna("migrate", "moves", other)
    nodes.until_phase("moves", "Succeeded", within_seconds=PATIENCE_SECONDS)
    steps = nodes.steps("moves")
    assert numbers(steps) == list(range(200))
    assert list(dict.fromkeys(step[2] for step in steps)) == [there, other]
    assert not nodes.ran_twice_at_once("moves")


def test_an_elastic_job_gives_workers_back_and_takes_them_again(nodes: Nodes) -> None:
    machines = nodes.machines
    nodes.submit(a_counting_job(machines, "elastic", 100_000, "1:4", resizing="torchrun"))
    nodes.until_running("elastic", 4, PATIENCE_SECONDS)
    nodes.submit(a_counting_job(machines, "guest", 60, 2))
    nodes.until_running("guest", 2, PATIENCE_SECONDS)
    nodes.until_running("elastic", 2, PATIENCE_SECONDS)
    nodes.until_phase("guest", "Succeeded", within_seconds=PATIENCE_SECONDS)
    nodes.until_running("elastic", 4, PATIENCE_SECONDS)
    assert not any(nodes.ran_twice_at_once("elastic", index) for index in range(4))


def test_a_serving_pod_gets_its_room_and_its_own_scheduler_binds_it(nodes: Nodes) -> None:
    nodes.submit(a_counting_job(nodes.machines, "yields", 100_000, "1:4", resizing="torchrun"))
    before = {pod["metadata"]["uid"] for pod in nodes.until_running("yields", 4, PATIENCE_SECONDS)}
    container = {"name": "model", "image": PYTHON, "command": ["sleep", "1000"], "resources": {"limits": {GPU: "1"}}}
    meta = {"name": "model", "annotations": {"SERVING_POD": "true"}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    nodes.submit({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    nodes.until(lambda: nodes.api.get(f"{PODS}/model")["status"].get("phase") == "Running", "the serving pod", 120)
    staying = {pod["metadata"]["uid"] for pod in nodes.pods("yields", "Running")}
    assert len(staying) == 3, nodes.picture()
    assert staying < before


def test_training_goes_on_while_the_operator_is_dead_and_after(nodes: Nodes) -> None:
    nodes.submit(a_counting_job(nodes.machines, "steady", 200))
    nodes.until_running("steady", 1, PATIENCE_SECONDS)
    nodes.until(lambda: len(nodes.steps("steady")) > 10, "some steps")
    nodes.operator.kill()
    seen = len(nodes.steps("steady"))
    nodes.until(lambda: len(nodes.steps("steady")) > seen + 20, "steps without an operator")
    nodes.operator.restart()
    nodes.until_phase("steady", "Succeeded", within_seconds=PATIENCE_SECONDS)
    steps = nodes.steps("steady")
    assert numbers(steps) == list(range(200))
    assert len({step[1] for step in steps}) == 1


def test_a_job_on_a_node_that_dies_goes_on_elsewhere_from_its_last_checkpoint(nodes: Nodes) -> None:
    machines = nodes.machines
    nodes.submit(a_counting_job(machines, "survives", 600, save_every=10))
    (pod,) = nodes.until_running("survives", 1, PATIENCE_SECONDS)
    lost = pod["spec"]["nodeName"]
    nodes.until(lambda: len(nodes.steps("survives")) > 30, "some steps")
    machines.kill(lost)
    try:
        nodes.until_phase("survives", "Succeeded", within_seconds=2 * PATIENCE_SECONDS)
        done = numbers(nodes.steps("survives"))
        assert set(done) == set(range(600))
        assert len(done) - 600 <= 10, "at most the steps since the last checkpoint are done again"
        assert not nodes.ran_twice_at_once("survives")
        assert lost not in nodes_of(nodes.pods("survives"))
    finally:
        machines.boot(lost)
        nodes.until(lambda: is_ready(nodes.api, lost), "the node's return", PATIENCE_SECONDS)
        give_gpus(nodes.api, lost)
