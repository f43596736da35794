"""The decision: a function from what is known to what is to be done.

The policy counts, the placement finds nodes. What cannot be placed comes back to the policy, so nobody is stopped for a
job that then does not start (`engine/negotiation.py`). A migration and a share, where there are any, are asked last,
about the instant as it will be (`engine/projection.py`). Where types of GPU have rules of their own, each is decided
on by itself (`engine/gpu_partitions.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sterna.engine.admission import admit
from sterna.engine.gpu_partitions import merged, parts_of
from sterna.engine.negotiation import settled
from sterna.engine.projection import Answer, composed, planned, with_cpu_shares, with_moves
from sterna.engine.reasons import reasons_for
from sterna.engine.registry import CpuShare, Migration, Placed, Placement, Policy, Reservation, Reserved, Target
from sterna.model.cluster import Assignment
from sterna.model.plan import Action, ActionKind, Decision, Mark, Plan
from sterna.model.reason import Reason
from sterna.model.snapshot import NEVER, Snapshot

_RESTS = 32
"""So often a plan is thought on before it is taken as it is; in 27,000 rounds of random worlds six were enough."""


@dataclass(frozen=True)
class Rules:
    """What decides: one rule of each kind."""

    policy: Policy
    placement: Placement
    migration: Migration | None = None
    """None: what runs is not moved."""
    cpu_share: CpuShare | None = None
    """None: everybody on a shared node has an equal share."""
    reservation: Reservation | None = None
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
    reserved_until = NEVER
    if snapshot.serving and rules.reservation is not None:
        reserved = rules.reservation(snapshot)
        if reserved.actions:
            return _make_room(snapshot, reserved)
        snapshot, reserved_until = reserved.offered, reserved.until
    offered, wish, placed, is_makeshift = _answered(snapshot, rules)
    actions, until = _marked(placed, wish), min(wish.until, reserved_until)
    if is_makeshift:
        actions, until = _at_rest(snapshot, actions, until, rules)
    if rules.migration is not None:
        actions, until = with_moves(snapshot, actions, until, rules.migration, rules.cpu_share is not None)
    if rules.cpu_share is not None or snapshot.has_cpu_shares:
        actions, until = with_cpu_shares(snapshot, actions, until, rules.cpu_share)

    def explain() -> Sequence[Reason]:
        return reasons_for(snapshot, offered, actions)

    return Decision(Plan(actions), until, explain)


def _answered(snapshot: Snapshot, rules: Rules) -> tuple[Snapshot, Target, Placed, bool]:
    """What the policy was offered in the end, what it wants, what the placement can do, and whether that had to be
    settled between the two, or rests on nodes that take nobody new."""
    offered = admit(snapshot)
    wish = rules.policy(offered)
    placed = rules.placement(offered, wish.workers)
    if placed.misfits:
        return *settled(offered, wish, placed, rules.policy, rules.placement), True
    return offered, wish, placed, not snapshot.nodes.is_open_to_all


def _at_rest(snapshot: Snapshot, actions: list[Action], until: float, rules: Rules) -> Answer:
    """The plan that is still wanted once it is carried out. Where not everything fitted, or a node is closed, the first
    one may open room that nobody counted; then that is used too, in the same round."""
    if not actions:
        return actions, until
    plan = actions
    path: list[Answer] = [([], until)]
    places: dict[frozenset[tuple[int, Assignment]], int] = {frozenset(): 0}
    for _ in range(_RESTS):
        place = frozenset((action.row, action.after) for action in plan)
        if place in places:
            return _fullest(snapshot, path[places[place] :])
        _, wish, placed, _ = _answered(planned(snapshot, plan), rules)
        places[place] = len(path)
        path.append((plan, min(until, wish.until)))
        if not placed.actions:
            break
        plan = composed(snapshot, plan, _marked(placed, wish))
    return path[-1]


def _fullest(snapshot: Snapshot, plans: list[Answer]) -> Answer:
    """Of plans each of which would be followed by the next and the last by the first: the one under which most is in
    use, then the first of them, which is to do nothing where that is among them. Whichever of them is carried out, the
    same one is chosen again, so nobody is started and stopped in turn."""
    need = snapshot.need

    def used(answer: Answer) -> int:
        return sum(need.item(action.row) * (action.after.size - action.before.size) for action in answer[0])

    return max(plans, key=used)


def _make_room(snapshot: Snapshot, reserved: Reserved) -> Decision:
    """Room is made and nothing else is done: nobody starts or grows into it (DRAGON-57). Then look again at once."""

    def explain() -> Sequence[Reason]:
        return reasons_for(snapshot, snapshot, reserved.actions, reserved.reserving)

    return Decision(Plan(reserved.actions), snapshot.now, explain)


def _marked(placed: Placed, wish: Target) -> list[Action]:
    """Promotions are remembered when they lead to a start."""
    if wish.promoted is None:
        return placed.actions
    promoted = wish.promoted
    return [
        action._replace(mark=Mark.PROMOTED) if action.kind is ActionKind.START and promoted[action.row] else action
        for action in placed.actions
    ]
