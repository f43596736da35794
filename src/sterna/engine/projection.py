"""Projection of a plan: the snapshot with the plan applied, and the rules that decide on that.

Migrations and CPU shares are decided on the outcome of policy and placement, so that one round yields the complete
plan. A job that the plan already changes is not moved in the same round; a CPU share can be attached to any action.
Rules price their moves themselves (`engine/price.py`); a job that has not shown that it can save is not moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.engine.price import ChangeCosts
from sterna.engine.registry import CpuShare, Migration
from sterna.model.cluster import ANYWHERE, Assignment
from sterna.model.plan import Action, ActionKind, Mark, kind_of
from sterna.model.snapshot import JobKey, Jobs, Snapshot, compute_totals

_WEIGHT_TOLERANCE = 1e-6
"""Largest relative difference of two weights that counts as equal."""

DraftPlan = tuple[list[Action], float]
"""Actions, and the time at which to decide again without an event."""


def add_moves(
    snapshot: Snapshot, actions: list[Action], until: float, migration: Migration, takes_turns: bool = False
) -> DraftPlan:
    """Add the migration's moves of jobs that the plan does not change, to nodes that have room.

    `takes_turns` is true if a rule lets the jobs of shared nodes run one after the other, even if all shares are equal
    at the moment; else they are forecast by equal shares.
    """
    then = project_plan(snapshot, actions)
    if then.has_cpu_shares != takes_turns:
        then = replace(then, has_cpu_shares=takes_turns)
    wanted = migration(then)
    until = min(until, wanted.until)
    if not wanted.moves:
        return actions, until
    room, shapes, codes = FreeCapacity(then.nodes), snapshot.shapes, snapshot.jobs.shape
    changed = {action.row for action in actions}
    can_move = ChangeCosts(then).can_move
    moved: list[Action] = []
    for move in wanted.moves:
        before = then.assignment_of(move.row)
        shape = shapes[codes.item(move.row)]
        if move.row in changed or not can_move[move.row] or before.size != move.after.size or before == move.after:
            continue
        room.release(shape, before)
        room.occupy(shape, move.after)
        if not _fits(room, then, move.after, before):
            room.release(shape, move.after)
            room.occupy(shape, before)
            continue
        key = JobKey(snapshot.jobs.key.item(move.row))
        moved.append(Action(ActionKind.MIGRATE, key, move.row, before, move.after, evictor=move.evictor))
    return _sort_by_kind([*actions, *moved]), until


def _fits(room: FreeCapacity, snapshot: Snapshot, after: Assignment, before: Assignment) -> bool:
    """True if no node of `after` is newly entered while closed, or over-committed.

    Capacity that another move of the same round frees counts only if that move came first.
    """
    old = {node for node, _ in (*before.workers, *before.ps)}
    for node, _ in (*after.workers, *after.ps):
        if node == ANYWHERE or (node not in old and not snapshot.nodes.is_open[node]):
            return False
        if room.free[:, node].min() < 0 or any(part < 0 for part in room.shared.get(node, {}).values()):
            return False
    return True


def add_cpu_shares(snapshot: Snapshot, actions: list[Action], until: float, cpu_share: CpuShare | None) -> DraftPlan:
    """Add the CPU shares that change; without a rule, reset all of them to 1."""
    then = project_plan(snapshot, actions)
    jobs = then.jobs
    if cpu_share is None:
        weight = np.ones(len(jobs))
    else:
        weight, span = cpu_share(then)
        until = min(until, span)
    present = jobs.cpu_share
    rows = ((jobs.workers > 0) & (np.abs(weight - present) > _WEIGHT_TOLERANCE * present)).nonzero()[0]
    if not len(rows):
        return actions, until
    index_of = {action.row: index for index, action in enumerate(actions)}
    plan = actions.copy()
    for row in rows.tolist():
        index, value = index_of.get(row), weight.item(row)
        if index is None:
            assignment = then.assignment_of(row)
            plan.append(
                Action(
                    ActionKind.SET_CPU_SHARE, JobKey(jobs.key.item(row)), row, assignment, assignment, cpu_share=value
                )
            )
        else:
            plan[index] = plan[index]._replace(cpu_share=value)
    return _sort_by_kind(plan), until


def _sort_by_kind(actions: list[Action]) -> list[Action]:
    """Sort actions into the order in which backends apply them; the order within a kind stays."""
    return sorted(actions, key=lambda action: action.kind)


def project_plan(snapshot: Snapshot, actions: Sequence[Action]) -> Snapshot:
    """Return the snapshot with these actions applied: workers, assignments and free capacity."""
    if not actions:
        return snapshot
    shapes, codes = snapshot.shapes, snapshot.jobs.shape
    room = FreeCapacity(snapshot.nodes)
    workers, assignments = snapshot.jobs.workers.copy(), dict(snapshot.assignments)
    for action in actions:
        if action.before.workers and action.before.workers[0][0] != ANYWHERE:
            room.release(shapes[codes.item(action.row)], action.before)
    for action in actions:
        workers[action.row] = action.after.size
        if not action.after.workers:
            del assignments[action.key]
            continue
        assignments[action.key] = action.after
        if action.after.workers[0][0] != ANYWHERE:
            room.occupy(shapes[codes.item(action.row)], action.after)
    jobs = Jobs(
        _ProjectedJobs(snapshot.jobs, {"workers": workers, **_bookkeeping_columns(snapshot, actions)}),
        snapshot.jobs.barred,
    )
    nodes = replace(snapshot.nodes, free=room.free, shared=room.shared)
    taken = int(snapshot.cost(workers).sum() - snapshot.cost(snapshot.jobs.workers).sum())
    free = snapshot.free_units - taken
    if not nodes.is_open_to_all and not any(
        run[0] == ANYWHERE for assignment in assignments.values() for run in assignment.workers
    ):
        free = compute_totals(jobs, nodes, shapes).free_units  # capacity freed on a closed node is not available
    return replace(
        snapshot,
        jobs=jobs,
        nodes=nodes,
        assignments=assignments,
        free_units=free,
        held_units=snapshot.held_units + taken,
        last_action=snapshot.now,
    )


def _bookkeeping_columns(snapshot: Snapshot, actions: Sequence[Action]) -> dict[str, npt.NDArray[Any]]:
    """Columns that a backend updates when it starts, stops or promotes jobs."""
    jobs = snapshot.jobs
    stopped = [action.row for action in actions if action.kind is ActionKind.STOP]
    started = [action.row for action in actions if action.kind is ActionKind.START]
    promoted = [action.row for action in actions if action.mark is Mark.PROMOTED]
    columns: dict[str, npt.NDArray[Any]] = {}
    if started:
        columns["first_start"] = jobs.first_start.copy()
        columns["first_start"][started] = np.minimum(jobs.first_start[started], snapshot.now)
        columns["last_start"] = jobs.last_start.copy()
        columns["last_start"][started] = snapshot.now
    if stopped:
        columns["waiting_since"] = jobs.waiting_since.copy()
        columns["waiting_since"][stopped] = snapshot.now
    if promoted:
        columns["attained"], columns["promotions"] = jobs.attained.copy(), jobs.promotions.copy()
        columns["attained"][promoted] = 0.0
        columns["promotions"][promoted] += 1
        columns["executed_before"] = jobs.executed_before.copy()
        columns["executed_before"][promoted] = jobs.executed[promoted]
    return columns


def compose_plans(snapshot: Snapshot, first: Sequence[Action], then: Sequence[Action]) -> list[Action]:
    """Return one plan with the same outcome as `first` followed by `then`."""
    befores = {action.row: action.before for action in (*then, *first)}
    afters = {action.row: action.after for action in (*first, *then)}
    marks = {action.row: action.mark for action in (*then, *first)}
    keys = {action.row: action.key for action in (*first, *then)}
    plan = [
        Action(kind_of(befores[row], after), keys[row], row, befores[row], after, marks[row])
        for row, after in afters.items()
        if befores[row] != after
    ]
    return sorted(plan, key=lambda action: (action.kind, action.row))


class _ProjectedJobs:
    """Job columns in which some are replaced; the others are shared with the original table."""

    def __init__(self, jobs: Jobs, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        self._jobs, self._columns = jobs, columns

    def __len__(self) -> int:
        return len(self._jobs)

    def column(self, name: str) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = self._columns[name] if name in self._columns else getattr(self._jobs, name)
        return values

    def name_of(self, row: int) -> str:
        return self._jobs.name_of(row)
