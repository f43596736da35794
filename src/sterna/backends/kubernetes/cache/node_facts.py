"""`NodeFacts`: what decisions need to know of a node: usable capacity, readiness, labels and taints. Pure.

Kubelets post node status all the time, mostly unchanged: comparing a `Fingerprint` detects that without parsing a
quantity. Needs that the engine does not know, required node affinity and the memory of a shared GPU, become virtual
labels of the nodes that satisfy them; tolerations become the set of tolerated taints.
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
from sterna.model.reason import format_bytes
from sterna.parse_number import whole

MATCHES = "matches"
"""Value of a virtual label."""

_BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
_CLOSING_TAINTS = frozenset(
    {"node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
)
"""Taints that `is_open` covers; tolerations of them are ignored."""
_RACK_LABELS = (RACK_LABEL, "topology.kubernetes.io/rack", "topology.kubernetes.io/zone")
_DEFAULT_PODS = 1 << 40
_MIB = 1 << 20


class NodeFacts(NamedTuple):
    """Parsed properties of a node."""

    name: str
    devices: int
    """Thousandths of a device."""
    cpus: int
    """Millicores."""
    memory_bytes: int
    pods: int
    is_open: bool
    """Ready and not cordoned."""
    is_ready: bool
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    """Taints with effect NoSchedule or NoExecute."""
    rack: str
    gpu_memory_bytes: int
    """Memory of its smallest GPU, from KubeShare's annotation; 0 if unknown."""


class Fingerprint(NamedTuple):
    """Raw fields of a node that `facts_of` reads."""

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


def facts_of(name: str, raw: Fingerprint) -> NodeFacts:
    """Parse a node; a malformed quantity counts as 0."""
    taints = tuple(each for each in raw.taints if each.effect in _BLOCKING_EFFECTS and each.key not in _CLOSING_TAINTS)
    is_ready = raw.ready in ("True", "")  # a node without the condition is judged by its taints
    is_closed = any(each.key in _CLOSING_TAINTS and each.effect in _BLOCKING_EFFECTS for each in raw.taints)
    has = raw.allocatable
    return NodeFacts(
        name,
        sum(_count(has, gpu) for gpu in GPUS) * MILLI,
        _milli(has, "cpu"),
        _count(has, "memory"),
        _count(has, "pods") if "pods" in has else _DEFAULT_PODS,
        is_ready and not is_closed and not raw.is_unschedulable,
        is_ready,
        raw.labels,
        taints,
        next((f"{label}={raw.labels[label]}" for label in _RACK_LABELS if label in raw.labels), ""),
        _gpu_memory(raw.gpu_info),
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
    """Parse KubeShare's `UUID:MiB,UUID:MiB`; return the smallest size in bytes."""
    sizes = [part.rpartition(":")[2].strip() for part in info.split(",") if part.strip()]
    numbers = [int(size) for size in sizes if size.isdigit()]
    return min(numbers, default=0) * _MIB


def taint_word(taint: Taint) -> str:
    """Format as kubectl does."""
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
    """Return the terms of a required node affinity; none if malformed, so that no node satisfies it."""
    try:
        read = msgspec.json.decode(required)
    except msgspec.DecodeError:
        return []
    if isinstance(read, dict):
        read = read.get("nodeSelectorTerms")
    return [term for term in read if isinstance(term, dict)] if isinstance(read, list) else []


def satisfies(terms: Sequence[Mapping[str, Any]], name: str, labels: Mapping[str, str]) -> bool:
    """Return True if a node satisfies one of these terms; no node satisfies an empty term, as in Kubernetes."""
    fields = {"metadata.name": name}
    for term in terms:
        requirements = [(each, labels) for each in _dicts(term.get("matchExpressions"))]
        requirements += [(each, fields) for each in _dicts(term.get("matchFields"))]
        if requirements and all(_is_met(requirement, values) for requirement, values in requirements):
            return True
    return False


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _is_met(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator = requirement.get("key"), requirement.get("operator")
    value = labels.get(key) if isinstance(key, str) else None
    wanted = requirement.get("values")
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


class NodeTerms(NamedTuple):
    """`NodeNeeds` resolved on the existing nodes: selector and tolerations of a `Shape`."""

    selector: tuple[tuple[str, str], ...]
    tolerations: frozenset[str]


def resolve_needs(needs: NodeNeeds, taints: Iterable[Taint], gpu_sizes: Iterable[int] = ()) -> NodeTerms:
    """Resolve needs; `taints` and `gpu_sizes` are those of all nodes."""
    selector = needs.selector
    if needs.required:
        selector = (*selector, (affinity_label(needs.required), MATCHES))
    if any(size < needs.gpu_memory_bytes for size in gpu_sizes):
        selector = (*selector, (gpu_memory_label(needs.gpu_memory_bytes), MATCHES))
    return NodeTerms(selector, frozenset(taint_word(each) for each in taints if tolerates(needs.tolerations, each)))


def describe_labels(sentence: str, required: bytes) -> str:
    """Replace virtual labels in a sentence by what they mean."""
    if required and AFFINITY_LABEL in sentence:
        label = f"the label {affinity_label(required)}={MATCHES}"
        for verb, phrase in (("lacks", "does not match"), ("lack", "do not match")):
            sentence = sentence.replace(f"{verb} {label}", f"{phrase} its required node affinity")
    if GPU_MEMORY_LABEL in sentence:
        sentence = _NO_MEMORY.sub(_without_memory, sentence)
    return sentence


_NO_MEMORY = re.compile(rf"(lacks?) the label {re.escape(GPU_MEMORY_LABEL)}(\d+)={MATCHES}")


def _without_memory(found: re.Match[str]) -> str:
    verb = "has" if found[1] == "lacks" else "have"
    return f"{verb} no GPU with the {format_bytes(int(found[2]))} of memory it needs"
