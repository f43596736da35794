"""Reservations for serving pods on a cluster in memory: the nodes they accept, and their order."""

from __future__ import annotations

from typing import Any

from sterna.backends.kubernetes.api.resources import NODES
from sterna.kinds.resource import PODS
from sterna.kinds.share_pod import SHARE_PODS
from tests.fakes.kube_nodes import GPU
from tests.fakes.kube_store import Object
from tests.simulation.kubernetes_kubeshare import GPU_ID, FakeKubeShare
from tests.simulation.kubernetes_runs import USUAL, Chosen, Cluster
from tests.unit.backends.kubernetes.backend.test_jobs import status_of

TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}
TOLERATING = {"tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]}


def a_cluster(nodes: int = 1, gpus: int = 4, rules: Chosen = USUAL) -> Cluster:
    """A cluster with KubeShare and no operator yet."""
    cluster = Cluster(rules=rules)
    for number in range(nodes):
        cluster.nodes.add(f"node-{number}", gpus=gpus)
    FakeKubeShare(cluster.kube)
    return cluster


def a_serving_pod(name: str, gpus: int, **spec: Any) -> Object:
    container = {"name": "x", "image": "x", "resources": {"limits": {GPU: gpus}}}
    meta = {"name": name, "annotations": {"SERVING_POD": "true"}}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


def an_urgent_share(name: str, request: str, **spec: Any) -> Object:
    annotations = {"lsalab.nthu/priority": "high", "kubeshare/gpu_request": request, "kubeshare/gpu_limit": "1.0"}
    meta = {"name": name, "annotations": {**annotations, "kubeshare/gpu_mem": "1000"}}
    return {"metadata": meta, "spec": {"containers": [{"name": "x", "image": "x"}], **spec}}


def place_of(cluster: Cluster, name: str) -> tuple[str, str]:
    """Node and GPU of a SharePod; empty as long as it has none."""
    share = cluster.kube.get(SHARE_PODS, name)
    return share["spec"].get("nodeName", ""), share["metadata"]["annotations"].get(GPU_ID, "")


# Which nodes they accept.


def test_a_serving_pod_that_was_there_before_the_operator_has_room_made_for_it_on_nodes_that_it_tolerates() -> None:
    """DRAGON-54, 59."""
    cluster = a_cluster()
    cluster.kube.patch(NODES, "node-0", {"spec": {"taints": [TAINT]}})
    cluster.start()
    cluster.submit("job", 1, most=4, seconds=1000.0, pod=TOLERATING)
    cluster.run(5.0)
    cluster.kube.create(PODS, a_serving_pod("serve", 2, **TOLERATING))
    cluster.crash()
    cluster.run(10.0)
    assert status_of(cluster, "job")["reason"].startswith("shrank from 4 to 2 workers to make room for serving pod")


def test_room_is_kept_for_a_serving_pod_on_a_node_that_comes_later_with_a_taint_that_it_tolerates() -> None:
    """DRAGON-59."""
    cluster = a_cluster(gpus=1)
    cluster.start()
    cluster.kube.create(PODS, a_serving_pod("serve", 4, **TOLERATING))
    cluster.run(2.0)
    cluster.nodes.add("node-1", gpus=4)
    cluster.kube.patch(NODES, "node-1", {"spec": {"taints": [TAINT]}})
    cluster.submit("job", 4, seconds=1000.0, pod=TOLERATING)
    cluster.run(5.0)
    assert cluster.pods("job") == []


def test_an_urgent_share_pod_goes_only_where_it_may_be() -> None:
    """DRAGON-40: KubeShare does not check whether a node is suitable, so Sterna does."""
    cluster = a_cluster(nodes=4, gpus=1)
    cluster.kube.patch(NODES, "node-0", {"spec": {"taints": [TAINT]}})
    for number in (2, 3):
        cluster.kube.patch(NODES, f"node-{number}", {"metadata": {"labels": {"disk": "ssd", "zone": str(number)}}})
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["3"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    cluster.start()
    cluster.run(1.0)
    cluster.kube.create(SHARE_PODS, an_urgent_share("in-zone", "1.0", affinity=affinity))
    cluster.run(1.0)
    cluster.kube.create(SHARE_PODS, an_urgent_share("with-disk", "1.0", nodeSelector={"disk": "ssd"}))
    cluster.run(1.0)
    for name in ("usual", "tolerating"):
        cluster.kube.create(SHARE_PODS, an_urgent_share(name, "1.0", **(TOLERATING if name == "tolerating" else {})))
        cluster.run(1.0)
    found = [place_of(cluster, name)[0] for name in ("in-zone", "with-disk", "usual", "tolerating")]
    assert found == ["node-3", "node-2", "node-1", "node-0"]


# Who goes first, DRAGON-55.


def test_a_serving_pod_goes_before_an_urgent_share_pod_that_came_earlier() -> None:
    cluster = a_cluster(gpus=1)
    cluster.start()
    cluster.submit("job", 1, seconds=1000.0)
    cluster.run(4.0)
    cluster.kube.create(SHARE_PODS, an_urgent_share("urgent", "0.6"))
    cluster.kube.create(PODS, a_serving_pod("serve", 1))
    cluster.run(10.0)
    assert cluster.pods("job") == []
    assert place_of(cluster, "urgent") == ("", "")
    cluster.kube.delete(PODS, "serve", gracePeriodSeconds=0)
    cluster.run(5.0)
    assert place_of(cluster, "urgent") == ("node-0", "aaaaa")


def test_an_urgent_share_pod_does_not_take_the_room_that_was_made_for_a_serving_pod() -> None:
    """DRAGON-59."""
    cluster = a_cluster(gpus=2, rules=Chosen(reservation="serving:preempt=false"))
    cluster.start()
    cluster.submit("job", 1, most=2, seconds=1000.0)
    cluster.run(5.0)
    cluster.kube.create(PODS, a_serving_pod("serve", 1))
    cluster.run(5.0)
    assert status_of(cluster, "job")["reason"].startswith("shrank from 2 to 1 worker")
    cluster.kube.create(SHARE_PODS, an_urgent_share("urgent", "0.6"))
    cluster.run(10.0)
    assert place_of(cluster, "urgent") == ("", "")


def test_an_urgent_share_pod_does_not_wait_for_a_serving_pod_that_stays_unbound() -> None:
    """DRAGON-59: longer than ten minutes."""
    cluster = a_cluster(gpus=1)
    cluster.start()
    cluster.kube.create(PODS, a_serving_pod("serve", 1))
    cluster.kube.create(SHARE_PODS, an_urgent_share("urgent", "0.6"))
    cluster.run(590.0)
    assert place_of(cluster, "urgent") == ("", "")
    cluster.run(20.0)
    assert place_of(cluster, "urgent") == ("node-0", "aaaaa")
