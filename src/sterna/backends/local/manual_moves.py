"""Moves that users request: one job to another node, or all jobs off a node. The caller holds the lock of the job
store."""

from __future__ import annotations

from sterna.backends.local.backend import LocalBackend
from sterna.backends.local.store.job_store import LocalJob
from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.errors import UserError
from sterna.model.cluster import NOWHERE, Assignment


def find_move(backend: LocalBackend, job: LocalJob, node: str) -> Assignment:
    """Return the assignment of a running job with all its workers on `node`; raise UserError if it is impossible."""
    row = backend.store.slices.row_of[node]
    if not job.assignment.workers:
        raise UserError(f"Job '{job.name}' does not run, so that it cannot be moved; wait until it has started.")
    if {assign for assign, _ in job.assignment.workers} == {row}:
        raise UserError(f"Job '{job.name}' is on {node} already; name another node.")
    if node in backend.closed:
        raise UserError(f"{node} takes no jobs now; open it with: sterna uncordon {node}.")
    assignment = _fit_on_node(_room_without(backend, job), job, row)
    if assignment is None:
        raise UserError(
            f"{node} has no room for the {job.assignment.size} workers of '{job.name}'; name another node, or move "
            "others away first."
        )
    return assignment


def evict_jobs(backend: LocalBackend, row: int) -> list[LocalJob]:
    """Move every job on a node to another one with enough room, or queue it; return the jobs that were changed."""
    touched = []
    for job in backend.store.active():
        if not any(assign == row for assign, _ in (*job.assignment.workers, *job.assignment.ps)):
            continue
        assignment = _find_other_node(backend, job, row)
        if assignment is None:
            assignment = NOWHERE
            job.record.waiting_since = backend.store.clock()
        else:
            job.record.note_move(job.assignment, assignment, backend.store.clock(), backend.store.slices.names)
        backend.store.assign(job, assignment)
        touched.append(job)
    return touched


def _find_other_node(backend: LocalBackend, job: LocalJob, row: int) -> Assignment | None:
    """Return an assignment on one other node. A job with parameter servers on this node has none: it restarts
    elsewhere."""
    if any(assign == row for assign, _ in job.assignment.ps):
        return None
    room = _room_without(backend, job)
    for other, node in enumerate(backend.store.slices.nodes):
        if other != row and node.name not in backend.closed:
            assignment = _fit_on_node(room, job, other)
            if assignment is not None:
                return assignment
    return None


def _room_without(backend: LocalBackend, job: LocalJob) -> FreeCapacity:
    """Return the free capacity without the workers of `job`."""
    room = FreeCapacity(backend.store.slices.table())
    for other in backend.store.active():
        if other.assignment.workers:
            room.occupy(
                job.shape if other is job else other.shape,
                Assignment((), job.assignment.ps) if other is job else other.assignment,
            )
    return room


def _fit_on_node(room: FreeCapacity, job: LocalJob, row: int) -> Assignment | None:
    size = job.assignment.size
    if room.slots_at(job.shape, row) < size:
        return None
    return Assignment(((row, size),), job.assignment.ps, room.take(job.shape, row, size))
