"""The columns of the active jobs, kept dense and in order while jobs come and go.

A rule reads a column as it lies in memory: no gathering, no copy. Only columns that somebody has read are kept. A job
that is submitted goes to the end, a job that ended is closed over; both cost a few short moves of memory, whatever is
in the trace. What changes evenly with time is a line, so that nobody has to touch it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.model.speedup import Floats

Array = npt.NDArray[Any]
Book = Sequence[float] | Array


class ActiveTable:
    """Dense columns over the active jobs. `books` holds, by name, the present value for every job of the workload."""

    def __init__(self, books: Mapping[str, Book]) -> None:
        self.books: dict[str, Book] = dict(books)
        self.count = 0
        self.first = 0
        """Where the active jobs begin in each column: old jobs mostly end first, and then nobody behind has to move."""
        self._room = 64
        self.columns: dict[str, Array] = {"key": np.empty(self._room, dtype=np.int64)}
        """Those that somebody has read."""
        self.seen: dict[str, Array] = {"key": _unwritable(self.columns["key"])}
        """The same, read-only."""

    def read(self, name: str) -> Array:
        """The column, read-only, for the jobs that are active now."""
        seen = self.seen.get(name)
        if seen is None:
            seen = self._keep(name)
        return seen[self.first : self.first + self.count]

    def write(self, name: str, place: int, value: float) -> None:
        """Keep a column in step with the books, if anybody has read it."""
        column = self.columns.get(name)
        if column is not None:
            column[self.first + place] = value

    def holds(self, place: int, key: int) -> bool:
        """Whether this job is in this place."""
        return place < self.count and self.columns["key"].item(self.first + place) == key

    def place_of(self, key: int) -> int:
        return int(self.read("key").searchsorted(key))

    def append(self, first: int, last: int) -> None:
        """The jobs from `first` to before `last` of the workload, which come after all that are here."""
        start = self.first + self.count
        end = start + last - first
        if end > self._room:
            self._make_room(last - first)
            start, end = self.count, self.count + last - first
        self.count += last - first
        if end == start + 1:
            for name, column in self.columns.items():
                column[start] = first if name == "key" else self.books[name][first]
            return
        for name, column in self.columns.items():
            column[start:end] = np.arange(first, last) if name == "key" else self.books[name][first:last]

    def remove(self, place: int) -> None:
        """Close the gap from the shorter side."""
        at, end = self.first + place, self.first + self.count
        if place < self.count // 2:
            first = self.first
            for column in self.columns.values():
                column[first + 1 : at + 1] = column[first:at]
            self.first += 1
        else:
            for column in self.columns.values():
                column[at : end - 1] = column[at + 1 : end]
        self.count -= 1

    def _keep(self, name: str) -> Array:
        book = self.books[name]
        values = [book[key] for key in self.read("key").tolist()]
        column = np.empty(self._room, dtype=book.dtype if isinstance(book, np.ndarray) else np.float64)
        column[self.first : self.first + self.count] = values
        self.columns[name] = column
        self.seen[name] = _unwritable(column)
        return self.seen[name]

    def _make_room(self, more: int) -> None:
        """Move everything to the front, into wider columns unless half of the room was free there."""
        if 2 * (self.count + more) > self._room:
            self._room = 2 * (self.count + more)
        here = slice(self.first, self.first + self.count)
        self.columns = {name: _moved(column[here], self._room) for name, column in self.columns.items()}
        self.seen = {name: _unwritable(column) for name, column in self.columns.items()}
        self.first = 0


def _unwritable(values: Array) -> Array:
    view = values.view()
    view.flags.writeable = False
    return view


def _moved(values: Array, room: int) -> Array:
    wider = np.empty(room, dtype=values.dtype)
    wider[: len(values)] = values
    return wider


class Line:
    """A quantity of each job that changes evenly while it runs: start + slope x now."""

    def __init__(self, table: ActiveTable, name: str, start: Sequence[float], has_pauses: bool = False) -> None:
        self._table = table
        self._names = (f"{name}.start", f"{name}.slope", f"{name}.most")
        self._start, self._slope = list(start), [0.0] * len(start)
        self._most = list(start) if has_pauses else None
        """Where a job stood when last seated: it is not above that while a start goes on. None: starts take no time."""
        self._is_read = False
        table.books.update(zip(self._names, (self._start, self._slope, self._most or ()), strict=True))

    def set(self, key: int, place: int, value: float, slope: float = 0.0, since: float = 0.0) -> None:
        """From `since` on it changes by `slope` a second, starting at `value`."""
        start = self._start[key] = value - slope * since
        self._slope[key] = slope
        if self._is_read:
            columns, at = self._table.columns, self._table.first + place
            columns[self._names[0]][at] = start
            columns[self._names[1]][at] = slope
        if self._most is not None:
            self._most[key] = value
            self._table.write(self._names[2], place, value)

    def at(self, now: float) -> Floats:
        self._is_read = True
        start, slope, most = self._names
        value: Floats = self._table.read(slope) * now
        value += self._table.read(start)
        if self._most is not None:
            np.minimum(value, self._table.read(most), out=value)
        value.flags.writeable = False
        return value
