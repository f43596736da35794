"""Build the snapshot of a local cluster from the job store.

Desired assignments count as reached, so that a round never decides the same thing twice. Columns are rebuilt for each
snapshot, because a machine holds hundreds of jobs, not a hundred thousand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.backends.local.equal_share_baseline import LocalBaseline
from sterna.backends.local.jobs.checkpoints import runs_well, unsaved_seconds
from sterna.backends.local.jobs.reconciler import units
from sterna.backends.local.store.job_store import JobStore, LocalJob
from sterna.backends.local.store.records import JobRecord
from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.model.cluster import MILLI, Nodes, Shape, Shapes
from sterna.model.growth import Growth
from sterna.model.job import Resizing
from sterna.model.snapshot import NEVER, ColumnSource, JobKey, Jobs, Snapshot, compute_totals
from sterna.model.speedup import Floats

_NOTHING = (Shape(),)
_IN_PLACE_SECONDS = 0.05
"""Time that a group of `sterna.agent.elastic` loses at a resize: it repeats one step, and new workers connect."""
Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Instant:
    """Fields of a snapshot besides jobs and nodes."""

    now: float
    last_action: float
    last_event: float
    closed: frozenset[str]
    """Names of nodes that take no new workers."""
    history: Callable[[], Floats]
    evicts_unsaved: bool = False


def build_snapshot(store: JobStore, empty: Nodes, instant: Instant, baseline: LocalBaseline | None) -> Snapshot:
    """Return the snapshot; the caller holds the lock of the job store."""
    jobs = store.active()
    shapes = tuple(dict.fromkeys(job.shape for job in jobs)) or _NOTHING
    columns = _record_columns(store, jobs, instant.now, shapes) | _computed_columns(store, jobs, instant.now, baseline)
    barred = columns["maximum"] < columns["minimum"]
    table = Jobs(ColumnSource([job.name for job in jobs], columns), barred if barred.any() else None)
    nodes = _with_room(store, empty, jobs, instant.closed)
    shape_table = Shapes(shapes)
    assignments = {JobKey(job.key): job.assignment for job in jobs if job.assignment.workers}
    learned_curves = store.tracker.learned_curves
    return Snapshot(
        instant.now,
        table,
        nodes,
        shape_table,
        learned_curves.table.curves,
        MappingProxyType(assignments),
        *compute_totals(table, nodes, shape_table),
        instant.last_action,
        instant.history,
        learned_curves.restart_seconds,
        last_event=instant.last_event,
        has_cpu_shares=bool((columns["cpu_share"] != 1.0).any()),
        evicts_unsaved=instant.evicts_unsaved,
    )


def _record_columns(store: JobStore, jobs: list[LocalJob], now: float, shapes: Sequence[Shape]) -> Columns:
    """Return the columns that are copied from the records."""
    records = [job.record for job in jobs]
    code = {shape: number for number, shape in enumerate(shapes)}
    rows, keys = store.slices.row_of, {job.name: job.key for job in jobs}
    minimum = _ints([record.minimum for record in records])
    maximum = _ints([record.maximum for record in records])
    held = np.array([bool(job.assignment.workers) for job in jobs], dtype=np.bool_)
    not_before = np.where(held, -NEVER, _floats([record.not_before for record in records]))
    ran_well = np.array([record.ran_well for record in records], dtype=np.bool_)
    is_barred = (not_before > now) & ~ran_well
    request = _ints([record.spec.request for record in records])
    never = NEVER
    return {
        "key": _ints([job.key for job in jobs]),
        "submit": _floats([record.submitted_at for record in records]),
        "priority": _ints([record.spec.priority for record in records]),
        "minimum": minimum,
        "maximum": np.where(is_barred, 0, maximum),
        "request": np.minimum(np.maximum(request, minimum), maximum),
        "workers": _ints([job.assignment.size for job in jobs]),
        "shape": _ints([code[job.shape] for job in jobs]),
        "requested_seconds": _floats([_or(record.spec.deadline_seconds, math.nan) for record in records]),
        "first_start": _floats([_or(record.first_started_at, never) for record in records]),
        "last_start": _floats([record.attempt.started_at if record.attempt else -never for record in records]),
        "waiting_since": _floats([record.queued_since for record in records]),
        "promotions": _ints([record.promotions for record in records]),
        "executed_before": _floats([record.executed_before for record in records]),
        "cpu_share": _floats([record.cpu_share for record in records]),
        "moves": _ints([record.moves for record in records]),
        "moved_at": _floats([_or(record.moved_at, -never) for record in records]),
        "moved_from": _ints([rows.get(record.moved_from, -1) for record in records]),
        "not_before": not_before,
        "can_save": _ints([record.can_save for record in records]),
        "unsaved": _floats([unsaved_seconds(record, now) for record in records]),
        "resize_seconds": _floats([_resize_seconds(record) for record in records]),
        "spent": _floats([record.spent for record in records]),
        "evictor": _ints([keys.get(record.evictor, -1) for record in records]),
    }


def _computed_columns(store: JobStore, jobs: list[LocalJob], now: float, baseline: LocalBaseline | None) -> Columns:
    """Return the columns that are computed from time and progress reports."""
    tracker, learned_curves = store.tracker, store.tracker.learned_curves
    progress_states = [job.progress for job in jobs]
    running = _floats([_running_seconds(job, now) for job in jobs])
    held = _floats([units(store, job, attempt) if (attempt := job.record.attempt) is not None else 0 for job in jobs])
    ends = baseline.completions(now, jobs, tracker) if baseline is not None else {}
    is_shared = store.slices.is_shared
    nothing = math.nan
    return {
        "curve": _ints([learned_curves.row(job.category) for job in jobs]),
        "remaining": _floats([tracker.remaining(progress) if progress else nothing for progress in progress_states]),
        "attained": _floats([job.record.attained for job in jobs]) + running * held / MILLI,
        "executed": _floats([job.record.executed for job in jobs]) + running,
        "most_cores": _floats([job.cores if is_shared else nothing for job in jobs]),
        "growth": _ints(
            [tracker.growth_of(progress) if progress else Growth.PROGRESSING for progress in progress_states]
        ),
        "growth_rate": _floats([progress.rate if progress else nothing for progress in progress_states]),
        "growth_since": _floats([progress.growth_since if progress else -NEVER for progress in progress_states]),
        "restart_seconds": _floats([learned_curves.restart_seconds_of(job.category) for job in jobs]),
        "move_seconds": _floats([0.0 if _moves_in_place(job) else nothing for job in jobs]),
        "may_preempt": _ints([_may_preempt(store, job, now) for job in jobs]),
        "default_finish": _floats([ends.get(job.key, nothing) for job in jobs]),
    }


def _ints(values: Sequence[int]) -> npt.NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _floats(values: Sequence[float]) -> npt.NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _running_seconds(job: LocalJob, now: float) -> float:
    """Return the run time of the current attempt that is not yet in its record."""
    attempt = job.record.attempt
    return max(0.0, now - attempt.counted_from) if attempt is not None and attempt.counted_from else 0.0


def _moves_in_place(job: LocalJob) -> bool:
    """True if a move only changes control groups: the job has no devices, and no launcher that started its workers."""
    return not job.shape.devices and not job.record.by_checkpoint and bool(job.record.spec.worker.command)


def _resize_seconds(record: JobRecord) -> float:
    """Return the cost of a resize in place; NaN where processes restart. torchrun restarts all of its workers."""
    return _IN_PLACE_SECONDS if record.spec.resizing is Resizing.IN_PLACE else math.nan


def _may_preempt(store: JobStore, job: LocalJob, now: float) -> bool:
    """True unless the job failed before it ran well and does not run well now."""
    attempt = job.record.attempt
    is_running = attempt is not None and attempt.counted_from > 0
    return job.record.may_preempt or (is_running and attempt is not None and runs_well(store, job, attempt, now))


def _with_room(store: JobStore, empty: Nodes, jobs: list[LocalJob], closed: frozenset[str]) -> Nodes:
    room = FreeCapacity(empty)
    for job in jobs:
        if job.assignment.workers:
            room.occupy(job.shape, job.assignment)
    is_open = np.array([node.name not in closed for node in store.slices.nodes], dtype=np.bool_)
    capacity = empty.capacity.view()
    for column in (capacity, room.free, is_open, empty.rack):
        column.flags.writeable = False
    return replace(
        empty,
        capacity=capacity,
        free=room.free,
        is_open=is_open,
        shared=MappingProxyType(room.shared),
    )
