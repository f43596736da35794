"""Parse the objects of jobs: specification, persisted state and status. Pure.

A malformed object never raises: it gets a `Problem`, which becomes a condition for its user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from sterna.backends.kubernetes.api.assignment import Key
from sterna.backends.kubernetes.api.job import PersistedState
from sterna.backends.kubernetes.lifecycle.verdict import conditions_in
from sterna.errors import UserError
from sterna.kinds.context import ParseContext
from sterna.kinds.labels import INDEX_LABEL, MEMORY, PHASE, REASON, TYPE_LABEL
from sterna.kinds.objects import JobObject, Meta, Pod
from sterna.kinds.parse import invalid_reason, parse_job
from sterna.kinds.parsed_job import JobRef, NodeNeeds, ParsedJob
from sterna.kinds.parsing.job_builder import parse_timestamp
from sterna.kinds.registry import kind_of
from sterna.kinds.resource import Resource
from sterna.model.cluster import Shape
from sterna.model.job import JobSpec, ReplicaSpec

ORPHAN = "orphan"
"""Finalizer of an object that was deleted without its pods (`--cascade=orphan`)."""
_LEAST, _MOST = -1.0, 1e11
"""Range of numbers in a persisted state: counts, seconds of work, and timestamps until the year 5138."""
_OWN_WORDS = frozenset({MEMORY, PHASE, REASON})
"""Annotations that Sterna writes."""


_FIELDS = tuple((each.name, each.default) for each in msgspec.structs.fields(PersistedState))


class ParseProblem(NamedTuple):
    """Reason and message of the condition of an invalid object."""

    word: str
    sentence: str


def parse_object(
    seen: JobObject | Pod, resource: Resource, context: ParseContext
) -> tuple[ParsedJob, ParseProblem | None]:
    """Parse an object; if it is invalid, return a placeholder and the problem."""
    try:
        return parse_job(seen, resource, context), None
    except UserError as error:
        return _placeholder(seen.metadata, resource), ParseProblem(invalid_reason(resource), str(error))


def _placeholder(meta: Meta, resource: Resource) -> ParsedJob:
    """Placeholder for an invalid object: it has a name and requests nothing."""
    spec = JobSpec(meta.name, resource.kind, (ReplicaSpec("worker", 1, ()),), 1, 1, 1)
    ref = JobRef(resource, meta.namespace, meta.name, meta.uid)
    at = parse_timestamp(meta.creation_timestamp)
    return ParsedJob(ref, spec, Shape(), NodeNeeds(), {}, kind_of(resource).ownership, at, generation=meta.generation)


def as_asked(parsed_job: ParsedJob, memory: PersistedState) -> ParsedJob:
    """A plain pod with the CPUs of its manifest, whatever CPU share it has now."""
    if not memory.asked_cpus:
        return parsed_job
    worker = replace(parsed_job.spec.worker, cpus=memory.asked_cpus)
    spec = replace(parsed_job.spec, replicas=(worker,))
    return msgspec.structs.replace(parsed_job, spec=spec, shape=replace(parsed_job.shape, cpus=memory.asked_cpus))


def read_of(meta: Meta) -> object:
    """Key that changes when an object must be parsed again: its generation and its users' annotations."""
    if not meta.annotations:
        return meta.generation
    return meta.generation, {key: value for key, value in meta.annotations.items() if key not in _OWN_WORDS}


def status_in(seen: JobObject) -> dict[str, Any]:
    try:
        status = msgspec.json.decode(seen.status)
    except msgspec.DecodeError:
        return {}
    return status if isinstance(status, dict) else {}


def final_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """Part of the status that is kept for a job that has ended: phase and true conditions."""
    held = [
        {"type": each.get("type"), "status": "True"} for each in conditions_in(status) if each.get("status") == "True"
    ]
    return {"phase": status.get("phase"), "conditions": held}


def memory_in(annotations: Mapping[str, str], status: Mapping[str, Any]) -> PersistedState:
    """State that an earlier operator persisted; the default if it is malformed."""
    try:
        if isinstance(kept := status.get("sterna"), dict):
            return _sane(msgspec.convert(kept, PersistedState))
        kept_there = annotations.get(MEMORY)
        return _sane(msgspec.json.decode(kept_there, type=PersistedState)) if kept_there else PersistedState()
    except (msgspec.ValidationError, msgspec.DecodeError):
        return PersistedState()


def _sane(memory: PersistedState) -> PersistedState:
    """Reset numbers out of range: users can write to the object."""
    for name, default in _FIELDS:
        value = getattr(memory, name)
        if isinstance(value, int | float) and not _LEAST <= value <= _MOST:
            setattr(memory, name, default)
    if memory.cpu_share <= 0:
        memory.cpu_share = 1.0
    return memory


def replica_in(meta: Meta) -> Key | None:
    """Type and index of the replica that an object belongs to, from its labels."""
    index = meta.labels.get(INDEX_LABEL, "")
    is_number = index.isascii() and index.isdigit() and len(index) <= 9
    return (meta.labels.get(TYPE_LABEL, ""), int(index)) if is_number else None
