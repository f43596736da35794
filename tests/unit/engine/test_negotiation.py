"""If a target cannot be placed, the last jobs in the policy's order get nothing."""

from __future__ import annotations

import pytest

from sterna.engine.decide import Rules, decide
from sterna.engine.registry import Target
from sterna.model.snapshot import Snapshot
from sterna.wiring import make_placement, make_policy
from tests.builders import AJob, ANode, a_job, a_node, a_snapshot, decided, some_nodes

ORDERLY = [
    *("fifo", "fifo:preempt=false", "fifo:backfill=false", "srjf", "tiresias", "dragon"),
    *("elastic-fifo", "elastic-srjf", "elastic-tiresias", "ffdl", "afs-l"),
]

SCARCE: dict[str, tuple[list[ANode], list[AJob]]] = {
    "CPUs": (
        [a_node("n0", 8, cpus=8)],
        [a_job("old", cpus=4, remaining=10.0), a_job("young", 2, submit=1.0, cpus=4, remaining=1e5)],
    ),
    "nodes that three do not divide": (
        some_nodes(8, 8),
        [a_job("old", 2, devices=3, remaining=10.0), a_job("young", 3, submit=1.0, devices=3, remaining=1e3)],
    ),
    "whole nodes": (
        some_nodes(8, 8, 8, 8),
        [
            a_job("r0", 4, on={"n0": 4}),
            a_job("r1", 4, on={"n1": 4}),
            a_job("old", submit=1.0, devices=8, remaining=10.0),
            a_job("young", 2, submit=2.0, devices=8, remaining=1e3),
        ],
    ),
    "unequal nodes": (
        some_nodes(1, 1, 8),
        [a_job("old", 2, devices=2, remaining=10.0), a_job("young", 3, submit=1.0, devices=2, remaining=1e3)],
    ),
}


@pytest.mark.parametrize("policy", ORDERLY)
@pytest.mark.parametrize("scarce", SCARCE)
def test_an_older_shorter_smaller_job_is_not_passed_by_a_later_one(policy: str, scarce: str) -> None:
    nodes, jobs = SCARCE[scarce]
    given = decided(a_snapshot(jobs, nodes, now=5.0), policy).allocation
    assert given["old"] > 0
    assert given["young"] == 0


def test_what_only_another_arrangement_can_hold_is_arranged() -> None:
    """The younger one may go where the older one may not, so there is room for both."""
    nodes = [a_node("free", 8, taints=("burst",)), a_node("open", 4)]
    jobs = [
        a_job("old", 2),
        a_job("mid", submit=1.0, tolerates=("burst",)),
        a_job("young", 3, submit=2.0),
        a_job("late", 2, submit=3.0),
    ]
    assert decided(a_snapshot(jobs, nodes), "fifo").allocation == {"old": 2, "mid": 1, "young": 0, "late": 2}


@pytest.mark.parametrize(("policy", "late"), [("fifo:preempt=false:backfill=false", 0), ("fifo:preempt=false", 1)])
def test_in_strict_order_no_job_passes_one_that_fits_on_no_node_now(policy: str, late: int) -> None:
    jobs = [
        a_job("runs", cpus=4, on={"n0": 1}),
        a_job("next", 2, submit=1.0, cpus=4),
        a_job("late", submit=2.0, cpus=1),
    ]
    given = decided(a_snapshot(jobs, [a_node("n0", 8, cpus=8)], now=5.0), policy).allocation
    assert given == {"runs": 1, "next": 0, "late": late}


@pytest.mark.parametrize("policy", ["elastic-fifo", "elastic-srjf", "ffdl", "afs-l"])
@pytest.mark.parametrize("placement", ["stay", "pack", "spread", "topology"])
def test_a_capped_job_gets_the_available_capacity_and_no_more(policy: str, placement: str) -> None:
    """More could not be placed either, and then no job would have got workers."""
    nodes = [a_node("n0", 1), a_node("n1", 3, taints=("burst",)), a_node("n2", 8)]
    jobs = [
        a_job("wide", (2, 4), devices=2, tolerates=("burst",), remaining=5.0, on={"n2": 4}),
        a_job("small", (1, 3), submit=11.0, remaining=1.0),
        a_job("large", (3, 5), submit=12.0, remaining=50.0),
    ]
    given = decided(a_snapshot(jobs, nodes, now=12.0), policy, placement).allocation
    assert given["small"] >= 1


ELASTIC = ["elastic-fifo", "elastic-srjf", "elastic-tiresias", "ffdl", "afs-l"]

UNEVEN: dict[str, tuple[list[ANode], list[AJob]]] = {
    "four and three on eight nodes": (
        some_nodes(*[8] * 8),
        [a_job("a", (1, 13), devices=4), a_job("b", (1, 11), devices=3)],
    ),
    "three and four on four nodes": (
        some_nodes(*[8] * 4),
        [a_job("a", (1, 11), devices=3), a_job("b", (1, 11), devices=4)],
    ),
    "CPUs": (
        [a_node("n0", 2, cpus=8), a_node("n1", 2, cpus=16), a_node("n2", 8, cpus=4), a_node("n3", 16, cpus=32)],
        [a_job("a", (2, 12), devices=2, cpus=2), a_job("b", (2, 15), submit=1.0, cpus=1)],
    ),
}


@pytest.mark.parametrize("policy", ELASTIC)
@pytest.mark.parametrize("case", UNEVEN)
def test_two_that_take_room_from_each_other_as_they_grow_both_run(policy: str, case: str) -> None:
    nodes, jobs = UNEVEN[case]
    assert min(decided(a_snapshot(jobs, nodes, now=5.0), policy).allocation.values()) > 0


@pytest.mark.parametrize("policy", ELASTIC)
def test_how_far_jobs_may_grow_does_not_decide_how_often_a_policy_is_asked(policy: str) -> None:
    calls, rule = [], make_policy(policy)

    def counting(snapshot: Snapshot) -> Target:
        calls.append(snapshot)
        return rule(snapshot)

    jobs = [a_job("a", (1, 1000), devices=4), a_job("b", (1, 1000), devices=3)]
    decide(a_snapshot(jobs, some_nodes(*[8] * 500), now=5.0), Rules(counting, make_placement("stay")))
    assert len(calls) < 20


def test_what_one_shape_cannot_use_does_not_cost_it_what_it_has() -> None:
    """Nine workers each were counted; b's last two have no room, and a does not grow at the cost of the other seven."""
    nodes, jobs = UNEVEN["four and three on eight nodes"]
    assert decided(a_snapshot(jobs, nodes, now=5.0), "elastic-fifo").allocation == {"a": 9, "b": 7}
