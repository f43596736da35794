"""Real training pods on two real nodes: run, scaled, moved, pre-empted; nodes are lost, and operators die.

Each test begins with a cluster without jobs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes.nodes.images import PYTHON
from tests.kubernetes.nodes.machines import Machines, is_ready
from tests.kubernetes.nodes.training import GPU, Nodes, a_counting_job, give_gpus, numbers
from tests.kubernetes.operated import PODS, nodes_of
from tests.kubernetes.operator_process import OperatorProcess


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


def test_a_job_trains_to_its_end(nodes: Nodes) -> None:
    nodes.submit(a_counting_job(nodes.machines, "plain", 40))
    nodes.until_phase("plain", "Succeeded")
    assert numbers(nodes.steps("plain")) == list(range(40))


def test_logs_are_those_of_the_pod(nodes: Nodes) -> None:
    nodes.submit(a_counting_job(nodes.machines, "speaks", 10_000))
    nodes.until_running("speaks", 1)
    nodes.until(lambda: "step 3 of" in nodes.api.get(f"{PODS}/speaks-worker-0/log"), "its words")


def test_a_job_is_moved_to_another_node_and_no_step_is_lost(nodes: Nodes) -> None:
    nodes.submit(a_counting_job(nodes.machines, "moves", 500))
    (pod,) = nodes.until_running("moves", 1)
    there = pod["spec"]["nodeName"]
    nodes.until(lambda: len(nodes.steps("moves")) > 20, "some steps")
    other = next(name for name in nodes.machines.names if name != there)
    nodes.sterna("migrate", "moves", other)
    nodes.until_phase("moves", "Succeeded")
    steps = nodes.steps("moves")
    assert numbers(steps) == list(range(500))
    assert list(dict.fromkeys(step[2] for step in steps)) == [there, other]
    assert not nodes.ran_twice_at_once("moves")


def test_an_elastic_job_gives_workers_back_and_takes_them_again(nodes: Nodes) -> None:
    machines = nodes.machines
    nodes.submit(a_counting_job(machines, "elastic", 100_000, "1:4", resizing="torchrun"))
    nodes.until_running("elastic", 4)
    nodes.submit(a_counting_job(machines, "guest", 300, 2))
    nodes.until_running("guest", 2)
    nodes.until_running("elastic", 2)
    nodes.until_phase("guest", "Succeeded")
    nodes.until_running("elastic", 4)
    assert not any(nodes.ran_twice_at_once("elastic", index) for index in range(4))


def test_a_serving_pod_gets_its_room_and_its_own_scheduler_binds_it(nodes: Nodes) -> None:
    nodes.submit(a_counting_job(nodes.machines, "yields", 100_000, "1:4", resizing="torchrun"))
    before = {pod["metadata"]["uid"] for pod in nodes.until_running("yields", 4)}
    container = {"name": "model", "image": PYTHON, "command": ["sleep", "1000"], "resources": {"limits": {GPU: "1"}}}
    meta = {"name": "model", "annotations": {"SERVING_POD": "true"}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    nodes.submit({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    nodes.until(lambda: nodes.api.get(f"{PODS}/model")["status"].get("phase") == "Running", "the serving pod")
    staying = {pod["metadata"]["uid"] for pod in nodes.pods("yields", "Running")}
    assert len(staying) == 3, nodes.picture()
    assert staying < before


def test_training_goes_on_while_the_operator_is_dead_and_after(nodes: Nodes) -> None:
    nodes.submit(a_counting_job(nodes.machines, "steady", 400))
    nodes.until_running("steady", 1)
    nodes.until(lambda: len(nodes.steps("steady")) > 10, "some steps")
    nodes.operator.kill()
    seen = len(nodes.steps("steady"))
    nodes.until(lambda: len(nodes.steps("steady")) > seen + 20, "steps without an operator")
    nodes.operator.restart()
    nodes.until_phase("steady", "Succeeded")
    steps = nodes.steps("steady")
    assert numbers(steps) == list(range(400))
    assert len({step[1] for step in steps}) == 1


def test_a_job_on_a_node_that_dies_goes_on_elsewhere_from_its_last_checkpoint(nodes: Nodes) -> None:
    machines = nodes.machines
    nodes.submit(a_counting_job(machines, "survives", 600, save_every=10))
    (pod,) = nodes.until_running("survives", 1)
    lost = pod["spec"]["nodeName"]
    nodes.until(lambda: len(nodes.steps("survives")) > 30, "some steps")
    machines.kill(lost)
    try:
        nodes.until_phase("survives", "Succeeded")
        done = numbers(nodes.steps("survives"))
        assert set(done) == set(range(600))
        assert len(done) - 600 <= 10, "at most the steps since the last checkpoint are done again"
        assert not nodes.ran_twice_at_once("survives")
        assert lost not in nodes_of(nodes.pods("survives"))
    finally:
        machines.boot(lost)
        nodes.until(lambda: is_ready(nodes.api, lost), "the node's return")
        give_gpus(nodes.api, lost)
