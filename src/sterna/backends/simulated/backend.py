"""The simulated world: exact events on a virtual clock, no time step.

Job state is kept in `job_table.py`, dense columns of the active ones for rules to read among them; what
happens to a job changes its entries and nobody else's. Ends are in one heap whose stale entries are recognised by their
version.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.backends.simulated.costs import Costs, Fault
from sterna.backends.simulated.job_table import Books, Reading
from sterna.backends.simulated.workload import Workload
from sterna.engine.placement.free_capacity import Room
from sterna.model.cluster import ANYWHERE, MILLI, NOWHERE, Assignment, Nodes, ResourceKind, Shape
from sterna.model.plan import Action, ActionKind, Mark, Outcome
from sterna.model.snapshot import NEVER, JobKey, Jobs, Snapshot
from sterna.model.speedup import Floats

_STOP, _START, _PROMOTED = ActionKind.STOP, ActionKind.START, Mark.PROMOTED
"""By names of our own: to ask an enumeration takes longer."""

_SOON = 1e-6
"""A decision that wants to be looked at again at once is looked at so much later."""


@dataclass
class Tally:
    """What happened, in numbers."""

    preemptions: int = 0
    migrations: int = 0
    resizes: int = 0
    failures: int = 0
    lost_seconds: float = 0.0
    """Work thrown away, in seconds at one worker."""
    device_seconds: float = 0.0
    times: list[float] = field(default_factory=list)
    """When anything changed, and what was then: devices in use, jobs waiting."""
    devices_used: list[float] = field(default_factory=list)
    jobs_waiting: list[int] = field(default_factory=list)


class SimulatedBackend:
    """A cluster and its jobs, ahead of time."""

    def __init__(
        self,
        workload: Workload,
        nodes: Nodes,
        costs: Costs | None = None,
        faults: Sequence[Fault] = (),
        *,
        timeline: bool = False,
    ) -> None:
        self.jobs = workload
        self.costs = costs or Costs()
        self.tally = Tally()
        self._timeline = timeline
        self._room = Room(nodes)
        self._open = nodes.is_open.copy()
        self._nodes = self._with_room(nodes)
        self._rack = nodes.rack.tolist()
        self._faults = _fault_events(faults)
        self._faults_of = [0] * len(nodes)
        self._arrivals: list[float] = [*workload.submit.tolist(), NEVER]
        """When each job is submitted; after the last nobody ever is."""
        self._keep_books(workload)
        self._curve: list[int] = workload.curve.tolist()
        self._shape = [workload.shapes[code] for code in workload.shape.tolist()]
        self._arrived = 0
        self._ends: list[tuple[float, int, int]] = []
        self._assignments: dict[JobKey, Assignment] = {}
        self._seen_assignments = MappingProxyType(self._assignments)
        self._free = int(nodes.free[nodes.unit][nodes.is_open].sum())
        self._widest = int(workload.maximum.max(initial=0))
        self._is_rigid = bool((workload.minimum == workload.maximum).all())
        tally = workload.shapes.tally(nodes.unit)
        self._cost: list[int] = (workload.minimum * tally.worker[workload.shape]).tolist()
        """Units of each job at its minimum."""
        self._least = 0
        self._are_equals = not workload.priority.any()
        """Nobody ever goes before others."""
        self._last_action = -NEVER
        self._finished: list[float] = []
        self._history = np.zeros(0)
        self._used = 0
        self._steady = self._what_holds()
        self.now = self._arrivals[0] if len(workload) else 0.0
        self._arrive()

    def _keep_books(self, jobs: Workload) -> None:
        has_pauses = self.costs.restart_seconds > 0 or self.costs.resize_seconds > 0
        keeps_unsaved = self.costs.lost_work_seconds > 0 and not self.costs.resize_loses_work
        made = Books(jobs.work.tolist(), jobs.submit.tolist(), has_pauses, keeps_unsaved)
        self.books, self.table = made, made.table
        self.table.books.update(
            {
                "submit": jobs.submit,
                "priority": jobs.priority,
                "minimum": jobs.minimum,
                "maximum": jobs.maximum,
                "request": jobs.request,
                "shape": jobs.shape,
                "curve": jobs.curve,
            }
        )
        self.lines: dict[str, Reading] = {
            "remaining": made.remaining,
            "attained": made.used_up,
            "executed": made.ran,
        }
        self._read: list[tuple[str, Reading]] = []
        """The lines that somebody has read."""
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
        """One more worker than any job can have here: rules look that far ahead."""
        return min(self._widest, max(self._nodes.most_workers(self.jobs.shapes), default=0)) + 1

    # What the controller sees.

    def observe(self) -> Snapshot:
        known = self.table.at_hand()
        for name, line in self._read:
            known[name] = line.at(self.now)
        if self._are_equals:
            known["has_priorities"] = False
        fields = self._steady.copy()
        fields["now"] = self.now
        fields["jobs"] = Jobs(_Active(self), None, known)
        fields["free_units"], fields["held_units"], fields["least_units"] = self._free, self._used, self._least
        fields["last_action"] = self._last_action
        return Snapshot.quick(fields)

    def _what_holds(self) -> dict[str, Any]:
        """What is the same in every snapshot until a node is lost or comes back, and what follows from it."""
        holds = {
            "nodes": self._nodes,
            "shapes": self.jobs.shapes,
            "curves": self.jobs.curves,
            "assignments": self._seen_assignments,
            "widest": self._widest,
            "is_rigid": self._is_rigid,
            "history": self._sorted_history,
            "restart_seconds": self.costs.restart_seconds,
        }
        example = Snapshot.quick(dict(holds))
        return holds | {"tally": example.tally, "is_plain": example.is_plain, "is_roomy": example.is_roomy}

    def read(self, name: str) -> npt.NDArray[Any]:
        """A column that nobody has read yet; from now on every snapshot has it at hand."""
        line = self.lines.get(name)
        if line is None:
            return self.table.read(name)
        self._read.append((name, line))
        return line.at(self.now)

    def apply(self, actions: Sequence[Action]) -> Sequence[Outcome]:
        outcomes = []
        for action in actions:
            if self._is_stale(action):
                outcomes.append(Outcome.STALE)
                continue
            self._carry_out(action)
            outcomes.append(Outcome.APPLIED)
            self._last_action = self.now
        if self._timeline:
            self._note()
        return outcomes

    def _is_stale(self, action: Action) -> bool:
        """Whether the job or its nodes are no longer what the action assumes."""
        assignment = self._assignments.get(action.key, NOWHERE)
        if (assignment is not action.before and assignment != action.before) or self.finish[action.key] < NEVER:
            return True
        if self._nodes.is_open_to_all:
            return False
        new = {node for node, _ in action.after.workers} - {node for node, _ in action.before.workers} - {ANYWHERE}
        return not all(self._open[node] for node in new)

    def wait(self, until: float) -> bool:
        """Jump to the next event."""
        ends = self._ends
        while ends and self.books.version[ends[0][2]] != ends[0][1]:
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
        self.tally.device_seconds += self._used / MILLI * (then - self.now)
        self.now = then
        self._happen()
        return True

    def lend(self, shape: Shape, node: int, count: int) -> None:
        """Let somebody who is no job of ours use so much of a node, or, if below 0, have it back."""
        self._room.lend(shape, node, count)
        self._free -= count * (shape.devices if self._nodes.unit is ResourceKind.DEVICES else shape.cpus)

    # What happens by itself.

    def _happen(self) -> None:
        now, ends, version = self.now, self._ends, self.books.version
        while ends and ends[0][0] <= now:
            _, stamp, row = heapq.heappop(ends)
            if version[row] == stamp:
                self._end(row)
        if self._arrivals[self._arrived] <= now:
            self._arrive()
        while self._faults and self._faults[-1][0] <= now:
            _, node, is_up = self._faults.pop()
            self._turn(node, is_up)
        if self._timeline:
            self._note()

    def _arrive(self) -> None:
        first = last = self._arrived
        while self._arrivals[last] <= self.now:
            last += 1
        self._least += sum(self._cost[first:last])
        self.table.append(first, last)
        self._arrived = last

    def _end(self, row: int) -> None:
        self._settle(row)
        self._release(row)
        self.books.close(row, self.now)
        self._finished.append(self.books.service[row])
        self._least -= self._cost[row]

    def _turn(self, node: int, is_up: bool) -> None:
        """A node is lost, with all jobs that have a part on it, or one of its faults ends."""
        self._faults_of[node] += -1 if is_up else 1
        if is_up == bool(self._open[node]) or (is_up and self._faults_of[node]):
            return
        for key in [
            key
            for key, assignment in self._assignments.items()
            if any(n == node for n, _ in (*assignment.workers, *assignment.ps))
        ]:
            self.tally.failures += 1
            self._stop(key, self.table.place_of(key))
        room = int(self._room.free[self._nodes.unit, node])
        self._free += room if is_up else -room
        self._open[node] = is_up
        self._nodes = self._with_room(self._nodes)
        self._steady = self._what_holds()

    # What is done to jobs.

    def _carry_out(self, action: Action) -> None:
        kind, key, place, before, after, mark, _, _ = action
        if not self.table.holds(place, key):  # jobs have come or gone since this was decided
            place = self.table.place_of(key)
        if kind is _STOP:
            self.tally.preemptions += 1
            self._stop(key, place)
        elif kind is _START:
            if mark is _PROMOTED:
                self.books.promote(key, place)
            self.books.begin(key, place, self.now)
            self._seat(key, place, before, after, self.costs.restart_seconds)
        elif kind is ActionKind.MIGRATE:
            self.tally.migrations += 1
            self._settle(key, self.costs.lost_work_seconds)
            self._seat(key, place, before, after, self.costs.restart_seconds)
        else:
            self.tally.resizes += 1
            self._settle(key, self.costs.lost_work_seconds if self.costs.resize_loses_work else 0.0)
            self._seat(key, place, before, after, self.costs.resize_seconds)

    def _stop(self, row: int, place: int) -> None:
        self._settle(row, self.costs.lost_work_seconds)
        self._release(row)
        self.books.rest(row, place, self.now)

    def _settle(self, row: int, lost_seconds: float = 0.0) -> None:
        """Book what a job has done since it was last looked at."""
        self.tally.lost_seconds += self.books.settle(row, self.now, lost_seconds)

    def _release(self, row: int) -> None:
        assignment, shape = self._assignments.pop(JobKey(row)), self._shape[row]
        units = assignment.size * shape.devices
        self._used -= units
        self._free += units
        if assignment.workers[0][0] != ANYWHERE:
            self._room.give(shape, assignment)
        self.books.release(row)

    def _seat(self, key: JobKey, place: int, before: Assignment, after: Assignment, pause_seconds: float) -> None:
        """Let a job sit somewhere and tell when it will end."""
        shape, size = self._shape[key], after.size
        units = (size - before.size if before.workers else size) * shape.devices
        self._used += units
        self._free -= units
        if after.workers[0][0] != ANYWHERE:
            if before.workers:
                self._room.give(shape, before)
            self._room.occupy(shape, after)
        self._assignments[key] = after
        rate = self.jobs.curves.speed_of(self._curve[key], size)
        if self.costs.cross_node_penalty:
            rate *= self.costs.slowdown(after, self._rack)
        end = self.books.seat(key, place, size, size * shape.devices / MILLI, rate, self.now, pause_seconds)
        heapq.heappush(self._ends, (end, self.books.version[key], key))

    # What is remembered.

    def _note(self) -> None:
        self.tally.times.append(self.now)
        self.tally.devices_used.append(self._used / MILLI)
        self.tally.jobs_waiting.append(self.table.count - len(self._assignments))

    def _sorted_history(self) -> Floats:
        if len(self._finished) > len(self._history):
            new = np.sort(np.array(self._finished[len(self._history) :]))
            self._history = np.insert(self._history, self._history.searchsorted(new), new)
        return self._history


class _Active:
    """The active jobs of a simulated world, as a source of columns."""

    __slots__ = ("_end", "_first", "_seen", "_world")

    def __init__(self, world: SimulatedBackend) -> None:
        table = world.table
        self._world, self._seen = world, table.seen
        self._first, self._end = table.first, table.first + table.count

    def __len__(self) -> int:
        return self._end - self._first

    def column(self, name: str) -> npt.NDArray[Any]:
        seen = self._seen.get(name)
        if seen is not None:
            return seen[self._first : self._end]
        return self._world.read(name)

    def name_of(self, row: int) -> str:
        return self._world.jobs.name[int(self._seen["key"][self._first + row])]


def _fault_events(faults: Sequence[Fault]) -> list[tuple[float, int, bool]]:
    """(when, node, comes up), latest first, so that the next one is at the end."""
    events = [(fault.at_seconds, fault.node, False) for fault in faults]
    events += [
        (fault.at_seconds + fault.for_seconds, fault.node, True) for fault in faults if fault.for_seconds != NEVER
    ]
    return sorted(events, reverse=True)
