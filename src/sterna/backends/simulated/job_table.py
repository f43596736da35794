"""State of every simulated job, and dense columns of the active ones.

Columns stay dense and ordered by key while jobs come and go, so that rules read them without a copy. A column exists
from its first read on. A submitted job is appended; removing a finished one moves the shorter side of each column.
Both are independent of the length of the trace. A quantity that changes linearly with time is a `Line`, which is
written only when its slope changes.

Where there is a C compiler, installing Sterna compiles this file as it is, with the types in `job_table.pxd`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sterna.model.cluster import Ints
from sterna.model.snapshot import NEVER
from sterna.model.speedup import Floats

_IS_COMPILED = not __file__.endswith(".py")

Array = npt.NDArray[Any]
JobValues = Sequence[float] | Array


class ActiveTable:
    """Dense columns over the active jobs. `sources` holds, by name, the current value for every job of the workload.

    All columns are lines of one block, floats as their bit patterns, so that one move removes a job from all of them.
    """

    def __init__(self, sources: Mapping[str, JobValues]) -> None:
        self.sources: dict[str, JobValues] = dict(sources)
        self.count = 0
        self.first = 0
        """Index of the first active job in each column: old jobs mostly end first, and then no other has to move."""
        self._block = np.empty((1, 64), dtype=np.int64)
        self.cells: Ints = self._block
        """The block as integers, for writes of single cells."""
        self.reals: Floats = self._block.view(np.float64)
        """The block as floats."""
        self._names = ["key"]
        """Names of the columns, line by line of the block."""
        self._line: dict[str, int] = {}
        self._is_real: list[bool] = []
        self.columns: dict[str, Array] = {}
        """The columns by name, read-only, over the whole width of the block."""
        self._snapshot_columns: list[tuple[str, Array]] = []
        """Columns that a snapshot contains unchanged: all but the parts of lines."""
        self._synced: list[tuple[int, JobValues]] = []
        """Every column but the keys, by line, with its source."""
        self._rebuild_views()

    def read(self, name: str) -> Array:
        """Return the column of the active jobs, read-only."""
        column = self.columns.get(name)
        if column is None:
            column = self._add_column(name)
        return column[self.first : self.first + self.count]

    def snapshot_columns(self) -> dict[str, Any]:
        """Return every column that has been read, except those of lines."""
        here = slice(self.first, self.first + self.count)
        return {name: column[here] for name, column in self._snapshot_columns}

    def write(self, name: str, place: int, value: float) -> None:
        """Copy a changed value from the sources into the column, if it exists."""
        line = self._line.get(name, -1)
        if line >= 0:
            self.set_cell(line, place, value)

    def line_of(self, name: str) -> int:
        """Return the line of a column in the block; create the column if it is missing."""
        self.read(name)
        return self._line[name]

    def set_cell(self, line: int, place: int, value: float) -> None:
        if self._is_real[line]:
            self.reals[line, self.first + place] = value
        else:
            self.cells[line, self.first + place] = value

    def holds(self, place: int, key: int) -> bool:
        """Return True if the job with this key is at this place."""
        return place < self.count and int(self.cells[0, self.first + place]) == key

    def place_of(self, key: int) -> int:
        """Return the place of a job, or its insertion point; keys ascend."""
        low, high = self.first, self.first + self.count
        while low < high:
            middle = (low + high) // 2
            if self.cells[0, middle] < key:
                low = middle + 1
            else:
                high = middle
        return low - self.first

    def append(self, first: int, last: int) -> None:
        """Append the jobs `first` to `last` (exclusive) of the workload, whose keys follow all present ones."""
        start = self.first + self.count
        end = start + last - first
        if end > self._block.shape[1]:
            self._make_room(last - first)
            start, end = self.count, self.count + last - first
        self.count += last - first
        if end > start + 1:
            self._block[0, start:end] = np.arange(first, last)
            for line, values in self._synced:
                self._column(line)[start:end] = values[first:last]
            return
        self.cells[0, start] = first
        for line, values in self._synced:
            if self._is_real[line]:
                self.reals[line, start] = values[first]
            else:
                self.cells[line, start] = values[first]

    def remove(self, place: int) -> None:
        """Remove a job; move the shorter side of each column over it."""
        cells, first = self.cells, self.first
        at = first + place
        if place < self.count // 2:
            if place:
                cells[:, first + 1 : at + 1] = cells[:, first:at]
            self.first += 1
        else:
            end = first + self.count
            if at + 1 < end:
                cells[:, at : end - 1] = cells[:, at + 1 : end]
        self.count -= 1

    def _add_column(self, name: str) -> Array:
        source = self.sources[name]
        values = [source[key] for key in self.read("key").tolist()]
        self._block = np.vstack([self._block, np.zeros((1, self._block.shape[1]), dtype=np.int64)])
        self._names.append(name)
        self._rebuild_views()
        self._column(self._line[name])[self.first : self.first + self.count] = values
        return self.columns[name]

    def _make_room(self, more: int) -> None:
        """Move the active jobs to the front; double the width unless half of it is free."""
        old, here = self._block, slice(self.first, self.first + self.count)
        self._block = np.empty((len(old), max(old.shape[1], 2 * (self.count + more))), dtype=np.int64)
        self._block[:, : self.count] = old[:, here]
        self.first = 0
        self._rebuild_views()

    def _rebuild_views(self) -> None:
        """Point every column to its line of the new block."""
        self.cells, self.reals = self._block, self._block.view(np.float64)
        self._is_real = [not self._is_whole(name) for name in self._names]
        self._line = {name: line for line, name in enumerate(self._names)}
        for name, line in self._line.items():
            self.columns[name] = self._column(line)
            self.columns[name].flags.writeable = False
        self._snapshot_columns = [(name, column) for name, column in self.columns.items() if "." not in name]
        self._synced = [(line, self.sources[name]) for name, line in self._line.items() if line]

    def _column(self, line: int) -> Array:
        column: Array = self._block[line]
        return column.view(np.float64) if self._is_real[line] else column.view()

    def _is_whole(self, name: str) -> bool:
        """Return True if the column holds integers."""
        values = self.sources.get(name)
        return name == "key" or (isinstance(values, np.ndarray) and values.dtype == np.int64)


class ComputedColumn(Protocol):
    """A column that is computed on each read."""

    def at(self, now: float) -> Array:
        """Return one entry for each active job, read-only."""
        ...


class Line:
    """A quantity of each job that is linear in time while it runs: start + slope x now."""

    def __init__(
        self, table: ActiveTable, name: str, start: Sequence[float], has_pauses: bool = False, rises: bool = False
    ) -> None:
        self._table, self._rises = table, rises
        self._names = [f"{name}.start", f"{name}.slope"]
        self._start, self._slope = list(start), [0.0] * len(start)
        self._most = list(start) if has_pauses else None
        """Value at the last assignment, which holds during the pause of a start: the upper bound of a line that falls,
        the lower bound of one that rises. None: starts take no time."""
        sources: list[Sequence[float]] = [self._start, self._slope]
        if self._most is not None:
            self._names.append(f"{name}.most")
            sources.append(self._most)
        table.sources.update(zip(self._names, sources, strict=True))
        self._line = -1
        """Line of its first column in the table, directly followed by the others; -1 before the first read."""

    def set(self, key: int, place: int, value: float, slope: float = 0.0, since: float = 0.0) -> None:
        """Change by `slope` per second from `since` on, starting at `value`."""
        start = value - slope * since
        self._start[key] = start
        self._slope[key] = slope
        if self._most is not None:
            self._most[key] = value
        if self._line >= 0:
            table = self._table
            at = table.first + place
            table.reals[self._line, at] = start
            table.reals[self._line + 1, at] = slope
            if self._most is not None:
                table.reals[self._line + 2, at] = value

    def at(self, now: float) -> Floats:
        if self._line < 0:
            lines = [self._table.line_of(name) for name in self._names]
            self._line = lines[0]
        table, line = self._table, self._line
        first, count = table.first, table.count
        value: Floats = np.empty(count)
        if _IS_COMPILED:
            _evaluate(table.reals, line, first, now, self._most is not None, self._rises, value)
        else:
            start, slope, *most = table.reals[line : line + len(self._names), first : first + count]
            np.multiply(slope, now, out=value)
            value += start
            if most:
                (np.maximum if self._rises else np.minimum)(value, most[0], out=value)
        value.setflags(write=False)
        return value


class Saving:
    """What of a job's work a stop throws away."""

    def __init__(
        self, every_seconds: float = 0.0, can_save: Sequence[bool] | None = None, survives_resizes: bool = False
    ) -> None:
        self.every_seconds = every_seconds
        """Run time between two checkpoints; 0: a job saves whenever it is stopped."""
        self.can_save = can_save
        """By job; None: all can."""
        self.loses_work = every_seconds > 0 or can_save is not None
        self.survives_resizes = survives_resizes and self.loses_work
        """A resize happens in place and neither saves nor loses work."""

    def unsaved_part(self, key: int, ran_seconds: float) -> float:
        """Return what a stop throws away of `ran_seconds` since the job last began from a checkpoint."""
        if self.can_save is not None and not self.can_save[key]:
            return ran_seconds
        return math.fmod(ran_seconds, self.every_seconds) if self.every_seconds else 0.0


class JobStates:
    """State of every job of the workload, by key; columns that rules read of active jobs are in `table`.

    Progress is stored as remaining work at an instant and rate since then, so a job without events costs nothing.
    """

    def __init__(self, work: list[float], submit: list[float], has_pauses: bool, saving: Saving) -> None:
        count = len(work)
        self.saving = saving
        self.version = [0] * count
        """Incremented at each change of its workers."""
        self.remaining_work = work
        self.rate = [0.0] * count
        self.progress_since = [0.0] * count
        """Time from which on it makes progress: the end of its last start."""
        self.assigned_at = [0.0] * count
        """Time of its last assignment."""
        self.devices = [0.0] * count
        self.attained = [0.0] * count
        self.service = [0.0] * count
        """Device-seconds of progress since submission; `attained` restarts at 0 on promotion."""
        self.executed = [0.0] * count
        self.executed_before = [0.0] * count
        self.waiting_since = submit
        self.first_start = [NEVER] * count
        self.waited = [0.0] * count
        self.finish = [NEVER] * count
        self.spent = [0.0] * count
        """Device-seconds that stops, resizes and moves have cost the job: the sum of `Action.price`."""
        self.unsaved: dict[int, list[tuple[float, float]]] | None = {} if saving.survives_resizes else None
        """Seconds and rate, oldest first, that a job ran before in-place resizes since its last checkpoint. None: no
        work is lost, or every resize saves."""
        self.workers: Ints = np.zeros(count, dtype=np.int64)
        self.promotions: Ints = np.zeros(count, dtype=np.int64)
        self.table = ActiveTable(
            {
                "workers": self.workers,
                "first_start": self.first_start,
                "waiting_since": self.waiting_since,
                "promotions": self.promotions,
                "executed_before": self.executed_before,
                "spent": self.spent,
            }
        )
        self.remaining_line = Line(self.table, "remaining", self.remaining_work, has_pauses)
        self.attained_line = Line(self.table, "attained", self.attained, has_pauses, rises=True)
        self.executed_line = Line(self.table, "executed", self.executed)
        self.unsaved_line = Line(self.table, "unsaved", [0.0] * count, has_pauses, rises=True)
        """Run time since the last start, or longer with `unsaved`; what of it is in a checkpoint is not subtracted."""

    def account(self, key: int, now: float, lost_seconds: float) -> float:
        """Add a job's progress since the last call, minus its last `lost_seconds`; return the work lost."""
        held = now - self.assigned_at[key]
        if held > 0:
            self.executed[key] += held
            self.assigned_at[key] = now
        ran, lost = now - self.progress_since[key], 0.0
        if ran > 0:
            used = ran * self.devices[key]
            self.attained[key] += used
            self.service[key] += used
            if lost_seconds:
                lost = min(lost_seconds, ran)
                ran -= lost
            self.remaining_work[key] -= ran * self.rate[key]
            self.progress_since[key] = now
        if self.unsaved is None:
            return lost * self.rate[key]
        return lost * self.rate[key] + self.account_unsaved(key, ran, lost_seconds, lost)

    def unsaved_seconds(self, key: int, now: float) -> float:
        """Return the run time that a stop at `now` would throw away."""
        ran = max(now - self.progress_since[key], 0.0)
        if self.unsaved is not None:
            ran += sum([seconds for seconds, _ in self.unsaved.get(key, ())])
        return self.saving.unsaved_part(key, ran)

    def account_unsaved(self, key: int, ran: float, lost_seconds: float, lost: float) -> float:
        """Subtract from earlier runs what `lost_seconds` exceeds `lost`, the seconds lost since the last resize; the
        rest counts as saved. Without `lost_seconds`, append the run. Return the work lost here."""
        unsaved = self.unsaved
        assert unsaved is not None
        if not lost_seconds:
            if ran > 0:
                unsaved.setdefault(key, []).append((ran, self.rate[key]))
            return 0.0
        more = 0.0
        for seconds, rate in reversed(unsaved.pop(key, ())):
            part = min(seconds, lost_seconds - lost)
            lost += part
            more += part * rate
        self.remaining_work[key] += more
        return more

    def begin(self, key: int, place: int, now: float) -> None:
        """End the waiting time of a job that starts."""
        if not self.version[key]:
            self.first_start[key] = now
            self.table.write("first_start", place, now)
        self.waited[key] += now - self.waiting_since[key]

    def charge(self, key: int, place: int, device_seconds: float) -> None:
        """Add the price of a change to what the job has spent."""
        self.spent[key] += device_seconds
        self.table.write("spent", place, self.spent[key])

    def promote(self, key: int, place: int) -> None:
        self.attained[key] = 0.0
        self.executed_before[key] = self.executed[key]
        self.promotions[key] += 1
        self.table.write("executed_before", place, self.executed[key])
        self.table.write("promotions", place, self.promotions[key])

    def assign(self, key: int, place: int, size: int, devices: float, rate: float, now: float, pause: float) -> float:
        """Continue with `size` workers after `pause` seconds, but not before a start in progress ends; return the time
        of its end."""
        since, left = max(now + pause, self.progress_since[key]), self.remaining_work[key]
        self.rate[key], self.progress_since[key], self.assigned_at[key], self.devices[key] = rate, since, now, devices
        self.version[key] += 1
        self.workers[key] = size
        self.table.write("workers", place, size)
        self.remaining_line.set(key, place, left, -rate, since)
        self.attained_line.set(key, place, self.attained[key], devices, since)
        self.executed_line.set(key, place, self.executed[key], 1.0, now)
        if self.saving.loses_work:
            before = 0.0
            if self.unsaved is not None:
                before = sum([seconds for seconds, _ in self.unsaved.get(key, ())])
            self.unsaved_line.set(key, place, before, 1.0, since)
        return since + left / rate

    def release(self, key: int) -> None:
        """Take all workers from a job."""
        self.devices[key] = 0.0
        self.workers[key] = 0
        self.version[key] += 1

    def mark_waiting(self, key: int, place: int, now: float) -> None:
        """Let a released job wait from now on."""
        self.waiting_since[key] = now
        self.table.write("workers", place, 0)
        self.table.write("waiting_since", place, now)
        self.remaining_line.set(key, place, self.remaining_work[key])
        self.attained_line.set(key, place, self.attained[key])
        self.executed_line.set(key, place, self.executed[key])
        if self.saving.loses_work:
            self.unsaved_line.set(key, place, 0.0)

    def mark_finished(self, key: int, now: float) -> None:
        """Record the end of a job and remove it from the table."""
        self.remaining_work[key] = 0.0
        self.finish[key] = now
        if self.unsaved is not None:
            self.unsaved.pop(key, None)
        self.table.remove(self.table.place_of(key))


def _evaluate(reals: Floats, line: int, first: int, now: float, has_most: bool, rises: bool, value: Floats) -> None:
    """Write the values of a line at `now` into `value`, job by job, which is faster than columns when compiled."""
    for place in range(len(value)):
        at = first + place
        value[place] = reals[line, at] + reals[line + 1, at] * now
        if has_most and (reals[line + 2, at] > value[place] if rises else reals[line + 2, at] < value[place]):
            value[place] = reals[line + 2, at]
