"""Views of jobs and events of a cluster, made from their objects; the operator is not asked. Pure.

Where a status is older than the pods that it describes, the pods count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sterna.backends.kubernetes.api.job import PersistedState, PodRow, PodState
from sterna.backends.kubernetes.cache.object_parser import memory_in, parse_object, status_in
from sterna.backends.kubernetes.lifecycle.verdict import conditions_in, is_eviction_condition
from sterna.backends.kubernetes.pods.pod_rows import pod_row
from sterna.backends.kubernetes.query.listing import EventObject, ListedJob
from sterna.control.progress_tracker import category_of
from sterna.kinds.context import ParseContext
from sterna.kinds.labels import PHASE, REASON
from sterna.kinds.mpi_job import ACCELERATOR
from sterna.kinds.objects import JobObject
from sterna.kinds.parsed_job import ParsedJob
from sterna.kinds.parsing.job_builder import parse_timestamp
from sterna.kinds.registry import find_kind
from sterna.kinds.resource import PODS
from sterna.service.views import EventView, JobView, ReplicaView

SCHEDULER = "kubernetes"
"""Scheduler of jobs that run on any GPU type; Voda has one scheduler per type."""
UNSEEN = "waits: no operator has looked at it yet; see that one runs."
UNPLACED = "waits: its own scheduler has not found it a node yet."

ANY_IMAGE = ParseContext(default_image="default")
"""Accepts jobs without an image: the operator knows whether there is a default."""
_GPU_TYPES = (ACCELERATOR, "nvidia.com/gpu.product")
_RANKS = {type_: rank for rank, type_ in enumerate(("launcher", "master", "chief", "worker", "ps", "evaluator"))}
_STATES = {
    PodState.PENDING: "starting",
    PodState.RUNNING: "running",
    PodState.SUCCEEDED: "ended",
    PodState.FAILED: "ended",
}
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_OVER = {"Succeeded": "completed", "Failed": "failed"}
_EVENT_KINDS = (
    (re.compile(r"SuccessfulCreatePod|Scheduled"), "started"),
    (re.compile(r"SuccessfulDeletePod"), "removed"),
    (re.compile(r".*Succeeded"), "completed"),
    (re.compile(r".*Restarting"), "restarted"),
    (re.compile(r"Invalid.*"), "invalid"),
)
"""Event kinds of a local cluster by reason; other reasons stay as they are."""


@dataclass(frozen=True)
class _Facts:
    """The parsed object of a job, and its pods."""

    parsed_job: ParsedJob
    memory: PersistedState
    status: Mapping[str, Any]
    annotations: Mapping[str, str]
    rows: Sequence[PodRow]
    problem: str
    is_deleting: bool

    @property
    def phase(self) -> str:
        return str(self.status.get("phase") or self.annotations.get(PHASE, ""))

    @property
    def workers(self) -> list[PodRow]:
        """Worker pods that neither ended nor are being deleted."""
        worker = self.parsed_job.spec.worker.type
        return [row for row in self.rows if row.type == worker and not (row.is_terminated or row.is_deleting)]


def job_view(job: ListedJob, now: float, is_everywhere: bool = False) -> JobView:
    """Return the view of a job; its name includes the namespace if jobs of all namespaces are shown."""
    facts = _facts_of(job)
    spec, memory, status = facts.parsed_job.spec, facts.memory, facts.status
    state = _state(facts)
    ended_at = _ended_at(facts, state)
    ran = memory.executed + _running_seconds(memory, state, now)
    lasted = max(0.0, (now if ended_at is None else ended_at) - facts.parsed_job.submitted_at)
    view = JobView(
        job.meta.key if is_everywhere else job.meta.name,
        job.resource.kind,
        state,
        _reason(facts, state),
        0 if state in ("completed", "failed") else len(facts.workers),
        spec.minimum,
        spec.maximum,
        spec.request,
        spec.priority,
        category_of(spec.name, spec.category),
        spec.user,
        facts.parsed_job.submitted_at,
        memory.first_started_at or parse_timestamp(status.get("startTime")) or None,
        ended_at,
        max(0.0, lasted - ran),
        ran,
        attempt=max([memory.attempt, *(row.attempt for row in facts.rows)]),
        restarts=memory.restarts,
        moves=memory.moves,
        cpu_share=memory.cpu_share,
        lost_seconds=memory.lost_seconds,
        exit_code=_exit_code(facts, state),
        nodes=list(dict.fromkeys(row.node for row in facts.rows if row.node and not row.is_terminated)),
        replicas=[_replica(row) for row in facts.rows],
        notices=list(spec.notices),
    )
    view.namespace, view.uid, view.scheduler = job.meta.namespace, job.meta.uid, _scheduler(facts.parsed_job)
    _add_progress(view, facts)
    return view


def _facts_of(job: ListedJob) -> _Facts:
    parsed_job, problem = parse_object(job.object, job.resource, ANY_IMAGE)
    status = status_in(job.object) if isinstance(job.object, JobObject) else {"phase": job.object.status.phase}
    rows = sorted(map(pod_row, job.pods), key=lambda row: (_RANKS.get(row.type, len(_RANKS)), row.type, row.index))
    annotations = job.meta.annotations
    return _Facts(
        parsed_job,
        memory_in(annotations, status),
        status,
        annotations,
        rows,
        problem.sentence if problem is not None else "",
        job.meta.deletion_timestamp is not None,
    )


def _state(facts: _Facts) -> str:
    if facts.is_deleting:
        return "deleting"
    ending = next((_OVER[each["type"]] for each in conditions_in(facts.status) if _is_end(each, facts.status)), "")
    if ending or facts.phase in _OVER:
        return ending or _OVER[facts.phase]
    if any(row.state is PodState.RUNNING for row in facts.workers):
        return "running"
    live = [row for row in facts.rows if not row.is_terminated]
    return "stopping" if live and all(row.is_deleting for row in live) else "waiting"


def _is_end(condition: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    return (
        condition.get("type") in _OVER
        and condition.get("status") == "True"
        and not is_eviction_condition(condition, status)
    )


def _running_seconds(memory: PersistedState, state: str, now: float) -> float:
    """Running time since the last update of the persisted state."""
    if memory.counted_from is None or memory.ended_at is not None or state in ("completed", "failed"):
        return 0.0
    return max(0.0, now - memory.counted_from)


def _ended_at(facts: _Facts, state: str) -> float | None:
    if state not in ("completed", "failed"):
        return None
    if facts.memory.ended_at is not None:
        return facts.memory.ended_at
    return parse_timestamp(facts.status.get("completionTime")) or None


def _reason(facts: _Facts, state: str) -> str:
    """Return the latest reason in status, annotation or conditions."""
    conditions = conditions_in(facts.status)
    told = [each.get("message") for each in conditions if _is_end(each, facts.status)]
    told += [each.get("message") for each in conditions if each.get("type") == "Scheduled"]
    said = facts.status.get("reason") or facts.annotations.get(REASON) or next(filter(None, told), "") or facts.problem
    if said or state != "waiting":
        return str(said)
    return UNPLACED if facts.parsed_job.ref.resource == PODS else UNSEEN


def _exit_code(facts: _Facts, state: str) -> int | None:
    codes = [row.exit_code for row in facts.rows if row.exit_code is not None]
    if state == "completed":
        return 0 if codes else None
    last = facts.memory.exit_code if facts.memory.failures or state == "failed" else None
    return next((code for code in codes if code), last) if state in ("failed", "waiting") else None


def _replica(row: PodRow) -> ReplicaView:
    is_leaving = row.is_deleting and not row.is_terminated
    state = "stopping" if is_leaving else _STATES[row.state]
    return ReplicaView(replica_name(row), row.node, state, row.attempt, exit_code=row.exit_code)


def replica_name(row: PodRow) -> str:
    return f"{row.type}-{row.index}"


def _scheduler(parsed_job: ParsedJob) -> str:
    selector = dict(parsed_job.needs.selector)
    return next((selector[label] for label in _GPU_TYPES if selector.get(label)), SCHEDULER)


def _add_progress(view: JobView, facts: _Facts) -> None:
    told = facts.status.get("progress")
    told = told if isinstance(told, Mapping) else {}
    memory = facts.memory
    view.step, view.total = told.get("step", memory.step), told.get("total", memory.total)
    view.metric, view.value = told.get("metric", memory.metric), told.get("value", memory.value)
    view.growth = told.get("growth", "unknown")
    if view.state == "running":
        view.eta_seconds, view.eta_low_seconds, view.eta_high_seconds = (
            seconds_in(told.get(name)) for name in ("eta", "etaLow", "etaHigh")
        )


def seconds_in(text: object) -> float | None:
    """Parse a duration of a status, such as `3h20m`."""
    parts = re.findall(r"(\d+)([dhms])", text) if isinstance(text, str) else []
    return sum(int(number) * _UNITS[unit] for number, unit in parts) if parts else None


def event_view(event: EventObject, is_everywhere: bool = False) -> EventView:
    """Return the view of an event; its number is the resource version, which grows when the event is repeated."""
    about = event.regarding
    told_at = [
        event.series.last_observed_time if event.series is not None else None,
        event.event_time,
        event.deprecated_last_timestamp,
        event.metadata.creation_timestamp,
    ]
    at = next((seconds for text in told_at if (seconds := parse_timestamp(text))), 0.0)
    name = f"{about.namespace}/{about.name}" if is_everywhere else about.name
    return EventView(event.metadata.version, at, name, _event_kind(event.reason), event.note)


def _event_kind(reason: str) -> str:
    if reason.endswith("Failed") and find_kind(reason.removesuffix("Failed")):
        return "failed"
    return next((kind for pattern, kind in _EVENT_KINDS if pattern.fullmatch(reason)), reason[:1].lower() + reason[1:])
