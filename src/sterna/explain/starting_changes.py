"""`find_starting_changes`: the changes that would start a waiting job of a cluster."""

from __future__ import annotations

import msgspec

from sterna.explain.counterfactual import changes_that_start, decision_that_starts
from sterna.model.snapshot import JobKey, Snapshot
from sterna.service.views import PolicyView, StartingChange
from sterna.wiring import make_rules, rules_by_type


def find_starting_changes(snapshot: Snapshot, key: JobKey, view: PolicyView) -> list[StartingChange]:
    """Return the smallest single changes that would start a waiting job under these rules."""
    by_type = rules_by_type(view.policy_for.split(), view.placement)
    rules = make_rules(view.policy, view.placement, view.migration, view.cpu_share, view.reservation, by_type)
    rows = (snapshot.jobs.key == key).nonzero()[0]
    if not len(rows):
        return []
    if decision_that_starts(snapshot, key, rules) is not None:
        return [StartingChange("There is room for it now: it starts as soon as the operator looks at it.", "nothing")]
    changes = changes_that_start(snapshot, int(rows[0]), rules)
    return [msgspec.convert(change.document, StartingChange) for change in changes]
