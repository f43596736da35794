"""`decide` as a whole: negotiation of policy and placement, marks, and limits."""

from __future__ import annotations

import numpy as np
import pytest

from sterna.engine.decide import Rules, decide
from sterna.engine.registry import RuleKind, Target
from sterna.errors import Bug
from sterna.model.snapshot import Snapshot
from sterna.wiring import make_placement, make_policy, rules_of
from tests.builders import a_job, a_node, a_snapshot, after, decided, some_nodes


def ignores_caps(snapshot: Snapshot) -> Target:
    """Request four workers for each job, regardless of the snapshot."""
    return Target(np.full(len(snapshot.jobs), 4, dtype=np.int64))


def test_a_policy_that_ignores_its_caps_raises_a_bug() -> None:
    snapshot = a_snapshot([a_job("a", (1, 4), devices=2)], some_nodes(3, 3))
    with pytest.raises(Bug, match="do not come to terms"):
        decide(snapshot, Rules(ignores_caps, make_placement("stay")))


def alternates(snapshot: Snapshot) -> Target:
    """A policy that always wants the other one of two jobs to run."""
    runs = snapshot.jobs.workers > 0
    wanted = ~runs if runs.any() else np.array([True, False])
    return Target(wanted * snapshot.jobs.minimum)


def stepping(snapshot: Snapshot) -> Target:
    """A policy that always wants the job after the one that runs, until the last."""
    runs = snapshot.jobs.workers.nonzero()[0]
    wanted = np.zeros(len(snapshot.jobs), dtype=np.int64)
    wanted[min(int(runs[0]) + 1, len(wanted) - 1) if len(runs) else 0] = 1
    return Target(wanted)


def test_a_plan_is_projected_until_its_outcome_is_stable() -> None:
    jobs = [a_job(f"j{number}", submit=number) for number in range(12)]
    snapshot = a_snapshot(jobs, [a_node("closed", 8, is_open=False), a_node("n0", 1)], now=50)
    decision = decide(snapshot, Rules(stepping, make_placement("stay")))
    assert [snapshot.jobs.name_of(action.row) for action in decision.plan] == ["j11"]


@pytest.mark.parametrize(("sizes", "first"), [((1, 1), "a"), ((2, 1), "a"), ((1, 2), "b")])
def test_of_a_cycle_of_plans_the_one_that_uses_most_units_is_kept(sizes: tuple[int, int], first: str) -> None:
    """The kept job is not stopped for the other one in the next round."""
    jobs = [a_job("a", sizes[0]), a_job("b", sizes[1], submit=1)]
    snapshot = a_snapshot(jobs, [a_node("closed", 8, is_open=False), a_node("n0", 2)], now=5)
    rules = Rules(alternates, make_placement("stay"))
    decision = decide(snapshot, rules)
    assert [snapshot.jobs.name_of(action.row) for action in decision.plan] == [first]
    assert not decide(after(snapshot, decision), rules).plan.actions


def test_of_plans_that_would_undo_each_other_and_use_as_much_none_is_carried_out() -> None:
    jobs = [a_job("a", 2), a_job("b", 2, submit=1, on={"n0": 2})]
    snapshot = a_snapshot(jobs, [a_node("closed", 8, is_open=False), a_node("n0", 2)], now=5)
    assert not decide(snapshot, Rules(alternates, make_placement("stay"))).plan.actions


def test_no_job_grows_in_one_round_to_be_stopped_in_the_next() -> None:
    """Closed nodes, CPUs and a full cluster: four thoughts do not reach the plan that lasts."""
    nodes = [
        *(a_node("n2", 2, cpus=8), a_node("n3", 4, cpus=8, is_open=False), a_node("n4", 2, cpus=8)),
        *(a_node("n5", 8, cpus=4), a_node("n6", 2, cpus=8, is_open=False), a_node("n7", 2, cpus=4)),
        *(a_node("n8", 4, cpus=16), a_node("n9", 2, cpus=8)),
    ]
    flat, falling = (1, 1.5, 2, 2, 2), (1, 1.9, 2.8, 3.51, 4.01, 4.11, 4.19)
    jobs = [
        a_job("j1", 3, priority=-1, cpus=2, on={"n5": 2, "n6": 1}, first_start=10, executed=5),
        a_job("j2", on={"n4": 1}, first_start=10, attained=5000, executed=5),
        a_job("j5", (2, 4), workers=4, on={"n4": 1, "n3": 3}, first_start=10, attained=5000, executed=50),
        a_job("j7", 8, cpus=1, first_start=10, waiting_since=216, executed=50),
        a_job("j9", (1, 8), speedup=flat, waiting_since=487),
        a_job("j10", 2, submit=693, first_start=703, waiting_since=891, executed=5),
        a_job("j13", 4, cpus=1, first_start=224, waiting_since=323, executed=5),
        a_job("j18", (1, 9), workers=4, cpus=2, first_start=774, waiting_since=783, executed=5),
        a_job("j19", 2, cpus=1, on={"n6": 1, "n9": 1}, first_start=98, attained=5000, executed=50),
        a_job("j20", (1, 9), workers=5, speedup=falling, on={"n5": 1}, first_start=43, attained=5000, executed=50),
        a_job("j21", (2, 7), workers=3, cpus=2, first_start=591, waiting_since=653, executed=5),
        a_job("j25", (1, 4), workers=2, devices=2, cpus=2, first_start=10, waiting_since=127, executed=5),
        a_job("j27", (1, 5), workers=4, submit=469, waiting_since=843),
        a_job("j29", (1, 8), workers=3, cpus=1, submit=524, waiting_since=769),
    ]
    before = a_snapshot(jobs, nodes, now=1000, last_action=995)
    first = decided(before, "elastic-tiresias", "stay:repack=stuck")
    assert decided(after(before, first.decision), "elastic-tiresias", "stay:repack=stuck").actions == []


def test_deciding_writes_to_nothing_it_was_given() -> None:
    jobs = [a_job("a", (1, 4), on={"n0": 2}), a_job("b", (2, 4), submit=1), a_job("c", 1, priority=-1)]
    for info in rules_of(RuleKind.POLICY):
        snapshot = a_snapshot(jobs, some_nodes(2, 2), now=50)
        snapshot.nodes.free.flags.writeable = False
        snapshot.nodes.capacity.flags.writeable = False
        free = snapshot.nodes.free.copy()
        decided(snapshot, info.name)
        assert (snapshot.nodes.free == free).all()
        assert dict(snapshot.assignments) == dict(a_snapshot(jobs, some_nodes(2, 2)).assignments)


@pytest.mark.parametrize("info", rules_of(RuleKind.POLICY), ids=lambda info: info.name)
def test_a_job_that_may_not_run_now_gets_nothing(info: object) -> None:
    """Its maximum is below its minimum for the moment."""
    jobs = [a_job("barred", (2, 1), workers=2), a_job("other", (1, 2), submit=1)]
    allocation = decided(a_snapshot(jobs, 8), info.name).allocation  # type: ignore[attr-defined]
    assert allocation["barred"] == 0
    assert allocation["other"] >= 1


@pytest.mark.parametrize("info", rules_of(RuleKind.POLICY), ids=lambda info: info.name)
def test_a_job_that_fits_no_node_blocks_no_other(info: object) -> None:
    jobs = [a_job("never", 1, selector={"zone": "moon"}), a_job("huge", 99), a_job("other", 2, submit=1)]
    allocation = decided(a_snapshot(jobs, some_nodes(2, 2), now=1000), info.name).allocation  # type: ignore[attr-defined]
    assert allocation == {"never": 0, "huge": 0, "other": 2}


def test_a_cluster_without_devices_is_counted_in_cpus() -> None:
    """VODA-26 on another unit: 0 or min..max, never more than there is."""
    nodes = [a_node("n0", 0, cpus=4), a_node("n1", 0, cpus=4)]
    jobs = [a_job("a", (1, 3), devices=0, cpus=2), a_job("b", (1, 3), devices=0, cpus=1, submit=1)]
    for info in rules_of(RuleKind.POLICY):
        allocation = decided(a_snapshot(jobs, nodes, now=1000), info.name).allocation
        assert allocation["a"] * 2 + allocation["b"] <= 8
        assert min(allocation.values()) >= 1


def test_a_policy_is_called_with_a_snapshot_and_nothing_else() -> None:
    snapshot = a_snapshot([a_job("a", 2)], 4)
    assert make_policy("fifo")(snapshot).workers.tolist() == [2]
