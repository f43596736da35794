"""Moves that people ask for: a job to another node, or everybody off one. The caller holds the book's lock."""

from __future__ import annotations

from sterna.backends.local.backend import LocalBackend
from sterna.backends.local.store.job_store import LocalJob
from sterna.engine.placement.free_capacity import Room
from sterna.errors import UserError
from sterna.model.cluster import NOWHERE, Home


def moved_to(backend: LocalBackend, job: LocalJob, node: str) -> Home:
    """Where a running job would sit if all its workers were on this node; refuses what is not possible."""
    row = backend.book.slices.row_of[node]
    if not job.home.workers:
        raise UserError(f"Job '{job.name}' does not run, so that it cannot be moved; wait until it has started.")
    if {seat for seat, _ in job.home.workers} == {row}:
        raise UserError(f"Job '{job.name}' is on {node} already; name another node.")
    if node in backend.closed:
        raise UserError(f"{node} takes no jobs now; open it with: sterna uncordon {node}.")
    home = _fitted(_room_without(backend, job), job, row)
    if home is None:
        raise UserError(
            f"{node} has no room for the {job.home.size} workers of '{job.name}'; name another node, or move others "
            "away first."
        )
    return home


def evicted(backend: LocalBackend, row: int) -> list[LocalJob]:
    """Seat everybody who is on a node elsewhere, where there is room, else let them wait; those that were touched."""
    touched = []
    for job in backend.book.active():
        if not any(seat == row for seat, _ in (*job.home.workers, *job.home.ps)):
            continue
        home = _elsewhere(backend, job, row)
        if home is None:
            home = NOWHERE
            job.record.waiting_since = backend.book.clock()
        else:
            backend.mark_move(job, job.home.workers, home.workers)
        backend.book.seat(job, home)
        touched.append(job)
    return touched


def _elsewhere(backend: LocalBackend, job: LocalJob, row: int) -> Home | None:
    """One other node that holds all of it; parameter servers on the node that closes are moved by a new start."""
    if any(seat == row for seat, _ in job.home.ps):
        return None
    room = _room_without(backend, job)
    for other, node in enumerate(backend.book.slices.nodes):
        if other != row and node.name not in backend.closed:
            home = _fitted(room, job, other)
            if home is not None:
                return home
    return None


def _room_without(backend: LocalBackend, job: LocalJob) -> Room:
    """What is free, and what the job's workers would leave."""
    room = Room(backend.book.slices.table())
    for other in backend.book.active():
        if other.home.workers:
            room.occupy(
                job.shape if other is job else other.shape, Home((), job.home.ps) if other is job else other.home
            )
    return room


def _fitted(room: Room, job: LocalJob, row: int) -> Home | None:
    size = job.home.size
    if room.slots_at(job.shape, row) < size:
        return None
    return Home(((row, size),), job.home.ps, room.take(job.shape, row, size))
