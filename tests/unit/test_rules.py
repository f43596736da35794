"""`sterna.rules` suffices to write a rule of every kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import sterna.rules

ROOT = Path(__file__).resolve().parents[2]

TOY_RULES = """
import sys
sys.path[:0] = [{src!r}]
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sterna.rules import (
    Assignment, CpuShares, FreeCapacity, Ints, Moves, NodeCounts, Placed, Reserved, Shape, Snapshot, Target,
    cpu_share, drop_last_workers, fill_in_order, first_fit, knob, migration, place, placement, policy,
    priority_order, reservation,
)


@policy("toy")
@dataclass(frozen=True)
class ToyPolicy:
    reverse: bool = knob(False, "Last come, first served.")

    def __call__(self, snapshot: Snapshot) -> Target:
        order = priority_order(snapshot)[:: -1 if self.reverse else 1]
        fits = first_fit(snapshot.cost(snapshot.jobs.minimum)[order], snapshot.units, snapshot.smallest_need)
        target = np.zeros(len(snapshot.jobs), dtype=np.int64)
        target[order[fits]] = snapshot.jobs.minimum[order[fits]]
        return Target(target)


@placement("toy")
@dataclass(frozen=True)
class ToyPlacement:
    def __call__(self, snapshot: Snapshot, target: Ints) -> Placed:
        return place(self, snapshot, target)

    def choose(self, free: FreeCapacity, shape: Shape, count: int, assignment: Assignment) -> NodeCounts:
        slots = free.slots(shape)
        return fill_in_order(slots, count, np.argsort(-slots, kind="stable").tolist())

    def choose_many(self, free: FreeCapacity, shape: Shape, count: int, jobs: int) -> Sequence[NodeCounts]:
        return []

    def shed(self, assignment: Assignment, count: int) -> Assignment:
        return drop_last_workers(assignment, count)


@migration("toy")
@dataclass(frozen=True)
class ToyMigration:
    def __call__(self, snapshot: Snapshot) -> Moves:
        return Moves()


@cpu_share("toy")
@dataclass(frozen=True)
class ToyCpuShare:
    def __call__(self, snapshot: Snapshot) -> CpuShares:
        return CpuShares(np.ones(len(snapshot.jobs)))


@reservation("toy")
@dataclass(frozen=True)
class ToyReservation:
    def __call__(self, snapshot: Snapshot) -> Reserved:
        return Reserved([], {{}}, snapshot)


import sterna
from sterna.wiring import make_rules

rules = make_rules("toy:reverse=true", "toy", "toy", "toy", "toy")
print(*(type(each).__name__ for each in (rules.policy, rules.placement, rules.migration, rules.reservation)))
result = sterna.simulate(sterna.Trace.poisson(jobs=30, seed=2), "2x8", "toy:reverse=true", placement="toy")
print(result.summary["jobs"])
"""


def test_toy_rules_of_every_kind_need_only_sterna_rules() -> None:
    # In a process of its own, so that the rules do not enter the registry of the other tests.
    code = TOY_RULES.format(src=str(ROOT / "src"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["ToyPolicy", "ToyPlacement", "ToyMigration", "ToyReservation", "30"]


def test_every_listed_name_is_there() -> None:
    assert [name for name in sterna.rules.__all__ if not hasattr(sterna.rules, name)] == []
