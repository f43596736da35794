"""The decision: a function from what is known to what is to be done.

The policy counts, the placement finds nodes. What cannot be placed comes back: jobs of that shape are held to what
could be placed, and the policy is asked again, so nobody is stopped for a job that then does not start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sterna.engine.admission import admitted
from sterna.engine.reasons import reasons_for
from sterna.engine.registry import Misfit, Placed, Placement, Policy, Target
from sterna.errors import Bug
from sterna.model.plan import Action, Decision, Kind, Mark, Plan
from sterna.model.reason import Reason
from sterna.model.snapshot import Snapshot


@dataclass(frozen=True)
class Rules:
    """What decides: one rule of each kind."""

    policy: Policy
    placement: Placement


def decide(snapshot: Snapshot, rules: Rules) -> Decision:
    """What to do now, why, and until when that stands."""
    offered = admitted(snapshot)
    wish, placed = _asked(offered, rules)
    rounds = 0
    while placed.misfits:
        offered = _held(offered, wish, placed.misfits)
        wish, placed = _asked(offered, rules)
        rounds += 1
        if rounds > len(snapshot.jobs) + 1:
            raise Bug("the policy and the placement do not come to terms")

    def explain() -> Sequence[Reason]:
        return reasons_for(snapshot, offered, placed.actions)

    return Decision(Plan(_marked(placed, wish)), wish.until, explain)


def _asked(offered: Snapshot, rules: Rules) -> tuple[Target, Placed]:
    wish = rules.policy(offered)
    return wish, rules.placement(offered, wish.workers)


def _held(offered: Snapshot, wish: Target, misfits: list[Misfit]) -> Snapshot:
    """The same instant, with the shapes that did not fit held to what did."""
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
    return replace(offered, jobs=jobs.capped(most))


def _marked(placed: Placed, wish: Target) -> list[Action]:
    """Promotions are remembered when they lead to a start."""
    if wish.promoted is None:
        return placed.actions
    promoted = wish.promoted
    return [
        action._replace(mark=Mark.PROMOTED) if action.kind is Kind.START and promoted[action.row] else action
        for action in placed.actions
    ]
