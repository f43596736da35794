"""Overload score of nodes and target choice for move requests, after container-migration's rules. Pure.

The score of a node is half the CPU and half the memory limits of its pods, relative to its capacity. A monitor requests
that a pod leaves its node; `evaluate_requests` processes requests in order, each on the scores that the previous one
left behind. It neither reads the cluster nor moves anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from sterna.backends.kubernetes.api.job import KubeJob, PodRow, PodState
from sterna.backends.kubernetes.api.monitor_protocol import PodMoveRequest

THRESHOLD = 1.0
"""Standard deviations above the mean score at which a node counts as overloaded."""
MAX_MOVES = 3
"""Upper bound on moves of one worker."""
_LAST_STEPS = 5
"""A job with at most this many remaining steps per maximum worker is not moved any more."""
_EQUAL = 1e-9
_FIXED = frozenset({"ps", "chief", "master", "launcher", "evaluator"})
"""Replica types that are never moved."""


class NodeInfo(msgspec.Struct, frozen=True, rename="pascal"):
    """A node in `/cluster-info`: CPU in millicores, memory in bytes, GPUs as a count."""

    cpu_total: int = 0
    mem_total: int = 0
    gpu_total: int = 0
    gpu_mem_total: int = 0
    cpu_free: int = 0
    """CPU that no pod requests."""
    mem_free: int = 0
    cpu_max_request: int = 0
    """Sum of the CPU limits of its pods."""
    mem_max_request: int = 0
    gpu_free_count: int = 0
    gpu_free: dict[str, dict[str, int]] = {}
    """Free fraction (thousandths) of each shared GPU, by KubeShare's GPU id."""

    @property
    def score(self) -> float:
        cpus = self.cpu_max_request / self.cpu_total if self.cpu_total else 0.0
        memory = self.mem_max_request / self.mem_total if self.mem_total else 0.0
        return 0.5 * cpus + 0.5 * memory


def is_overloaded(node: str, infos: Mapping[str, NodeInfo], threshold: float = THRESHOLD) -> bool:
    """Return True if the score is more than `threshold` standard deviations above the mean; False if unknown."""
    if node not in infos:
        return False
    scores = [info.score for info in infos.values()]
    mean = math.fsum(scores) / len(scores)
    deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / len(scores))
    return infos[node].score - mean > threshold * deviation + _EQUAL


class Found(NamedTuple):
    """The job and pod that a request refers to."""

    job: KubeJob
    pod: PodRow
    steps_left: float = math.nan
    """NaN if unknown."""
    is_leaving: bool = False
    """True if the pod is being moved already."""


class AcceptedMove(NamedTuple):
    """A worker and the node it moves to."""

    found: Found
    target: str


class RejectedMove(NamedTuple):
    """A request that is not carried out, and why, as a sentence."""

    request: PodMoveRequest
    why: str


FindPod = Callable[[PodMoveRequest], Found | None]
Hosts = Callable[[Found], Collection[str]]
"""Returns the nodes with capacity for this pod."""


def evaluate_requests(
    requests: Iterable[PodMoveRequest], find: FindPod, hosts: Hosts, infos: Mapping[str, NodeInfo]
) -> Iterator[AcceptedMove | RejectedMove]:
    """Evaluate requests in order. Lazy: the caller applies each result before the next request is evaluated, so that
    `find` and `hosts` reflect it."""
    scores = dict(infos)
    for request in requests:
        found = find(request)
        why = _objection(request, found)
        target = _target(found, hosts(found), scores) if found is not None and not why else ""
        if found is None or not target:
            yield RejectedMove(request, why or f"No node with room for pod '{request.pod}' has less before it.")
            continue
        scores[found.pod.node] = _with_pod(scores[found.pod.node], found.pod, -1)
        scores[target] = _with_pod(scores[target], found.pod, 1)
        yield AcceptedMove(found, target)


def _objection(request: PodMoveRequest, found: Found | None) -> str:
    """Return why a request is rejected; empty if it is not."""
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
    """Return the number of moves of a replica, or of the job if it has one pod."""
    return max(job.persisted.replica_moves.get(replica_name(pod), 0), job.persisted.moves if len(job.pods) == 1 else 0)


def replica_name(pod: PodRow) -> str:
    """Return its key in `PersistedState.replica_moves`."""
    return f"{pod.type}-{pod.index}"


def _target(found: Found, hosts: Collection[str], infos: Mapping[str, NodeInfo]) -> str:
    """Return the feasible node with the lowest score, ties broken by name; empty if the pod's own is as good."""
    source = found.pod.node
    if source not in infos:
        return ""
    best, target = _with_pod(infos[source], found.pod, -1).score - _EQUAL, ""
    for name in sorted(infos):
        if name != source and infos[name].score < best and name in hosts:
            best, target = infos[name].score, name
    return target


def _with_pod(info: NodeInfo, pod: PodRow, sign: int) -> NodeInfo:
    """Return the node with the pod's limits added (`sign=1`) or removed (`sign=-1`)."""
    return msgspec.structs.replace(
        info,
        cpu_max_request=info.cpu_max_request + sign * (pod.limit_cpus or pod.cpus),
        mem_max_request=info.mem_max_request + sign * (pod.limit_memory_bytes or pod.memory_bytes),
    )
