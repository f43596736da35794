"""`none`: counts devices without choosing nodes. For comparisons of policies alone, as in published simulators."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.model.plan import kind_of
from sterna.rules import ANYWHERE, NOWHERE, Action, Assignment, Ints, JobKey, Placed, Snapshot, placement


@placement("none")
@dataclass(frozen=True)
class Anywhere:
    """Devices are only counted: any free device of the cluster will do."""

    def __call__(self, snapshot: Snapshot, target: Ints) -> Placed:
        changed = (target != snapshot.jobs.workers).nonzero()[0]
        keys = snapshot.jobs.key[changed].tolist()
        actions = []
        for row, key, new in zip(changed.tolist(), keys, target[changed].tolist(), strict=True):
            before = snapshot.assignments.get(JobKey(key), NOWHERE)
            after = Assignment(((ANYWHERE, new),)) if new else NOWHERE
            actions.append(Action(kind_of(before, after), JobKey(key), row, before, after))
        actions.sort(key=lambda action: (action.kind, action.row))
        return Placed(actions, [])
