"""The status of a job as people and programs read it, and the write that brings it to the server. Pure.

A status is always made whole, from what is known; it is written only if it differs from what was last seen or written,
and the latest state wins. Three ways to keep it: kinds whose definition is ours hold everything under `status`;
Kubeflow's definitions drop what they do not know, so what must be remembered goes into an annotation; the status of an
MPIJob or a pod is its own operator's, so that the phase and the sentence are annotations too.
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
from sterna.backends.kubernetes.cache.progress import ProgressView
from sterna.backends.kubernetes.lifecycle.conditions import (
    Subject,
    conditions_of,
    end_condition,
    format_time,
    invalid_conditions,
    scheduling_of,
)
from sterna.backends.kubernetes.lifecycle.phase import Phase, phase_of
from sterna.backends.kubernetes.lifecycle.verdict import CONTINUE, Verdict, VerdictKind, conditions_in
from sterna.kinds.labels import MEMORY, PHASE, REASON
from sterna.kinds.parsed_job import CleanPods, JobRef, PodOwnership
from sterna.model.reason import Reason

_KUBEFLOW = frozenset({"conditions", "replicaStatuses", "startTime", "completionTime"})
"""What Kubeflow's definitions keep of a status."""
_OURS = _KUBEFLOW | {
    "phase", "workers", "nodes", "reason", "enqueueTime", "startRunTime", "finishedTime", "observedGeneration",
    "progress", "sterna",
}  # fmt: skip


class StatusStorage(Enum):
    """Where the status of a kind is kept."""

    WHOLE = "whole"
    """Its definition is ours."""
    KUBEFLOW = "kubeflow"
    """Its definition is Kubeflow's and we are its operator."""
    ANNOTATIONS = "annotations"
    """Somebody else writes its status: MPIJob, Pod."""


@dataclass(frozen=True)
class StatusInput:
    """What is to be told of a job beside its pods and its memory."""

    replicas: Sequence[ReplicaAssignment] = ()
    """Where it shall sit; none: it waits or stops."""
    reason: Reason | None = None
    """Of the decision that was last made about it."""
    sentence: str = ""
    """Instead of the reason's: why the server refused its pods, that its place is being cleared, .."""
    verdict: Verdict = CONTINUE
    progress: ProgressView | None = None


def status_storage(ownership: PodOwnership, is_definition_ours: bool) -> StatusStorage:
    if not ownership.creates_pods:
        return StatusStorage.ANNOTATIONS
    return StatusStorage.WHOLE if is_definition_ours else StatusStorage.KUBEFLOW


def status_of(job: KubeJob, given: StatusInput, now: float) -> dict[str, Any]:
    """The whole status as it shall be. Of a job that has ended only what is remembered still changes."""
    old = job.status
    conditions = conditions_in(old)
    if end_condition(conditions) is not None and not job.parsed_job.ownership.is_delegated:
        return {**old, "sterna": persisted_fields(job.memory)}
    spec, memory, verdict = job.parsed_job.spec, job.memory, given.verdict
    phase = phase_of(job, given.replicas, now, verdict.kind)
    sentence = sentence_of(job, given, phase)
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
            scheduling_of(bool(given.replicas), given.reason, given.sentence),
            now,
            verdict.reason if phase.is_over else "",
        ),
        "replicaStatuses": _replica_statuses(job, phase),
        "observedGeneration": job.parsed_job.generation,
        "sterna": persisted_fields(memory),
    }
    ended_at = memory.ended_at if memory.ended_at is not None else now if phase.is_over else None
    times = {
        "enqueueTime": memory.enqueued_at,
        "startTime": memory.first_started_at,
        "startRunTime": memory.first_started_at,
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
    """Of an object that cannot be understood: what is wrong with it, and nothing else."""
    conditions = invalid_conditions(conditions_in(old), Subject(kind, name), sentence, now)
    return {
        **old, "phase": Phase.FAILED.value, "workers": 0, "reason": sentence, "conditions": conditions,
        "observedGeneration": generation,
    }  # fmt: skip


def sentence_of(job: KubeJob, given: StatusInput, phase: Phase) -> str:
    """What is said of a job: how it ended, why it comes again, what keeps its pods from starting, or what was
    decided."""
    verdict = given.verdict
    if verdict.sentence and verdict.kind is not VerdictKind.CONTINUE:
        return verdict.sentence
    if phase is Phase.SUSPENDED:
        return "is suspended; set suspend to false to let it run."
    if phase in (Phase.STARTING, Phase.RESTARTING) and (trouble := pod_start_error(job)):
        return trouble
    if given.sentence:
        return given.sentence
    if phase is Phase.STARTING and not job.pods:
        return "waits: its place is being cleared by those who leave it."
    return scheduling_of(bool(given.replicas), given.reason).sentence


def pod_start_error(job: KubeJob) -> str:
    """Why a pod that has its node does not run, if the kubelet says so: `ErrImagePull`, .."""
    for key in sorted(job.pods):
        pod = job.pods[key]
        if pod.state is PodState.PENDING and pod.reason not in ("", "ContainerCreating", "PodInitializing"):
            return f"waits: {pod.type}-{pod.index} cannot start on {pod.node or 'its node'} yet ({pod.reason})."
    return ""


# Parts.


def persisted_fields(memory: PersistedState) -> dict[str, Any]:
    """As JSON knows it: what is no number is left out."""
    fields: dict[str, Any] = msgspec.to_builtins(memory)
    return {
        name: value for name, value in fields.items() if not (isinstance(value, float) and not math.isfinite(value))
    }


def progress_fields(view: ProgressView) -> dict[str, Any]:
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


def _replica_statuses(job: KubeJob, phase: Phase) -> dict[str, dict[str, int]]:
    """By type, as Kubeflow spells them. A job that has succeeded counts those that still ran as succeeded."""
    types = {each.type for each in job.parsed_job.spec.replicas}
    counts = {_type_name(each): {"active": 0, "succeeded": 0, "failed": 0} for each in sorted(types)}
    for pod in job.pods.values():
        if (count := counts.get(_type_name(pod.type))) is not None and (what := _counted_as(pod)):
            count[what] += 1
    if phase.is_over and job.parsed_job.clean_pods is not CleanPods.NONE:
        for count in counts.values():
            count["succeeded"] += count["active"] if phase is Phase.SUCCEEDED else 0
            count["active"] = 0
    return counts


def _counted_as(pod: PodRow) -> str:
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
    """The write that makes the one status the other; None if there is nothing to write.

    The uid is tested, so that a job's successor of the same name is never told its predecessor's status. Nobody else
    writes a status of ours, so that no version need be tested and a write that waited for another is not refused.
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
    """What a status cannot hold, as annotations; `seen` are the object's. None if there is nothing to write."""
    if storage is StatusStorage.WHOLE:
        return None
    wanted = {MEMORY: msgspec.json.encode(persisted_fields(job.memory)).decode()}
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
