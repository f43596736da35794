"""Recovery: an operator that comes up finds what a predecessor began, however that one died, and goes on with it.

Where jobs sit is read from their pods. A gang of which only a part was made is made whole, as its pods say it was
meant, if the nodes for it are still there; else it is withdrawn and decided on anew. What was remembered of jobs came
with the objects themselves.
"""

from __future__ import annotations

from sterna.backends.kubernetes.api.assignment import read_assignment
from sterna.backends.kubernetes.api.job import Carrier, PodState, Seat
from sterna.backends.kubernetes.cache.cluster_state import World
from sterna.backends.kubernetes.cache.job_entry import Entry
from sterna.backends.kubernetes.kinds.move_record import Move
from sterna.backends.kubernetes.lifecycle.replicas import changes_in_place
from sterna.model.cluster import NOWHERE


def recover(world: World, now: float) -> int:
    """Give every job that has pods its home back; how many have one."""
    world.settle()
    found = 0
    for entry in list(world.entries.values()):
        if entry.record is not None:
            _resume(world, entry, entry.record)
        if entry.submitted.carrier is Carrier.SHARE_PODS:
            world.share_pods.join(entry)
        if not entry.wants_to_run:
            continue
        memory = entry.job.memory
        memory.attempt = max([memory.attempt, *(pod.attempt for pod in entry.job.pods.values())])
        if memory.counted_from is not None:
            entry.counted_workers = entry.running_workers
        seats = seats_found(world, entry)
        if seats:
            world.reseat(entry, seats)
            entry.seated_at = memory.started_at if memory.started_at is not None else now
            found += 1
    world.attention.has_news = True
    return found - _withdrawn(world, now)


def _resume(world: World, entry: Entry, move: Move) -> None:
    """A plain pod is under way. If it goes or is gone, that was our predecessor's doing, whom nobody can ask; unless
    it is another life of it than the one that was to go."""
    pod = next(iter(entry.job.pods.values()), None)
    if pod is not None and pod.is_deleting and move.uid not in ("", pod.uid):
        entry.job.is_deleting = True
        world.reindex(entry)
    elif pod is not None and move.uid in ("", pod.uid):
        world.pods.suspect(pod.uid)  # what a predecessor sent may still arrive


def _withdrawn(world: World, now: float) -> int:
    """Give up gangs of which a part is missing and whose room others have by now, the latest first; how many."""
    overfull = world.accounts.overfull()
    count = 0
    for entry in sorted(world.entries.values(), key=lambda each: -each.submitted.submitted_at) if overfull else ():
        missing = [seat for seat in entry.seats if (seat.type, seat.index) not in entry.job.pods]
        if any(seat.node in overfull for seat in missing):
            entry.job.memory.waiting_since = now
            world.seat(entry, (), NOWHERE)
            overfull = world.accounts.overfull()
            count += 1
    return count


def seats_found(world: World, entry: Entry) -> list[Seat]:
    """Where a job shall sit, as its pods tell; none: nowhere."""
    job, worker = entry.job, entry.submitted.spec.worker.type
    carrier, attempt = entry.submitted.carrier, job.memory.attempt
    move = entry.record
    if move is not None and all(move.is_about(pod.uid, str(pod.attempt)) for pod in job.pods.values()):
        return [Seat(worker, 0, move.node)] if world.accounts.is_open(move.node) else []
    types = {each.type for each in entry.submitted.spec.replicas}
    present = [
        pod
        for pod in job.pods.values()
        if pod.type in types  # a launcher that another scheduler places has no seat
        if (pod.attempt == attempt or carrier is Carrier.MPI) and pod.node and not pod.is_deleting
        if pod.state is not PodState.FAILED
    ]
    if not present:
        return []
    seats = [Seat(pod.type, pod.index, pod.node, pod.gpu_id) for pod in present]
    has_begun = changes_in_place(entry.submitted) and job.memory.started_at is not None
    if not has_begun and carrier not in (Carrier.MPI, Carrier.POD):
        meant = read_assignment(max(present, key=lambda pod: pod.version).assignment)
        seats = meant if meant else seats
    kept = [seat for seat in seats if seat.node in world.accounts.row_of and _has_its_gpu(entry, seat)]
    if len(kept) < len(seats) and not changes_in_place(entry.submitted):
        return []
    others = sum(each.count for each in entry.submitted.spec.replicas if each.type != worker)
    workers = sum(seat.type == worker for seat in kept)
    if carrier is Carrier.MPI and workers < entry.submitted.spec.minimum:
        return []  # half bound: its operator cannot be told where the others were to go
    return [] if len(kept) - workers < others or not workers else kept


def _has_its_gpu(entry: Entry, seat: Seat) -> bool:
    """Who shares a GPU has one by name, unless somebody took the name away."""
    return bool(seat.gpu_id) or not entry.shape.is_fraction or seat.type != entry.submitted.spec.worker.type
