"""The decision: a pure function from a snapshot to a plan.

Steps: reserve -> admit -> target (policy) -> place -> negotiate -> stabilise -> migrate -> set CPU shares -> explain.
What cannot be placed goes back to the policy, so that no job is stopped for one that does not start
(`engine/negotiation.py`). Migrations and CPU shares are decided on the projected outcome of the plan
(`engine/projection.py`). GPU types with rules of their own are decided one by one (`engine/gpu_partitions.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sterna.engine.admission import admit
from sterna.engine.gpu_partitions import merge_decisions, split_by_gpu_type
from sterna.engine.negotiation import negotiate_placement
from sterna.engine.price import put_prices_on
from sterna.engine.priced_policy import PricedPolicy
from sterna.engine.projection import DraftPlan, add_cpu_shares, add_moves, compose_plans, project_plan
from sterna.engine.reasons import explain_actions
from sterna.engine.registry import CpuShare, Migration, Placed, Placement, Policy, Reservation, Reserved, Target
from sterna.model.cluster import Assignment
from sterna.model.plan import Action, ActionKind, Decision, Mark, Plan
from sterna.model.reason import Reason
from sterna.model.snapshot import NEVER, Snapshot

_MAX_PROJECTIONS = 32
"""Upper bound on projection rounds; six sufficed in 27,000 random rounds."""


@dataclass(frozen=True)
class Rules:
    """One rule of each kind."""

    policy: Policy
    placement: Placement
    migration: Migration | None = None
    """None: running jobs are not moved."""
    cpu_share: CpuShare | None = None
    """None: all jobs on a shared node have an equal CPU share."""
    reservation: Reservation | None = None
    """None: no capacity is reserved for serving pods."""
    is_priced: bool = True
    """Running jobs change only where that pays. False models a scheduler that does not ask for the price."""
    by_type: Mapping[str, Rules] = field(default_factory=dict, hash=False)
    """Rules by GPU type; the rules above apply to all other types."""

    def under(self, policy: Policy) -> Rules:
        """Return these rules with another policy, for every GPU type."""
        by_type = {name: replace(rules, policy=policy) for name, rules in self.by_type.items()}
        return replace(self, policy=policy, by_type=by_type)


def decide(snapshot: Snapshot, rules: Rules) -> Decision:
    """Return the actions to apply now, their reasons, and the time at which to decide again without an event."""
    if not rules.by_type:
        return _decide(snapshot, rules)
    parts = split_by_gpu_type(snapshot, rules.by_type)
    decisions = [(part, _decide(part.snapshot, rules.by_type.get(part.type, rules))) for part in parts]
    return merge_decisions(snapshot, decisions) if len(decisions) > 1 else decisions[0][1]


def _decide(snapshot: Snapshot, rules: Rules) -> Decision:
    # 1. Reserve capacity for serving pods. If jobs have to leave for them, nothing else happens in this round.
    reserved_until = NEVER
    if snapshot.serving and rules.reservation is not None:
        reserved = rules.reservation(snapshot)
        if reserved.actions:
            return _evict_for_serving(snapshot, reserved)
        snapshot, reserved_until = reserved.offered, reserved.until
    # 2. to 5. Admit, set a target, place it, negotiate what does not fit.
    offered, target, placed, is_provisional = _target_and_place(snapshot, rules)
    actions, until = _mark_promotions(placed, target), min(target.until, reserved_until)
    # 6. Stabilise: use capacity that only the plan itself frees, in the same round.
    if is_provisional:
        actions, until = _stabilise(snapshot, actions, until, rules)
    # 7. Migrate running jobs that the plan leaves alone.
    if rules.migration is not None:
        takes_turns = getattr(rules.cpu_share, "takes_turns", False)
        actions, until = add_moves(snapshot, actions, until, rules.migration, takes_turns)
    # 8. Set CPU shares on the nodes as they will be.
    if rules.cpu_share is not None or snapshot.has_cpu_shares:
        actions, until = add_cpu_shares(snapshot, actions, until, rules.cpu_share)

    actions = put_prices_on(snapshot, actions)

    # 9. Explain, when a caller asks for the reasons.
    def explain() -> Sequence[Reason]:
        return explain_actions(snapshot, offered, actions)

    return Decision(Plan(actions), until, explain)


def _target_and_place(snapshot: Snapshot, rules: Rules) -> tuple[Snapshot, Target, Placed, bool]:
    """Return the snapshot that the policy was given in the end, its target, the placement of that, and whether the
    plan is provisional: it was negotiated, or some nodes accept no new workers."""
    offered = admit(snapshot)  # 2. Admit: cap each job at what the cluster can hold.
    policy = PricedPolicy(rules.policy) if rules.is_priced else rules.policy
    target = policy(offered)  # 3. Target: the number of workers of each job, changed only where that pays.
    placed = rules.placement(offered, target.workers)  # 4. Place: nodes for the workers.
    if placed.misfits:  # 5. Negotiate: the policy decides again without what does not fit.
        return *negotiate_placement(offered, target, placed, policy, rules.placement), True
    return offered, target, placed, not snapshot.nodes.is_open_to_all


def _stabilise(snapshot: Snapshot, actions: list[Action], until: float, rules: Rules) -> DraftPlan:
    """Return a plan whose projected outcome the rules leave unchanged."""
    if not actions:
        return actions, until
    plan = actions
    path: list[DraftPlan] = [([], until)]
    outcomes: dict[frozenset[tuple[int, Assignment]], int] = {frozenset(): 0}
    for _ in range(_MAX_PROJECTIONS):
        outcome = frozenset((action.row, action.after) for action in plan)
        if outcome in outcomes:
            return _most_utilised(snapshot, path[outcomes[outcome] :])
        _, target, placed, _ = _target_and_place(project_plan(snapshot, plan), rules)
        outcomes[outcome] = len(path)
        path.append((plan, min(until, target.until)))
        if not placed.actions:
            break
        plan = compose_plans(snapshot, plan, _mark_promotions(placed, target))
    return path[-1]


def _most_utilised(snapshot: Snapshot, cycle: list[DraftPlan]) -> DraftPlan:
    """Return the plan of a cycle that uses most units, the first one on a tie.

    Every plan of the cycle leads to this choice again, so jobs do not start and stop in turn.
    """
    need = snapshot.need

    def unit_change(draft: DraftPlan) -> int:
        return sum(need.item(action.row) * (action.after.size - action.before.size) for action in draft[0])

    return max(cycle, key=unit_change)


def _evict_for_serving(snapshot: Snapshot, reserved: Reserved) -> Decision:
    """Free capacity for serving pods; no job starts or grows into it, and the next round follows at once."""

    def explain() -> Sequence[Reason]:
        return explain_actions(snapshot, snapshot, reserved.actions, reserved.reserving)

    return Decision(Plan(put_prices_on(snapshot, reserved.actions)), snapshot.now, explain)


def _mark_promotions(placed: Placed, target: Target) -> list[Action]:
    """Mark the starts of promoted jobs, so that the backend records the promotion."""
    if target.promoted is None:
        return placed.actions
    promoted = target.promoted
    return [
        action._replace(mark=Mark.PROMOTED) if action.kind is ActionKind.START and promoted[action.row] else action
        for action in placed.actions
    ]
