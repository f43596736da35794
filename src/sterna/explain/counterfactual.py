"""The smallest changes that would start a waiting job, found by calling `decide` on a changed snapshot.

One thing is changed at a time: devices, the job's priority, the policy, the job's minimum, or the time. Every reported
number was tried, and so was the next smaller one. Combinations of changes are not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.engine.decide import Rules, decide
from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.engine.registry import RuleKind
from sterna.explain.formatting import duration
from sterna.model.cluster import ANYWHERE, MILLI, Bools, Nodes, ResourceKind
from sterna.model.formatting import format_count
from sterna.model.plan import ActionKind, Decision
from sterna.model.snapshot import JobKey, Jobs, Snapshot, compute_totals
from sterna.wiring import make_policy, rules_of

_PLENTY = 1 << 40
"""CPUs and memory of the hypothetical node."""
_NEARLY_DONE = 1e-6
"""Remaining work of a job that ends at the instant in question."""

ColumnValues = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class MinimalChange:
    """A change that would start the job."""

    kind: str
    amount: float | list[str]
    """Number of devices, priority, names of policies, minimum, or seconds."""
    sentence: str

    @property
    def document(self) -> dict[str, object]:
        return {"change": self.kind, "amount": self.amount, "sentence": self.sentence}


def changes_that_start(snapshot: Snapshot, row: int, rules: Rules) -> list[MinimalChange]:
    """Return the smallest change of each kind that starts a waiting job; kinds that do not help are absent."""
    delay = snapshot.jobs.not_before.item(row) - snapshot.now
    if delay > 0:  # nothing starts it before its back-off is over
        return [MinimalChange("wait", delay, f"In {duration(delay)}, when its back-off is over, it may start again.")]
    kinds = (_try_devices, _try_priority, _try_policy, _try_minimum, _try_waiting)
    return [change for try_ in kinds if (change := try_(snapshot, row, rules)) is not None]


def decision_that_starts(snapshot: Snapshot, key: JobKey, rules: Rules) -> Decision | None:
    """Return the decision on this snapshot if it starts the job, else None."""
    decision = decide(snapshot, rules)
    return decision if any(action.key == key and action.kind is ActionKind.START for action in decision.plan) else None


def _try_devices(snapshot: Snapshot, row: int, rules: Rules) -> MinimalChange | None:
    if not snapshot.need.item(row):
        return None
    key = _key(snapshot, row)
    # With every job at its maximum no other job can take the new devices.
    most = int(snapshot.cost(np.maximum(snapshot.jobs.maximum, snapshot.jobs.minimum)).sum()) // MILLI + 1
    count = _smallest(
        lambda count: decision_that_starts(with_devices(snapshot, row, count), key, rules) is not None, most
    )
    if count is None:
        return None
    unit = "device" if snapshot.nodes.unit is ResourceKind.DEVICES else "CPU"
    return MinimalChange("devices", count, f"{format_count(count, f'more {unit}')} would start it now.")


def _try_priority(snapshot: Snapshot, row: int, rules: Rules) -> MinimalChange | None:
    key, ranks = _key(snapshot, row), snapshot.jobs.priority
    own = ranks.item(row)
    # Only a level that equals or passes the priority of another job can change the order.
    levels = {rank + ahead for rank in np.unique(ranks).tolist() for ahead in (0, 1) if own < rank + ahead}
    for level in sorted(levels):
        if decision_that_starts(with_values(snapshot, row, priority=level), key, rules):
            return MinimalChange("priority", level, f"Priority {level} instead of {own} would start it now.")
    return None


def _try_policy(snapshot: Snapshot, row: int, rules: Rules) -> MinimalChange | None:
    key = _key(snapshot, row)
    names, shown = [], []
    for info in rules_of(RuleKind.POLICY):
        other = make_policy(info.name)
        is_same = other == rules.policy and not rules.by_type
        decision = None if is_same else decision_that_starts(snapshot, key, rules.under(other))
        if decision is not None:
            stops = sum(action.kind is ActionKind.STOP for action in decision.plan)
            names.append(info.name)
            shown.append(info.name + (f" (stopping {format_count(stops, 'job')})" if stops else ""))
    return MinimalChange("policy", names, f"Another policy would start it now: {', '.join(shown)}.") if names else None


def _try_minimum(snapshot: Snapshot, row: int, rules: Rules) -> MinimalChange | None:
    key, own = _key(snapshot, row), snapshot.jobs.minimum.item(row)

    def helps(fewer: int) -> bool:
        return decision_that_starts(with_values(snapshot, row, minimum=own - fewer), key, rules) is not None

    fewer = _smallest(helps, own - 1)
    if fewer is None:
        return None
    sentence = f"A minimum of {format_count(own - fewer, 'worker')} instead of {own} would start it now."
    return MinimalChange("minimum", own - fewer, sentence)


def _try_waiting(snapshot: Snapshot, row: int, rules: Rules) -> MinimalChange | None:
    """Find the first completion of a running job, predicted from its remaining work and speed, after which the job
    starts."""
    key, jobs = _key(snapshot, row), snapshot.jobs
    running = np.flatnonzero((jobs.workers > 0) & np.isfinite(jobs.remaining))
    seconds = (jobs.remaining / np.maximum(_speed(snapshot), _NEARLY_DONE))[running]
    order = seconds.argsort(kind="stable")
    ends, seconds = running[order], seconds[order]

    def helps(count: int) -> bool:
        return decision_that_starts(without(snapshot, ends[:count], seconds.item(count - 1)), key, rules) is not None

    count = _smallest(helps, len(ends))
    if count is None:
        return None
    later, last = seconds.item(count - 1), jobs.name_of(int(ends[count - 1]))
    whom = last if count == 1 else f"{last}, the last of {count:,} jobs,"
    return MinimalChange(
        "wait", later, f"In {duration(later)} at the earliest, when {whom} will have ended, it would start."
    )


def _smallest(works: Callable[[int], bool], most: int) -> int | None:
    """Return a number from 1 to `most` that works while one less does not, by doubling and bisection."""
    if most < 1:
        return None
    fails, works_at = 0, 1
    while not works(works_at):
        if works_at >= most:
            return None
        fails, works_at = works_at, min(2 * works_at, most)
    while works_at - fails > 1:
        middle = (fails + works_at) // 2
        fails, works_at = (fails, middle) if works(middle) else (middle, works_at)
    return works_at


# Changed snapshots.


def with_devices(snapshot: Snapshot, row: int, count: int) -> Snapshot:
    """Return the snapshot with one more node of `count` free devices, which the job in this row accepts."""
    nodes, shape = snapshot.nodes, snapshot.shapes[snapshot.jobs.shape.item(row)]
    extra = np.full((len(ResourceKind), 1), _PLENTY, dtype=np.int64)
    extra[ResourceKind.DEVICES] = 0
    extra[nodes.unit] = count * MILLI
    wider = Nodes(
        (*nodes.name, "~more"),
        np.hstack([nodes.capacity, extra]),
        np.hstack([nodes.free, extra]),
        np.append(nodes.is_open, True),
        np.append(nodes.rack, nodes.rack[-1:] if len(nodes) else 0),
        (*(nodes.labels or [{}] * len(nodes)), dict(shape.selector)),
        (*(nodes.taints or [frozenset[str]()] * len(nodes)), frozenset()),
        nodes.shared,
    )
    return _with_changes(snapshot, {}, nodes=wider)


def with_values(snapshot: Snapshot, row: int, **values: int) -> Snapshot:
    """Return the snapshot with other column values of one job."""
    columns = {name: np.array(getattr(snapshot.jobs, name)) for name in values}
    for name, value in values.items():
        columns[name][row] = value
    return _with_changes(snapshot, columns)


def without(snapshot: Snapshot, rows: npt.NDArray[np.intp], seconds: float) -> Snapshot:
    """Return the snapshot `seconds` later: these jobs have ended, the other running jobs have progressed."""
    jobs = snapshot.jobs
    keep = np.ones(len(jobs), dtype=np.bool_)
    keep[rows] = False
    room = FreeCapacity(snapshot.nodes)
    for row in rows.tolist():
        assignment = snapshot.assignment_of(row)
        if assignment.workers and assignment.workers[0][0] != ANYWHERE:
            room.release(snapshot.shapes[jobs.shape.item(row)], assignment)
    runs = jobs.workers > 0
    columns = {
        "remaining": np.where(
            runs, np.maximum(jobs.remaining - _speed(snapshot) * seconds, _NEARLY_DONE), jobs.remaining
        ),
        "attained": jobs.attained + snapshot.cost(jobs.workers) / MILLI * seconds,
        "executed": jobs.executed + runs * seconds,
    }
    nodes = replace(snapshot.nodes, free=room.free, shared=room.shared)
    return _with_changes(replace(snapshot, now=snapshot.now + seconds), columns, nodes=nodes, keep=keep)


def _with_changes(
    snapshot: Snapshot, columns: ColumnValues, *, nodes: Nodes | None = None, keep: Bools | None = None
) -> Snapshot:
    jobs = snapshot.jobs
    rows = np.arange(len(jobs)) if keep is None else np.flatnonzero(keep)
    source = _RowsSource(jobs, columns, rows)
    barred = source.column("maximum") < source.column("minimum")
    table = Jobs(source, barred if barred.any() else None)
    nodes = snapshot.nodes if nodes is None else nodes
    assignments = {
        key: assignment for key in map(JobKey, table.key.tolist()) if (assignment := snapshot.assignments.get(key))
    }
    totals = compute_totals(table, nodes, snapshot.shapes)
    # Workers that are only counted are on no node, so the nodes look freer than they are.
    is_anywhere = any(assignment.workers[0][0] == ANYWHERE for assignment in assignments.values())
    free = totals.free_units - (totals.held_units if is_anywhere else 0)
    sums = {**totals._asdict(), "free_units": free}
    return replace(snapshot, jobs=table, nodes=nodes, assignments=assignments, **sums)


class _RowsSource:
    """Column source with some rows of a table and other values in some of its columns."""

    def __init__(self, jobs: Jobs, columns: ColumnValues, rows: npt.NDArray[np.intp]) -> None:
        self._jobs, self._columns, self._rows = jobs, columns, rows

    def __len__(self) -> int:
        return len(self._rows)

    def column(self, name: str) -> npt.NDArray[Any]:
        values = self._columns[name] if name in self._columns else getattr(self._jobs, name)
        taken: npt.NDArray[Any] = values[self._rows]
        taken.flags.writeable = False
        return taken

    def name_of(self, row: int) -> str:
        return self._jobs.name_of(int(self._rows[row]))


def _key(snapshot: Snapshot, row: int) -> JobKey:
    return JobKey(snapshot.jobs.key.item(row))


def _speed(snapshot: Snapshot) -> npt.NDArray[np.float64]:
    return snapshot.curves.speed(snapshot.jobs.curve, snapshot.jobs.workers)
