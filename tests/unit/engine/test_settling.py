"""When nodes refuse what devices allow: those that come last in the policy's order go without."""

from __future__ import annotations

import pytest

from tests.builders import AJob, ANode, a_job, a_node, a_snapshot, decided, some_nodes

ORDERLY = [
    *("fifo", "fifo:preempt=false", "fifo:backfill=false", "srjf", "tiresias", "dragon"),
    *("elastic-fifo", "elastic-srjf", "elastic-tiresias", "ffdl", "afs-l"),
]

CROWDED: dict[str, tuple[list[ANode], list[AJob]]] = {
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
@pytest.mark.parametrize("scarce", CROWDED)
def test_an_older_shorter_smaller_job_is_not_passed_by_a_later_one(policy: str, scarce: str) -> None:
    nodes, jobs = CROWDED[scarce]
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
def test_in_strict_order_nobody_passes_one_that_no_node_can_hold_now(policy: str, late: int) -> None:
    jobs = [
        a_job("runs", cpus=4, on={"n0": 1}),
        a_job("next", 2, submit=1.0, cpus=4),
        a_job("late", submit=2.0, cpus=1),
    ]
    given = decided(a_snapshot(jobs, [a_node("n0", 8, cpus=8)], now=5.0), policy).allocation
    assert given == {"runs": 1, "next": 0, "late": late}


@pytest.mark.parametrize("policy", ["elastic-fifo", "elastic-srjf", "ffdl", "afs-l"])
@pytest.mark.parametrize("placement", ["stay", "pack", "spread", "topology"])
def test_whoever_was_held_gets_the_room_there_is_and_not_more(policy: str, placement: str) -> None:
    """More than that could not be placed either, and then nobody would have got anything."""
    nodes = [a_node("n0", 1), a_node("n1", 3, taints=("burst",)), a_node("n2", 8)]
    jobs = [
        a_job("wide", (2, 4), devices=2, tolerates=("burst",), remaining=5.0, on={"n2": 4}),
        a_job("small", (1, 3), submit=11.0, remaining=1.0),
        a_job("large", (3, 5), submit=12.0, remaining=50.0),
    ]
    given = decided(a_snapshot(jobs, nodes, now=12.0), policy, placement).allocation
    assert given["small"] >= 1
