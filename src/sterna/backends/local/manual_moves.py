"""Moves that people ask for: a job to another node, or everybody off one. The caller holds the book's lock."""

from __future__ import annotations

from sterna.backends.local.backend import LocalBackend
from sterna.backends.local.store.job_store import LocalJob
from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.errors import UserError
from sterna.model.cluster import NOWHERE, Assignment


def find_move(backend: LocalBackend, job: LocalJob, node: str) -> Assignment:
    """Where a running job would sit if all its workers were on this node; refuses what is not possible."""
    row = backend.store.slices.row_of[node]
    if not job.assignment.workers:
        raise UserError(f"Job '{job.name}' does not run, so that it cannot be moved; wait until it has started.")
    if {assign for assign, _ in job.assignment.workers} == {row}:
        raise UserError(f"Job '{job.name}' is on {node} already; name another node.")
    if node in backend.closed:
        raise UserError(f"{node} takes no jobs now; open it with: sterna uncordon {node}.")
    assignment = _fitted(_room_without(backend, job), job, row)
    if assignment is None:
        raise UserError(
            f"{node} has no room for the {job.assignment.size} workers of '{job.name}'; name another node, or move "
            "others away first."
        )
    return assignment


def evict_jobs(backend: LocalBackend, row: int) -> list[LocalJob]:
    """Seat everybody who is on a node elsewhere, where there is room, else let them wait; those that were touched."""
    touched = []
    for job in backend.store.active():
        if not any(assign == row for assign, _ in (*job.assignment.workers, *job.assignment.ps)):
            continue
        assignment = _elsewhere(backend, job, row)
        if assignment is None:
            assignment = NOWHERE
            job.record.waiting_since = backend.store.clock()
        else:
            job.record.note_move(job.assignment, assignment, backend.store.clock(), backend.store.slices.names)
        backend.store.assign(job, assignment)
        touched.append(job)
    return touched


def _elsewhere(backend: LocalBackend, job: LocalJob, row: int) -> Assignment | None:
    """One other node that holds all of it; parameter servers on the node that closes are moved by a new start."""
    if any(assign == row for assign, _ in job.assignment.ps):
        return None
    room = _room_without(backend, job)
    for other, node in enumerate(backend.store.slices.nodes):
        if other != row and node.name not in backend.closed:
            assignment = _fitted(room, job, other)
            if assignment is not None:
                return assignment
    return None


def _room_without(backend: LocalBackend, job: LocalJob) -> FreeCapacity:
    """What is free, and what the job's workers would leave."""
    room = FreeCapacity(backend.store.slices.table())
    for other in backend.store.active():
        if other.assignment.workers:
            room.occupy(
                job.shape if other is job else other.shape,
                Assignment((), job.assignment.ps) if other is job else other.assignment,
            )
    return room


def _fitted(room: FreeCapacity, job: LocalJob, row: int) -> Assignment | None:
    size = job.assignment.size
    if room.slots_at(job.shape, row) < size:
        return None
    return Assignment(((row, size),), job.assignment.ps, room.take(job.shape, row, size))
