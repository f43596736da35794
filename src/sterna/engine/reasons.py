"""Why each job waits or changed, worked out after the fact and only when somebody asks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sterna.engine.admission import most_by_shape
from sterna.model.cluster import MILLI, Resource
from sterna.model.plan import Action, Kind
from sterna.model.reason import Code, Reason
from sterna.model.snapshot import Snapshot


def reasons_for(snapshot: Snapshot, offered: Snapshot, actions: Sequence[Action]) -> list[Reason]:
    """One reason for every job that changed or waits. `offered` is the snapshot that the policy was last asked
    about."""
    unit = "device" if snapshot.nodes.unit is Resource.DEVICES else "CPU"
    changed = _changes(snapshot, actions)
    return [reason._replace(unit=unit) for reason in changed + _waits(snapshot, offered, actions)]


def _changes(snapshot: Snapshot, actions: Sequence[Action]) -> list[Reason]:
    gainers = [action for action in actions if action.kind in (Kind.START, Kind.GROW)]
    makes_room = _taken(snapshot, gainers) > snapshot.free_units
    who = snapshot.jobs.name_of(gainers[0].row) if gainers and makes_room else ""
    return [_change(action, snapshot.jobs.name_of(action.row), who) for action in actions]


def _change(action: Action, job: str, who: str) -> Reason:
    old, new = action.before.size, action.after.size
    if action.kind is Kind.STOP:
        return Reason(action.row, job, Code.STOPPED if who else Code.STOPPED_BY_RULE, old, who=who)
    if action.kind is Kind.SHRINK:
        return Reason(action.row, job, Code.SHRANK if who else Code.SHRANK_BY_RULE, new, old, who)
    if action.kind is Kind.GROW:
        return Reason(action.row, job, Code.GREW, new, old)
    if action.kind is Kind.MIGRATE:
        return Reason(action.row, job, Code.MOVED, new)
    return Reason(action.row, job, Code.STARTED, new)


def _waits(snapshot: Snapshot, offered: Snapshot, actions: Sequence[Action]) -> list[Reason]:
    jobs = snapshot.jobs
    waits = jobs.workers == 0
    waits[[action.row for action in actions]] = False
    rows = np.flatnonzero(waits).tolist()
    if not rows:
        return []
    free = snapshot.free_units - _taken(snapshot, actions)
    least = np.maximum(jobs.minimum, 1)
    cost, asked = snapshot.cost(least), snapshot.cost(np.minimum(jobs.request, jobs.maximum))
    most = most_by_shape(snapshot)[jobs.shape]
    held = offered.jobs.barred if offered.jobs.barred is not None else np.zeros(len(jobs), dtype=np.bool_)
    reasons = []
    for row in rows:
        job, need = jobs.name_of(row), int(cost[row])
        if not most[row]:
            reasons.append(Reason(row, job, Code.NO_NODE, int(snapshot.need[row]) / MILLI))
        elif most[row] < least[row]:
            reasons.append(Reason(row, job, Code.TOO_LARGE, int(least[row]), int(most[row])))
        elif need > free:
            reasons.append(Reason(row, job, Code.NEEDS_DEVICES, (need - free) / MILLI, free / MILLI))
        elif held[row]:
            reasons.append(Reason(row, job, Code.NEEDS_ROOM, int(least[row]), free / MILLI))
        elif asked[row] > free:
            reasons.append(Reason(row, job, Code.NEEDS_DEVICES, (int(asked[row]) - free) / MILLI, free / MILLI))
        else:
            reasons.append(Reason(row, job, Code.BEHIND, need / MILLI))
    return reasons


def _taken(snapshot: Snapshot, actions: Sequence[Action]) -> int:
    """Units that the plan takes from what is free."""
    rows = [action.row for action in actions]
    after = np.array([action.after.size for action in actions], dtype=np.int64)
    before = snapshot.jobs.workers[rows]
    base = (after > 0).astype(np.int64) - (before > 0)
    return int(((after - before) * snapshot.need[rows] + base * snapshot.base[rows]).sum())
