"""Negotiation between policy and placement over a target that cannot be placed completely.

The policy counts devices only; CPUs, memory, labels and node sizes can still rule a worker out. Jobs are then capped
from the end of the policy's own order, so that no job is passed by a later one: the first job that does not fit beside
all jobs before it is capped, together with the jobs behind it that need at least as much, and the policy is called
again. At the end, caps of jobs that do have room are relaxed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sterna.engine.ordering.submit_order import priority_order
from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.engine.registry import Misfit, Placed, Placement, Policy, Target
from sterna.errors import Bug
from sterna.model.cluster import Ints
from sterna.model.snapshot import Snapshot

_MAX_SINGLE_RELAXATIONS = 8
"""Upper bound on jobs whose caps are relaxed one at a time."""

Proposal = tuple[Snapshot, Target, Placed]
"""The snapshot that the policy was given, its target, and the placement of that target."""


def negotiate_placement(
    offered: Snapshot, target: Target, placed: Placed, policy: Policy, placement: Placement
) -> Proposal:
    """Cap jobs and call the policy again until its whole target can be placed."""
    first = offered
    while placed.misfits:  # each iteration lowers the maximum of at least one job, so the loop terminates
        capped = _cap_misfits(offered, target, _misfits_in_order(offered, target, placed.misfits, placement))
        if bool((capped.jobs.maximum == offered.jobs.maximum).all()):  # the policy exceeds the maxima it was given
            raise Bug("the policy and the placement do not come to terms")
        offered, target = capped, policy(capped)
        placed = placement(offered, target.workers)
    if target.is_strict:  # a capped job waits for a job before it
        return offered, target, placed
    return _relax_caps(first, (offered, target, placed), policy, placement)


def _misfits_in_order(offered: Snapshot, target: Target, misfits: list[Misfit], placement: Placement) -> list[Misfit]:
    """Return the misfits to cap: `misfits`, unless a job that starts would pass one of them.

    In that case return the first job that does not fit beside all jobs before it, and the jobs behind it that must not
    or cannot start without it.
    """
    jobs = offered.jobs
    starts = (jobs.workers == 0) & (target.workers > 0)
    left_out = [misfit.row for misfit in misfits if not misfit.fitted and starts[misfit.row]]
    if not left_out:
        return misfits
    order = priority_order(offered) if target.order is None else target.order()
    queue = order[starts[order]]
    first_misfit = int(np.isin(queue, left_out).argmax())
    if len(left_out) == len(queue) - first_misfit and not target.is_strict:
        return misfits
    count = _count_fitting(offered, target, queue, placement)
    if count == len(queue):
        return misfits
    row, behind = queue[count], queue[count + 1 :]
    if target.is_strict:
        waiting = order[jobs.workers[order] == 0]
        behind = waiting[int((waiting == row).argmax()) + 1 :]
    else:
        behind = behind[(jobs.shape[behind] == jobs.shape[row]) & (jobs.minimum[behind] >= jobs.minimum[row])]
    return [Misfit(each, 0) for each in (int(row), *behind.tolist())]


def _count_fitting(offered: Snapshot, target: Target, queue: Ints, placement: Placement) -> int:
    """Length of the longest prefix of `queue` whose jobs can be placed together, each at its minimum."""
    jobs = offered.jobs
    without_starts = np.minimum(target.workers, jobs.workers)
    fit, too_many = 0, len(queue) + 1
    while too_many - fit > 1:
        count = (fit + too_many) // 2
        workers = without_starts.copy()
        workers[queue[:count]] = jobs.minimum[queue[:count]]
        if placement(offered, workers).misfits:
            too_many = count
        else:
            fit = count
    return fit


def _relax_caps(first: Snapshot, proposal: Proposal, policy: Policy, placement: Placement) -> Proposal:
    """Raise the caps of jobs that have room once the plan is applied: all of them at once, or else the first
    `_MAX_SINGLE_RELAXATIONS` one at a time, as long as the whole target can still be placed."""
    offered, target, placed = proposal
    slots = _slots_after(first, placed)
    least = np.where(target.workers > 0, 1, first.jobs.minimum)
    capped = ((offered.jobs.maximum < first.jobs.maximum) & (slots >= least)).nonzero()[0]
    for rows in (capped, *capped[:_MAX_SINGLE_RELAXATIONS, None]) if len(capped) else ():
        most = offered.jobs.maximum.copy()
        most[rows] = np.minimum(first.jobs.maximum, target.workers + slots)[rows]
        relaxed = replace(first, jobs=first.jobs.with_max_workers(most))
        relaxed_target = policy(relaxed)
        relaxed_placed = placement(relaxed, relaxed_target.workers)
        if not relaxed_placed.misfits:
            offered, target, placed = relaxed, relaxed_target, relaxed_placed
            if len(rows) == len(capped):
                break
    return offered, target, placed


def _slots_after(first: Snapshot, placed: Placed) -> Ints:
    """Number of further workers of each job that the nodes hold once the plan is applied."""
    room = FreeCapacity(first.nodes)
    codes, shapes = first.jobs.shape, first.shapes
    for action in placed.actions:
        if action.before.workers:
            room.release(shapes[codes.item(action.row)], action.before)
    for action in placed.actions:
        if action.after.workers:
            room.occupy(shapes[codes.item(action.row)], action.after)
    slots: Ints = np.array([int(room.slots(shape).sum()) for shape in shapes.rows])[codes]
    return slots


def _cap_misfits(offered: Snapshot, target: Target, misfits: list[Misfit]) -> Snapshot:
    """Return the snapshot with the maxima of the misfits' shapes lowered to what fitted.

    If a job could not grow, no job of the target may exceed its target either: the policy would otherwise hand the
    unused devices to another shape, which takes capacity from the first one again, one worker per iteration.
    """
    jobs = offered.jobs
    shape, minimum, workers = jobs.shape, jobs.minimum, jobs.workers
    most, fitted = jobs.maximum.copy(), target.workers.copy()
    for misfit in misfits:
        fitted[misfit.row] = misfit.fitted
        most[misfit.row] = min(most[misfit.row], max(misfit.fitted, workers[misfit.row]))
    for code in {shape.item(misfit.row) for misfit in misfits}:
        mine = [misfit for misfit in misfits if shape.item(misfit.row) == code]
        if any(misfit.fitted for misfit in mine):  # no node has room for another worker of this shape
            same_shape = shape == code
            most[same_shape] = np.minimum(most, np.maximum(fitted, workers))[same_shape]
        else:  # `least` workers do not fit at once; a job with a smaller minimum may still fit
            least = min(minimum.item(misfit.row) for misfit in mine)
            most[(shape == code) & (fitted + workers == 0) & (minimum >= least)] = 0
    if any(misfit.fitted for misfit in misfits):
        most = np.where(target.workers > 0, np.minimum(most, np.maximum(fitted, workers)), most)
    return replace(offered, jobs=jobs.with_max_workers(most))
