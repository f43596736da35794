"""What is known of simulated jobs: the state of each, and the columns of the active ones.

The columns are kept dense and in order while jobs come and go. A rule reads a column as it lies in memory: no
gathering, no copy. Only columns that somebody has read are kept. A job that is submitted goes to the end, a job that
ended is closed over; both cost a few short moves of memory, whatever is in the trace. What changes evenly with time is
a line, so that nobody has to touch it.

Where there is a C compiler, installing Sterna compiles this file as it stands, with the types in `books.pxd`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sterna.model.cluster import Ints
from sterna.model.snapshot import NEVER
from sterna.model.speedup import Floats

_IS_COMPILED = not __file__.endswith(".py")

Array = npt.NDArray[Any]
Book = Sequence[float] | Array


class ActiveTable:
    """Dense columns over the active jobs. `books` holds, by name, the present value for every job of the workload.

    All columns lie under one another in one block, floats as their bit patterns, so that a job that ended is closed
    over in all of them at once.
    """

    def __init__(self, books: Mapping[str, Book]) -> None:
        self.books: dict[str, Book] = dict(books)
        self.count = 0
        self.first = 0
        """Where the active jobs begin in each column: old jobs mostly end first, and then nobody behind has to move."""
        self._block = np.empty((1, 64), dtype=np.int64)
        self.cells: Ints = self._block
        """What is written to singly."""
        self.reals: Floats = self._block.view(np.float64)
        """The same, as floats."""
        self._names = ["key"]
        """Of columns that somebody has read: line by line of the block."""
        self._line: dict[str, int] = {}
        self._is_real: list[bool] = []
        self.seen: dict[str, Array] = {}
        """Those columns, read-only."""
        self._whole: list[tuple[str, Array]] = []
        """Those of them that are columns of a snapshot as they are: no parts of lines."""
        self._in_step: list[tuple[int, Book]] = []
        """Every column but the keys, by line, with its book."""
        self._look_again()

    def read(self, name: str) -> Array:
        """The column, read-only, for the jobs that are active now."""
        seen = self.seen.get(name)
        if seen is None:
            seen = self._keep(name)
        return seen[self.first : self.first + self.count]

    def at_hand(self) -> dict[str, Any]:
        """Every column that somebody has read, but those of lines."""
        here = slice(self.first, self.first + self.count)
        return {name: column[here] for name, column in self._whole}

    def write(self, name: str, place: int, value: float) -> None:
        """Keep a column in step with the books, if anybody has read it."""
        line = self._line.get(name, -1)
        if line >= 0:
            self.put(line, place, value)

    def line_of(self, name: str) -> int:
        """Where in the block a column is kept; from now on, if it was not."""
        self.read(name)
        return self._line[name]

    def put(self, line: int, place: int, value: float) -> None:
        if self._is_real[line]:
            self.reals[line, self.first + place] = value
        else:
            self.cells[line, self.first + place] = value

    def holds(self, place: int, key: int) -> bool:
        """Whether this job is in this place."""
        return place < self.count and int(self.cells[0, self.first + place]) == key

    def place_of(self, key: int) -> int:
        """The place of this job, or where it would be; keys rise."""
        low, high = self.first, self.first + self.count
        while low < high:
            middle = (low + high) // 2
            if self.cells[0, middle] < key:
                low = middle + 1
            else:
                high = middle
        return low - self.first

    def append(self, first: int, last: int) -> None:
        """The jobs from `first` to before `last` of the workload, which come after all that are here."""
        start = self.first + self.count
        end = start + last - first
        if end > self._block.shape[1]:
            self._make_room(last - first)
            start, end = self.count, self.count + last - first
        self.count += last - first
        if end > start + 1:
            self._block[0, start:end] = np.arange(first, last)
            for line, book in self._in_step:
                self._column(line)[start:end] = book[first:last]
            return
        self.cells[0, start] = first
        for line, book in self._in_step:
            if self._is_real[line]:
                self.reals[line, start] = book[first]
            else:
                self.cells[line, start] = book[first]

    def remove(self, place: int) -> None:
        """Close the gap from the shorter side."""
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

    def _keep(self, name: str) -> Array:
        book = self.books[name]
        values = [book[key] for key in self.read("key").tolist()]
        self._block = np.vstack([self._block, np.zeros((1, self._block.shape[1]), dtype=np.int64)])
        self._names.append(name)
        self._look_again()
        self._column(self._line[name])[self.first : self.first + self.count] = values
        return self.seen[name]

    def _make_room(self, more: int) -> None:
        """Move everything to the front, into wider columns unless half of the room was free there."""
        old, here = self._block, slice(self.first, self.first + self.count)
        self._block = np.empty((len(old), max(old.shape[1], 2 * (self.count + more))), dtype=np.int64)
        self._block[:, : self.count] = old[:, here]
        self.first = 0
        self._look_again()

    def _look_again(self) -> None:
        """The block is another one now: point every column to its line of it."""
        self.cells, self.reals = self._block, self._block.view(np.float64)
        self._is_real = [not self._is_whole(name) for name in self._names]
        self._line = {name: line for line, name in enumerate(self._names)}
        for name, line in self._line.items():
            self.seen[name] = self._column(line)
            self.seen[name].flags.writeable = False
        self._whole = [(name, column) for name, column in self.seen.items() if "." not in name]
        self._in_step = [(line, self.books[name]) for name, line in self._line.items() if line]

    def _column(self, line: int) -> Array:
        column: Array = self._block[line]
        return column.view(np.float64) if self._is_real[line] else column.view()

    def _is_whole(self, name: str) -> bool:
        """Whether its values are whole numbers."""
        book = self.books.get(name)
        return name == "key" or (isinstance(book, np.ndarray) and book.dtype == np.int64)


class Reading(Protocol):
    """A column that is made when it is asked for."""

    def at(self, now: float) -> Array:
        """One entry for each active job, read-only."""
        ...


class Line:
    """A quantity of each job that changes evenly while it runs: start + slope x now."""

    def __init__(self, table: ActiveTable, name: str, start: Sequence[float], has_pauses: bool = False) -> None:
        self._table = table
        self._names = [f"{name}.start", f"{name}.slope"]
        self._start, self._slope = list(start), [0.0] * len(start)
        self._most = list(start) if has_pauses else None
        """Where a job stood when last seated: it is not above that while a start goes on. None: starts take no time."""
        books: list[Sequence[float]] = [self._start, self._slope]
        if self._most is not None:
            self._names.append(f"{name}.most")
            books.append(self._most)
        table.books.update(zip(self._names, books, strict=True))
        self._line = -1
        """Where in the table its first column is, the others behind it; below 0 as long as nobody has read it."""

    def set(self, key: int, place: int, value: float, slope: float = 0.0, since: float = 0.0) -> None:
        """From `since` on it changes by `slope` a second, starting at `value`."""
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
            _draw(table.reals, line, first, now, self._most is not None, value)
        else:
            start, slope, *most = table.reals[line : line + len(self._names), first : first + count]
            np.multiply(slope, now, out=value)
            value += start
            if most:
                np.minimum(value, most[0], out=value)
        value.setflags(write=False)
        return value


class Books:
    """What the simulated world knows of each job, and what happens to one of them.

    A job's state is in lists, by its number; what rules read of all active jobs is in the table. Progress is stored as
    (work left at an instant, rate since then), so a job that nothing happens to costs nothing.
    """

    def __init__(self, work: list[float], submit: list[float], has_pauses: bool, keeps_unsaved: bool) -> None:
        count = len(work)
        self.version = [0] * count
        """Changes whenever its workers do."""
        self.left = work
        self.rate = [0.0] * count
        self.since = [0.0] * count
        """From when on it makes progress: the end of its last start."""
        self.held = [0.0] * count
        """Since when it has had the workers it has."""
        self.devices = [0.0] * count
        self.attained = [0.0] * count
        self.service = [0.0] * count
        """Device-seconds in all its life; `attained` starts anew when it is promoted."""
        self.executed = [0.0] * count
        self.executed_before = [0.0] * count
        self.waiting_since = submit
        self.first_start = [NEVER] * count
        self.waited = [0.0] * count
        self.finish = [NEVER] * count
        self.unsaved: dict[int, list[tuple[float, float]]] | None = {} if keeps_unsaved else None
        """What a job did before it was resized in place, and would still lose: seconds and rate, oldest first. None:
        nothing is lost, or every resize saves."""
        self.workers: Ints = np.zeros(count, dtype=np.int64)
        self.promotions: Ints = np.zeros(count, dtype=np.int64)
        self.table = ActiveTable(
            {
                "workers": self.workers,
                "first_start": self.first_start,
                "waiting_since": self.waiting_since,
                "promotions": self.promotions,
                "executed_before": self.executed_before,
            }
        )
        self.remaining = Line(self.table, "remaining", self.left, has_pauses)
        self.used_up = Line(self.table, "attained", self.attained)
        self.ran = Line(self.table, "executed", self.executed)

    def settle(self, key: int, now: float, lost_seconds: float) -> float:
        """Book what a job has done since it was last looked at, but for so many seconds; the work that is lost."""
        held = now - self.held[key]
        if held > 0:
            used = held * self.devices[key]
            self.attained[key] += used
            self.service[key] += used
            self.executed[key] += held
            self.held[key] = now
        ran, lost = now - self.since[key], 0.0
        if ran > 0:
            if lost_seconds:
                lost = min(lost_seconds, ran)
                ran -= lost
            self.left[key] -= ran * self.rate[key]
            self.since[key] = now
        if self.unsaved is None:
            return lost * self.rate[key]
        return lost * self.rate[key] + self.settle_unsaved(key, ran, lost_seconds, lost)

    def settle_unsaved(self, key: int, ran: float, lost_seconds: float, lost: float) -> float:
        """If work is lost, of which `lost` seconds were since the last resize: take the rest from what was done before,
        and what is kept is saved. Else note how long it ran since. The work that is lost here."""
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
        self.left[key] += more
        return more

    def begin(self, key: int, place: int, now: float) -> None:
        """It has waited until now."""
        if not self.version[key]:
            self.first_start[key] = now
            self.table.write("first_start", place, now)
        self.waited[key] += now - self.waiting_since[key]

    def promote(self, key: int, place: int) -> None:
        self.attained[key] = 0.0
        self.executed_before[key] = self.executed[key]
        self.promotions[key] += 1
        self.table.write("executed_before", place, self.executed[key])
        self.table.write("promotions", place, self.promotions[key])

    def seat(self, key: int, place: int, size: int, devices: float, rate: float, now: float, pause: float) -> float:
        """Let it go on with so many workers, after a pause; when it will end. A resize does not cut a start short."""
        since, left = max(now + pause, self.since[key]), self.left[key]
        self.rate[key], self.since[key], self.held[key], self.devices[key] = rate, since, now, devices
        self.version[key] += 1
        self.workers[key] = size
        self.table.write("workers", place, size)
        self.remaining.set(key, place, left, -rate, since)
        self.used_up.set(key, place, self.attained[key], devices, now)
        self.ran.set(key, place, self.executed[key], 1.0, now)
        return since + left / rate

    def release(self, key: int) -> None:
        """It has no workers any more."""
        self.devices[key] = 0.0
        self.workers[key] = 0
        self.version[key] += 1

    def rest(self, key: int, place: int, now: float) -> None:
        """From now on it waits."""
        self.waiting_since[key] = now
        self.table.write("workers", place, 0)
        self.table.write("waiting_since", place, now)
        self.remaining.set(key, place, self.left[key])
        self.used_up.set(key, place, self.attained[key])
        self.ran.set(key, place, self.executed[key])

    def close(self, key: int, now: float) -> None:
        """It has ended."""
        self.left[key] = 0.0
        self.finish[key] = now
        if self.unsaved is not None:
            self.unsaved.pop(key, None)
        self.table.remove(self.table.place_of(key))


def _draw(reals: Floats, line: int, first: int, now: float, has_most: bool, value: Floats) -> None:
    """Where lines stand now, job by job (changes `value`): for machine code, which is slow with columns."""
    for place in range(len(value)):
        at = first + place
        value[place] = reals[line, at] + reals[line + 1, at] * now
        if has_most and reals[line + 2, at] < value[place]:
            value[place] = reals[line + 2, at]
