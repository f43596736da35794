"""Simulated cluster of CPU-shared nodes: containers without requests divide a node's cores, as in SpeCon.

Discrete events, as in the parent package: rates change only when a job arrives, ends, restarts or gets another CPU
share; then the cores of the node are divided by weighted max-min with a limit per job. The work done determines what a
job reports and with it its growth category; reports are computed only when a rule reads them. Nodes do not fail, and
memory is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.backends.simulated.config import SharedConfig
from sterna.backends.simulated.shared.equal_share_baseline import LazyBaseline
from sterna.backends.simulated.shared.progress import SimulatedProgress
from sterna.backends.simulated.shared.workload import SharedWorkload
from sterna.engine.cpu_sharing.forecast import max_min
from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.errors import UserError
from sterna.model.cluster import ANYWHERE, MILLI, NOWHERE, Assignment, Bools, Ints, Nodes, ResourceKind, Shape, Shapes
from sterna.model.plan import Action, ActionKind, Decision, Mark, Outcome
from sterna.model.snapshot import NEVER, JobKey, Jobs, Snapshot
from sterna.model.speedup import Curves, Floats

COUNTED_CPUS = 100
"""Milli-CPUs that kube-scheduler assumes for a container without requests when it spreads pods."""

_SOON = 1e-6
_NO_WORK = 1e-9
"""Fraction of its work below which a job has ended."""
_LEAST_LEFT = 0.01
"""Fraction of the estimate that a job which outlives it is assumed to have left."""


@dataclass
class SharedCounters:
    """Totals of a run, and its timeline."""

    migrations: int = 0
    shares: int = 0
    preemptions: int = 0
    lost_core_seconds: float = 0.0
    times: list[float] = field(default_factory=list)
    cores_used: list[float] = field(default_factory=list)
    moves: list[tuple[float, int, int, int]] = field(default_factory=list)
    """Time, job, node it left, node it moved to."""


def shared_nodes(count: int, cores: float) -> Nodes:
    """Make `count` equal nodes without devices."""
    total = np.zeros((len(ResourceKind), count), dtype=np.int64)
    total[ResourceKind.CPUS] = round(cores * MILLI)
    names = tuple(f"node{number:0{len(str(count - 1))}d}" for number in range(count))
    return Nodes(names, total, total.copy(), np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.int64))


class SharedBackend:
    """Backend that runs a workload on simulated CPU-shared nodes."""

    def __init__(self, workload: SharedWorkload, nodes: Nodes, config: SharedConfig | None = None) -> None:
        config = config or SharedConfig()
        self.jobs, self.costs, self.counters = workload, config.costs, SharedCounters()
        count = len(workload)
        self._cores: list[float] = (nodes.capacity[ResourceKind.CPUS] / MILLI).tolist()
        self._shape = Shape(devices=0, cpus=COUNTED_CPUS)
        self._shapes = Shapes((self._shape,))
        self._room = FreeCapacity(nodes)
        columns = {name: getattr(nodes, name).view() for name in ("capacity", "is_open", "rack")}
        columns["free"] = self._room.free.view()
        for column in columns.values():
            column.flags.writeable = False
        self._nodes = replace(nodes, **columns)
        self._units = int(nodes.capacity[ResourceKind.CPUS].sum())
        self._assignments: dict[JobKey, Assignment] = {}
        self._on: list[set[int]] = [set() for _ in range(len(nodes))]
        self._make_columns(count)
        self._stored, self._computed = self._stored_columns(), self._computed_columns()
        core_limits: list[float] = (workload.cores * workload.workers).tolist()
        self._baseline = LazyBaseline(self._cores, core_limits, workload.known, config.first_nodes)
        self._progress = SimulatedProgress(workload, config.growth, config.report_seconds)
        self._last_action = self._last_event = -NEVER
        self._arrived = 0
        self.now = float(workload.submit[0]) if count else 0.0
        self._active = np.zeros(0, dtype=np.int64)
        self._admit_arrivals()

    def _make_columns(self, count: int) -> None:
        self.done, self.rate = np.zeros(count), np.zeros(count)
        self._saved, self._saved_at = np.zeros(count), np.zeros(count)
        """Work at the last checkpoint, and its time."""
        self._ready = np.zeros(count)
        """Time at which the current restart is over."""
        self._share = np.ones(count)
        self._workers = np.zeros(count, dtype=np.int64)
        self._moves, self._promotions = np.zeros((2, count), dtype=np.int64)
        self._moved_from, self._evictor = np.full((2, count), -1, dtype=np.int64)
        self._moved_at = np.full(count, -NEVER)
        self._waiting_since = self.jobs.submit.copy()
        self._executed, self._attained = np.zeros(count), np.zeros(count)
        self.first_start, self.finish = np.full((2, count), NEVER)

    # Backend protocol.

    def observe(self) -> Snapshot:
        held = COUNTED_CPUS * int(self._workers.sum())
        return Snapshot(
            self.now,
            Jobs(_ActiveSharedJobs(self, self._active)),
            self._nodes,
            self._shapes,
            Curves(),
            MappingProxyType(self._assignments),
            self._units - held,
            held,
            COUNTED_CPUS * int(self.jobs.workers[self._active].sum()),
            int(self.jobs.workers.max(initial=0)),
            True,
            self._last_action,
            restart_seconds=self.costs.restart_seconds,
            last_event=self._last_event,
            has_cpu_shares=bool((self._share[self._active] != 1.0).any()),
        )

    def column(self, name: str, keys: Ints) -> npt.NDArray[Any]:
        """Return a column for some jobs; `KeyError` if this backend does not have it."""
        stored = self._stored.get(name)
        values = self._computed[name]() if stored is None else stored
        taken: npt.NDArray[Any] = values[keys]
        taken.flags.writeable = False
        return taken

    def _stored_columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns that are state of this backend."""
        jobs = self.jobs
        return {
            "submit": jobs.submit,
            "minimum": jobs.workers,
            "maximum": jobs.workers,
            "request": jobs.workers,
            "workers": self._workers,
            "first_start": self.first_start,
            "waiting_since": self._waiting_since,
            "attained": self._attained,
            "executed": self._executed,
            "promotions": self._promotions,
            "most_cores": jobs.cores,
            "cpu_share": self._share,
            "moves": self._moves,
            "moved_at": self._moved_at,
            "moved_from": self._moved_from,
            "evictor": self._evictor,
        }

    def _computed_columns(self) -> dict[str, Callable[[], npt.NDArray[Any]]]:
        """Return functions for the columns that are computed when a rule reads them."""
        count = len(self.jobs)
        return {
            "key": lambda: np.arange(count),
            "priority": lambda: np.zeros(count, dtype=np.int64),
            "shape": lambda: np.zeros(count, dtype=np.int64),
            "curve": lambda: np.zeros(count, dtype=np.int64),
            "remaining": self._remaining,
            "unsaved": lambda: np.where(self.rate > 0, self.now - self._saved_at, 0.0),
            "default_finish": lambda: self._baseline.completions(self.now),
            "growth": lambda: self._progress.growth(),
            "growth_rate": lambda: self._progress.rate(self.now),
            "growth_since": lambda: self._progress.since(),
        }

    def _remaining(self) -> Floats:
        """Return the estimated remaining work, in seconds of one worker that has all the cores it can use."""
        known = self.jobs.known
        return np.maximum(known - self.done, _LEAST_LEFT * known) / self.jobs.cores

    # Actions.

    def apply(self, decision: Decision) -> Sequence[Outcome]:
        outcomes, dirty = [], set[int]()
        for action in decision.plan.actions:
            assignment = self._assignments.get(action.key, NOWHERE)
            if assignment != action.before or self.finish[action.key] < NEVER:
                outcomes.append(Outcome.STALE)
                continue
            dirty.update(node for node, _ in (*action.before.workers, *action.after.workers))
            self._execute(action)
            outcomes.append(Outcome.APPLIED)
        if outcomes:
            self._divide(dirty)
        return outcomes

    def _execute(self, action: Action) -> None:
        key = action.key
        if action.cpu_share is not None:
            self.counters.shares += 1
            self._share[key] = action.cpu_share
        if action.kind is ActionKind.SET_CPU_SHARE:
            return
        if action.kind is not ActionKind.MIGRATE:
            self._last_action = self.now
        if action.before.workers:
            self._lose_unsaved(key)
            self._unassign(key)
        if not action.after.workers:
            self.counters.preemptions += 1
            self._waiting_since[key] = self.now
            return
        if action.kind is ActionKind.MIGRATE:
            self._record_move(action)
        elif action.mark is Mark.PROMOTED:
            self._promotions[key] += 1
            self._attained[key] = self._executed[key] = 0.0
        self._assign(key, action.after)

    def _record_move(self, action: Action) -> None:
        key = action.key
        old = {node for node, _ in action.before.workers}
        left = old - {node for node, _ in action.after.workers} or old
        source, target = min(left), action.after.workers[0][0]
        self._moves[key] += 1
        self._moved_at[key], self._moved_from[key], self._evictor[key] = self.now, source, action.evictor
        self.counters.migrations += 1
        self.counters.moves.append((self.now, key, source, target))
        self._progress.restart(key)

    def _lose_unsaved(self, key: int) -> None:
        lost = float(self.done[key] - self._saved[key])
        self.counters.lost_core_seconds += lost
        self.done[key] = self._saved[key]

    def _unassign(self, key: JobKey) -> None:
        assignment = self._assignments.pop(key)
        self._room.release(self._shape, assignment)
        for node, _ in assignment.workers:
            self._on[node].discard(key)
        self._workers[key] = 0
        self.rate[key] = 0.0

    def _assign(self, key: JobKey, assignment: Assignment) -> None:
        if assignment.workers[0][0] == ANYWHERE:
            raise UserError("Jobs that share nodes must sit on one: choose another placement than 'none'.")
        self._assignments[key] = assignment
        self._room.occupy(self._shape, assignment)
        for node, _ in assignment.workers:
            self._on[node].add(key)
        self._workers[key] = assignment.size
        is_first = self.first_start[key] == NEVER
        self._ready[key] = self.now if is_first else self.now + self.costs.restart_seconds
        self._saved_at[key] = self._ready[key]
        self.first_start[key] = min(self.first_start[key], self.now)

    def _divide(self, dirty: set[int]) -> None:
        """Divide the cores of these nodes among their jobs. A job is as fast as its slowest worker."""
        wide: dict[int, list[float]] = {}
        for node in dirty:
            keys = sorted(key for key in self._on[node] if self._ready[key] <= self.now)
            if not keys:
                continue
            counts = [self._count(key, node) for key in keys]
            weights = [self._share.item(key) * count for key, count in zip(keys, counts, strict=True)]
            most = [self.jobs.cores.item(key) * count for key, count in zip(keys, counts, strict=True)]
            for key, count, cores in zip(keys, counts, max_min(self._cores[node], weights, most), strict=True):
                if count == self._workers.item(key):
                    self.rate[key] = cores
                else:
                    wide.setdefault(key, []).append(cores / count)
        for key, speeds in wide.items():
            self.rate[key] = self._workers[key] * min(speeds)

    def _count(self, key: int, node: int) -> int:
        return sum(count for each, count in self._assignments[JobKey(key)].workers if each == node)

    # Events.

    def wait(self, until: float) -> bool:
        then = max(until, self.now + _SOON)
        if self._arrived < len(self.jobs):
            then = min(then, float(self.jobs.submit[self._arrived]))
        runs = self.rate > 0
        ends = np.full(len(self.jobs), NEVER)
        np.divide(self.jobs.work - self.done, self.rate, out=ends, where=runs)
        then = min(then, self.now + float(ends.min(initial=NEVER)))
        restarting = (self._workers > 0) & (self._ready > self.now)
        if restarting.any():
            then = min(then, float(self._ready[restarting].min()))
        if then == NEVER:
            return False
        self._advance(max(then, self.now), runs)
        self._process_events()
        return True

    def _advance(self, then: float, runs: Bools) -> None:
        span = then - self.now
        self._progress.advance(self.now, then, self.done, self.rate, runs)
        self.counters.times.append(self.now)
        self.counters.cores_used.append(float(self.rate.sum()))
        self.done += self.rate * span
        running = self._workers > 0
        self._executed[running] += span
        self._attained[running] += span * self._workers[running] * (COUNTED_CPUS / MILLI)
        every = self.costs.checkpoint_seconds
        if every:
            due = runs & (then - self._saved_at >= every)
            behind = (then - self._saved_at[due]) % every
            self._saved[due] = self.done[due] - self.rate[due] * behind
            self._saved_at[due] = then - behind
        else:
            self._saved[runs], self._saved_at[runs] = self.done[runs], then
        self.now = then

    def _process_events(self) -> None:
        dirty: set[int] = set()
        ended = (self._workers > 0) & (self.jobs.work - self.done <= _NO_WORK * self.jobs.work)
        for key in np.flatnonzero(ended).tolist():
            dirty.update(node for node, _ in self._assignments[JobKey(key)].workers)
            self._end(key)
        for key in np.flatnonzero((self._workers > 0) & (self.rate == 0) & (self._ready <= self.now)).tolist():
            dirty.update(node for node, _ in self._assignments[JobKey(key)].workers)
        self._admit_arrivals()
        self._divide(dirty)

    def _end(self, key: int) -> None:
        self._unassign(JobKey(key))
        self.done[key], self.finish[key] = self.jobs.work[key], self.now
        self._baseline.add_completion(key, self.now, float(self.jobs.work[key]))
        self._active = self._active[self._active != key]
        self._last_event = self.now

    def _admit_arrivals(self) -> None:
        first = self._arrived
        while self._arrived < len(self.jobs) and self.jobs.submit[self._arrived] <= self.now:
            self._baseline.add_arrival(self._arrived, float(self.jobs.submit[self._arrived]))
            self._arrived += 1
        if self._arrived > first:
            self._active = np.append(self._active, np.arange(first, self._arrived))
            self._last_event = self.now

    # Results.

    @property
    def quality_at(self) -> Floats:
        """Time at which each job had permanently made 95 % of its improvement."""
        return self._progress.quality_at


class _ActiveSharedJobs:
    """Column source of the jobs that have arrived and not ended."""

    def __init__(self, backend: SharedBackend, keys: Ints) -> None:
        self._backend, self._keys = backend, keys

    def __len__(self) -> int:
        return len(self._keys)

    def column(self, name: str) -> npt.NDArray[Any]:
        return self._backend.column(name, self._keys)

    def name_of(self, row: int) -> str:
        return self._backend.jobs.name[int(self._keys[row])]
