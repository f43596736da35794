"""A node as decisions see it: what of it may be used, whether it takes new workers, and which labels and taints count.

Pure. Nodes post their status all the time, mostly to say that nothing has changed: `fingerprint` tells so without
reading a single quantity. What is asked of nodes and the engine does not know, required node affinity and the memory of
a shared GPU, becomes a label of our own on every node that satisfies it; tolerations become the taints that they
tolerate.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from sterna.backends.kubernetes.api.objects import Node, Taint
from sterna.kinds.labels import AFFINITY_LABEL, GPU_INFO, GPU_MEMORY_LABEL, RACK_LABEL
from sterna.kinds.objects import Toleration
from sterna.kinds.parsed_job import NodeNeeds
from sterna.kinds.parsing.quantities import count_of, milli_of
from sterna.kinds.parsing.resource_requests import GPUS
from sterna.model.cluster import MILLI
from sterna.model.reason import worded_bytes
from sterna.parse_number import whole

MATCHES = "matches"
"""The value of our label on a node that satisfies a required affinity."""

_KEEPING_OUT = frozenset({"NoSchedule", "NoExecute"})
_CLOSING = frozenset(
    {"node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
)
"""Taints that say what `is_open` says; no job is asked whether it tolerates them."""
_RACK_LABELS = (RACK_LABEL, "topology.kubernetes.io/rack", "topology.kubernetes.io/zone")
_PODS_UNLESS_TOLD = 1 << 40
_MIB = 1 << 20


class NodeFacts(NamedTuple):
    """What counts of a node."""

    name: str
    devices: int
    """Thousandths."""
    cpus: int
    """Thousandths."""
    memory_bytes: int
    pods: int
    is_open: bool
    """Ready and not cordoned."""
    is_ready: bool
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    """Those that keep somebody out."""
    rack: str
    gpu_memory_bytes: int
    """Of its smallest GPU, where KubeShare told; 0: unknown."""


class Fingerprint(NamedTuple):
    """Everything of a node that `facts_of` reads, as it came."""

    allocatable: Mapping[str, str | int | float]
    labels: Mapping[str, str]
    taints: Sequence[Taint]
    is_unschedulable: bool
    ready: str
    gpu_info: str


def fingerprint(node: Node) -> Fingerprint:
    ready = next((each.status for each in node.status.conditions if each.type == "Ready"), "")
    return Fingerprint(
        node.status.allocatable,
        node.metadata.labels,
        node.spec.taints,
        node.spec.unschedulable,
        ready,
        node.metadata.annotations.get(GPU_INFO, ""),
    )


def facts_of(name: str, told: Fingerprint) -> NodeFacts:
    """An amount that cannot be read counts as nothing: one odd node must not stop the others."""
    taints = tuple(each for each in told.taints if each.effect in _KEEPING_OUT and each.key not in _CLOSING)
    is_ready = told.ready in ("True", "")  # who never says whether it is ready is judged by its taints alone
    is_closed = any(each.key in _CLOSING and each.effect in _KEEPING_OUT for each in told.taints)
    has = told.allocatable
    return NodeFacts(
        name,
        sum(_count(has, gpu) for gpu in GPUS) * MILLI,
        _milli(has, "cpu"),
        _count(has, "memory"),
        _count(has, "pods") if "pods" in has else _PODS_UNLESS_TOLD,
        is_ready and not is_closed and not told.is_unschedulable,
        is_ready,
        told.labels,
        taints,
        next((f"{label}={told.labels[label]}" for label in _RACK_LABELS if label in told.labels), ""),
        _gpu_memory(told.gpu_info),
    )


def _count(amounts: Mapping[str, str | int | float], name: str) -> int:
    try:
        return max(0, count_of(amounts.get(name, 0)))
    except ValueError:
        return 0


def _milli(amounts: Mapping[str, str | int | float], name: str) -> int:
    try:
        return max(0, milli_of(amounts.get(name, 0)))
    except ValueError:
        return 0


def _gpu_memory(info: str) -> int:
    """`UUID:MiB,UUID:MiB`, as KubeShare writes it (DRAGON-37)."""
    sizes = [part.rpartition(":")[2].strip() for part in info.split(",") if part.strip()]
    numbers = [int(size) for size in sizes if size.isdigit()]
    return min(numbers, default=0) * _MIB


def taint_word(taint: Taint) -> str:
    """As kubectl writes it."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    for each in tolerations:
        if each.effect and each.effect != taint.effect:
            continue
        if each.key and each.key != taint.key:
            continue
        if each.operator == "Exists" or (each.key and each.value == taint.value):
            return True
    return False


def affinity_label(required: bytes) -> str:
    return AFFINITY_LABEL + hashlib.sha256(required).hexdigest()[:10]


def gpu_memory_label(memory_bytes: int) -> str:
    return f"{GPU_MEMORY_LABEL}{memory_bytes}"


def terms_of(required: bytes) -> list[dict[str, Any]]:
    """The alternatives of a required node affinity; of what cannot be read, none, so that no node satisfies it."""
    try:
        read = msgspec.json.decode(required)
    except msgspec.DecodeError:
        return []
    if isinstance(read, dict):
        read = read.get("nodeSelectorTerms")
    return [term for term in read if isinstance(term, dict)] if isinstance(read, list) else []


def satisfies(terms: Sequence[Mapping[str, Any]], name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node satisfies one of these alternatives; an empty one satisfies nobody, as in Kubernetes."""
    fields = {"metadata.name": name}
    for term in terms:
        demands = [(each, labels) for each in _list(term.get("matchExpressions"))]
        demands += [(each, fields) for each in _list(term.get("matchFields"))]
        if demands and all(_holds(demand, values) for demand, values in demands):
            return True
    return False


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _holds(demand: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator = demand.get("key"), demand.get("operator")
    value = labels.get(key) if isinstance(key, str) else None
    wanted = demand.get("values")
    values = [str(each) for each in wanted] if isinstance(wanted, list) else []
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value is None or value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator in ("Gt", "Lt") and value is not None and len(values) == 1:
        return _compares(value, operator, values[0])
    return False


def _compares(value: str, operator: str, bound: str) -> bool:
    try:
        return whole(value) > whole(bound) if operator == "Gt" else whole(value) < whole(bound)
    except ValueError:
        return False


class Terms(NamedTuple):
    """What a job's `NodeNeeds` come to on the nodes that there are: selector and tolerations of a `Shape`."""

    selector: tuple[tuple[str, str], ...]
    tolerations: frozenset[str]


def resolved(needs: NodeNeeds, taints: Iterable[Taint], gpu_sizes: Iterable[int] = ()) -> Terms:
    """`taints`, `gpu_sizes`: all that are to be found on any node."""
    selector = needs.selector
    if needs.required:
        selector = (*selector, (affinity_label(needs.required), MATCHES))
    if any(size < needs.gpu_memory_bytes for size in gpu_sizes):
        selector = (*selector, (gpu_memory_label(needs.gpu_memory_bytes), MATCHES))
    return Terms(selector, frozenset(taint_word(each) for each in taints if tolerates(needs.tolerations, each)))


def describe_labels(sentence: str, required: bytes) -> str:
    """Nobody knows our labels: say what they stand for."""
    if required and AFFINITY_LABEL in sentence:
        label = f"the label {affinity_label(required)}={MATCHES}"
        for verb, said in (("lacks", "does not match"), ("lack", "do not match")):
            sentence = sentence.replace(f"{verb} {label}", f"{said} its required node affinity")
    if GPU_MEMORY_LABEL in sentence:
        sentence = _NO_MEMORY.sub(_without_memory, sentence)
    return sentence


_NO_MEMORY = re.compile(rf"(lacks?) the label {re.escape(GPU_MEMORY_LABEL)}(\d+)={MATCHES}")


def _without_memory(found: re.Match[str]) -> str:
    verb = "has" if found[1] == "lacks" else "have"
    return f"{verb} no GPU with the {worded_bytes(int(found[2]))} of memory it needs"
