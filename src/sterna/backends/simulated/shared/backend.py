"""A simulated world of shared nodes: containers without requests divide a node's cores, as in SpeCon.

Exact between events, like its neighbour: rates change only when a job comes, goes, restarts or gets another share, and
then a node's cores are divided by weighted max-min with a cap for each job. Work done drives what a job reports, and
with it its growth category; reports are made up only when somebody reads what follows from them. Nodes do not fail
here, and memory is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.backends.simulated.costs import Costs
from sterna.backends.simulated.shared.equal_share_baseline import Shadow
from sterna.backends.simulated.shared.progress import Progress
from sterna.backends.simulated.shared.workload import SharedWorkload
from sterna.engine.cpu_sharing.forecast import max_min
from sterna.engine.placement.free_capacity import Room
from sterna.errors import UserError
from sterna.model.cluster import ANYWHERE, MILLI, NOWHERE, Assignment, Bools, Ints, Nodes, ResourceKind, Shape, Shapes
from sterna.model.growth import GrowthRule
from sterna.model.plan import Action, ActionKind, Mark, Outcome
from sterna.model.snapshot import NEVER, JobKey, Jobs, Snapshot
from sterna.model.speedup import Curves, Floats

COUNTED_CPUS = 100
"""Thousandths of a CPU that Kubernetes counts for a container that asks for nothing, so that it can spread them."""

_SOON = 1e-6
_DUST = 1e-9
"""Part of its work below which nothing is left of a job."""
_LEAST_LEFT = 0.01
"""A job that outlives what was believed of it is taken to have so much of that left."""


@dataclass
class SharedCounters:
    """What happened, in numbers."""

    migrations: int = 0
    shares: int = 0
    preemptions: int = 0
    lost_core_seconds: float = 0.0
    times: list[float] = field(default_factory=list)
    cores_used: list[float] = field(default_factory=list)
    moves: list[tuple[float, int, int, int]] = field(default_factory=list)
    """When, which job, from which node, to which."""


def shared_nodes(count: int, cores: float) -> Nodes:
    """Equal nodes without devices."""
    total = np.zeros((len(ResourceKind), count), dtype=np.int64)
    total[ResourceKind.CPUS] = round(cores * MILLI)
    names = tuple(f"node{number:0{len(str(count - 1))}d}" for number in range(count))
    return Nodes(names, total, total.copy(), np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.int64))


class SharedBackend:
    """Shared nodes and their jobs, ahead of time. `Costs.lost_work_seconds` is the time between checkpoints."""

    def __init__(
        self,
        workload: SharedWorkload,
        nodes: Nodes,
        costs: Costs | None = None,
        *,
        growth: GrowthRule | None = None,
        report_seconds: float = 5.0,
        start: Sequence[int] = (),
    ) -> None:
        """`start` is where the default scheduler would put each job, if not where fewest are."""
        self.jobs, self.costs, self.counters = workload, costs or Costs(), SharedCounters()
        count = len(workload)
        self._cores: list[float] = (nodes.capacity[ResourceKind.CPUS] / MILLI).tolist()
        self._caps: list[float] = (workload.cores * workload.workers).tolist()
        self._shape = Shape(devices=0, cpus=COUNTED_CPUS)
        self._shapes = Shapes((self._shape,))
        self._room = Room(nodes)
        columns = {name: getattr(nodes, name).view() for name in ("capacity", "is_open", "rack")}
        columns["free"] = self._room.free.view()
        for column in columns.values():
            column.flags.writeable = False
        self._nodes = replace(nodes, **columns)
        self._units = int(nodes.capacity[ResourceKind.CPUS].sum())
        self._assignments: dict[JobKey, Assignment] = {}
        self._on: list[set[int]] = [set() for _ in range(len(nodes))]
        self._keep_books(count)
        self._books, self._made = self._kept_columns(), self._made_columns()
        self._shadow = Shadow(self._cores, self._caps, workload.known, start)
        self._progress = Progress(workload, growth, report_seconds)
        self._last_action = self._last_event = -NEVER
        self._arrived = 0
        self.now = float(workload.submit[0]) if count else 0.0
        self._active = np.zeros(0, dtype=np.int64)
        self._arrive()

    def _keep_books(self, count: int) -> None:
        self.done, self.rate = np.zeros(count), np.zeros(count)
        self._saved, self._saved_at = np.zeros(count), np.zeros(count)
        """Work at the last checkpoint, and when that was."""
        self._ready = np.zeros(count)
        """Until when it restarts."""
        self._share = np.ones(count)
        self._workers = np.zeros(count, dtype=np.int64)
        self._moves, self._promotions = np.zeros((2, count), dtype=np.int64)
        self._moved_from, self._evictor = np.full((2, count), -1, dtype=np.int64)
        self._moved_at = np.full(count, -NEVER)
        self._waiting_since = self.jobs.submit.copy()
        self._executed, self._attained = np.zeros(count), np.zeros(count)
        self.first_start, self.finish = np.full((2, count), NEVER)

    # What the controller sees.

    def observe(self) -> Snapshot:
        held = COUNTED_CPUS * int(self._workers.sum())
        return Snapshot(
            self.now,
            Jobs(_Active(self, self._active)),
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
        """A column for some jobs; `KeyError` if this world does not know it."""
        book = self._books.get(name)
        values = self._made[name]() if book is None else book
        taken: npt.NDArray[Any] = values[keys]
        taken.flags.writeable = False
        return taken

    def _kept_columns(self) -> dict[str, npt.NDArray[Any]]:
        """Columns that are the books themselves."""
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

    def _made_columns(self) -> dict[str, Callable[[], npt.NDArray[Any]]]:
        """Columns that are worked out when somebody reads them."""
        count = len(self.jobs)
        return {
            "key": lambda: np.arange(count),
            "priority": lambda: np.zeros(count, dtype=np.int64),
            "shape": lambda: np.zeros(count, dtype=np.int64),
            "curve": lambda: np.zeros(count, dtype=np.int64),
            "remaining": self._remaining,
            "unsaved": lambda: np.where(self.rate > 0, self.now - self._saved_at, 0.0),
            "default_finish": lambda: self._shadow.ends_by(self.now),
            "growth": lambda: self._progress.growth(),
            "growth_rate": lambda: self._progress.rate(self.now),
            "growth_since": lambda: self._progress.since(),
        }

    def _remaining(self) -> Floats:
        """By what is believed, in seconds of one worker that has all the cores it can use."""
        known = self.jobs.known
        return np.maximum(known - self.done, _LEAST_LEFT * known) / self.jobs.cores

    # What is done to jobs.

    def apply(self, actions: Sequence[Action]) -> Sequence[Outcome]:
        outcomes, dirty = [], set[int]()
        for action in actions:
            assignment = self._assignments.get(action.key, NOWHERE)
            if assignment != action.before or self.finish[action.key] < NEVER:
                outcomes.append(Outcome.STALE)
                continue
            dirty.update(node for node, _ in (*action.before.workers, *action.after.workers))
            self._carry_out(action)
            outcomes.append(Outcome.APPLIED)
        self._divide(dirty)
        return outcomes

    def _carry_out(self, action: Action) -> None:
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
            self._leave(key)
        if not action.after.workers:
            self.counters.preemptions += 1
            self._waiting_since[key] = self.now
            return
        if action.kind is ActionKind.MIGRATE:
            self._mark_move(action)
        elif action.mark is Mark.PROMOTED:
            self._promotions[key] += 1
            self._attained[key] = self._executed[key] = 0.0
        self._sit(key, action.after)

    def _mark_move(self, action: Action) -> None:
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

    def _leave(self, key: JobKey) -> None:
        assignment = self._assignments.pop(key)
        self._room.give(self._shape, assignment)
        for node, _ in assignment.workers:
            self._on[node].discard(key)
        self._workers[key] = 0
        self.rate[key] = 0.0

    def _sit(self, key: JobKey, assignment: Assignment) -> None:
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
        """Cores anew for whoever is on these nodes. A job goes as fast as its slowest worker lets it."""
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
        for key, paces in wide.items():
            self.rate[key] = self._workers[key] * min(paces)

    def _count(self, key: int, node: int) -> int:
        return sum(count for seat, count in self._assignments[JobKey(key)].workers if seat == node)

    # What happens by itself.

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
        self._happen()
        return True

    def _advance(self, then: float, runs: Bools) -> None:
        span = then - self.now
        self._progress.note(self.now, then, self.done, self.rate, runs)
        self.counters.times.append(self.now)
        self.counters.cores_used.append(float(self.rate.sum()))
        self.done += self.rate * span
        sits = self._workers > 0
        self._executed[sits] += span
        self._attained[sits] += span * self._workers[sits] * (COUNTED_CPUS / MILLI)
        every = self.costs.lost_work_seconds
        if every:
            due = runs & (then - self._saved_at >= every)
            behind = (then - self._saved_at[due]) % every
            self._saved[due] = self.done[due] - self.rate[due] * behind
            self._saved_at[due] = then - behind
        else:
            self._saved[runs], self._saved_at[runs] = self.done[runs], then
        self.now = then

    def _happen(self) -> None:
        dirty: set[int] = set()
        ended = (self._workers > 0) & (self.jobs.work - self.done <= _DUST * self.jobs.work)
        for key in np.flatnonzero(ended).tolist():
            dirty.update(node for node, _ in self._assignments[JobKey(key)].workers)
            self._end(key)
        for key in np.flatnonzero((self._workers > 0) & (self.rate == 0) & (self._ready <= self.now)).tolist():
            dirty.update(node for node, _ in self._assignments[JobKey(key)].workers)
        self._arrive()
        self._divide(dirty)

    def _end(self, key: int) -> None:
        self._leave(JobKey(key))
        self.done[key], self.finish[key] = self.jobs.work[key], self.now
        self._shadow.end(key, self.now, float(self.jobs.work[key]))
        self._active = self._active[self._active != key]
        self._last_event = self.now

    def _arrive(self) -> None:
        first = self._arrived
        while self._arrived < len(self.jobs) and self.jobs.submit[self._arrived] <= self.now:
            self._shadow.arrive(self._arrived, float(self.jobs.submit[self._arrived]))
            self._arrived += 1
        if self._arrived > first:
            self._active = np.append(self._active, np.arange(first, self._arrived))
            self._last_event = self.now

    # What is told afterwards.

    @property
    def quality_at(self) -> Floats:
        """When each job had made 95 % of its improvement, for good."""
        return self._progress.quality_at


class _Active:
    """The jobs that want to run, as a source of columns."""

    def __init__(self, world: SharedBackend, keys: Ints) -> None:
        self._world, self._keys = world, keys

    def __len__(self) -> int:
        return len(self._keys)

    def column(self, name: str) -> npt.NDArray[Any]:
        return self._world.column(name, self._keys)

    def name_of(self, row: int) -> str:
        return self._world.jobs.name[int(self._keys[row])]

    def is_zero(self, name: str) -> bool:
        return name == "priority"
