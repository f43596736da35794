"""Node capacity: totals, usage of pods, planned usage, and nodes that accept a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from sterna.backends.kubernetes.api.objects import Node, Taint
from sterna.backends.kubernetes.cache.node_capacity import NodeCapacity, NodeChange, ResourceUsage
from sterna.backends.kubernetes.cache.node_facts import (
    affinity_label,
    describe_labels,
    satisfies,
    taint_word,
    tolerates,
)
from sterna.kinds.objects import Toleration
from sterna.kinds.parsed_job import NodeNeeds
from sterna.model.cluster import ResourceKind, Shape
from sterna.model.snapshot import NEVER

GPU = "nvidia.com/gpu"
GIB = 1 << 30


def a_node(
    name: str,
    *,
    gpus: object = 4,
    cpus: str = "8",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    is_cordoned: bool = False,
    ready: str = "True",
    pods: int = 110,
    beat: str = "",
) -> Node:
    room = {"cpu": cpus, "memory": "32Gi", GPU: gpus, "pods": pods}
    document: dict[str, Any] = {
        "metadata": {"name": name, "resourceVersion": "1", "labels": dict(labels or {})},
        "spec": {"unschedulable": is_cordoned, "taints": list(taints)},
        "status": {
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": beat}],
        },
    }
    return msgspec.convert(document, Node)


def some_capacity(*nodes: Node) -> NodeCapacity:
    capacity = NodeCapacity()
    for node in nodes:
        capacity.see(node)
    capacity.refresh()
    return capacity


def takers(capacity: NodeCapacity, needs: NodeNeeds = NodeNeeds()) -> list[str]:  # noqa: B008
    """Names of the nodes that take a pod with these needs."""
    terms = capacity.terms(needs)
    capacity.refresh()
    table = capacity.table()
    shape = Shape(selector=terms.selector, tolerations=terms.tolerations)
    return [name for name, takes in zip(table.name, table.accepting(shape), strict=True) if takes]


def test_nodes_are_rows_in_the_order_of_their_names_whatever_order_they_come_in() -> None:
    capacity = some_capacity(a_node("b", gpus=2), a_node("a", gpus=1), a_node("c", gpus=3))
    table = capacity.table()
    assert table.name == ("a", "b", "c")
    assert table.capacity[ResourceKind.DEVICES].tolist() == [1000, 2000, 3000]
    capacity.lose("a")
    assert capacity.refresh()
    assert capacity.table().capacity[ResourceKind.DEVICES].tolist() == [2000, 3000]
    assert dict(capacity.row_of) == {"b": 0, "c": 1}


def test_a_heartbeat_is_no_news() -> None:
    capacity = some_capacity(a_node("a", beat="2024-01-01T00:00:00Z"))
    assert capacity.see(a_node("a", beat="2024-01-01T00:00:10Z")) is NodeChange.NONE
    assert capacity.see(a_node("a", gpus="4")) is NodeChange.NONE
    assert capacity.see(a_node("a", gpus=3)) is NodeChange.CHANGED
    assert capacity.see(a_node("b")) is NodeChange.ADDED_OR_REMOVED
    assert capacity.lose("b") is NodeChange.ADDED_OR_REMOVED
    assert capacity.lose("b") is NodeChange.NONE


def test_foreign_pods_use_capacity_in_both_views() -> None:
    """DRAGON-18."""
    capacity = some_capacity(a_node("a", gpus=4))
    capacity.add_pod("pod", "a", ResourceUsage(3000, 6000, GIB))
    free = capacity.table().free[:, 0].tolist()
    assert free == [1000, 2000, 31 * GIB]
    assert capacity.has_room("a", 1000, 2000, GIB)
    assert not capacity.has_room("a", 2000, 0, 0)
    assert not capacity.has_room("a", 0, 3000, 0)
    capacity.remove_pod("pod")
    assert capacity.has_room("a", 4000, 8000, 32 * GIB)


def test_rules_see_desired_assignments_and_controllers_see_existing_pods() -> None:
    capacity = some_capacity(a_node("a", gpus=2), a_node("b", gpus=2))
    capacity.add_pod("old", "a", ResourceUsage(2000), is_planned=True)
    capacity.plan([("b", ResourceUsage(2000))])
    assert capacity.table().free[ResourceKind.DEVICES].tolist() == [2000, 0]
    assert not capacity.has_room("a", 1000, 0, 0)
    assert capacity.has_room("b", 2000, 0, 0)
    capacity.add_pod("old", "a", ResourceUsage(2000), is_planned=False)
    assert capacity.table().free[ResourceKind.DEVICES].tolist() == [0, 0]


def test_a_pod_seen_again_is_charged_once() -> None:
    capacity = some_capacity(a_node("a", gpus=4))
    assert capacity.add_pod("pod", "a", ResourceUsage(1000))
    assert not capacity.add_pod("pod", "a", ResourceUsage(1000))
    assert capacity.add_pod("pod", "a", ResourceUsage(2000))
    assert capacity.table().free[ResourceKind.DEVICES].tolist() == [2000]
    assert capacity.remove_pod("pod")
    assert not capacity.remove_pod("pod")


def test_a_pod_may_be_seen_before_its_node() -> None:
    capacity = NodeCapacity()
    capacity.add_pod("pod", "a", ResourceUsage(1000))
    capacity.see(a_node("a", gpus=4))
    capacity.refresh()
    assert capacity.table().free[ResourceKind.DEVICES].tolist() == [3000]


def test_an_over_committed_node_has_nothing_free_rather_than_less_than_nothing() -> None:
    capacity = some_capacity(a_node("a", gpus=1))
    capacity.add_pod("pod", "a", ResourceUsage(3000))
    assert capacity.table().free[ResourceKind.DEVICES].tolist() == [0]


def test_a_node_at_its_pod_limit_accepts_no_pod() -> None:
    capacity = some_capacity(a_node("a", pods=1))
    assert takers(capacity) == ["a"]
    capacity.add_pod("pod", "a", ResourceUsage())
    assert takers(capacity) == []
    assert not capacity.has_room("a", 0, 0, 0)


@pytest.mark.parametrize(
    ("node", "is_taken"),
    [
        pytest.param(a_node("a"), True, id="ready"),
        pytest.param(a_node("a", is_cordoned=True), False, id="cordoned"),
        pytest.param(a_node("a", ready="False"), False, id="not ready"),
        pytest.param(a_node("a", ready="Unknown"), False, id="unreachable"),
        pytest.param(a_node("a", taints=[{"key": "x", "effect": "NoSchedule"}]), False, id="DRAGON-17: NoSchedule"),
        pytest.param(a_node("a", taints=[{"key": "x", "effect": "NoExecute"}]), False, id="NoExecute"),
        pytest.param(a_node("a", taints=[{"key": "x", "effect": "PreferNoSchedule"}]), True, id="only preferred"),
    ],
)
def test_which_nodes_take_a_pod_that_asks_for_nothing_special(node: Node, is_taken: bool) -> None:
    assert takers(some_capacity(node)) == (["a"] if is_taken else [])


TAINT = Taint(key="gpu", value="yes", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "holds"),
    [
        (Toleration(key="gpu", value="yes", effect="NoSchedule"), True),
        (Toleration(key="gpu", value="yes"), True),
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="gpu", value="no"), False),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(key="gpu", value="yes", effect="NoExecute"), False),
    ],
)
def test_tolerations_mean_what_they_mean_to_kubernetes(toleration: Toleration, holds: bool) -> None:
    assert tolerates([toleration], TAINT) is holds


def test_a_tolerated_taint_opens_the_node_also_when_it_comes_later() -> None:
    capacity = some_capacity(a_node("a"), a_node("b"))
    needs = NodeNeeds(tolerations=(Toleration(key="gpu", operator="Exists"),))
    assert takers(capacity, needs) == ["a", "b"]
    capacity.see(a_node("a", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]))
    capacity.refresh()
    assert takers(capacity) == ["b"]
    assert takers(capacity, needs) == ["a", "b"]


def test_taints_are_worded_as_kubectl_does() -> None:
    assert taint_word(TAINT) == "gpu=yes:NoSchedule"
    assert taint_word(Taint(key="gpu", effect="NoExecute")) == "gpu:NoExecute"


LABELS = {"zone": "a", "gpus": "8"}


@pytest.mark.parametrize(
    ("terms", "holds"),
    [
        ([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}], True),
        ([{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}], False),
        ([{"matchExpressions": [{"key": "rack", "operator": "NotIn", "values": ["a"]}]}], True),
        ([{"matchExpressions": [{"key": "rack", "operator": "DoesNotExist"}]}], True),
        ([{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}], True),
        ([{"matchExpressions": [{"key": "gpus", "operator": "Gt", "values": ["4"]}]}], True),
        ([{"matchExpressions": [{"key": "gpus", "operator": "Lt", "values": ["8"]}]}], False),
        ([{"matchExpressions": [{"key": "zone", "operator": "Gt", "values": ["4"]}]}], False),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node"]}]}], True),
        ([{"matchExpressions": [{"key": "zone", "operator": "Odd"}]}], False),
        ([{}], False),
        ([], False),
        ([{"matchExpressions": [{"key": "x", "operator": "Exists"}]},
          {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}], True),
    ],
)  # fmt: skip
def test_required_node_affinity_means_what_it_means_to_kubernetes(terms: list[dict[str, Any]], holds: bool) -> None:
    assert satisfies(terms, "node", LABELS) is holds


def test_required_affinity_rules_nodes_out_and_is_explained_in_words() -> None:
    capacity = some_capacity(a_node("a", labels={"zone": "x"}), a_node("b", labels={"zone": "y"}))
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["y"]}]}
    required = msgspec.json.encode({"nodeSelectorTerms": [term]})
    assert takers(capacity, NodeNeeds(required=required)) == ["b"]
    capacity.see(a_node("a", labels={"zone": "y"}))
    capacity.refresh()
    assert takers(capacity, NodeNeeds(required=required)) == ["a", "b"]
    sentence = f"cannot run: all 3 nodes lack the label {affinity_label(required)}=matches."
    assert describe_labels(sentence, required) == "cannot run: all 3 nodes do not match its required node affinity."


def test_an_affinity_that_cannot_be_read_satisfies_no_node() -> None:
    capacity = some_capacity(a_node("a"))
    assert takers(capacity, NodeNeeds(required=b"[1, 2")) == []


def test_a_node_that_refused_a_pod_is_left_alone_for_a_while() -> None:
    capacity = some_capacity(a_node("a"), a_node("b"))
    capacity.distrust("a", 30.0)
    capacity.refresh()
    assert takers(capacity) == ["b"]
    assert not capacity.has_room("a", 0, 0, 0)
    assert capacity.trust_again(29.0) == 30.0
    assert capacity.trust_again(30.0) == NEVER
    capacity.refresh()
    assert takers(capacity) == ["a", "b"]


def test_an_amount_that_cannot_be_read_counts_as_nothing() -> None:
    capacity = some_capacity(a_node("a", gpus="many", cpus="2"))
    assert capacity.table().capacity[:2, 0].tolist() == [0, 2000]


def test_slots_of_nodes_that_went_are_used_again() -> None:
    capacity = some_capacity(*(a_node(f"node-{number}") for number in range(8)))
    for number in range(100):
        capacity.lose(f"node-{number}")
        capacity.see(a_node(f"node-{number + 8}", gpus=number % 8))
    capacity.refresh()
    assert len(capacity.table()) == 8
    assert capacity.table().capacity.shape == (3, 8)
    assert (
        capacity.table().free[ResourceKind.DEVICES].tolist() == capacity.table().capacity[ResourceKind.DEVICES].tolist()
    )


def test_parts_of_gpus_are_given_back_and_the_gpu_is_whole_again() -> None:
    """DRAGON-36, 41."""
    capacity = some_capacity(a_node("a", gpus=2))
    capacity.gpu_fractions.hold("one", "a", "aaaaa", 400, is_planned=False)
    capacity.gpu_fractions.plan([("a", "aaaaa")], 500, 1)
    assert capacity.table().free[ResourceKind.DEVICES].tolist() == [1000]
    assert {row: dict(left) for row, left in capacity.table().shared.items()} == {0: {0: 100}}
    capacity.gpu_fractions.release("one")
    capacity.gpu_fractions.plan([("a", "aaaaa")], 500, -1)
    assert capacity.table().free[ResourceKind.DEVICES].tolist() == [2000]
    assert dict(capacity.table().shared) == {}


def test_the_pod_by_which_kubeshare_holds_a_gpu_does_not_count_twice() -> None:
    """DRAGON-38."""
    capacity = some_capacity(a_node("a", gpus=2))
    capacity.add_pod("dummy", "a", ResourceUsage(1000))
    capacity.gpu_fractions.add_vgpu_pod("dummy", "a", "aaaaa")
    capacity.gpu_fractions.hold("one", "a", "aaaaa", 400, is_planned=False)
    assert capacity.table().free[ResourceKind.DEVICES].tolist() == [1000]
    capacity.gpu_fractions.remove_vgpu_pod("dummy")
    capacity.remove_pod("dummy")
    assert capacity.table().free[ResourceKind.DEVICES].tolist() == [1000]
