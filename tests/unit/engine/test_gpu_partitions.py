"""A policy per GPU type: the partition of each job, and jobs that run on nodes of another type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from sterna.engine.check import check
from sterna.engine.decide import Rules, decide
from sterna.engine.gpu_partitions import REST, GpuPartition, gpu_type_in_selector, gpu_types_in, split_by_gpu_type
from sterna.engine.registry import Target
from sterna.model.cluster import MILLI, NOWHERE, Assignment, Shape
from sterna.model.plan import Decision
from sterna.model.serving_pod import ServingPod
from sterna.model.snapshot import JobKey, Snapshot
from sterna.wiring import make_placement, make_rules
from tests.builders import AJob, ANode, a_job, a_node, a_snapshot

VODA, NVIDIA = "vodascheduler/accelerator", "nvidia.com/gpu.product"
A100, T4 = {VODA: "a100"}, {VODA: "t4"}
TYPES = ("a100", "t4")


def three_nodes() -> list[ANode]:
    """One of each type and one of none, in an order in which no part has the first numbers to itself."""
    return [a_node("n0", 4), a_node("n1", 4, labels=T4), a_node("n2", 4, labels=A100), a_node("n3", 4, labels=T4)]


def an_instant(jobs: Iterable[AJob], nodes: Iterable[ANode], *pods: ServingPod, now: float = 1000.0) -> Snapshot:
    return replace(a_snapshot(jobs, nodes, now=now), serving=pods)


def some_rules(rest: str = "elastic-fifo", **policies: str) -> Rules:
    return make_rules(rest, "stay", by_type={type_: (policy, "stay") for type_, policy in policies.items()})


def decide_checked(snapshot: Snapshot, rules: Rules) -> Decision:
    decision = decide(snapshot, rules)
    check(decision.plan, snapshot)
    return decision


def assignments(snapshot: Snapshot, decision: Decision) -> dict[str, dict[str, int]]:
    """Return the assignments of jobs that start or change."""
    names = snapshot.nodes.name
    return {
        snapshot.jobs.name_of(action.row): {names[node]: count for node, count in action.after.workers}
        for action in decision.plan
    }


def members(parts: Iterable[GpuPartition]) -> dict[str, tuple[list[str], list[str]]]:
    """Nodes and jobs of each part, as it sees them."""
    return {
        part.type: (
            list(part.snapshot.nodes.name),
            [part.snapshot.jobs.name_of(row) for row in range(len(part.snapshot.jobs))],
        )
        for part in parts
    }


def partition_of(selector: Mapping[str, str], nodes: Iterable[ANode], types: Iterable[str] = TYPES) -> str:
    parts = split_by_gpu_type(a_snapshot([a_job("j", 1, selector=selector)], nodes), list(types))
    (found,) = [part.type for part in parts if len(part.jobs)]
    return found


# Members of a partition.


def test_nodes_are_of_the_type_that_their_label_names() -> None:
    """VODA-77: nothing is configured but the policy."""
    snapshot = a_snapshot([a_job("x", 1, selector=T4), a_job("y", 1)], three_nodes())
    assert members(split_by_gpu_type(snapshot, TYPES)) == {
        REST: (["n0"], ["y"]),
        "a100": (["n2"], []),
        "t4": (["n1", "n3"], ["x"]),
    }


def test_types_without_rules_of_their_own_are_with_those_that_have_no_type() -> None:
    snapshot = a_snapshot([a_job("x", 1, selector=T4), a_job("y", 1), a_job("z", 1, selector=A100)], three_nodes())
    assert members(split_by_gpu_type(snapshot, ["a100"])) == {
        REST: (["n0", "n1", "n3"], ["x", "y"]),
        "a100": (["n2"], ["z"]),
    }


def test_the_first_label_counts_if_its_type_has_rules() -> None:
    nodes = [
        a_node("both", labels={VODA: "a100", NVIDIA: "t4"}),
        a_node("second", labels={VODA: "old", NVIDIA: "t4"}),
        a_node("none", labels={VODA: "old"}),
    ]
    found = members(split_by_gpu_type(a_snapshot([], nodes), TYPES))
    assert {type_: names for type_, (names, _) in found.items()} == {
        REST: ["none"],
        "a100": ["both"],
        "t4": ["second"],
    }


@pytest.mark.parametrize(
    ("selector", "type_"),
    [
        ({}, REST),
        (T4, "t4"),
        ({"kubernetes.io/hostname": "n3"}, "t4"),
        ({"zone": "west"}, "a100"),
        ({"zone": "east"}, REST),
        ({"zone": "moon"}, REST),
        ({VODA: "t4", "zone": "moon"}, "t4"),
        ({VODA: "h100"}, REST),
        ({NVIDIA: "NVIDIA-A100-SXM4-80GB"}, "a100"),
    ],
    ids=lambda value: str(value) or "rest",
)
def test_a_job_is_of_the_type_of_the_nodes_that_it_leaves_itself(selector: dict[str, str], type_: str) -> None:
    """By the name of the type, of a node, of a zone, or of what is the same by another label; else by its name."""
    west = {"zone": "west", NVIDIA: "NVIDIA-A100-SXM4-80GB"}
    nodes = [
        a_node("n0", labels={"zone": "east"}),
        a_node("n1", labels={**T4, "zone": "east"}),
        a_node("n2", labels={**A100, **west}),
        a_node("n3", labels={**T4, "kubernetes.io/hostname": "n3"}),
    ]
    assert partition_of(selector, nodes) == type_


def test_cordoned_nodes_keep_their_type_and_that_of_their_jobs() -> None:
    """Draining the nodes without a type does not send their jobs to nodes with one."""
    nodes = [a_node("n0", is_open=False), a_node("n1", labels=T4)]
    assert partition_of({}, nodes) == REST


def test_where_all_nodes_are_of_one_type_that_is_the_whole_cluster() -> None:
    snapshot = a_snapshot([a_job("x", 1), a_job("y", 1, selector=A100)], [a_node("n0", labels=T4)])
    (part,) = split_by_gpu_type(snapshot, TYPES)
    assert part.type == "t4"
    assert part.snapshot is snapshot


def test_a_cluster_without_nodes_is_one_part() -> None:
    (part,) = split_by_gpu_type(a_snapshot([a_job("x", 1, selector=T4)], []), TYPES)
    assert part.type == REST


def test_a_type_that_neither_nodes_nor_jobs_have_is_no_part() -> None:
    assert [part.type for part in split_by_gpu_type(a_snapshot([], three_nodes()), ("h100", "t4"))] == [REST, "t4"]


def test_types_are_read_from_node_labels_and_selectors() -> None:
    assert gpu_types_in(a_snapshot([], [*three_nodes(), a_node("n4", labels={NVIDIA: "Tesla-T4"})]).nodes) == [
        "Tesla-T4",
        "a100",
        "t4",
    ]
    assert gpu_type_in_selector((("zone", "east"), (VODA, "t4"))) == "t4"
    assert gpu_type_in_selector((("zone", "east"),)) == ""


# The snapshot of a partition.


def test_a_partition_counts_its_own_jobs_only() -> None:
    jobs = [
        a_job("w", (1, 9), selector=T4, on={"n1": 2, "n3": 1}),
        a_job("x", 2, devices=0.5, on={"n0": 2}, slots=(1, 1)),
        a_job("y", (2, 5), devices=2, selector=T4),
        a_job("z", (3, 2), workers=3, selector=A100),
    ]
    snapshot = replace(a_snapshot(jobs, three_nodes(), finished=(5.0, 7.0)), last_action=3.0)
    rest, a100, t4 = (part.snapshot for part in split_by_gpu_type(snapshot, TYPES))
    assert (t4.free_units, t4.held_units, t4.max_workers, t4.is_rigid) == (5 * MILLI, 3 * MILLI, 9, False)
    assert dict(t4.assignments) == {JobKey(0): Assignment(((0, 2), (1, 1)))}
    assert t4.assignments.get(JobKey(1), NOWHERE) is NOWHERE
    assert [shape.devices for shape in t4.shapes.rows] == [MILLI, 2 * MILLI]
    assert (rest.free_units, dict(rest.nodes.shared), t4.nodes.shared) == (3 * MILLI, {0: {1: 0}}, {})
    assert a100.jobs.barred is not None
    assert a100.jobs.barred.tolist() == [True]
    assert rest.jobs.barred is t4.jobs.barred is None
    assert t4.finished_service.tolist() == [5.0, 7.0]
    assert t4.last_action == 3.0


def test_nodes_without_devices_are_counted_in_cpus_though_others_have_devices() -> None:
    nodes = [a_node("n0", 0, cpus=4), a_node("n1", 4, labels=T4)]
    jobs = [a_job("x", (1, 9), devices=0, cpus=2), a_job("y", (1, 9), selector=T4)]
    snapshot = a_snapshot(jobs, nodes)
    assert assignments(snapshot, decide_checked(snapshot, some_rules(t4="fifo"))) == {"x": {"n0": 2}, "y": {"n1": 1}}


# Decisions.


def test_each_type_is_under_its_own_policy() -> None:
    """VODA-79: first come, first served here, the shortest first there, and equal shares for the rest."""
    jobs = [
        a_job("a-long", 4, selector=A100, remaining=900),
        a_job("a-short", 4, selector=A100, remaining=9, submit=1),
        a_job("t-long", 8, selector=T4, remaining=900),
        a_job("t-short", 8, selector=T4, remaining=9, submit=1),
        a_job("u", (1, 4)),
        a_job("v", (1, 4), submit=1),
    ]
    snapshot = a_snapshot(jobs, three_nodes())
    assert assignments(snapshot, decide_checked(snapshot, some_rules(a100="fifo", t4="srjf"))) == {
        "a-long": {"n2": 4},
        "t-short": {"n1": 4, "n3": 4},
        "u": {"n0": 2},
        "v": {"n0": 2},
    }


def test_a_job_without_a_type_is_not_placed_on_nodes_of_a_type_with_rules() -> None:
    """VODA-10: its reason lists the types."""
    snapshot = a_snapshot([a_job("x", 1)], [a_node("n1", labels=T4), a_node("n2", labels=A100)])
    decision = decide_checked(snapshot, some_rules(a100="fifo", t4="fifo"))
    assert list(decision.plan) == []
    assert [reason.sentence for reason in decision.reasons] == [
        "cannot run: no node can hold even one of its workers (1 device each): 1 of 2 nodes takes only jobs that ask "
        "for the GPU type a100; the other takes only jobs that ask for the GPU type t4."
    ]


def test_obstacles_are_counted_over_all_nodes() -> None:
    nodes = [*three_nodes(), a_node("n4", 4, labels={**A100, "zone": "east"})]
    jobs = [
        a_job("big", 1, devices=8, selector=A100),
        a_job("east", 1, devices=8, selector={**A100, "zone": "east"}, submit=1),
        a_job("here", 1, devices=8, submit=2),
        a_job("gone", 1, selector={VODA: "h100"}, submit=3),
    ]
    reasons = decide_checked(a_snapshot(jobs, nodes), some_rules(a100="fifo", t4="fifo")).reasons
    assert [reason.row for reason in reasons] == [0, 1, 2, 3]
    assert [reason.sentence.partition("each): ")[2] for reason in reasons] == [
        "3 of 5 nodes lack the label vodascheduler/accelerator=a100; the other 2 have at most 4 of the 8 devices it "
        "needs.",
        "3 of 5 nodes lack the label vodascheduler/accelerator=a100; 1 more lacks the label zone=east; the other has 4 "
        "of the 8 devices it needs.",
        "2 of 5 nodes take only jobs that ask for the GPU type a100; 2 more take only jobs that ask for the GPU type "
        "t4; the other has 4 of the 8 devices it needs.",
        "all 5 nodes lack the label vodascheduler/accelerator=h100.",
    ]


def test_used_up_resources_are_counted_over_all_nodes() -> None:
    nodes = [a_node(f"n{number}", 4, cpus=8, labels=labels) for number, labels in enumerate((A100, T4, T4))]
    jobs = [a_job("x", 1, selector=A100, cpus=6, on={"n0": 1}), a_job("a", 1, selector=A100, cpus=6, submit=1)]
    (reason,) = decide_checked(a_snapshot(jobs, nodes), some_rules(a100="fifo", t4="fifo")).reasons
    assert reason.sentence.partition("placed: ")[2] == (
        "2 of 3 nodes lack the label vodascheduler/accelerator=a100; the other has 2 free of the 6 CPUs it needs."
    )


def test_actions_and_reasons_are_ordered_by_kind() -> None:
    jobs = [
        a_job("x", 4, selector=A100, remaining=900, on={"n2": 4}, first_start=0.0),
        a_job("y", 4, selector=A100, remaining=9, submit=1),
        a_job("u", 1, submit=2),
        a_job("w", 9, selector=T4, submit=3),
    ]
    snapshot = a_snapshot(jobs, three_nodes())
    decision = decide_checked(snapshot, some_rules(a100="srjf", t4="fifo"))
    actions = [(action.kind.name, snapshot.jobs.name_of(action.row)) for action in decision.plan]
    assert actions == [("STOP", "x"), ("START", "u"), ("START", "y")]
    assert [reason.job for reason in decision.reasons] == ["x", "u", "y", "w"]
    assert decision.reasons[0].who == ("y",)


def test_a_decision_stands_until_the_first_part_wants_to_be_asked_again() -> None:
    def asking(until: float) -> Rules:
        return Rules(lambda snapshot: Target(np.zeros(len(snapshot.jobs), np.int64), until), make_placement("stay"))

    rules = replace(asking(2000.0), by_type={"t4": asking(1500.0), "a100": asking(3000.0)})
    assert decide_checked(an_instant([], three_nodes()), rules).until == 1500.0


def test_a_serving_pod_makes_room_on_its_own_type_and_others_go_on() -> None:
    """DRAGON-57 holds for the type of the pod; elsewhere jobs start in the same round."""
    jobs = [a_job("t", (1, 8), selector=T4, on={"n1": 4, "n3": 4}, first_start=0.0), a_job("u", 2, submit=1)]
    pod = ServingPod("chat", Shape(2 * MILLI, selector=tuple(T4.items())), 999.0)
    snapshot = an_instant(jobs, three_nodes(), pod)
    decision = decide_checked(snapshot, some_rules(t4="elastic-fifo", a100="fifo"))
    assert [(action.kind.name, snapshot.jobs.name_of(action.row)) for action in decision.plan] == [
        ("SHRINK", "t"),
        ("START", "u"),
    ]
    assert decision.reasons[0].sentence == "shrank from 8 to 6 workers to make room for serving pod chat."


def test_a_serving_pod_without_a_type_takes_nothing_from_those_that_have_one() -> None:
    jobs = [a_job("t", (1, 8), selector=T4, on={"n1": 4, "n3": 4}, first_start=0.0)]
    pod = ServingPod("chat", Shape(8 * MILLI), 999.0)
    assert list(decide_checked(an_instant(jobs, three_nodes(), pod), some_rules(t4="elastic-fifo")).plan) == []


# Jobs outside their partition.


def test_a_job_on_nodes_of_another_type_goes_on_and_what_it_holds_is_not_given_away() -> None:
    """VODA-78: a label that is added later stops no job."""
    jobs = [
        a_job("outside", (1, 4), on={"n1": 2}, first_start=0.0),
        a_job("both", (2, 9), selector=T4, on={"n0": 1, "n3": 1}, first_start=0.0),
        a_job("t", (1, 9), selector=T4, submit=1),
        a_job("u", (1, 9), submit=2),
    ]
    snapshot = a_snapshot(jobs, three_nodes())
    decision = decide_checked(snapshot, some_rules(t4="elastic-fifo", a100="fifo"))
    assert assignments(snapshot, decision) == {"t": {"n1": 2, "n3": 3}, "u": {"n0": 3}}
    assert {reason.job for reason in decision.reasons} == {"t", "u"}


def test_parameter_servers_on_another_type_keep_a_job_where_it_is() -> None:
    jobs = [a_job("x", (1, 8), ps=1, selector=T4, on={"n1": 1}, ps_on={"n0": 1}, first_start=0.0)]
    assert list(decide_checked(a_snapshot(jobs, three_nodes()), some_rules(t4="elastic-fifo")).plan) == []


def test_another_default_policy_keeps_types_apart() -> None:
    rules = some_rules(a100="fifo", t4="srjf").under(make_rules("tiresias", "stay").policy)
    assert {type_: type(each.policy).__name__ for type_, each in rules.by_type.items()} == {
        "a100": "Tiresias",
        "t4": "Tiresias",
    }
    assert type(rules.policy).__name__ == "Tiresias"
