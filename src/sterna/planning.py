"""Verbs without side effects that the command line and the REST API share, with the same results and errors.

`plan` makes one decision for a cluster file, `rules` lists policies and placements, `replay` decides a recorded round
again. Nothing is stored and nothing is applied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from sterna.cluster_file import read_cluster
from sterna.control.journal import Round, read_opening, read_round
from sterna.engine.check import check
from sterna.engine.decide import decide
from sterna.engine.registry import RuleKind
from sterna.errors import UserError
from sterna.model.cluster import ANYWHERE
from sterna.model.json_object import JsonObject
from sterna.model.plan import Action, Decision
from sterna.model.snapshot import Snapshot
from sterna.settings import is_count_only
from sterna.wiring import make_rules, preferred_placement, rules_by_type, rules_of, unknown_types


def plan(
    document: Mapping[str, object],
    policy: str,
    placement: str | None = None,
    policy_for: Sequence[str] = (),
    source: str = "",
) -> JsonObject:
    """Return the decision of a policy for the cluster in `document`, with reasons. `policy_for` sets policies by GPU
    type: `nvidia-a100=srjf`. Errors in the document are prefixed with `source`."""
    by_type = rules_by_type(policy_for, placement)
    placement = preferred_placement(policy) if placement is None else placement
    rules = make_rules(policy, placement, by_type=by_type)
    try:
        cluster = read_cluster(document, is_count_only(placement))
    except UserError as error:
        raise UserError(f"{source}: {error}" if source else str(error)) from None
    unknown = unknown_types(rules, cluster.snapshot.nodes)
    if unknown:
        raise UserError(unknown[0])
    decision = decide(cluster.snapshot, rules)
    check(decision.plan, cluster.snapshot)
    answer = _answer(cluster.snapshot, decision)
    return answer | ({"notices": list(cluster.notices)} if cluster.notices else {})


def replay(journal: str | Path, number: int, policy: str | None = None, placement: str | None = None) -> JsonObject:
    """Decide a recorded round again, with the recorded rules or with others, and compare with the recorded actions."""
    opening = read_opening(journal)
    policy = opening.policy if policy is None else policy
    placement = opening.placement if placement is None else placement
    if is_count_only(placement) != is_count_only(opening.placement):
        raise UserError(
            f"'{journal}' was recorded with placement '{opening.placement}': devices that were only counted cannot be "
            f"placed, nor the other way round; leave --placement out."
        )
    recorded = read_round(journal, number)
    snapshot = recorded.snapshot
    decision = decide(snapshot, make_rules(policy, placement, *opening.others))
    check(decision.plan, snapshot)
    return {
        "round": recorded.number,
        "now": snapshot.now,
        "policy": policy,
        "placement_rule": placement,
        "same": tuple(decision.plan.actions) == recorded.actions,
        "recorded": _recorded_round(recorded),
        **_shadow(opening.shadow, recorded),
        **_answer(snapshot, decision),
    }


def rules() -> JsonObject:
    """Return every policy and placement with its parameters."""
    return {
        kind.value: [
            {
                "name": info.name,
                "aliases": list(info.aliases),
                "summary": info.summary,
                "parameters": [
                    {
                        "name": parameter.name,
                        "type": parameter.kind.__name__,
                        "default": _as_json(parameter.default),
                        "choices": list(parameter.choices),
                        "help": parameter.help,
                    }
                    for parameter in info.parameters
                ],
            }
            for info in rules_of(kind)
        ]
        for kind in RuleKind
    }


def _as_json(value: object) -> object:
    """Return infinities as strings, which JSON lacks and parameters accept."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _answer(snapshot: Snapshot, decision: Decision) -> JsonObject:
    """Return the state after the plan for every job, the actions and their reasons."""
    changed = {action.row: action for action in decision.plan.actions}
    allocation, placed, servers = {}, {}, {}
    for row in range(len(snapshot.jobs)):
        assignment = changed[row].after if row in changed else snapshot.assignment_of(row)
        name = snapshot.jobs.name_of(row)
        allocation[name] = assignment.size
        placed[name] = _by_node(snapshot, assignment.workers)
        if assignment.ps:
            servers[name] = _by_node(snapshot, assignment.ps)
    return {
        "allocation": allocation,
        "placement": placed,
        "actions": _actions(snapshot, decision.plan.actions),
        "reasons": {reason.job: reason.sentence for reason in decision.reasons},
        "parameter_servers": servers,
    }


def _recorded_round(recorded: Round) -> JsonObject:
    """Return the recorded reasons, actions and workers."""
    jobs = recorded.snapshot.jobs
    return {
        "reasons": dict(recorded.reasons),
        "actions": _actions(recorded.snapshot, recorded.actions),
        "workers": {jobs.name_of(row): int(jobs.workers[row]) for row in range(len(jobs))},
    }


def _shadow(policy: str, recorded: Round) -> JsonObject:
    """Return the shadow's actions and forecast; empty if no shadow decided."""
    view = recorded.shadow
    if view is None:
        return {}
    return {
        "shadow": {
            "policy": policy,
            "actions": _actions(recorded.snapshot, view.actions),
            "differs": view.differs_from(recorded.actions),
            "forecast": view.forecast._asdict(),
            "recorded_forecast": view.own._asdict(),
        }
    }


def _actions(snapshot: Snapshot, actions: Sequence[Action]) -> list[JsonObject]:
    return [_action(snapshot, action) for action in actions]


def _action(snapshot: Snapshot, action: Action) -> JsonObject:
    return {
        "action": action.kind.name.lower(),
        "job": snapshot.jobs.name_of(action.row),
        "from": _by_node(snapshot, action.before.workers),
        "to": _by_node(snapshot, action.after.workers),
    }


def _by_node(snapshot: Snapshot, runs: Sequence[tuple[int, int]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node, count in runs:
        if node != ANYWHERE:
            counts[snapshot.nodes.name[node]] = counts.get(snapshot.nodes.name[node], 0) + count
    return counts
