"""How the policy and the placement come to terms when not everything that was counted can be placed.

The policy counts devices; CPUs, memory, labels and the sizes of nodes may say no. Then those that come last in the
policy's own order go without, never an earlier one for a later one: the first that does not fit beside all before it is
held, with those behind it that need as much, and the policy is asked again. In the end those are let go who were held
on the way but for whom there is room.
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

_TRIES = 8
"""So many jobs that were held in vain are asked for one by one."""

Offer = tuple[Snapshot, Target, Placed]
"""What the policy was offered, what it wants of that, and what the placement can do."""


def negotiate_placement(offered: Snapshot, wish: Target, placed: Placed, policy: Policy, placement: Placement) -> Offer:
    """Ask again until everything that is wished for can be placed."""
    first = offered
    while placed.misfits:  # each turn lowers somebody's maximum, so there is an end
        held = _held(offered, wish, _last_in_turn(offered, wish, placed.misfits, placement))
        if bool((held.jobs.maximum == offered.jobs.maximum).all()):  # it asks for more than it is offered
            raise Bug("the policy and the placement do not come to terms")
        offered, wish = held, policy(held)
        placed = placement(offered, wish.workers)
    if wish.is_strict:  # whoever is held waits for one before it
        return offered, wish, placed
    return _eased(first, (offered, wish, placed), policy, placement)


def _last_in_turn(offered: Snapshot, wish: Target, misfits: list[Misfit], placement: Placement) -> list[Misfit]:
    """These misfits, unless somebody who starts would pass one of them: then the first that does not fit beside all
    before it, and who cannot start either because of that."""
    jobs = offered.jobs
    starts = (jobs.workers == 0) & (wish.workers > 0)
    left_out = [misfit.row for misfit in misfits if not misfit.fitted and starts[misfit.row]]
    if not left_out:
        return misfits
    order = priority_order(offered) if wish.order is None else wish.order()
    queue = order[starts[order]]
    passed = int(np.isin(queue, left_out).argmax())
    if len(left_out) == len(queue) - passed and not wish.is_strict:
        return misfits
    count = _fitting(offered, wish, queue, placement)
    if count == len(queue):
        return misfits
    row, behind = queue[count], queue[count + 1 :]
    if wish.is_strict:
        waiting = order[jobs.workers[order] == 0]
        behind = waiting[int((waiting == row).argmax()) + 1 :]
    else:
        behind = behind[(jobs.shape[behind] == jobs.shape[row]) & (jobs.minimum[behind] >= jobs.minimum[row])]
    return [Misfit(each, 0) for each in (int(row), *behind.tolist())]


def _fitting(offered: Snapshot, wish: Target, queue: Ints, placement: Placement) -> int:
    """How many of those that start, from the first on, can be placed together, each at its minimum."""
    jobs = offered.jobs
    nobody = np.minimum(wish.workers, jobs.workers)
    fit, too_many = 0, len(queue) + 1
    while too_many - fit > 1:
        count = (fit + too_many) // 2
        target = nobody.copy()
        target[queue[:count]] = jobs.minimum[queue[:count]]
        if placement(offered, target).misfits:
            too_many = count
        else:
            fit = count
    return fit


def _eased(first: Snapshot, answer: Offer, policy: Policy, placement: Placement) -> Offer:
    """Let those go who are held though there is room for them once the plan is carried out: all at once, or else the
    first few of them one by one, as far as everything can still be placed."""
    offered, wish, placed = answer
    room = _room_after(first, placed)
    least = np.where(wish.workers > 0, 1, first.jobs.minimum)
    held = ((offered.jobs.maximum < first.jobs.maximum) & (room >= least)).nonzero()[0]
    for rows in (held, *held[:_TRIES, None]) if len(held) else ():
        most = offered.jobs.maximum.copy()
        most[rows] = np.minimum(first.jobs.maximum, wish.workers + room)[rows]
        eased = replace(first, jobs=first.jobs.with_max_workers(most))
        wish_then = policy(eased)
        placed_then = placement(eased, wish_then.workers)
        if not placed_then.misfits:
            offered, wish, placed = eased, wish_then, placed_then
            if len(rows) == len(held):
                break
    return offered, wish, placed


def _room_after(first: Snapshot, placed: Placed) -> Ints:
    """For how many more workers of each job there is room once this is carried out."""
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


def _held(offered: Snapshot, wish: Target, misfits: list[Misfit]) -> Snapshot:
    """The same instant, with the shapes that did not fit held to what did.

    Where somebody could not grow, nobody that is to run may have more than it was to get: else what the one shape could
    not use goes to another, which takes room from the first again, one worker a turn.
    """
    jobs = offered.jobs
    shape, minimum, workers = jobs.shape, jobs.minimum, jobs.workers
    most, fitted = jobs.maximum.copy(), wish.workers.copy()
    for misfit in misfits:
        fitted[misfit.row] = misfit.fitted
        most[misfit.row] = min(most[misfit.row], max(misfit.fitted, workers[misfit.row]))
    for code in {shape.item(misfit.row) for misfit in misfits}:
        mine = [misfit for misfit in misfits if shape.item(misfit.row) == code]
        if any(misfit.fitted for misfit in mine):  # not one more worker of this shape has room
            alike = shape == code
            most[alike] = np.minimum(most, np.maximum(fitted, workers))[alike]
        else:  # the room is less than so many at once; who needs fewer may still fit
            least = min(minimum.item(misfit.row) for misfit in mine)
            most[(shape == code) & (fitted + workers == 0) & (minimum >= least)] = 0
    if any(misfit.fitted for misfit in misfits):
        most = np.where(wish.workers > 0, np.minimum(most, np.maximum(fitted, workers)), most)
    return replace(offered, jobs=jobs.with_max_workers(most))
