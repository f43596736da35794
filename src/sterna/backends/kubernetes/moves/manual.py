"""Moves that users request: a job to a node, by an annotation of its object (`MIGRATE_TO`).

The operator processes each request once and applies it at once, as container-migration did, without a round. The
client validates the move first (`validate_move`), so that a user sees the error there.
"""

from __future__ import annotations

import logging

from sterna.backends.kubernetes.backend import KubernetesBackend
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.cache.reservations import free_beside, reservations
from sterna.errors import UserError, did_you_mean
from sterna.kinds.labels import MIGRATE_TO
from sterna.model.cluster import Assignment
from sterna.model.plan import Action, ActionKind, Decision, Plan
from sterna.model.reason import Code, Reason
from sterna.model.snapshot import JobKey

_log = logging.getLogger(__name__)


def validate_move(state: ClusterState, entry: JobEntry, node: str) -> Assignment:
    """Return the assignment of a running job with all workers on this node; raise `UserError` if it is impossible."""
    name, assignment = entry.parsed_job.ref.name, entry.assignment
    state.refresh()
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
    room = free_beside(state, reservations(state), state.clock())
    room.release(entry.shape, Assignment(assignment.workers, (), assignment.slots))
    if room.slots_at(entry.shape, row) < assignment.size:
        raise UserError(
            f"{node} has no room for the {assignment.size} workers of '{name}'; name another node, or move "
            "others away first."
        )
    return Assignment(((row, assignment.size),), assignment.ps, room.take(entry.shape, row, assignment.size))


class ManualMoves:
    """Processes `MIGRATE_TO` annotations. A `before_reconcile` hook of the backend."""

    def __init__(self, backend: KubernetesBackend) -> None:
        self._backend = backend

    def process(self, now: float) -> None:
        """Apply new requests of enqueued jobs. The caller holds the backend's lock."""
        state = self._backend.state
        for key in state.work_queue.pending():
            entry = state.entries.get(key)
            request = entry.source.annotations.get(MIGRATE_TO, "").strip() if entry is not None else ""
            if entry is not None and request and request != entry.job.persisted.asked_move:
                entry.job.persisted.asked_move = request
                self._apply(entry, request.split()[0], now)

    def _apply(self, entry: JobEntry, node: str, now: float) -> None:
        backend = self._backend
        try:
            assignment = validate_move(backend.state, entry, node)
        except UserError as error:
            _log.warning("Request to move the job rejected: %s", error, extra={"job": entry.name, "node": node})
            return
        backend.explain(entry, Reason(-1, entry.name, Code.MOVED, assignment.size), now)
        move = Action(ActionKind.MIGRATE, JobKey(entry.key), -1, entry.assignment, assignment)
        backend.apply(Decision(Plan([move])))
