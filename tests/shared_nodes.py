"""Builders of CPU-shared clusters for tests: jobs, their nodes, remaining work and marks.

Columns are written out, so that a test does not depend on the simulator. Work is in core-seconds, as in the
rules; nothing here simulates time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.engine.check import check
from sterna.engine.decide import Rules, decide
from sterna.engine.registry import Placed, Target
from sterna.model.cluster import MILLI, Assignment, Ints, Nodes, ResourceKind, Shape, Shapes
from sterna.model.plan import Action, Decision
from sterna.model.snapshot import NEVER, ColumnSource, JobKey, Jobs, Snapshot, compute_totals
from sterna.model.speedup import Curves
from sterna.wiring import make_cpu_share, make_migration

CAP = 4.0
"""Default core limit of a worker."""


@dataclass(frozen=True)
class SharedJob:
    """A running job."""

    name: str
    on: tuple[tuple[int, int], ...] = ((0, 1),)
    left: float = 400.0
    """Core-seconds; no number: unknown."""
    cap: float = CAP
    devices: int = 0
    submit: float = 0.0
    growth: int = 0
    growth_rate: float = np.nan
    growth_since: float = -NEVER
    cpu_share: float = 1.0
    unsaved: float = 0.0
    moves: int = 0
    moved_at: float = -NEVER
    moved_from: int = -1
    evictor: int = -1
    default_finish: float = np.nan

    @property
    def workers(self) -> int:
        return sum(count for _, count in self.on)


@dataclass(frozen=True)
class SharedCluster:
    """Shared nodes at one time."""

    jobs: tuple[SharedJob, ...]
    cores: tuple[float, ...] = (16.0, 16.0)
    devices: tuple[int, ...] = ()
    now: float = 100.0
    restart_seconds: float = 0.0
    last_event: float = -NEVER
    closed: frozenset[int] = field(default_factory=frozenset)

    @property
    def snapshot(self) -> Snapshot:
        rows = sorted(enumerate(self.jobs), key=lambda pair: (pair[1].submit, pair[1].name))
        shapes = tuple(dict.fromkeys(Shape(devices=job.devices * MILLI) for _, job in rows)) or (Shape(0),)
        jobs = Jobs(ColumnSource([job.name for _, job in rows], _columns(rows, shapes)))
        assignments = {JobKey(key): Assignment(job.on) for key, job in rows if job.on}
        nodes = self._nodes()
        totals = compute_totals(jobs, nodes, Shapes(shapes))
        return Snapshot(
            self.now,
            jobs,
            nodes,
            Shapes(shapes),
            Curves(),
            assignments,
            *totals,
            restart_seconds=self.restart_seconds,
            last_event=self.last_event,
            has_cpu_shares=any(job.cpu_share != 1 for job in self.jobs),
        )

    def _nodes(self) -> Nodes:
        count = len(self.cores)
        total = np.zeros((len(ResourceKind), count), dtype=np.int64)
        total[ResourceKind.CPUS] = [round(cores * MILLI) for cores in self.cores]
        total[ResourceKind.DEVICES] = [each * MILLI for each in self.devices or (0,) * count]
        free = total.copy()
        for job in self.jobs:
            for node, workers in job.on:
                free[ResourceKind.DEVICES, node] -= workers * job.devices * MILLI
        names = tuple(f"n{number}" for number in range(count))
        is_open = np.array([node not in self.closed for node in range(count)])
        return Nodes(names, total, free, is_open, np.zeros(count, dtype=np.int64))

    def after(self, decision: Decision, seconds: float = 0.0) -> SharedCluster:
        """Return the cluster with the plan applied and its marks stored, `seconds` later and without progress."""
        changed = {int(action.key): action for action in decision.plan}
        jobs = tuple(
            self._carried_out(job, changed[key]) if key in changed else job for key, job in enumerate(self.jobs)
        )
        return replace(self, jobs=jobs, now=self.now + seconds)

    def _carried_out(self, job: SharedJob, action: Action) -> SharedJob:
        cpu_share = job.cpu_share if action.cpu_share is None else action.cpu_share
        if action.before == action.after:
            return replace(job, cpu_share=cpu_share)
        return replace(
            job,
            cpu_share=cpu_share,
            on=action.after.workers,
            moves=job.moves + 1,
            moved_at=self.now,
            moved_from=action.before.workers[0][0],
            evictor=int(action.evictor),
        )


def _columns(rows: Sequence[tuple[int, SharedJob]], shapes: Sequence[Shape]) -> dict[str, npt.NDArray[Any]]:
    jobs = [job for _, job in rows]
    count = len(jobs)
    zeros = ("priority", "curve", "promotions")
    columns: dict[str, npt.NDArray[Any]] = {name: np.zeros(count, dtype=np.int64) for name in zeros}
    columns |= {name: np.array([job.workers for job in jobs]) for name in ("minimum", "maximum", "request")}
    for name in ("workers", "growth", "moves", "moved_from", "evictor"):
        columns[name] = np.array([getattr(job, name) for job in jobs], dtype=np.int64)
    for name in ("submit", "growth_rate", "growth_since", "cpu_share", "unsaved", "moved_at", "default_finish"):
        columns[name] = np.array([getattr(job, name) for job in jobs], dtype=np.float64)
    columns["key"] = np.array([key for key, _ in rows], dtype=np.int64)
    codes = [list(shapes).index(Shape(devices=job.devices * MILLI)) for job in jobs]
    columns["shape"] = np.array(codes, dtype=np.int64)
    columns["most_cores"] = np.array([job.cap for job in jobs])
    columns["remaining"] = np.array([job.left / job.cap for job in jobs])
    for name in ("first_start", "waiting_since"):
        columns[name] = columns["submit"].copy()
    for name in ("attained", "executed"):
        columns[name] = np.zeros(count)
    return columns


def rules_with(migration: str = "none", cpu_share: str = "equal") -> Rules:
    """Rules under which every job keeps its workers, so that only moves and CPU shares are decided."""
    return Rules(
        lambda snapshot: Target(snapshot.jobs.workers),
        _nothing_placed,
        make_migration(migration),
        make_cpu_share(cpu_share),
    )


def _nothing_placed(snapshot: Snapshot, target: Ints) -> Placed:
    return Placed([], [])


def decided(cluster: SharedCluster, migration: str = "none", cpu_share: str = "equal") -> Decision:
    """Decide and check."""
    snapshot = cluster.snapshot
    decision = decide(snapshot, rules_with(migration, cpu_share))
    check(decision.plan, snapshot)
    return decision


def moves_of(cluster: SharedCluster, decision: Decision) -> dict[str, tuple[int, ...]]:
    """Return the jobs that the decision moves, and their new nodes."""
    return {
        cluster.jobs[action.key].name: tuple(node for node, _ in action.after.workers)
        for action in decision.plan
        if action.before != action.after
    }


def weights_of(cluster: SharedCluster, cpu_share: str) -> dict[str, float]:
    """Return the CPU share of every job once the decision is applied."""
    then = cluster.after(decided(cluster, cpu_share=cpu_share))
    return {job.name: job.cpu_share for job in then.jobs}
