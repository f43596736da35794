"""Status of a job and the writes that store it. Pure.

A status is always computed as a whole and written only if it differs from the last one. Where it is stored depends on
the kind (`StatusStorage`): kinds with our CRD hold everything under `status`; Kubeflow's CRDs drop unknown fields, so
the persisted state goes into an annotation; the status of an MPIJob or a pod belongs to its own controller, so phase
and reason are annotations too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from sterna.backends.kubernetes.api.job import KubeJob, PersistedState, PodRow, PodState, ReplicaAssignment
from sterna.backends.kubernetes.api.resources import Urgency, Verb, Write
from sterna.backends.kubernetes.cache.progress import JobProgressView
from sterna.backends.kubernetes.lifecycle.backoff import pod_start_error, waiting_sentence
from sterna.backends.kubernetes.lifecycle.conditions import (
    Subject,
    conditions_of,
    end_condition,
    format_time,
    invalid_conditions,
    scheduling_of,
)
from sterna.backends.kubernetes.lifecycle.phase import JobPhase, phase_of
from sterna.backends.kubernetes.lifecycle.verdict import CONTINUE, Verdict, VerdictKind, conditions_in
from sterna.kinds.labels import MEMORY, PHASE, REASON
from sterna.kinds.parsed_job import CleanPods, JobRef, PodOwnership
from sterna.model.reason import Reason

_KUBEFLOW = frozenset({"conditions", "replicaStatuses", "startTime", "completionTime"})
"""Status fields that Kubeflow's CRDs keep."""
_OURS = _KUBEFLOW | {
    "phase", "workers", "nodes", "reason", "enqueueTime", "startRunTime", "finishedTime", "observedGeneration",
    "progress", "sterna",
}  # fmt: skip


class StatusStorage(Enum):
    """Place in which the status of a kind is stored."""

    WHOLE = "whole"
    """In `status`: the CRD is ours."""
    KUBEFLOW = "kubeflow"
    """In `status` and an annotation: the CRD is Kubeflow's."""
    ANNOTATIONS = "annotations"
    """In annotations: another controller writes the status (MPIJob, Pod)."""


@dataclass(frozen=True)
class StatusInput:
    """Inputs of a status beside the job's pods and persisted state."""

    replicas: Sequence[ReplicaAssignment] = ()
    """Desired assignment; empty if the job is queued or stops."""
    reason: Reason | None = None
    """Reason of the last decision about the job."""
    sentence: str = ""
    """Replaces the reason's sentence, for example with why the server rejected its pods."""
    verdict: Verdict = CONTINUE
    progress: JobProgressView | None = None


def status_storage(ownership: PodOwnership, is_definition_ours: bool) -> StatusStorage:
    if not ownership.creates_pods:
        return StatusStorage.ANNOTATIONS
    return StatusStorage.WHOLE if is_definition_ours else StatusStorage.KUBEFLOW


def status_of(job: KubeJob, given: StatusInput, now: float) -> dict[str, Any]:
    """Return the whole status. Of an ended job only the persisted state still changes."""
    old = job.status
    conditions = conditions_in(old)
    if end_condition(conditions) is not None and not job.parsed_job.ownership.is_delegated:
        return {**old, "sterna": persisted_fields(job.persisted)}
    spec, persisted, verdict = job.parsed_job.spec, job.persisted, given.verdict
    phase = phase_of(job, given.replicas, now, verdict.kind)
    scheduling = scheduling_of(bool(given.replicas), given.reason, given.sentence)
    if not given.replicas:
        scheduling = scheduling._replace(sentence=waiting_sentence(job, scheduling.sentence, now))
    sentence = sentence_of(job, given, phase, scheduling.sentence, now)
    live = [pod for _, pod in sorted(job.pods.items()) if not (pod.is_terminated or pod.is_deleting)]
    workers = [pod for pod in live if pod.type == spec.worker.type]
    status: dict[str, Any] = {
        "phase": phase.value,
        "workers": 0 if phase.is_over else len(workers),
        "nodes": [] if phase.is_over else list(dict.fromkeys(pod.node for pod in live if pod.node)),
        "reason": sentence,
        "conditions": conditions_of(
            conditions,
            Subject(spec.kind, spec.name),
            phase,
            sentence,
            scheduling,
            now,
            verdict.reason if phase.is_over else "",
        ),
        "replicaStatuses": _replica_statuses(job, phase),
        "observedGeneration": job.parsed_job.generation,
        "sterna": persisted_fields(persisted),
    }
    ended_at = persisted.ended_at if persisted.ended_at is not None else now if phase.is_over else None
    times = {
        "enqueueTime": persisted.enqueued_at,
        "startTime": persisted.first_started_at,
        "startRunTime": persisted.first_started_at,
        "completionTime": ended_at,
        "finishedTime": ended_at,
    }
    status |= {name: format_time(at) for name, at in times.items() if at is not None}
    if given.progress is not None and (progress := progress_fields(given.progress)):
        status["progress"] = progress
    elif "progress" in old:
        status["progress"] = old["progress"]
    return status


def invalid_status(
    kind: str, name: str, old: Mapping[str, Any], sentence: str, generation: int, now: float
) -> dict[str, Any]:
    """Return the status of an invalid object, with the error as its reason."""
    conditions = invalid_conditions(conditions_in(old), Subject(kind, name), sentence, now)
    return {
        **old, "phase": JobPhase.FAILED.value, "workers": 0, "reason": sentence, "conditions": conditions,
        "observedGeneration": generation,
    }  # fmt: skip


def sentence_of(job: KubeJob, given: StatusInput, phase: JobPhase, scheduling: str, now: float) -> str:
    """Return the sentence of a status: the back-off, the verdict, what keeps pods from starting, or `scheduling`, the
    last decision."""
    verdict = given.verdict
    if phase is JobPhase.RESTARTING and not given.replicas and job.persisted.failures:
        return scheduling
    if verdict.sentence and verdict.kind is not VerdictKind.CONTINUE:
        return verdict.sentence
    if phase is JobPhase.SUSPENDED:
        return "is suspended; set suspend to false to let it run."
    if phase is not JobPhase.STOPPING and (failure := pod_start_error(job)):
        return failure
    if phase is JobPhase.STARTING and not job.pods and not given.sentence:
        return "waits: its place is being cleared by those who leave it."
    return scheduling


# Fields.


def persisted_fields(persisted: PersistedState) -> dict[str, Any]:
    """As JSON knows it: what is no number is left out."""
    fields: dict[str, Any] = msgspec.to_builtins(persisted)
    return {
        name: value for name, value in fields.items() if not (isinstance(value, float) and not math.isfinite(value))
    }


def progress_fields(view: JobProgressView) -> dict[str, Any]:
    fields = {
        "step": view.step,
        "total": view.total,
        "percent": view.percent,
        "metric": view.metric or None,
        "value": view.value if view.value is not None and math.isfinite(view.value) else None,
        "growth": view.growth if view.growth != "unknown" else None,
        "eta": _duration(view.eta_seconds),
        "etaLow": _duration(view.eta_low_seconds),
        "etaHigh": _duration(view.eta_high_seconds),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None or not math.isfinite(seconds) else duration_text(seconds)


def duration_text(seconds: float) -> str:
    """`45s`, `12m`, `3h20m`, `2d5h`: two figures are enough for a column, and change less often."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    minutes = round(whole / 60)
    if minutes < 60:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours}h" if hours else f"{days}d"


def _replica_statuses(job: KubeJob, phase: JobPhase) -> dict[str, dict[str, int]]:
    """By type, as Kubeflow spells them. A job that has succeeded counts those that still ran as succeeded."""
    types = {each.type for each in job.parsed_job.spec.replicas}
    counts = {_type_name(each): {"active": 0, "succeeded": 0, "failed": 0} for each in sorted(types)}
    for pod in job.pods.values():
        if (count := counts.get(_type_name(pod.type))) is not None and (state := _replica_state(pod)):
            count[state] += 1
    if phase.is_over and job.parsed_job.clean_pods is not CleanPods.NONE:
        for count in counts.values():
            count["succeeded"] += count["active"] if phase is JobPhase.SUCCEEDED else 0
            count["active"] = 0
    return counts


def _replica_state(pod: PodRow) -> str:
    if pod.state is PodState.SUCCEEDED:
        return "succeeded"
    if pod.state is PodState.FAILED:
        return "failed"
    return "active" if pod.state is PodState.RUNNING and not pod.is_deleting else ""


def _type_name(type_: str) -> str:
    return "PS" if type_ == "ps" else type_.title()


# Writes.


def status_write(
    ref: JobRef,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    storage: StatusStorage,
    urgency: Urgency = Urgency.STATUS,
) -> Write | None:
    """Return the write that replaces one status by another; None if nothing changed.

    The patch tests the uid, so that a later job of the same name never gets the status. It tests no version: no other
    client writes this status, and a queued write must not be rejected because of an earlier one.
    """
    if storage is StatusStorage.ANNOTATIONS:
        return None
    kept = _OURS if storage is StatusStorage.WHOLE else _KUBEFLOW
    foreign = {name: value for name, value in old.items() if name not in _OURS}
    wanted = {**foreign, **_only(new, kept)}
    if wanted == {**foreign, **_only(old, kept)}:
        return None
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": ref.uid},
        {"op": "add", "path": "/status", "value": wanted},
    ]
    return Write(
        Verb.JSON_PATCH,
        ref.resource,
        ref.namespace,
        ref.name,
        msgspec.json.encode(operations),
        "status",
        urgency,
        f"status/{ref.uid}",
    )


def annotations_write(
    job: KubeJob,
    status: Mapping[str, Any],
    seen: Mapping[str, str],
    storage: StatusStorage,
    urgency: Urgency = Urgency.STATUS,
) -> Write | None:
    """Return the write of what the status cannot hold, as annotations; `seen` are the object's. None if unchanged."""
    if storage is StatusStorage.WHOLE:
        return None
    wanted = {MEMORY: msgspec.json.encode(persisted_fields(job.persisted)).decode()}
    if storage is StatusStorage.ANNOTATIONS:
        wanted |= {PHASE: str(status["phase"]), REASON: str(status["reason"])}
    changed = {key: value for key, value in wanted.items() if seen.get(key) != value}
    if not changed:
        return None
    ref = job.parsed_job.ref
    body = {"metadata": {"uid": ref.uid, "annotations": changed}}
    return Write(
        Verb.MERGE,
        ref.resource,
        ref.namespace,
        ref.name,
        msgspec.json.encode(body),
        "",
        urgency,
        f"annotations/{ref.uid}",
    )


def _only(status: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in status.items() if name in names}
