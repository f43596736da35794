"""Moves and CPU shares are decided on the projected snapshot, at no cost if no rule is configured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.engine.decide import Rules, decide
from sterna.engine.registry import CpuShares, Move, Moves
from sterna.model.cluster import Assignment, Nodes
from sterna.model.plan import ActionKind
from sterna.model.snapshot import Jobs, OptionalColumn, Snapshot
from sterna.wiring import make_placement, make_policy, make_rules
from tests.builders import a_job, a_node, a_snapshot
from tests.shared_nodes import SharedCluster, SharedJob, rules_with

EXTRAS = {name for name, column in vars(Jobs).items() if isinstance(column, OptionalColumn)}


@dataclass
class RecordingSource:
    """A source that keeps which columns were read."""

    jobs: Jobs
    read: set[str]

    def __len__(self) -> int:
        return len(self.jobs)

    def column(self, name: str) -> npt.NDArray[Any]:
        self.read.add(name)
        values: npt.NDArray[Any] = getattr(self.jobs, name)
        return values

    def name_of(self, row: int) -> str:
        return self.jobs.name_of(row)

    def is_zero(self, name: str) -> bool:
        return False


def test_where_changes_are_free_and_no_rule_reads_them_optional_columns_are_not_read() -> None:
    snapshot = a_snapshot([a_job("a", 2), a_job("b", 2, submit=1)], 4)
    source = RecordingSource(snapshot.jobs, set())
    rules = make_rules("fifo", "stay")
    assert (rules.migration, rules.cpu_share) == (None, None)
    free = replace(snapshot, jobs=Jobs(source))
    free.__dict__["changes_are_free"] = True
    decide(free, rules)
    assert source.read
    assert not source.read & EXTRAS


def test_a_source_that_does_not_know_a_column_gives_its_default() -> None:
    jobs = a_snapshot([a_job("a"), a_job("b")], 4).jobs
    assert jobs.cpu_share.tolist() == [1, 1]
    assert jobs.moved_from.tolist() == [-1, -1]
    assert np.isnan(jobs.most_cores).all()
    assert jobs.moves.dtype == np.int64


def test_a_new_job_starts_with_its_share_in_one_action() -> None:
    def heavy(snapshot: Snapshot) -> CpuShares:
        assert snapshot.jobs.workers.tolist() == [1]
        return CpuShares(np.full(len(snapshot.jobs), 2.0))

    rules = Rules(make_policy("fifo"), make_placement("stay"), None, heavy)
    plan = decide(a_snapshot([a_job("a")], 4), rules).plan
    assert [(action.kind, action.cpu_share) for action in plan] == [(ActionKind.START, 2.0)]


def test_a_migration_sees_what_the_plan_leaves_free() -> None:
    """DRAGON-94: the new job takes the room that the move would have needed."""
    running = a_job("running", 2, on={"n0": 2})
    waiting = a_job("waiting", 2, submit=1)
    seen: list[Nodes] = []

    def to_the_other_node(snapshot: Snapshot) -> Moves:
        seen.append(snapshot.nodes)
        return Moves([Move(0, Assignment(((1, 2),)))])

    rules = Rules(make_policy("fifo"), make_placement("spread"), to_the_other_node)
    crowded = a_snapshot([running, waiting], [a_node("n0", 2), a_node("n1", 2)])
    assert [action.kind for action in decide(crowded, rules).plan] == [ActionKind.START]
    assert seen[0].free[0].tolist() == [0, 0]
    alone = a_snapshot([running], [a_node("n0", 2), a_node("n1", 2)])
    assert [action.kind for action in decide(alone, rules).plan] == [ActionKind.MIGRATE]


def test_a_job_that_the_plan_changes_is_not_moved_in_the_same_round() -> None:
    def move_all(snapshot: Snapshot) -> Moves:
        return Moves([Move(row, Assignment(((1, 1),))) for row in range(len(snapshot.jobs))])

    rules = Rules(make_policy("fifo"), make_placement("stay"), move_all)
    plan = decide(a_snapshot([a_job("a")], [a_node("n0", 1), a_node("n1", 1)]), rules).plan
    assert [action.kind for action in plan] == [ActionKind.START]


def test_the_earliest_until_of_all_rules_counts() -> None:
    cluster = SharedCluster(tuple(SharedJob(f"j{n}") for n in range(8)))
    rules = replace(
        rules_with("specon"), cpu_share=lambda snapshot: CpuShares(snapshot.jobs.cpu_share, snapshot.now + 7)
    )
    assert decide(cluster.snapshot, rules).until == cluster.now + 7
