"""The instant as it will be: a snapshot with a plan laid over it, and the rules that are asked about that.

Moves and shares are decided on what the policy and the placement will have done (DRAGON-94), so that one round says all
there is to say. A job that is already changed by the plan is not moved in the same round; a share may ride on any
action. Nothing is priced here: that is for the rules (`engine/price.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.engine.registry import CpuShare, Migration
from sterna.model.cluster import ANYWHERE, Assignment
from sterna.model.plan import Action, ActionKind, Mark, kind_of
from sterna.model.snapshot import JobKey, Jobs, Snapshot, compute_totals

_SAME = 1e-6
"""Relative difference of two weights that is no change."""

DraftPlan = tuple[list[Action], float]
"""Actions, and the time until which they stand."""


def add_moves(
    snapshot: Snapshot, actions: list[Action], until: float, migration: Migration, divides: bool = False
) -> DraftPlan:
    """The plan and what the migration adds to it: only jobs that the plan leaves alone, only where there is room.

    Whether a rule `divides` the CPUs of shared nodes counts, not whether shares happen to be equal right now.
    """
    then = project_plan(snapshot, actions)
    if then.has_cpu_shares != divides:
        then = replace(then, has_cpu_shares=divides)
    wish = migration(then)
    until = min(until, wish.until)
    if not wish.moves:
        return actions, until
    room, shapes, codes = FreeCapacity(then.nodes), snapshot.shapes, snapshot.jobs.shape
    changed = {action.row for action in actions}
    moved: list[Action] = []
    for move in wish.moves:
        before = then.assignment_of(move.row)
        shape = shapes[codes.item(move.row)]
        if move.row in changed or before.size != move.after.size or before == move.after:
            continue
        room.release(shape, before)
        room.occupy(shape, move.after)
        if not _holds(room, then, move.after, before):
            room.release(shape, move.after)
            room.occupy(shape, before)
            continue
        key = JobKey(snapshot.jobs.key.item(move.row))
        moved.append(Action(ActionKind.MIGRATE, key, move.row, before, move.after, evictor=move.evictor))
    return _in_order([*actions, *moved]), until


def _holds(room: FreeCapacity, snapshot: Snapshot, after: Assignment, before: Assignment) -> bool:
    """Whether no node it comes to is closed or over-committed. Whoever moves among full nodes waits its turn: room that
    another move frees in the same round counts only if that move came first."""
    old = {node for node, _ in (*before.workers, *before.ps)}
    for node, _ in (*after.workers, *after.ps):
        if node == ANYWHERE or (node not in old and not snapshot.nodes.is_open[node]):
            return False
        if room.free[:, node].min() < 0 or any(part < 0 for part in room.shared.get(node, {}).values()):
            return False
    return True


def add_cpu_shares(snapshot: Snapshot, actions: list[Action], until: float, cpu_share: CpuShare | None) -> DraftPlan:
    """The plan and the shares that change; without a rule everybody's is equal again."""
    then = project_plan(snapshot, actions)
    jobs = then.jobs
    if cpu_share is None:
        weight = np.ones(len(jobs))
    else:
        weight, span = cpu_share(then)
        until = min(until, span)
    present = jobs.cpu_share
    rows = ((jobs.workers > 0) & (np.abs(weight - present) > _SAME * present)).nonzero()[0]
    if not len(rows):
        return actions, until
    place_of = {action.row: place for place, action in enumerate(actions)}
    plan = actions.copy()
    for row in rows.tolist():
        place, value = place_of.get(row), weight.item(row)
        if place is None:
            assignment = then.assignment_of(row)
            plan.append(
                Action(
                    ActionKind.SET_CPU_SHARE, JobKey(jobs.key.item(row)), row, assignment, assignment, cpu_share=value
                )
            )
        else:
            plan[place] = plan[place]._replace(cpu_share=value)
    return _in_order(plan), until


def _in_order(actions: list[Action]) -> list[Action]:
    """In the order of carrying out; the order within a kind stays."""
    return sorted(actions, key=lambda action: action.kind)


def project_plan(snapshot: Snapshot, actions: Sequence[Action]) -> Snapshot:
    """The same instant with these actions carried out: who has how many workers, where, and what is free then."""
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
    jobs = Jobs(_Planned(snapshot.jobs, {"workers": workers, **_remembered(snapshot, actions)}), snapshot.jobs.barred)
    nodes = replace(snapshot.nodes, free=room.free, shared=room.shared)
    taken = int(snapshot.cost(workers).sum() - snapshot.cost(snapshot.jobs.workers).sum())
    free = snapshot.free_units - taken
    if not nodes.is_open_to_all and not any(
        run[0] == ANYWHERE for assignment in assignments.values() for run in assignment.workers
    ):
        free = compute_totals(jobs, nodes, shapes).free_units  # what leaves a closed node is free to nobody
    return replace(
        snapshot,
        jobs=jobs,
        nodes=nodes,
        assignments=assignments,
        free_units=free,
        held_units=snapshot.held_units + taken,
        last_action=snapshot.now,
    )


def _remembered(snapshot: Snapshot, actions: Sequence[Action]) -> dict[str, npt.NDArray[Any]]:
    """What a backend writes down about the jobs that it starts, stops or promotes."""
    jobs = snapshot.jobs
    stopped = [action.row for action in actions if action.kind is ActionKind.STOP]
    started = [action.row for action in actions if action.kind is ActionKind.START]
    promoted = [action.row for action in actions if action.mark is Mark.PROMOTED]
    columns: dict[str, npt.NDArray[Any]] = {}
    if started:
        columns["first_start"] = jobs.first_start.copy()
        columns["first_start"][started] = np.minimum(jobs.first_start[started], snapshot.now)
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
    """One plan that leads where these two lead one after the other."""
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


class _Planned:
    """Jobs with other values in some columns; every other column is shared with the table it came from."""

    def __init__(self, jobs: Jobs, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        self._jobs, self._columns = jobs, columns

    def __len__(self) -> int:
        return len(self._jobs)

    def column(self, name: str) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = self._columns[name] if name in self._columns else getattr(self._jobs, name)
        return values

    def name_of(self, row: int) -> str:
        return self._jobs.name_of(row)
