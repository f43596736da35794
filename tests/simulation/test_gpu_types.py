"""The operator on a cluster of two GPU types, each under a policy of its own."""

from __future__ import annotations

from typing import Any

from sterna.backends.kubernetes.api.resources import NODES
from sterna.control.round_loop import RoundLoop
from sterna.kinds.training_job import TRAINING_JOBS
from sterna.wiring import make_rules, rules_by_type
from tests.simulation.kubernetes_runs import Cluster

TYPE, PRODUCT = "vodascheduler/accelerator", "nvidia.com/gpu.product"


def a_cluster_of_two_types() -> Cluster:
    """Types come from Voda's label on one node and by NVIDIA's on the other; a third has none."""
    cluster = Cluster()
    cluster.nodes.add("node-a", gpus=4, labels={TYPE: "a100", PRODUCT: "NVIDIA-A100-SXM4-80GB"})
    cluster.nodes.add("node-b", gpus=4, labels={PRODUCT: "Tesla-T4"})
    cluster.nodes.add("node-c", gpus=2)
    operator = cluster.start()
    by_type = rules_by_type(["a100=fifo:preempt=false", "Tesla-T4=elastic-fifo"])
    rules = make_rules("fifo", "stay", by_type=by_type)
    operator.controller = RoundLoop(operator.backend, rules)
    return cluster


def asking(labels: dict[str, str]) -> dict[str, Any]:
    return {"pod": {"nodeSelector": labels}}


def nodes_of(cluster: Cluster, job: str) -> list[str]:
    return [pod["spec"]["nodeName"] for pod in cluster.pods(job)]


def test_each_type_has_a_policy_of_its_own() -> None:
    """VODA-13, 77, 79: fixed sizes on one type, elastic ones on the other, and the rest by itself."""
    cluster = a_cluster_of_two_types()
    cluster.submit("rigid", 1, most=4, seconds=1000, **asking({TYPE: "a100"}))
    cluster.submit("elastic", 1, most=4, seconds=1000, **asking({PRODUCT: "Tesla-T4"}))
    cluster.submit("plain", 2, seconds=1000)
    cluster.run(20)
    assert nodes_of(cluster, "rigid") == ["node-a"]
    assert nodes_of(cluster, "elastic") == ["node-b"] * 4
    assert nodes_of(cluster, "plain") == ["node-c"] * 2


def test_a_type_may_be_asked_for_by_another_label_or_by_affinity() -> None:
    cluster = a_cluster_of_two_types()
    term = {"matchExpressions": [{"key": PRODUCT, "operator": "In", "values": ["Tesla-T4", "Tesla-P4"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    cluster.submit("product", 1, seconds=1000, **asking({PRODUCT: "NVIDIA-A100-SXM4-80GB"}))
    cluster.submit("affine", 1, most=4, seconds=1000, pod={"affinity": {"nodeAffinity": required}})
    cluster.run(20)
    assert nodes_of(cluster, "product") == ["node-a"]
    assert nodes_of(cluster, "affine") == ["node-b"] * 4


def test_reason_of_a_job_without_a_type_names_the_type_of_the_nodes() -> None:
    """VODA-10."""
    cluster = a_cluster_of_two_types()
    cluster.submit("wide", 1, gpus=4, seconds=1000)
    cluster.run(20)
    assert cluster.pods("wide") == []
    reason = cluster.kube.get(TRAINING_JOBS, "wide")["status"]["reason"]
    assert "takes only jobs that ask for the GPU type Tesla-T4" in reason
    assert "takes only jobs that ask for the GPU type a100" in reason


def test_label_that_is_added_later_stops_no_job() -> None:
    """VODA-78: the job that runs there goes on; what it leaves is for the type."""
    cluster = a_cluster_of_two_types()
    cluster.submit("early", 1, seconds=60)
    cluster.run(20)
    cluster.kube.patch(NODES, "node-c", {"metadata": {"labels": {TYPE: "a100"}}})
    cluster.submit("late", 2, seconds=30, **asking({"kubernetes.io/hostname": "node-c"}))
    cluster.run(20)
    assert cluster.phases() == {"early": "Running", "late": "Waiting"}
    assert nodes_of(cluster, "early") == ["node-c"]
    cluster.run(100)
    assert cluster.phases() == {"early": "Succeeded", "late": "Succeeded"}
