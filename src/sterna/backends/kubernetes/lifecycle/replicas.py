"""From where a job shall sit to the pods that make it so: which replica on which node, and what to do next.

Pure and level-triggered: `seats` says who shall sit where with the fewest changes, `steps` compares that with the pods
that exist and names the next creations and deletions. Asked again with the same pods it says the same; asked when all
is done it says nothing. A name is used again only when its predecessor is gone, and a pod is made only where room is
physically free. Nothing here talks to a server, and why a pod failed is not judged here (`lifecycle.py`).
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
"""Types that are asked to go only when those they serve are gone: a worker that saves needs them."""


class Need(NamedTuple):
    """What must be free on a node."""

    devices: int = 0
    """Thousandths."""
    cpus: int = 0
    """Thousandths."""
    memory_bytes: int = 0

    def plus(self, other: Need) -> Need:
        return Need(self.devices + other.devices, self.cpus + other.cpus, self.memory_bytes + other.memory_bytes)


class Steps(NamedTuple):
    """What to do next for one job."""

    create: list[ReplicaAssignment]
    delete: list[PodRow]
    """To be asked to go, with the grace that they have."""
    force: list[PodRow]
    """To be deleted without grace: their node is lost, nobody will confirm their end (`gracePeriodSeconds: 0`)."""
    waits_for: frozenset[str]
    """Nodes where room must become free first."""
    attempt: int
    """Of what is created now; goes into `Memory.attempt`."""
    until: float
    """When to look again though nothing happened; `NEVER` if only events matter."""
    is_settled: bool
    """Everybody who shall be there is, and nobody else."""


def replaces_in_place(parsed_job: ParsedJob) -> bool:
    """Whether single replicas may come, go and be replaced while the others train on; else all of them start anew."""
    if parsed_job.spec.resizing is not Resizing.RESTART:
        return True
    return parsed_job.spec.kind == "TFJob" and any(each.type == "ps" for each in parsed_job.spec.replicas)


def need_of(parsed_job: ParsedJob, replica_type: str) -> Need:
    """What one replica of a type needs."""
    shape = parsed_job.shape
    if replica_type == parsed_job.spec.worker.type:
        return Need(shape.devices, shape.cpus, shape.memory_bytes)
    spec = next((each for each in parsed_job.spec.replicas if each.type == replica_type), None)
    if spec is None:
        return Need(0, shape.ps_cpus, shape.ps_memory_bytes)
    return Need(spec.devices, spec.cpus, spec.memory_bytes)


# Who sits where.


class _Place(NamedTuple):
    node: str
    gpu_id: str = ""


def replicas(
    parsed_job: ParsedJob,
    assignment: Assignment,
    node_names: Sequence[str],
    current: Mapping[Key, str],
    held_gpus: Mapping[Key, str] | None = None,
    gpu_ids: Mapping[tuple[str, int], str] | None = None,
) -> list[ReplicaAssignment]:
    """A seat for every replica, parameter servers first; none if the home is empty.

    `current` maps each replica that stays to its node (`assignment.current_nodes`). A replica on a wanted node stays;
    any other takes an open place under the same index; new replicas take the lowest free indices, and surplus ones
    with the highest indices leave, never worker 0. The workers of an MPI job are always the
    first ones, because its operator removes the last. Jobs that do not change in place are laid out anew, from the
    left, unless nothing changes.

    For parts of devices, `held_gpus` are the shared GPUs that replicas hold, and `gpu_ids` the names of those that
    exist, by node and number; the others are named by `homes.gpu_id`.
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
    assigned = _assigned(now, wanted)
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
        raise Bug(f"a home names rows {[row for row, _ in runs]} of {len(node_names)} nodes")
    return [node_names[row] for row, count in runs for _ in range(count)]


def _is_laid_out(now: Mapping[int, _Place], wanted: Sequence[_Place]) -> bool:
    """Whether the same places are taken already, by replicas that are numbered without gaps."""
    if len(now) != len(wanted):
        return False
    return Counter(now.values()) == Counter(wanted) and sorted(now) == list(range(len(wanted)))


def _assigned(now: Mapping[int, _Place], wanted: Sequence[_Place]) -> dict[int, _Place]:
    if not now:
        return dict(enumerate(wanted))
    left = Counter(wanted)
    seated: dict[int, _Place] = {}
    astray: list[int] = []
    for index in sorted(now):
        if left[now[index]] > 0:
            left[now[index]] -= 1
            seated[index] = now[index]
        else:
            astray.append(index)
    vacant: list[_Place] = []
    for place in wanted:
        if left[place] > 0:
            left[place] -= 1
            vacant.append(place)
    seated.update(zip(astray, vacant, strict=False))
    index = 0
    for place in vacant[len(astray) :]:
        while index in seated:
            index += 1
        seated[index] = place
    if 0 not in seated:
        seated[0] = seated.pop(max(seated))
    return seated


def _others(
    parsed_job: ParsedJob, assignment: Assignment, node_names: Sequence[str], current: Mapping[Key, str], beside: str
) -> list[ReplicaAssignment]:
    """Replicas that are not scaled, in the order in which the job lists them; without a seat of their own they sit
    beside the first worker."""
    worker = parsed_job.spec.worker
    keys = [
        (spec.type, index) for spec in parsed_job.spec.replicas if spec is not worker for index in range(spec.count)
    ]
    vacant = _names(assignment.ps, node_names)
    seated: dict[Key, str] = {}
    for key in keys:
        node = current.get(key, "")
        if node in vacant:
            vacant.remove(node)
            seated[key] = node
    for key in keys:
        if key not in seated:
            seated[key] = vacant.pop(0) if vacant else beside
    return [ReplicaAssignment(*key, seated[key]) for key in keys]


# What to do next.


def steps(
    job: KubeJob,
    replicas: Sequence[ReplicaAssignment],
    has_room: Callable[[str, Need], bool],
    now: float = NEVER,
    replaced: Collection[Key] = (),
    lost: Collection[str] = (),
    is_taken: Callable[[ReplicaAssignment], bool] = lambda replica: False,
) -> Steps:
    """The next creations and deletions on the way to these seats; no seats: everything goes.

    `has_room` is asked with all that would be put on a node together, and takes nothing. `replaced` are replicas that
    failed and come again (`lifecycle.judge`); `lost` are nodes that do not answer or are gone; `is_taken` says that
    somebody else's pod still has the name, or the part of a GPU. Before `Memory.not_before` nothing is created. A job
    that replaces in place (`replaces_in_place`) gets the difference; any other is deleted as a whole before it is
    created as a whole, with the next attempt. The first pods of an attempt are made together or not at all (DRAGON-12).

    Expects of the caller that creations and deletions under way are in `job.pods`, and that `Memory.started_at` is
    set once all replicas of the attempt have run and is None between attempts.
    """
    wanted = {(replica.type, replica.index): replica for replica in replicas}
    staying = {key for key, pod in job.pods.items() if key not in replaced and _sits_right(pod, wanted.get(key))}
    is_whole = not replaces_in_place(job.parsed_job)
    if is_whole and staying and _must_begin_anew(job, replicas, staying):
        staying.clear()
    latest = max((pod.attempt for pod in job.pods.values()), default=0)
    attempt = max(job.pods[key].attempt for key in staying) if staying else max(job.memory.attempt, latest) + 1
    if len(staying) == len(job.pods) == len(wanted):  # nobody leaves and nobody is missing, as of most jobs most times
        return Steps([], [], [], frozenset(), attempt, NEVER, is_settled=True)
    leaving = [pod for key, pod in job.pods.items() if key not in staying]
    missing = [replica for replica in replicas if (replica.type, replica.index) not in job.pods]
    create: list[ReplicaAssignment] = []
    waits_for: frozenset[str] = frozenset()
    is_held_back = now < job.memory.not_before
    if missing and not is_held_back and not (is_whole and leaving):
        free = [replica for replica in missing if not is_taken(replica)]
        if staying:
            create, waits_for = _one_by_one(job.parsed_job, free, has_room)
        elif len(free) == len(replicas):
            create, waits_for = _together(job.parsed_job, free, has_room)
    return Steps(
        create,
        _asked_to_go(leaving),
        [pod for pod in leaving if is_dead(pod, lost, now)],
        waits_for,
        attempt,
        look_again(leaving, lost, now, job.memory.not_before if missing and is_held_back else NEVER),
        not leaving and not missing,
    )


def _sits_right(pod: PodRow, replica: ReplicaAssignment | None) -> bool:
    """A pod that has done its work sits right wherever it was: it uses nothing and must not run again."""
    if replica is None or pod.is_deleting:
        return False
    return pod.state is PodState.SUCCEEDED or (pod.node, pod.gpu_id) == (replica.node, replica.gpu_id)


def _must_begin_anew(job: KubeJob, replicas: Sequence[ReplicaAssignment], staying: Collection[Key]) -> bool:
    """Whether those who sit right belong to an attempt that cannot become what is wanted: somebody left or is missing
    after it had begun, somebody sits wrong, or it was made for another gang."""
    if any(key not in staying and not pod.is_deleting for key, pod in job.pods.items()):
        return True
    if job.memory.started_at is not None and len(staying) < len(replicas):
        return True
    pods = [job.pods[key] for key in staying]
    if any(pod.attempt != pods[0].attempt for pod in pods):
        return True
    gangs = [_gang(text) for text in {pod.assignment for pod in pods if pod.assignment}]
    return any(gang is not None and gang != frozenset(replicas) for gang in gangs)


@lru_cache(maxsize=1024)
def _gang(text: str) -> frozenset[ReplicaAssignment] | None:
    """Asked anew whenever one pod of a gang changes, and a gang may have hundreds."""
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


def _asked_to_go(leaving: Sequence[PodRow]) -> list[PodRow]:
    """Those not asked yet, servers only when whom they serve has ended."""
    is_served = any(pod.type not in SERVING_TYPES and not pod.is_terminated for pod in leaving)
    return [pod for pod in leaving if not pod.is_deleting and not (is_served and pod.type in SERVING_TYPES)]


def is_dead(pod: PodRow, lost: Collection[str], now: float) -> bool:
    """Deletion was asked for, its grace is over, and its node is not there to carry it out."""
    return pod.is_deleting and pod.node in lost and pod.deletes_at is not None and pod.deletes_at <= now


def look_again(leaving: Iterable[PodRow], lost: Collection[str], now: float, until: float = NEVER) -> float:
    """When a back-off ends, or the grace of a pod whose node will not say that it is gone."""
    ends = [pod.deletes_at for pod in leaving if pod.is_deleting and pod.node in lost and pod.deletes_at is not None]
    return min([until, *(each for each in ends if each > now)])
