"""Moves that people ask for: a job to a node, by an annotation on its object (`MIGRATE_TO`).

The operator looks at every request once and carries it out at once, like container-migration's: no round is needed for
it and no rule is asked. Whoever asks tries the same check first (`validate_move`), and is told there what cannot be.
"""

from __future__ import annotations

from collections.abc import Callable

from sterna.backends.kubernetes.backend import KubernetesBackend
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.cache.reservations import reservations, room_beside
from sterna.errors import UserError, did_you_mean
from sterna.kinds.labels import MIGRATE_TO
from sterna.model.cluster import Assignment
from sterna.model.plan import Action, ActionKind, Decision, Plan
from sterna.model.reason import Code, Reason
from sterna.model.snapshot import JobKey


def validate_move(state: ClusterState, entry: JobEntry, node: str) -> Assignment:
    """Where a running job would sit if all its workers were on this node; refuses what is not possible."""
    name, assignment = entry.parsed_job.ref.name, entry.assignment
    state.settle()
    row = state.capacity.row_of.get(node)
    if row is None:
        raise UserError(f"There is no node '{node}': {did_you_mean(node, state.capacity.names)}")
    if not entry.wants_to_run or not assignment.workers:
        raise UserError(f"Job '{name}' does not run, so that it cannot be moved; wait until it has started.")
    if {replica for replica, _ in assignment.workers} == {row}:
        raise UserError(f"Job '{name}' is on {node} already; name another node.")
    if not state.capacity.is_open(node):
        raise UserError(f"{node} takes no jobs now; open it with: sterna uncordon {node}.")
    if not state.capacity.takes(node, entry.shape):
        raise UserError(f"Job '{name}' may not be on {node}, by its node selector or the node's taints; name another.")
    room = room_beside(state, reservations(state), state.clock())
    room.give(entry.shape, Assignment(assignment.workers, (), assignment.slots))
    if room.slots_at(entry.shape, row) < assignment.size:
        raise UserError(
            f"{node} has no room for the {assignment.size} workers of '{name}'; name another node, or move "
            "others away first."
        )
    return Assignment(((row, assignment.size),), assignment.ps, room.take(entry.shape, row, assignment.size))


class ManualMoves:
    """An errand of the operator's backend."""

    def __init__(self, backend: KubernetesBackend, say: Callable[[str], None] = lambda sentence: None) -> None:
        """`say` is told of requests that come to nothing."""
        self._backend, self._say = backend, say

    def process(self, now: float) -> None:
        """At jobs of which something has changed. The caller holds the backend's lock."""
        state = self._backend.state
        for key in state.work_queue.pending():
            entry = state.entries.get(key)
            wish = entry.source.annotations.get(MIGRATE_TO, "").strip() if entry is not None else ""
            if entry is not None and wish and wish != entry.job.memory.asked_move:
                entry.job.memory.asked_move = wish
                self._carry_out(entry, wish.split()[0], now)

    def _carry_out(self, entry: JobEntry, node: str, now: float) -> None:
        backend = self._backend
        try:
            assignment = validate_move(backend.state, entry, node)
        except UserError as error:
            self._say(f"A request to move {entry.name} came to nothing: {error}")
            return
        backend.explain(entry, Reason(-1, entry.name, Code.MOVED, assignment.size), now)
        move = Action(ActionKind.MIGRATE, JobKey(entry.key), -1, entry.assignment, assignment)
        backend.apply(Decision(Plan([move])))
