"""Recovery: an operator that comes up finds what a predecessor began, however that one died, and goes on with it.

Where jobs sit is read from their pods. A gang of which only a part was made is made whole, as its pods say it was
meant, if the nodes for it are still there; else it is withdrawn and decided on anew. What was remembered of jobs came
with the objects themselves.
"""

from __future__ import annotations

from sterna.backends.kubernetes.api.assignment import read_assignment
from sterna.backends.kubernetes.api.job import PodState, ReplicaAssignment
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.lifecycle.replicas import changes_in_place
from sterna.backends.kubernetes.pods.move_record import Move
from sterna.kinds.parsed_job import PodOwnership
from sterna.model.cluster import NOWHERE


def recover(state: ClusterState, now: float) -> int:
    """Give every job that has pods its home back; how many have one."""
    state.settle()
    found = 0
    for entry in list(state.entries.values()):
        if entry.record is not None:
            _resume(state, entry, entry.record)
        if entry.parsed_job.ownership is PodOwnership.SHARE_PODS:
            state.share_pods.join(entry)
        if not entry.wants_to_run:
            continue
        memory = entry.job.memory
        memory.attempt = max([memory.attempt, *(pod.attempt for pod in entry.job.pods.values())])
        if memory.counted_from is not None:
            entry.counted_workers = entry.running_workers
        replicas = replicas_found(state, entry)
        if replicas:
            state.reassign(entry, replicas)
            entry.seated_at = memory.started_at if memory.started_at is not None else now
            found += 1
    state.work_queue.has_news = True
    return found - _withdrawn(state, now)


def _resume(state: ClusterState, entry: JobEntry, move: Move) -> None:
    """A plain pod is under way. If it goes or is gone, that was our predecessor's doing, whom nobody can ask; unless
    it is another life of it than the one that was to go."""
    pod = next(iter(entry.job.pods.values()), None)
    if pod is not None and pod.is_deleting and move.uid not in ("", pod.uid):
        entry.job.is_deleting = True
        state.reindex(entry)
    elif pod is not None and move.uid in ("", pod.uid):
        state.pods.suspect(pod.uid)  # what a predecessor sent may still arrive


def _withdrawn(state: ClusterState, now: float) -> int:
    """Give up gangs of which a part is missing and whose room others have by now, the latest first; how many."""
    overfull = state.capacity.overfull()
    count = 0
    for entry in sorted(state.entries.values(), key=lambda each: -each.parsed_job.submitted_at) if overfull else ():
        missing = [replica for replica in entry.replicas if (replica.type, replica.index) not in entry.job.pods]
        if any(replica.node in overfull for replica in missing):
            entry.job.memory.waiting_since = now
            state.assign(entry, (), NOWHERE)
            overfull = state.capacity.overfull()
            count += 1
    return count


def replicas_found(state: ClusterState, entry: JobEntry) -> list[ReplicaAssignment]:
    """Where a job shall sit, as its pods tell; none: nowhere."""
    job, worker = entry.job, entry.parsed_job.spec.worker.type
    ownership, attempt = entry.parsed_job.ownership, job.memory.attempt
    move = entry.record
    if move is not None and all(move.is_about(pod.uid, str(pod.attempt)) for pod in job.pods.values()):
        return [ReplicaAssignment(worker, 0, move.node)] if state.capacity.is_open(move.node) else []
    types = {each.type for each in entry.parsed_job.spec.replicas}
    present = [
        pod
        for pod in job.pods.values()
        if pod.type in types  # a launcher that another scheduler places has no seat
        if (pod.attempt == attempt or ownership is PodOwnership.MPI) and pod.node and not pod.is_deleting
        if pod.state is not PodState.FAILED
    ]
    if not present:
        return []
    replicas = [ReplicaAssignment(pod.type, pod.index, pod.node, pod.gpu_id) for pod in present]
    has_begun = changes_in_place(entry.parsed_job) and job.memory.started_at is not None
    if not has_begun and ownership not in (PodOwnership.MPI, PodOwnership.POD):
        meant = read_assignment(max(present, key=lambda pod: pod.version).assignment)
        replicas = meant if meant else replicas
    kept = [replica for replica in replicas if replica.node in state.capacity.row_of and _has_its_gpu(entry, replica)]
    if len(kept) < len(replicas) and not changes_in_place(entry.parsed_job):
        return []
    others = sum(each.count for each in entry.parsed_job.spec.replicas if each.type != worker)
    workers = sum(replica.type == worker for replica in kept)
    if ownership is PodOwnership.MPI and workers < entry.parsed_job.spec.minimum:
        return []  # half bound: its operator cannot be told where the others were to go
    return [] if len(kept) - workers < others or not workers else kept


def _has_its_gpu(entry: JobEntry, replica: ReplicaAssignment) -> bool:
    """Who shares a GPU has one by name, unless somebody took the name away."""
    return bool(replica.gpu_id) or not entry.shape.is_fraction or replica.type != entry.parsed_job.spec.worker.type
