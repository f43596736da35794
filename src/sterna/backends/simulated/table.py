"""The columns of the active jobs, kept dense and in order while jobs come and go.

A rule reads a column as it lies in memory: no gathering, no copy. Only columns that somebody has read are kept. A job
that is submitted goes to the end, a job that ended is closed over; both cost a few short moves of memory, whatever is
in the trace. What changes evenly with time is a line, so that nobody has to touch it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sterna.engine.loops import machine_code
from sterna.model.speedup import Floats

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
        self._names = ["key"]
        self.columns: dict[str, Array] = {}
        """Those that somebody has read."""
        self.seen: dict[str, Array] = {}
        """The same, read-only."""
        self._whole: list[tuple[str, Array]] = []
        """Those of them that are columns of a snapshot as they are: no parts of lines."""
        self._others: list[tuple[Array, Book]] = []
        """Every column but the keys, with its book."""
        self._look_again()

    def read(self, name: str) -> Array:
        """The column, read-only, for the jobs that are active now."""
        seen = self.seen.get(name)
        if seen is None:
            seen = self._keep(name)
        return seen[self.first : self.first + self.count]

    def at_hand(self) -> dict[str, Array]:
        """Every column that somebody has read, but those of lines."""
        here = slice(self.first, self.first + self.count)
        return {name: column[here] for name, column in self._whole}

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
        if end > self._block.shape[1]:
            self._make_room(last - first)
            start, end = self.count, self.count + last - first
        self.count += last - first
        if end == start + 1:
            self._block[0, start] = first
            for column, book in self._others:
                column[start] = book[first]
            return
        self._block[0, start:end] = np.arange(first, last)
        for column, book in self._others:
            column[start:end] = book[first:last]

    def remove(self, place: int) -> None:
        """Close the gap from the shorter side."""
        block, first = self._block, self.first
        at = first + place
        if place < self.count // 2:
            block[:, first + 1 : at + 1] = block[:, first:at]
            self.first += 1
        else:
            end = first + self.count
            block[:, at : end - 1] = block[:, at + 1 : end]
        self.count -= 1

    def _keep(self, name: str) -> Array:
        book = self.books[name]
        values = [book[key] for key in self.read("key").tolist()]
        self._block = np.vstack([self._block, np.zeros((1, self._block.shape[1]), dtype=np.int64)])
        self._names.append(name)
        self._look_again()
        self.columns[name][self.first : self.first + self.count] = values
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
        for line, name in enumerate(self._names):
            book = self.books.get(name)
            is_whole = name == "key" or (isinstance(book, np.ndarray) and book.dtype == np.int64)
            column: Array = self._block[line] if is_whole else self._block[line].view(np.float64)
            self.columns[name] = column
            self.seen[name] = column.view()
            self.seen[name].flags.writeable = False
        self._whole = [(name, column) for name, column in self.seen.items() if "." not in name]
        self._others = [(self.columns[name], self.books[name]) for name in self._names[1:]]


class Reading(Protocol):
    """A column that is made when it is asked for."""

    def at(self, now: float) -> Array:
        """One entry for each active job, read-only."""
        ...


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
        table = self._table
        start, slope, most = self._names
        if not self._is_read:
            self._is_read = True
            for name in self._names[: 2 + (self._most is not None)]:
                table.read(name)
        seen, here = table.seen, slice(table.first, table.first + table.count)
        code = machine_code()
        value: Floats
        if code is not None and self._most is None:
            value = code.along(seen[start][here], seen[slope][here], now)
        else:
            value = seen[slope][here] * now
            value += seen[start][here]
            if self._most is not None:
                np.minimum(value, seen[most][here], out=value)
        value.flags.writeable = False
        return value
