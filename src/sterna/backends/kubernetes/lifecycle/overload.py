"""Which node is overloaded, and where a worker goes that was asked to leave one: container-migration's rules, repaired.

The score of a node is half the CPUs and half the memory that its pods may use, as parts of what it has. A monitor asks
for a pod of its node to be moved; `relocated` answers a row of such requests one after the other, each on the scores
that the one before left behind. DRAGON-64, 69 to 71, 73, 75, 79. Pure: it neither reads the cluster nor moves anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from sterna.backends.kubernetes.api.job import KubeJob, PodRow, PodState
from sterna.backends.kubernetes.api.monitor_protocol import MoveRequest

THRESHOLD = 1.0
"""Overloaded: so many standard deviations above the mean of all nodes."""
MAX_MOVES = 3
"""Of one worker in its life."""
_LAST_STEPS = 5
"""With fewer steps left than this for each worker it may have, a job is not disturbed any more."""
_EQUAL = 1e-9
_FIXED = frozenset({"ps", "chief", "master", "launcher", "evaluator"})
"""Types that stay where they are while their job runs."""


class NodeInfo(msgspec.Struct, frozen=True, rename="pascal"):
    """A node in `/cluster-info`: CPUs in thousandths, memory in bytes, GPUs in whole ones."""

    cpu_total: int = 0
    mem_total: int = 0
    gpu_total: int = 0
    gpu_mem_total: int = 0
    cpu_free: int = 0
    """What nobody asks for."""
    mem_free: int = 0
    cpu_max_request: int = 0
    """What all pods there may use at most, by their limits."""
    mem_max_request: int = 0
    gpu_free_count: int = 0
    gpu_free: dict[str, dict[str, int]] = {}
    """GPUs that are shared now, by KubeShare's names: thousandths and memory that are free."""

    @property
    def score(self) -> float:
        cpus = self.cpu_max_request / self.cpu_total if self.cpu_total else 0.0
        memory = self.mem_max_request / self.mem_total if self.mem_total else 0.0
        return 0.5 * cpus + 0.5 * memory


def is_overloaded(node: str, infos: Mapping[str, NodeInfo], threshold: float = THRESHOLD) -> bool:
    """Is its score above the mean by more than so many standard deviations of all? Not if nothing is known of it."""
    if node not in infos:
        return False
    scores = [info.score for info in infos.values()]
    mean = math.fsum(scores) / len(scores)
    deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / len(scores))
    return infos[node].score - mean > threshold * deviation + _EQUAL


class Found(NamedTuple):
    """What a request is about, as far as the operator knows."""

    job: KubeJob
    pod: PodRow
    steps_left: float = math.nan
    """No number: unknown."""
    is_leaving: bool = False
    """It was decided already that it goes elsewhere."""


class Relocation(NamedTuple):
    """A worker that shall move."""

    found: Found
    target: str


class Dropped(NamedTuple):
    """A request that comes to nothing, and why, in a sentence."""

    request: MoveRequest
    why: str


Find = Callable[[MoveRequest], Found | None]
Hosts = Callable[[Found], Collection[str]]
"""Nodes that have room for this pod and may take it."""


def relocated(
    requests: Iterable[MoveRequest], find: Find, hosts: Hosts, infos: Mapping[str, NodeInfo]
) -> Iterator[Relocation | Dropped]:
    """What becomes of requests, in their order. Each is looked at when the answer to the one before was taken, so that
    `find` and `hosts` know what was made of that."""
    scores = dict(infos)
    for request in requests:
        found = find(request)
        why = _objection(request, found)
        target = _target(found, hosts(found), scores) if found is not None and not why else ""
        if found is None or not target:
            yield Dropped(request, why or f"No node with room for pod '{request.pod}' has less before it.")
            continue
        scores[found.pod.node] = _changed(scores[found.pod.node], found.pod, -1)
        scores[target] = _changed(scores[target], found.pod, 1)
        yield Relocation(found, target)


def _objection(request: MoveRequest, found: Found | None) -> str:
    """Why a request is not looked at any further; empty: it is."""
    if found is None:
        return f"There is no pod '{request.pod}' of a job of ours."
    job, pod, steps_left, is_leaving = found
    if pod.node != request.node:
        return f"Pod '{request.pod}' is on node '{pod.node}', not on '{request.node}'."
    if pod.type in _FIXED:
        return f"Pod '{request.pod}' is a {pod.type}, which is not moved."
    if is_leaving:
        return f"Pod '{request.pod}' is about to leave node '{pod.node}' already."
    if pod.is_deleting or pod.is_terminated or pod.state is not PodState.RUNNING:
        return f"Pod '{request.pod}' does not run."
    if moves_of(job, pod) >= MAX_MOVES:
        return f"Pod '{request.pod}' has been moved {MAX_MOVES} times already."
    if steps_left <= _LAST_STEPS * job.parsed_job.spec.maximum:
        return f"The job of pod '{request.pod}' is about to end."
    return ""


def moves_of(job: KubeJob, pod: PodRow) -> int:
    """How often this replica has been moved; a plain pod is its job."""
    return max(job.memory.replica_moves.get(replica_name(pod), 0), job.memory.moves if len(job.pods) == 1 else 0)


def replica_name(pod: PodRow) -> str:
    """Its place in `Memory.replica_moves`."""
    return f"{pod.type}-{pod.index}"


def _target(found: Found, hosts: Collection[str], infos: Mapping[str, NodeInfo]) -> str:
    """The node with the smallest score after the pod has left, among those that can take it; empty: its own is as
    good as any. Equal ones by name."""
    source = found.pod.node
    if source not in infos:
        return ""
    best, target = _changed(infos[source], found.pod, -1).score - _EQUAL, ""
    for name in sorted(infos):
        if name != source and infos[name].score < best and name in hosts:
            best, target = infos[name].score, name
    return target


def _changed(info: NodeInfo, pod: PodRow, sign: int) -> NodeInfo:
    """As far as the score hangs on it."""
    return msgspec.structs.replace(
        info,
        cpu_max_request=info.cpu_max_request + sign * (pod.limit_cpus or pod.cpus),
        mem_max_request=info.mem_max_request + sign * (pod.limit_memory_bytes or pod.memory_bytes),
    )
