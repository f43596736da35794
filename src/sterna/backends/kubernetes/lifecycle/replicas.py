"""From a desired assignment to pods: which replica goes to which node, and the next creations and deletions.

Pure and level-triggered: `place_replicas` assigns nodes with the fewest changes, `next_steps` compares that with the
existing pods. The result is idempotent and empty once the assignment is reached. A pod name is reused only when the
previous pod is gone, and a pod is created only where capacity is physically free. Causes of failures are judged in
`verdict.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from sterna.backends.kubernetes.api.assignment import Key, decode_assignment, gpu_id
from sterna.backends.kubernetes.api.job import KubeJob, PodRow, PodState, ReplicaAssignment
from sterna.errors import Bug
from sterna.kinds.parsed_job import ParsedJob
from sterna.model.cluster import Assignment
from sterna.model.job import Resizing
from sterna.model.snapshot import NEVER

SERVING_TYPES = frozenset({"ps", "evaluator"})
"""Types that are deleted after all others are gone, because a worker that saves needs them."""


class Need(NamedTuple):
    """Free capacity required on a node."""

    devices: int = 0
    """Thousandths of a device."""
    cpus: int = 0
    """Millicores."""
    memory_bytes: int = 0

    def plus(self, other: Need) -> Need:
        return Need(self.devices + other.devices, self.cpus + other.cpus, self.memory_bytes + other.memory_bytes)


class Steps(NamedTuple):
    """Next steps for one job."""

    create: list[ReplicaAssignment]
    delete: list[PodRow]
    """Pods to delete gracefully."""
    force: list[PodRow]
    """Pods on lost nodes to delete with `gracePeriodSeconds: 0`, because no kubelet will confirm their end."""
    waits_for: frozenset[str]
    """Nodes on which capacity must become free first."""
    attempt: int
    """Attempt of the pods to create, for `PersistedState.attempt`."""
    until: float
    """Time at which to reconcile again without an event; `NEVER` if none."""
    is_settled: bool
    """True if the existing pods equal the desired replicas."""


def replaces_in_place(parsed_job: ParsedJob) -> bool:
    """Return True if single replicas may be added, removed and replaced while the others train; else all restart."""
    return parsed_job.spec.resizing in (Resizing.IN_PLACE, Resizing.TORCHRUN) or parsed_job.survives_replica_loss


def need_of(parsed_job: ParsedJob, replica_type: str) -> Need:
    shape = parsed_job.shape
    if replica_type == parsed_job.spec.worker.type:
        return Need(shape.devices, shape.cpus, shape.memory_bytes)
    spec = next((each for each in parsed_job.spec.replicas if each.type == replica_type), None)
    if spec is None:
        return Need(0, shape.ps_cpus, shape.ps_memory_bytes)
    return Need(spec.devices, spec.cpus, spec.memory_bytes)


# Placement of replicas.


class _Place(NamedTuple):
    node: str
    gpu_id: str = ""


def place_replicas(
    parsed_job: ParsedJob,
    assignment: Assignment,
    node_names: Sequence[str],
    current: Mapping[Key, str],
    held_gpus: Mapping[Key, str] | None = None,
    gpu_ids: Mapping[tuple[str, int], str] | None = None,
) -> list[ReplicaAssignment]:
    """Return a node for every replica, parameter servers first; nothing if the assignment is empty.

    `current` maps each replica that stays to its node (`assignment.current_nodes`). A replica on a wanted node stays;
    any other takes an open place under the same index; new replicas take the lowest free indices, and surplus ones
    with the highest indices leave, never worker 0. The workers of an MPIJob always
    have the lowest ordinals, because the MPI operator removes the highest. A job that does not replace in place is
    numbered from 0 again, unless nothing changes.

    For GPU fractions, `held_gpus` are the GPUs that replicas hold, and `gpu_ids` the ids of the shared GPUs that exist,
    by node and number; other GPUs are named by `assignment.gpu_id`.
    """
    wanted = _places(assignment, node_names, gpu_ids or {})
    if not wanted:
        return []
    worker, held = parsed_job.spec.worker.type, held_gpus or {}
    now = {
        index: _Place(node, held.get((type_, index), "")) for (type_, index), node in current.items() if type_ == worker
    }
    if parsed_job.ownership.is_delegated:
        now = {index: place for index, place in now.items() if index < len(wanted)}
    elif not replaces_in_place(parsed_job) and not _is_laid_out(now, wanted):
        now = {}
    assigned = _match_places(now, wanted)
    workers = [ReplicaAssignment(worker, index, *assigned[index]) for index in sorted(assigned)]
    return [*_others(parsed_job, assignment, node_names, current, workers[0].node), *workers]


def _places(assignment: Assignment, node_names: Sequence[str], gpu_ids: Mapping[tuple[str, int], str]) -> list[_Place]:
    nodes = _names(assignment.workers, node_names)
    if not assignment.slots:
        return [_Place(node) for node in nodes]
    return [
        _Place(node, gpu_ids.get((node, slot)) or gpu_id(slot))
        for node, slot in zip(nodes, assignment.slots, strict=True)
    ]


def _names(runs: Sequence[tuple[int, int]], node_names: Sequence[str]) -> list[str]:
    if any(not 0 <= row < len(node_names) for row, _ in runs):
        raise Bug(f"an assignment names rows {[row for row, _ in runs]} of {len(node_names)} nodes")
    return [node_names[row] for row, count in runs for _ in range(count)]


def _is_laid_out(now: Mapping[int, _Place], wanted: Sequence[_Place]) -> bool:
    """Return True if replicas numbered without gaps hold the wanted places already."""
    if len(now) != len(wanted):
        return False
    return Counter(now.values()) == Counter(wanted) and sorted(now) == list(range(len(wanted)))


def _match_places(now: Mapping[int, _Place], wanted: Sequence[_Place]) -> dict[int, _Place]:
    if not now:
        return dict(enumerate(wanted))
    left = Counter(wanted)
    kept: dict[int, _Place] = {}
    misplaced: list[int] = []
    for index in sorted(now):
        if left[now[index]] > 0:
            left[now[index]] -= 1
            kept[index] = now[index]
        else:
            misplaced.append(index)
    vacant: list[_Place] = []
    for place in wanted:
        if left[place] > 0:
            left[place] -= 1
            vacant.append(place)
    kept.update(zip(misplaced, vacant, strict=False))
    index = 0
    for place in vacant[len(misplaced) :]:
        while index in kept:
            index += 1
        kept[index] = place
    if 0 not in kept:
        kept[0] = kept.pop(max(kept))
    return kept


def _others(
    parsed_job: ParsedJob, assignment: Assignment, node_names: Sequence[str], current: Mapping[Key, str], beside: str
) -> list[ReplicaAssignment]:
    """Place the replicas that are not scaled, in the order of the job; by default beside the first worker."""
    worker = parsed_job.spec.worker
    keys = [
        (spec.type, index) for spec in parsed_job.spec.replicas if spec is not worker for index in range(spec.count)
    ]
    vacant = _names(assignment.ps, node_names)
    placed: dict[Key, str] = {}
    for key in keys:
        node = current.get(key, "")
        if node in vacant:
            vacant.remove(node)
            placed[key] = node
    for key in keys:
        if key not in placed:
            placed[key] = vacant.pop(0) if vacant else beside
    return [ReplicaAssignment(*key, placed[key]) for key in keys]


# Next steps.


def next_steps(
    job: KubeJob,
    replicas: Sequence[ReplicaAssignment],
    has_room: Callable[[str, Need], bool],
    now: float = NEVER,
    replaced: Collection[Key] = (),
    lost: Collection[str] = (),
    is_taken: Callable[[ReplicaAssignment], bool] = lambda replica: False,
) -> Steps:
    """Return the next creations and deletions towards `replicas`; with no replicas all pods are deleted.

    `has_room` is called with the total need per node and reserves nothing. `replaced` are failed replicas to create
    again (`verdict.judge`); `lost` are nodes that are gone or not ready; `is_taken` returns True if the pod name or the
    GPU fraction is still held by another pod. Nothing is created before `PersistedState.not_before`. A job
    that replaces in place (`replaces_in_place`) gets the difference; any other is deleted as a whole before it is
    created as a whole, with the next attempt. The first pods of an attempt are created together or not at all.

    Creations and deletions in flight must be in `job.pods`; `PersistedState.started_at` must be set once all replicas
    of the attempt have run, and be None between attempts.
    """
    wanted = {(replica.type, replica.ordinal): replica for replica in replicas}
    staying = {key for key, pod in job.pods.items() if key not in replaced and _is_in_place(pod, wanted.get(key))}
    is_whole = not replaces_in_place(job.parsed_job)
    if is_whole and staying and _needs_restart(job, replicas, staying):
        staying.clear()
    latest = max((pod.attempt for pod in job.pods.values()), default=0)
    attempt = max(job.pods[key].attempt for key in staying) if staying else max(job.persisted.attempt, latest) + 1
    if len(staying) == len(job.pods) == len(wanted):  # fast path: nothing to do
        return Steps([], [], [], frozenset(), attempt, NEVER, is_settled=True)
    leaving = [pod for key, pod in job.pods.items() if key not in staying]
    missing = [replica for replica in replicas if (replica.type, replica.ordinal) not in job.pods]
    create: list[ReplicaAssignment] = []
    waits_for: frozenset[str] = frozenset()
    is_held_back = now < job.persisted.not_before
    if missing and not is_held_back and not (is_whole and leaving):
        free = [replica for replica in missing if not is_taken(replica)]
        if staying:
            create, waits_for = _one_by_one(job.parsed_job, free, has_room)
        elif len(free) == len(replicas):
            create, waits_for = _together(job.parsed_job, free, has_room)
    return Steps(
        create,
        _deletable(leaving),
        [pod for pod in leaving if is_dead(pod, lost, now)],
        waits_for,
        attempt,
        next_deadline(leaving, lost, now, job.persisted.not_before if missing and is_held_back else NEVER),
        not leaving and not missing,
    )


def _is_in_place(pod: PodRow, replica: ReplicaAssignment | None) -> bool:
    """Return True if a pod needs no move. A succeeded pod never does: it uses nothing and must not run again."""
    if replica is None or pod.is_deleting:
        return False
    return pod.state is PodState.SUCCEEDED or (pod.node, pod.gpu_id) == (replica.node, replica.gpu_id)


def _needs_restart(job: KubeJob, replicas: Sequence[ReplicaAssignment], staying: Collection[Key]) -> bool:
    """Return True if the current attempt cannot become the wanted gang.

    That is: a pod is misplaced, a pod is missing after the attempt started, or the pods were created for another gang.
    """
    if any(key not in staying and not pod.is_deleting for key, pod in job.pods.items()):
        return True
    if job.persisted.started_at is not None and len(staying) < len(replicas):
        return True
    pods = [job.pods[key] for key in staying]
    if any(pod.attempt != pods[0].attempt for pod in pods):
        return True
    gangs = [_gang(text) for text in {pod.assignment for pod in pods if pod.assignment}]
    return any(gang is not None and gang != frozenset(replicas) for gang in gangs)


@lru_cache(maxsize=1024)
def _gang(text: str) -> frozenset[ReplicaAssignment] | None:
    """Decode with a cache: called for every change of one of hundreds of pods."""
    found = decode_assignment(text)
    return None if found is None else frozenset(found)


def _together(
    parsed_job: ParsedJob, missing: Sequence[ReplicaAssignment], has_room: Callable[[str, Need], bool]
) -> tuple[list[ReplicaAssignment], frozenset[str]]:
    needs: dict[str, Need] = {}
    each = {type_: need_of(parsed_job, type_) for type_ in {replica.type for replica in missing}}
    for replica in missing:
        needs[replica.node] = needs.get(replica.node, Need()).plus(each[replica.type])
    full = frozenset(node for node, need in needs.items() if not has_room(node, need))
    return ([], full) if full else (list(missing), full)


def _one_by_one(
    parsed_job: ParsedJob, missing: Sequence[ReplicaAssignment], has_room: Callable[[str, Need], bool]
) -> tuple[list[ReplicaAssignment], frozenset[str]]:
    needs: dict[str, Need] = {}
    create: list[ReplicaAssignment] = []
    full: set[str] = set()
    for replica in missing:
        need = needs.get(replica.node, Need()).plus(need_of(parsed_job, replica.type))
        if has_room(replica.node, need):
            needs[replica.node] = need
            create.append(replica)
        else:
            full.add(replica.node)
    return create, frozenset(full)


def _deletable(leaving: Sequence[PodRow]) -> list[PodRow]:
    """Return pods not being deleted yet, serving types only when all others have terminated."""
    is_served = any(pod.type not in SERVING_TYPES and not pod.is_terminated for pod in leaving)
    return [pod for pod in leaving if not pod.is_deleting and not (is_served and pod.type in SERVING_TYPES)]


def is_dead(pod: PodRow, lost: Collection[str], now: float) -> bool:
    """Return True if a pod is being deleted, its grace period is over, and its node is lost."""
    return pod.is_deleting and pod.node in lost and pod.deletes_at is not None and pod.deletes_at <= now


def next_deadline(leaving: Iterable[PodRow], lost: Collection[str], now: float, until: float = NEVER) -> float:
    """Return the end of a back-off or of the grace period of a pod on a lost node, the earlier of both."""
    ends = [pod.deletes_at for pod in leaving if pod.is_deleting and pod.node in lost and pod.deletes_at is not None]
    return min([until, *(each for each in ends if each > now)])
