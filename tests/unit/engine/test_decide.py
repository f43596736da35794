"""The decision as a whole: terms between policy and placement, marks, and what it does not do."""

from __future__ import annotations

import numpy as np
import pytest

from sterna.engine.decide import Rules, decide
from sterna.engine.registry import RuleKind, Target
from sterna.errors import Bug
from sterna.model.snapshot import Snapshot
from sterna.wiring import make_placement, make_policy, rules_of
from tests.builders import a_job, a_node, a_snapshot, decided, some_nodes


def deaf(snapshot: Snapshot) -> Target:
    """A policy that asks for four workers each, whatever it is told."""
    return Target(np.full(len(snapshot.jobs), 4, dtype=np.int64))


def test_a_policy_that_does_not_listen_is_our_bug() -> None:
    snapshot = a_snapshot([a_job("a", (1, 4), devices=2)], some_nodes(3, 3))
    with pytest.raises(Bug, match="do not come to terms"):
        decide(snapshot, Rules(deaf, make_placement("stay")))


def test_deciding_writes_to_nothing_it_was_given() -> None:
    jobs = [a_job("a", (1, 4), on={"n0": 2}), a_job("b", (2, 4), submit=1), a_job("c", 1, priority=1)]
    for info in rules_of(RuleKind.POLICY):
        snapshot = a_snapshot(jobs, some_nodes(2, 2), now=50)
        snapshot.nodes.free.flags.writeable = False
        snapshot.nodes.capacity.flags.writeable = False
        free = snapshot.nodes.free.copy()
        decided(snapshot, info.name)
        assert (snapshot.nodes.free == free).all()
        assert dict(snapshot.homes) == dict(a_snapshot(jobs, some_nodes(2, 2)).homes)


@pytest.mark.parametrize("info", rules_of(RuleKind.POLICY), ids=lambda info: info.name)
def test_a_job_that_may_not_run_now_gets_nothing(info: object) -> None:
    """Its maximum is below its minimum for the moment."""
    jobs = [a_job("barred", (2, 1), workers=2), a_job("other", (1, 2), submit=1)]
    allocation = decided(a_snapshot(jobs, 8), info.name).allocation  # type: ignore[attr-defined]
    assert allocation["barred"] == 0
    assert allocation["other"] >= 1


@pytest.mark.parametrize("info", rules_of(RuleKind.POLICY), ids=lambda info: info.name)
def test_a_job_that_fits_no_node_blocks_nobody(info: object) -> None:
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
