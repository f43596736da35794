"""Spans of time in which a job held the same workers, with what was lost in each and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from sterna.backends.simulated.change_log import ChangeKind, ChangeLog
from sterna.backends.simulated.costs import Costs
from sterna.model.cluster import Bools, Ints
from sterna.model.speedup import Floats


class LossCause(IntEnum):
    """Change that made a job lose device time; the first start of a job is not avoidable by any policy."""

    FIRST_START = 0
    STOP = 1
    RESIZE = 2
    MOVE = 3
    FAILURE = 4


@dataclass(frozen=True, kw_only=True)
class HeldSpans:
    """One entry per span, ordered by job and time; a span ends with the next change of its job."""

    job: Ints
    start: Floats
    end: Floats
    workers: Ints
    nodes: Ints
    device_seconds: Floats
    pause_device_seconds: Floats
    """Device time without progress at the begin of the span."""
    pause_cause: Ints
    """`LossCause` of the pause."""
    lost_device_seconds: Floats
    """Device time of the work that the change at the end of the span threw away."""
    lost_cause: Ints
    """`LossCause` of the lost work."""


_CAUSE_OF_END = {
    ChangeKind.RESIZE: LossCause.RESIZE,
    ChangeKind.MOVE: LossCause.MOVE,
    ChangeKind.STOP: LossCause.STOP,
    ChangeKind.FAILURE: LossCause.FAILURE,
}


def held_spans(changes: ChangeLog, devices_per_worker: Floats, costs: Costs) -> HeldSpans:
    """Turn the changes of a run into spans; `devices_per_worker` has one entry per job."""
    job = np.array(changes.job, dtype=np.int64)
    order = np.argsort(job, kind="stable")
    job, time, kind = job[order], np.array(changes.time)[order], np.array(changes.kind, dtype=np.int64)[order]
    lost = np.diff(np.array(changes.lost_seconds), prepend=0.0)[order]
    held = np.flatnonzero(np.isin(kind, (ChangeKind.START, ChangeKind.RESIZE, ChangeKind.MOVE)))
    # The run ends when no job holds workers, so every span has a later change of the same job.
    after = held + 1
    workers = np.array(changes.workers, dtype=np.int64)[order][held]
    rate = np.array(changes.rate)[order][held]
    seconds, devices = time[after] - time[held], workers * devices_per_worker[job[held]]
    return HeldSpans(
        job=job[held],
        start=time[held],
        end=time[after],
        workers=workers,
        nodes=np.array(changes.nodes, dtype=np.int64)[order][held],
        device_seconds=seconds * devices,
        pause_device_seconds=np.clip(_progress_since(job, time, kind, costs)[held] - time[held], 0, seconds) * devices,
        pause_cause=_pause_causes(job, kind)[held],
        lost_device_seconds=lost[after] / rate * devices,
        lost_cause=_map_kinds(kind[after]),
    )


def _progress_since(job: Ints, time: Floats, kind: Ints, costs: Costs) -> Floats:
    """Return when progress resumes after each change: its own pause, but not before an earlier pause has ended."""
    pauses = np.zeros(len(ChangeKind))
    pauses[[ChangeKind.START, ChangeKind.MOVE]] = costs.restart_seconds
    pauses[ChangeKind.RESIZE] = costs.resize_seconds
    since: Floats = time + pauses[kind]
    follows: Bools = job[1:] == job[:-1]
    follows &= kind[1:] == ChangeKind.RESIZE
    while True:  # as often as changes follow one another within one pause
        later = np.flatnonzero(follows & (since[:-1] > since[1:])) + 1
        if not len(later):
            return since
        since[later] = since[later - 1]


def _pause_causes(job: Ints, kind: Ints) -> Ints:
    """Return the cause of the pause after each change: the change itself, or what ended the run before a start."""
    causes = _map_kinds(kind)
    starts = np.flatnonzero(kind == ChangeKind.START)
    before = starts - 1
    is_restart = (before >= 0) & (job[before] == job[starts])
    causes[starts] = np.where(is_restart, _map_kinds(kind[before]), LossCause.FIRST_START)
    return causes


def _map_kinds(kind: Ints) -> Ints:
    table = np.zeros(len(ChangeKind), dtype=np.int64)
    for ended, cause in _CAUSE_OF_END.items():
        table[ended] = cause
    return table[kind]
