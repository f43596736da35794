"""Simulated cluster: discrete events on a virtual clock, without a time step.

`job_table.py` keeps the state of every job and dense columns of the active ones, which rules read. An event updates
only the entries of the jobs it concerns. Completions wait in one heap; an entry whose version is not the job's is
stale.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.backends.simulated.change_log import KIND_OF_ACTION, ChangeKind, ChangeLog
from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.costs import Fault, draw_saving_jobs
from sterna.backends.simulated.job_table import ComputedColumn, JobStates, Saving
from sterna.backends.simulated.workload import Workload
from sterna.engine.placement.free_capacity import FreeCapacity
from sterna.model.cluster import ANYWHERE, MILLI, NOWHERE, Assignment, Nodes, ResourceKind, Shape
from sterna.model.plan import Action, ActionKind, Decision, Mark, Outcome
from sterna.model.snapshot import NEVER, JobKey, Jobs, Snapshot
from sterna.model.speedup import Floats

_STOP, _START, _PROMOTED = ActionKind.STOP, ActionKind.START, Mark.PROMOTED
"""Module-level aliases: access to an enum attribute is slow in the hot loop."""

_SOON = 1e-6
"""Shortest step of the clock, for a decision whose `until` is now."""


@dataclass
class SimulationCounters:
    """Totals of a run, and its timeline."""

    preemptions: int = 0
    migrations: int = 0
    resizes: int = 0
    failures: int = 0
    lost_seconds: float = 0.0
    """Work thrown away, in seconds at one worker."""
    device_seconds: float = 0.0
    times: list[float] = field(default_factory=list)
    """Time of each event; devices in use and jobs waiting after it are in the two lists below."""
    devices_used: list[float] = field(default_factory=list)
    jobs_waiting: list[int] = field(default_factory=list)


class SimulatedBackend:
    """Backend that runs a workload on simulated nodes."""

    def __init__(self, workload: Workload, nodes: Nodes, config: SimulationConfig | None = None) -> None:
        config = config or SimulationConfig()
        self.jobs = workload
        self.costs = config.costs
        self.counters = SimulationCounters()
        self._has_timeline, self._seed = config.has_timeline, config.seed
        self.changes = ChangeLog(any(shape.devices > MILLI for shape in workload.shapes.rows))
        self._room = FreeCapacity(nodes)
        self._open = nodes.is_open.copy()
        self._nodes = self._with_room(nodes)
        self._rack = nodes.rack.tolist()
        self._faults = _fault_events(config.faults)
        self._faults_of = [0] * len(nodes)
        self._arrivals: list[float] = [*workload.submit.tolist(), NEVER]
        """Submission time of each job, and `NEVER` as a sentinel."""
        self._last_start = [-NEVER] * len(workload)
        self._create_states(workload)
        self._curve: list[int] = workload.curve.tolist()
        self._shape = [workload.shapes[code] for code in workload.shape.tolist()]
        self._arrived = 0
        self._ends: list[tuple[float, int, int]] = []
        self._assignments: dict[JobKey, Assignment] = {}
        self._seen_assignments = MappingProxyType(self._assignments)
        self._free = int(nodes.free[nodes.unit][nodes.is_open].sum())
        self._max_workers = int(workload.maximum.max(initial=0))
        self._is_rigid = bool((workload.minimum == workload.maximum).all())
        costs_by_shape = workload.shapes.cost_table(nodes.unit)
        self._cost: list[int] = (workload.minimum * costs_by_shape.worker[workload.shape]).tolist()
        """Units of each job at its minimum."""
        self._least = 0
        self._has_one_priority = not workload.priority.any()
        """All jobs have the default priority."""
        self._last_action = -NEVER
        self._finished: list[float] = []
        self._history = np.zeros(0)
        self._used = 0
        self._constants = self._constant_fields()
        self.now = self._arrivals[0] if len(workload) else 0.0
        self._admit_arrivals()

    def _create_states(self, jobs: Workload) -> None:
        has_pauses = self.costs.restart_seconds > 0 or self.costs.resize_seconds > 0
        can_save = None if self.costs.can_save >= 1 else draw_saving_jobs(len(jobs), self.costs.can_save, self._seed)
        saving = Saving(
            self.costs.checkpoint_seconds,
            None if can_save is None else can_save.tolist(),
            not self.costs.resize_loses_work,
        )
        made = JobStates(jobs.work.tolist(), jobs.submit.tolist(), has_pauses, saving)
        self.states, self.table = made, made.table
        self.table.sources.update(
            {
                "submit": jobs.submit,
                "priority": jobs.priority,
                "minimum": jobs.minimum,
                "maximum": jobs.maximum,
                "request": jobs.request,
                "shape": jobs.shape,
                "curve": jobs.curve,
                "last_start": self._last_start,
            }
        )
        if jobs.requested_seconds is not None:
            self.table.sources["requested_seconds"] = jobs.requested_seconds
        self.lines: dict[str, ComputedColumn] = {
            "remaining": made.remaining_line,
            "attained": made.attained_line,
            "executed": made.executed_line,
        }
        if saving.loses_work:
            self.lines["unsaved"] = _UnsavedSeconds(self)
        if can_save is not None:
            self.table.sources["can_save"] = can_save
        if self.costs.rescale_seconds is not None:
            self.table.sources["resize_seconds"] = np.full(len(jobs), self.costs.rescale_seconds)
        if jobs.unplanned_work is not None:
            self.table.sources["unplanned_work"] = jobs.unplanned_work
            self.lines["remaining"] = _PlannedWork(self)
        self._read: list[tuple[str, ComputedColumn]] = []
        """Time-dependent columns that a rule has read; `observe` computes them eagerly from then on."""
        self.first_start, self.waited, self.finish = made.first_start, made.waited, made.finish

    def _with_room(self, nodes: Nodes) -> Nodes:
        capacity, free, is_open, rack = (
            nodes.capacity.view(),
            self._room.free.view(),
            self._open.copy(),
            nodes.rack.view(),
        )
        for column in (capacity, free, is_open, rack):
            column.flags.writeable = False
        return replace(
            nodes,
            capacity=capacity,
            free=free,
            is_open=is_open,
            rack=rack,
            shared=MappingProxyType(self._room.shared),
        )

    @property
    def reach(self) -> int:
        """One more worker than any job can have: the length of curves that rules read."""
        return min(self._max_workers, max(self._nodes.most_workers(self.jobs.shapes), default=0)) + 1

    # Backend protocol.

    def observe(self) -> Snapshot:
        known = self.table.snapshot_columns()
        for name, line in self._read:
            known[name] = line.at(self.now)
        if self._has_one_priority:
            known["has_priorities"] = False
        fields = self._constants.copy()
        fields["now"] = self.now
        fields["jobs"] = Jobs(_ActiveJobs(self), None, known)
        fields["free_units"], fields["held_units"], fields["least_units"] = self._free, self._used, self._least
        fields["last_action"] = self._last_action
        return Snapshot.from_fields(fields)

    def _constant_fields(self) -> dict[str, Any]:
        """Snapshot fields, cached attributes included, that stay the same until a node fails or recovers."""
        constants = {
            "nodes": self._nodes,
            "shapes": self.jobs.shapes,
            "curves": self.jobs.curves,
            "assignments": self._seen_assignments,
            "max_workers": self._max_workers,
            "is_rigid": self._is_rigid,
            "history": self._sorted_history,
            "restart_seconds": self.costs.restart_seconds,
            "changes_are_free": self.costs.are_free,
        }
        example = Snapshot.from_fields(dict(constants))
        return constants | {
            "cost_table": example.cost_table,
            "devices_only": example.devices_only,
            "fits_max_size": example.fits_max_size,
        }

    def read(self, name: str) -> npt.NDArray[Any]:
        """Return a column on its first read; later snapshots carry it from the start."""
        line = self.lines.get(name)
        if line is None:
            return self.table.read(name)
        self._read.append((name, line))
        return line.at(self.now)

    def apply(self, decision: Decision) -> Sequence[Outcome]:
        actions = decision.plan.actions
        if not actions:
            return ()
        outcomes = []
        for action in actions:
            if self._is_stale(action):
                outcomes.append(Outcome.STALE)
                continue
            self._execute(action)
            self._log_change(action.key, KIND_OF_ACTION[action.kind], action.after)
            outcomes.append(Outcome.APPLIED)
            self._last_action = self.now
        if self._has_timeline:
            self._record_timeline()
        return outcomes

    def _is_stale(self, action: Action) -> bool:
        """Return True if the job's assignment or its target nodes changed after the decision."""
        assignment = self._assignments.get(action.key, NOWHERE)
        if (assignment is not action.before and assignment != action.before) or self.finish[action.key] < NEVER:
            return True
        if self._nodes.is_open_to_all:
            return False
        new = {node for node, _ in action.after.workers} - {node for node, _ in action.before.workers} - {ANYWHERE}
        return not all(self._open[node] for node in new)

    def wait(self, until: float) -> bool:
        """Advance the clock to the next event, at most to `until`; return False if there will be none."""
        ends = self._ends
        while ends and self.states.version[ends[0][2]] != ends[0][1]:
            heapq.heappop(ends)
        then = max(until, self.now + _SOON)
        if ends and ends[0][0] < then:
            then = ends[0][0]
        arrival = self._arrivals[self._arrived]
        if arrival < then:
            then = arrival
        if self._faults and self._faults[-1][0] < then and (self.table.count or arrival < NEVER):
            then = self._faults[-1][0]
        if then == NEVER:
            return False
        then = max(then, self.now)
        self.counters.device_seconds += self._used / MILLI * (then - self.now)
        self.now = then
        self._process_events()
        return True

    def occupy_external(self, shape: Shape, node: int, count: int) -> None:
        """Take capacity for `count` pods of other owners on a node; a negative `count` returns it."""
        self._room.take_whole_devices(shape, node, count)
        self._free -= count * (shape.devices if self._nodes.unit is ResourceKind.DEVICES else shape.cpus)

    # Events.

    def _process_events(self) -> None:
        now, ends, version = self.now, self._ends, self.states.version
        while ends and ends[0][0] <= now:
            _, stamp, row = heapq.heappop(ends)
            if version[row] == stamp:
                self._end(row)
        if self._arrivals[self._arrived] <= now:
            self._admit_arrivals()
        while self._faults and self._faults[-1][0] <= now:
            _, node, is_up = self._faults.pop()
            self._set_node_up(node, is_up)
        if self._has_timeline:
            self._record_timeline()

    def _admit_arrivals(self) -> None:
        first = last = self._arrived
        while self._arrivals[last] <= self.now:
            last += 1
        self._least += sum(self._cost[first:last])
        self.table.append(first, last)
        self._arrived = last

    def _end(self, row: int) -> None:
        self._account(row)
        self._release(row)
        self.states.mark_finished(row, self.now)
        self._log_change(row, ChangeKind.END, NOWHERE)
        self._finished.append(self.states.service[row])
        self._least -= self._cost[row]

    def _set_node_up(self, node: int, is_up: bool) -> None:
        """Fail a node and stop every job with a replica on it, or end one of its faults."""
        self._faults_of[node] += -1 if is_up else 1
        if is_up == bool(self._open[node]) or (is_up and self._faults_of[node]):
            return
        for key in [
            key
            for key, assignment in self._assignments.items()
            if any(n == node for n, _ in (*assignment.workers, *assignment.ps))
        ]:
            self.counters.failures += 1
            self._stop(key, self.table.place_of(key))
            self._log_change(key, ChangeKind.FAILURE, NOWHERE)
        room = int(self._room.free[self._nodes.unit, node])
        self._free += room if is_up else -room
        self._open[node] = is_up
        self._nodes = self._with_room(self._nodes)
        self._constants = self._constant_fields()

    # Actions.

    def _execute(self, action: Action) -> None:
        kind, key, place, before, after, mark, _, _, price = action
        if not self.table.holds(place, key):  # jobs arrived or ended after the decision
            place = self.table.place_of(key)
        if price:
            self.states.charge(key, place, price)
        if kind is _STOP:
            self.counters.preemptions += 1
            self._stop(key, place)
        elif kind is _START:
            if mark is _PROMOTED:
                self.states.promote(key, place)
            self.states.begin(key, place, self.now)
            self._last_start[key] = self.now
            self.table.write("last_start", place, self.now)
            self._assign(key, place, before, after, self.costs.restart_seconds)
        elif kind is ActionKind.MIGRATE:
            self.counters.migrations += 1
            self._account(key, loses=True)
            self._assign(key, place, before, after, self.costs.restart_seconds)
        else:
            self.counters.resizes += 1
            self._account(key, loses=self.costs.resize_loses_work)
            self._assign(key, place, before, after, self.costs.resize_seconds)

    def _stop(self, row: int, place: int) -> None:
        self._account(row, loses=True)
        self._release(row)
        self.states.mark_waiting(row, place, self.now)

    def _account(self, row: int, loses: bool = False) -> None:
        """Account for the work of a job since its last event, less what a change that `loses` work throws away."""
        lost_seconds = self.states.unsaved_seconds(row, self.now) if loses else 0.0
        self.counters.lost_seconds += self.states.account(row, self.now, lost_seconds)

    def _release(self, row: int) -> None:
        assignment, shape = self._assignments.pop(JobKey(row)), self._shape[row]
        units = assignment.size * shape.devices
        self._used -= units
        self._free += units
        if assignment.workers[0][0] != ANYWHERE:
            self._room.release(shape, assignment)
        self.states.release(row)

    def _assign(self, key: JobKey, place: int, before: Assignment, after: Assignment, pause_seconds: float) -> None:
        """Give a job its new assignment and schedule its completion."""
        shape, size = self._shape[key], after.size
        units = (size - before.size if before.workers else size) * shape.devices
        self._used += units
        self._free -= units
        if after.workers[0][0] != ANYWHERE:
            if before.workers:
                self._room.release(shape, before)
            self._room.occupy(shape, after)
        self._assignments[key] = after
        rate = self.jobs.curves.speed_of(self._curve[key], size)
        if self.costs.cross_node_penalty:
            rate *= self.costs.slowdown(after, self._rack)
        end = self.states.assign(key, place, size, size * shape.devices / MILLI, rate, self.now, pause_seconds)
        heapq.heappush(self._ends, (end, self.states.version[key], key))

    # Records.

    def _log_change(self, row: int, kind: ChangeKind, after: Assignment) -> None:
        self.changes.append(self.now, row, kind, after, self.states.rate[row], self.counters.lost_seconds)

    def _record_timeline(self) -> None:
        self.counters.times.append(self.now)
        self.counters.devices_used.append(self._used / MILLI)
        self.counters.jobs_waiting.append(self.table.count - len(self._assignments))

    def _sorted_history(self) -> Floats:
        if len(self._finished) > len(self._history):
            new = np.sort(np.array(self._finished[len(self._history) :]))
            self._history = np.insert(self._history, self._history.searchsorted(new), new)
        return self._history


class _ActiveJobs:
    """Column source of the active jobs at one instant."""

    __slots__ = ("_backend", "_end", "_first", "_seen")

    def __init__(self, backend: SimulatedBackend) -> None:
        table = backend.table
        self._backend, self._seen = backend, table.columns
        self._first, self._end = table.first, table.first + table.count

    def __len__(self) -> int:
        return self._end - self._first

    def column(self, name: str) -> npt.NDArray[Any]:
        seen = self._seen.get(name)
        if seen is not None:
            return seen[self._first : self._end]
        return self._backend.read(name)

    def name_of(self, row: int) -> str:
        return self._backend.jobs.name[int(self._seen["key"][self._first + row])]


class _UnsavedSeconds:
    """Run time of each active job that a stop would throw away."""

    def __init__(self, backend: SimulatedBackend) -> None:
        self._states, self._table = backend.states, backend.table

    def at(self, now: float) -> Floats:
        ran, saving = self._states.unsaved_line.at(now), self._states.saving
        unsaved: Floats = np.fmod(ran, saving.every_seconds) if saving.every_seconds else np.zeros(len(ran))
        if saving.can_save is not None:
            unsaved = np.where(self._table.read("can_save") > 0, unsaved, ran)
        unsaved.flags.writeable = False
        return unsaved


class _PlannedWork:
    """Remaining work of each active job as its user planned it."""

    def __init__(self, backend: SimulatedBackend) -> None:
        self._truth, self._table = backend.states.remaining_line, backend.table

    def at(self, now: float) -> Floats:
        left: Floats = self._truth.at(now) + self._table.read("unplanned_work")
        left.flags.writeable = False
        return left


def _fault_events(faults: Sequence[Fault]) -> list[tuple[float, int, bool]]:
    """Return (time, node, recovers) in descending order, so that the next event is at the end."""
    events = [(fault.at_seconds, fault.node, False) for fault in faults]
    events += [
        (fault.at_seconds + fault.for_seconds, fault.node, True) for fault in faults if fault.for_seconds != NEVER
    ]
    return sorted(events, reverse=True)
