"""Fragmentation: the share of free device time that waiting jobs could use if all devices were on one node.

At each instant, the waiting job that could take the most of the free devices as one pool is compared with the one that
can take the most of them where they are. Jobs that need more than what is free are short of devices, not of nodes.
A worker fits one node and a job may span nodes, so free devices are fragmented only for workers of several devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from sterna.backends.simulated.change_log import ChangeKind, ChangeLog
from sterna.backends.simulated.costs import Fault
from sterna.backends.simulated.workload import Workload
from sterna.model.cluster import MILLI, NOWHERE, Assignment, Ints, Nodes, ResourceKind

_Event = tuple[float, Callable[[], None]]


def fragmentation(workload: Workload, changes: ChangeLog, nodes: Nodes, faults: Sequence[Fault] = ()) -> float | None:
    """Return stranded device time over free device time; None if workers share devices."""
    if any(shape.devices % MILLI for shape in workload.shapes.rows):
        return None
    if changes.assignments is None:
        return 0.0
    return _Replay(workload, nodes).run(changes, changes.assignments, faults)


class _Replay:
    """Free devices by node, and waiting jobs by what they need, from event to event."""

    def __init__(self, workload: Workload, nodes: Nodes) -> None:
        per_worker = np.array([shape.devices // MILLI for shape in workload.shapes.rows])[workload.shape]
        self._submit = workload.submit.tolist()
        self._need = list(zip(per_worker.tolist(), workload.minimum.tolist(), workload.maximum.tolist(), strict=True))
        """Devices of a worker, and the bounds of its workers, by job."""
        self._free = nodes.capacity[ResourceKind.DEVICES] // MILLI
        self._faults = np.zeros(len(nodes), dtype=np.int64)
        self._held: dict[int, Assignment] = {}
        self._waiting: Counter[tuple[int, int, int]] = Counter()

    def run(self, changes: ChangeLog, assignments: Sequence[Assignment], faults: Sequence[Fault]) -> float:
        events: list[_Event] = [(time, partial(self._wait, job)) for job, time in enumerate(self._submit)]
        for time, job, kind, after in zip(changes.time, changes.job, changes.kind, assignments, strict=True):
            events.append((time, partial(self._change, job, after, kind == ChangeKind.END)))
        for fault in faults:
            events.append((fault.at_seconds, partial(self._fail, fault.node, 1)))
            events.append((fault.at_seconds + fault.for_seconds, partial(self._fail, fault.node, -1)))
        before, free, stranded, end = 0.0, 0.0, 0.0, max(changes.time, default=0.0)
        for time, apply in sorted(events, key=lambda event: event[0]):
            if before < time <= end:
                usable, in_place = self._usable_devices()
                free += float(self._open_devices().sum()) * (time - before)
                stranded += max(usable - in_place, 0) * (time - before)
            before = time
            apply()
        return stranded / free if free else 0.0

    def _open_devices(self) -> Ints:
        devices: Ints = np.where(self._faults == 0, self._free, 0)
        return devices

    def _usable_devices(self) -> tuple[int, int]:
        """Return the most free devices that one waiting job could take as one pool, and where they are."""
        free = self._open_devices()
        total, pooled, in_place = int(free.sum()), 0, 0
        for (per_worker, fewest, most), count in self._waiting.items():
            if count and fewest * per_worker <= total:
                pooled = max(pooled, per_worker * min(most, total // per_worker))
                fitting = int((free // per_worker).sum())
                if fitting >= fewest:
                    in_place = max(in_place, per_worker * min(most, fitting))
        return pooled, in_place

    def _wait(self, job: int) -> None:
        self._waiting[self._need[job]] += 1

    def _change(self, job: int, after: Assignment, is_end: bool) -> None:
        before, per_worker = self._held.pop(job, NOWHERE), self._need[job][0]
        for node, count in before.workers:
            self._free[node] += count * per_worker
        for node, count in after.workers:
            self._free[node] -= count * per_worker
        if after.workers:
            self._held[job] = after
        if not before.workers:
            self._waiting[self._need[job]] -= 1
        elif not after.workers and not is_end:
            self._waiting[self._need[job]] += 1

    def _fail(self, node: int, more: int) -> None:
        self._faults[node] += more
