"""Builds the `Snapshot` of the cluster state, as columns.

A job's row is rewritten when the job changed; a snapshot takes the rows in order and computes what depends on the time.
So a round over thousands of jobs costs a few vector operations, however little changed. Desired assignments count as
reached (`node_capacity.py`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.cache.node_capacity import KnownNodes
from sterna.backends.kubernetes.cache.progress import Progress
from sterna.backends.kubernetes.lifecycle.verdict import unsaved_since
from sterna.kinds.parsed_job import ParsedJob
from sterna.model.cluster import MILLI, Assignment, Ints, Shape, Shapes
from sterna.model.job import Resizing
from sterna.model.serving_pod import ServingPod
from sterna.model.snapshot import NEVER, ColumnSource, JobKey, Jobs, Snapshot, compute_totals
from sterna.model.speedup import Floats

_INTS = ("key", "priority", "minimum", "maximum", "request", "workers", "shape", "promotions", "moves", "moved_from",
         "evictor", "running_workers", "can_save", "may_preempt", "is_torchrun")  # fmt: skip
_FLOATS = ("submit", "first_start", "waiting_since", "attained", "executed", "executed_before", "cpu_share", "moved_at",
           "not_before", "counted_from", "unsaved_since", "resize_seconds", "spent",
           "requested_seconds", "most_cores")  # fmt: skip
_RENDEZVOUS_SECONDS = 1.0
"""Estimated time without progress when workers of an elastic MPIJob join or leave. Workers that join parameter servers
do not interrupt the others."""
_NOTHING = Shapes((Shape(),))
_MIN_ROWS = 64


@dataclass(frozen=True)
class SnapshotHeader:
    """Fields of a snapshot beside jobs and nodes."""

    now: float
    last_action: float
    last_event: float
    history: Callable[[], Floats]
    serving: Sequence[ServingPod] = ()
    evicts_unsaved: bool = False


class JobTable:
    """Table of the jobs that want to run. Rows are in (submit, name) order; a job keeps its slot."""

    def __init__(self) -> None:
        self._ints: Ints = np.zeros((len(_INTS), _MIN_ROWS), dtype=np.int64)
        self._floats: Floats = np.zeros((len(_FLOATS), _MIN_ROWS), dtype=np.float64)
        self._free = list(range(_MIN_ROWS - 1, -1, -1))
        self._slot_of: dict[int, int] = {}
        self._places: dict[int, tuple[float, str, int]] = {}
        self._sorted: list[tuple[float, str, int]] = []
        """Submission, name and slot of every job, in order. Names and slots are also kept alone, because every snapshot
        copies them."""
        self._sorted_names: list[str] = []
        self._sorted_slots: list[int] = []
        self._order: Ints | None = None
        self._names: list[str] = []
        self._keys: list[int] = []
        self._shape_ids: dict[Shape, int] = {}
        self._shapes: tuple[tuple[int, ...], Shapes] = ((), _NOTHING)

    def __len__(self) -> int:
        return len(self._sorted)

    def __contains__(self, key: int) -> bool:
        return key in self._slot_of

    def put(self, entry: JobEntry, row_of: Mapping[str, int], key_of: Mapping[str, int]) -> None:
        """Write the current row of a job."""
        slot = self._slot_of.get(entry.key)
        if slot is None:
            slot = self._enter(entry)
        self._ints[:, slot] = self._numbers(entry, row_of, key_of)
        self._floats[:, slot] = _times(entry)

    def drop(self, key: int) -> None:
        """Remove a job."""
        slot = self._slot_of.pop(key, None)
        if slot is not None:
            at = bisect_left(self._sorted, self._places.pop(slot))
            del self._sorted[at], self._sorted_names[at], self._sorted_slots[at]
            self._free.append(slot)
            self._order = None

    def _enter(self, entry: JobEntry) -> int:
        if not self._free:
            size = self._ints.shape[1]
            self._ints = np.concatenate([self._ints, np.zeros_like(self._ints)], axis=1)
            self._floats = np.concatenate([self._floats, np.zeros_like(self._floats)], axis=1)
            self._free = list(range(2 * size - 1, size - 1, -1))
        slot = self._slot_of[entry.key] = self._free.pop()
        place = self._places[slot] = (entry.parsed_job.submitted_at, entry.name, slot)
        at = bisect_left(self._sorted, place)
        self._sorted.insert(at, place)
        self._sorted_names.insert(at, entry.name)
        self._sorted_slots.insert(at, slot)
        self._order = None
        return slot

    def _numbers(self, entry: JobEntry, row_of: Mapping[str, int], key_of: Mapping[str, int]) -> tuple[int, ...]:
        spec, persisted = entry.parsed_job.spec, entry.job.persisted
        shape = self._shape_ids.setdefault(entry.shape, len(self._shape_ids))
        request = min(max(spec.request, spec.minimum), spec.maximum)
        is_fixed = spec.resizing is Resizing.NONE
        return (
            entry.key,
            spec.priority,
            request if is_fixed else spec.minimum,
            request if is_fixed else spec.maximum,
            request,
            entry.assignment.size,
            shape,
            persisted.promotions,
            persisted.moves,
            row_of.get(persisted.moved_from, -1),
            key_of.get(persisted.evictor, -1),
            entry.running_workers if persisted.counted_from is not None else 0,
            persisted.can_save,
            persisted.may_preempt,
            spec.resizing is Resizing.TORCHRUN,
        )

    # Columns.

    @property
    def keys(self) -> Sequence[int]:
        """Job keys of the rows of the last `columns`, in order."""
        return self._keys

    def columns(self, now: float) -> tuple[Sequence[str], dict[str, npt.NDArray[Any]]]:
        """Return names and columns at this time."""
        if self._order is None:
            self._order = np.array(self._sorted_slots, dtype=np.int64)
            self._names = self._sorted_names.copy()  # earlier snapshots keep their list
            self._keys = self._ints[0, self._order].tolist()
        columns: dict[str, npt.NDArray[Any]] = dict(zip(_INTS, self._ints[:, self._order], strict=True))
        columns.update(zip(_FLOATS, self._floats[:, self._order], strict=True))
        is_held = (columns["not_before"] > now) & (columns["workers"] == 0)
        # A job that did not run well keeps nothing during its back-off; others keep their place.
        columns["maximum"] = np.where(is_held & (columns["may_preempt"] == 0), 0, columns["maximum"])
        counted = columns.pop("counted_from")
        columns["running_seconds"] = np.where(counted < NEVER, np.maximum(now - counted, 0.0), 0.0)
        columns["executed"] = columns["executed"] + columns["running_seconds"]
        columns["unsaved"] = np.maximum(now - columns.pop("unsaved_since"), 0.0)
        return self._names, columns

    def encode_shapes(self, columns: dict[str, npt.NDArray[Any]]) -> Shapes:
        """Return the distinct shapes of these rows, and replace the column `shape` by their numbers."""
        found, codes = np.unique(columns["shape"], return_inverse=True)
        known = tuple(found.tolist())
        columns["shape"] = codes.astype(np.int64).reshape(-1)
        if not known:
            return _NOTHING
        if self._shapes[0] != known:
            by_number = list(self._shape_ids)
            self._shapes = known, Shapes(tuple(by_number[number] for number in known))
        return self._shapes[1]


def _times(entry: JobEntry) -> tuple[float, ...]:
    persisted, parsed_job = entry.job.persisted, entry.parsed_job
    since = persisted.waiting_since if persisted.waiting_since is not None else parsed_job.submitted_at
    return (
        parsed_job.submitted_at,
        _or(persisted.first_started_at, entry.assigned_at if entry.assignment.workers else NEVER),
        since,
        persisted.attained,
        persisted.executed,
        persisted.executed_before,
        persisted.cpu_share,
        _or(persisted.moved_at, -NEVER),
        persisted.not_before,
        _or(persisted.counted_from, NEVER),
        unsaved_since(persisted),
        _resize_seconds(parsed_job),
        persisted.spent,
        _or(parsed_job.spec.deadline_seconds, math.nan),
        math.nan if entry.shape.devices else float(max(1, -(-parsed_job.spec.worker.cpus // MILLI))),
    )


def _resize_seconds(parsed_job: ParsedJob) -> float:
    """Return the cost of a resize in place; NaN: a resize is a restart."""
    if parsed_job.spec.resizing is not Resizing.IN_PLACE:
        return math.nan
    return 0.0 if parsed_job.survives_replica_loss else _RENDEZVOUS_SECONDS


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def build_snapshot(
    table: JobTable,
    nodes: KnownNodes,
    assignments: Mapping[JobKey, Assignment],
    progress: Progress,
    instant: SnapshotHeader,
) -> Snapshot:
    """Return the snapshot at the given instant."""
    names, columns = table.columns(instant.now)
    shapes = table.encode_shapes(columns)
    cost_table = shapes.cost_table(nodes.unit)
    workers, seconds = columns.pop("running_workers"), columns.pop("running_seconds")
    held = workers * cost_table.worker[columns["shape"]] + (workers > 0) * cost_table.ps[columns["shape"]]
    columns["attained"] = columns["attained"] + seconds * held / MILLI
    columns.update(progress.columns(table.keys)._asdict())
    _add_costs(columns, progress.restart_seconds)
    barred = columns["maximum"] < columns["minimum"]
    jobs = Jobs(ColumnSource(names, columns), barred if barred.any() else None)
    return Snapshot(
        instant.now,
        jobs,
        nodes,
        shapes,
        progress.curves,
        MappingProxyType(dict(assignments)),
        *compute_totals(jobs, nodes, shapes),
        instant.last_action,
        instant.history,
        progress.restart_seconds,
        last_event=instant.last_event,
        serving=instant.serving,
        has_cpu_shares=bool((columns["cpu_share"] != 1.0).any()),
        evicts_unsaved=instant.evicts_unsaved,
    )


def _add_costs(columns: dict[str, npt.NDArray[Any]], mean_restart_seconds: float) -> None:
    """Complete the cost of a resize.

    torchrun restarts all processes at a resize, though in the same pods: that costs the unsaved work and a restart, and
    is no resize in place for a job that cannot save.
    """
    restart = np.where(np.isnan(columns["restart_seconds"]), mean_restart_seconds, columns["restart_seconds"])
    restarts_processes = (columns.pop("is_torchrun") > 0) & (columns["can_save"] > 0)
    columns["resize_seconds"] = np.where(restarts_processes, columns["unsaved"] + restart, columns["resize_seconds"])
