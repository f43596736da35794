"""The decision: a function from what is known to what is to be done.

The policy counts, the placement finds nodes. What cannot be placed comes back: jobs of that shape are held to what
could be placed, and the policy is asked again, so nobody is stopped for a job that then does not start. A migration and
a share, where there are any, are asked last, about the instant as it will be (`engine/outlook.py`). Where types of GPU
have rules of their own, each is decided on by itself (`engine/partition.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sterna.engine.admission import admitted
from sterna.engine.outlook import composed, planned, with_moves, with_shares
from sterna.engine.partition import merged, parts_of
from sterna.engine.reasons import reasons_for
from sterna.engine.registry import Claim, Claimed, Migration, Misfit, Placed, Placement, Policy, Share, Target
from sterna.engine.room import Room
from sterna.errors import Bug
from sterna.model.cluster import Ints
from sterna.model.plan import Action, Decision, Kind, Mark, Plan
from sterna.model.reason import Reason
from sterna.model.snapshot import NEVER, Snapshot

_TRIES = 8
"""So many jobs that were held in vain are asked for one by one."""

_RESTS = 4
"""So often a plan is thought through to the end before the first one is taken as it is."""


@dataclass(frozen=True)
class Rules:
    """What decides: one rule of each kind."""

    policy: Policy
    placement: Placement
    migration: Migration | None = None
    """None: what runs is not moved."""
    share: Share | None = None
    """None: everybody on a shared node has an equal share."""
    claim: Claim | None = None
    """None: nobody goes before training."""
    by_type: Mapping[str, Rules] = field(default_factory=dict, hash=False)
    """Rules of types of GPU that have their own; everybody else is under the ones above."""

    def under(self, policy: Policy) -> Rules:
        """The same with another policy, for every type."""
        by_type = {name: replace(rules, policy=policy) for name, rules in self.by_type.items()}
        return replace(self, policy=policy, by_type=by_type)


def decide(snapshot: Snapshot, rules: Rules) -> Decision:
    """What to do now, why, and until when that stands."""
    return _decided_by_type(snapshot, rules) if rules.by_type else _decided(snapshot, rules)


def _decided_by_type(snapshot: Snapshot, rules: Rules) -> Decision:
    parts = parts_of(snapshot, rules.by_type)
    decided = [(part, _decided(part.snapshot, rules.by_type.get(part.type, rules))) for part in parts]
    return merged(snapshot, decided) if len(decided) > 1 else decided[0][1]


def _decided(snapshot: Snapshot, rules: Rules) -> Decision:
    claim_until = NEVER
    if snapshot.serving and rules.claim is not None:
        claimed = rules.claim(snapshot)
        if claimed.actions:
            return _for_claimants(snapshot, claimed)
        snapshot, claim_until = claimed.offered, claimed.until
    offered, wish, placed, is_makeshift = _answered(snapshot, rules)
    actions, until = _marked(placed, wish), min(wish.until, claim_until)
    if is_makeshift:
        actions, until = _at_rest(snapshot, actions, until, rules)
    if rules.migration is not None:
        actions, until = with_moves(snapshot, actions, until, rules.migration, rules.share is not None)
    if rules.share is not None or snapshot.has_shares:
        actions, until = with_shares(snapshot, actions, until, rules.share)

    def explain() -> Sequence[Reason]:
        return reasons_for(snapshot, offered, actions)

    return Decision(Plan(actions), until, explain)


def _answered(snapshot: Snapshot, rules: Rules) -> tuple[Snapshot, Target, Placed, bool]:
    """What the policy was offered in the end, what it wants, what the placement can do, and whether that had to be
    settled between the two, or rests on nodes that take nobody new."""
    offered = admitted(snapshot)
    wish, placed = _asked(offered, rules)
    if placed.misfits:
        return *_settled(offered, wish, placed, rules), True
    return offered, wish, placed, not snapshot.nodes.is_open_to_all


def _at_rest(snapshot: Snapshot, actions: list[Action], until: float, rules: Rules) -> tuple[list[Action], float]:
    """The plan that is still wanted once it is carried out. Where not everything fitted, or a node is closed, the first
    one may open room that nobody counted; then that is used too, in the same round."""
    plan = actions
    for _ in range(_RESTS):
        if not plan:
            break
        _, wish, placed, _ = _answered(planned(snapshot, plan), rules)
        if not placed.actions:
            return plan, min(until, wish.until)
        plan = composed(snapshot, plan, _marked(placed, wish))
    return actions, until


def _for_claimants(snapshot: Snapshot, claimed: Claimed) -> Decision:
    """Room is made and nothing else is done: nobody starts or grows into it (DRAGON-57). Then look again at once."""

    def explain() -> Sequence[Reason]:
        return reasons_for(snapshot, snapshot, claimed.actions, claimed.claimants)

    return Decision(Plan(claimed.actions), snapshot.now, explain)


def _settled(offered: Snapshot, wish: Target, placed: Placed, rules: Rules) -> tuple[Snapshot, Target, Placed]:
    """Ask again until everything that is wished for can be placed; then once more for those who were held on the way
    but for whom there is room in the end."""
    first = offered
    for _ in range(len(offered.jobs) + 2):
        if not placed.misfits:
            break
        offered = _held(offered, wish, placed.misfits)
        wish, placed = _asked(offered, rules)
    else:
        raise Bug("the policy and the placement do not come to terms")
    return _eased(first, offered, wish, placed, rules)


def _eased(
    first: Snapshot, offered: Snapshot, wish: Target, placed: Placed, rules: Rules
) -> tuple[Snapshot, Target, Placed]:
    """Let those go who are held though there is room for them once the plan is carried out: all at once, or else the
    first few of them one by one, as far as everything can still be placed."""
    held = _held_in_vain(first, offered, wish, placed)
    for rows in (held, *held[:_TRIES, None]) if len(held) else ():
        most = offered.jobs.maximum.copy()
        most[rows] = first.jobs.maximum[rows]
        eased = replace(first, jobs=first.jobs.capped(most))
        wish_then, placed_then = _asked(eased, rules)
        if not placed_then.misfits:
            offered, wish, placed = eased, wish_then, placed_then
            if len(rows) == len(held):
                break
    return offered, wish, placed


def _held_in_vain(first: Snapshot, offered: Snapshot, wish: Target, placed: Placed) -> Ints:
    room = Room(first.nodes)
    codes, shapes = first.jobs.shape, first.shapes
    for action in placed.actions:
        if action.before.workers:
            room.give(shapes[codes.item(action.row)], action.before)
    for action in placed.actions:
        if action.after.workers:
            room.occupy(shapes[codes.item(action.row)], action.after)
    slots = np.array([int(room.slots(shape).sum()) for shape in shapes.rows])[codes]
    is_held = offered.jobs.maximum < first.jobs.maximum
    return (is_held & (slots >= np.where(wish.workers > 0, 1, first.jobs.minimum))).nonzero()[0]


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
