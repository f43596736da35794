"""The columns of the active jobs, kept dense and in order while jobs come and go.

A rule reads a column as it lies in memory: no gathering, no copy. A job that is submitted goes to the end, a job that ended is
closed over; both cost a few short moves of memory, whatever is in the trace. What changes evenly with time is a line, so
that nobody has to touch it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.model.cluster import Ints
from sterna.model.speedup import Floats

Array = npt.NDArray[Any]


class ActiveTable:
    """Dense columns. Fixed ones are copied from the workload when somebody first reads them, the others start as given."""

    def __init__(self, fixed: Mapping[str, Array], changing: Mapping[str, Array]) -> None:
        self._source: dict[str, Array] = {**fixed, **changing}
        self._room = 64
        self.count = 0
        self.key: Ints = np.empty(self._room, dtype=np.int64)
        self.columns: dict[str, Array] = {name: _like(values, self._room) for name, values in changing.items()}
        """As far as anybody read them: the first `count` entries of each are the active jobs."""

    def read(self, name: str) -> Array:
        """A fixed column, from now on kept."""
        source = self._source[name]
        column = _like(source, self._room)
        column[: self.count] = source[self.key[: self.count]]
        self.columns[name] = column
        return column

    def place_of(self, key: int) -> int:
        return int(self.key[: self.count].searchsorted(key))

    def append(self, first: int, last: int) -> None:
        """The jobs from `first` to before `last` of the workload, which come after all that are here."""
        start, end = self.count, self.count + last - first
        if end > self._room:
            self._grow(end)
        self.key[start:end] = np.arange(first, last)
        for name, column in self.columns.items():
            column[start:end] = self._source[name][first:last]
        self.count = end

    def remove(self, place: int) -> None:
        end = self.count
        self.key[place : end - 1] = self.key[place + 1 : end]
        for column in self.columns.values():
            column[place : end - 1] = column[place + 1 : end]
        self.count = end - 1

    def _grow(self, least: int) -> None:
        self._room = max(least, 2 * self._room)
        self.key = _stretched(self.key, self._room)
        for name, column in self.columns.items():
            self.columns[name] = _stretched(column, self._room)


def _like(values: Array, room: int) -> Array:
    return np.empty(room, dtype=values.dtype)


def _stretched(values: Array, room: int) -> Array:
    wider = _like(values, room)
    wider[: len(values)] = values
    return wider


class Line:
    """A quantity of each job that changes evenly while it runs: start + slope x now. Two columns of a table."""

    def __init__(self, table: ActiveTable, name: str, has_pauses: bool = False) -> None:
        self._table = table
        self._start, self._slope, self._most = f"{name}.start", f"{name}.slope", f"{name}.most"
        self._has_pauses = has_pauses
        """A start takes time, and while it goes on the line has not begun: it is never above where it stood."""

    def hold(self, place: int, value: float) -> None:
        self.run(place, value, 0.0, 0.0)

    def run(self, place: int, value: float, slope: float, since: float) -> None:
        columns = self._table.columns
        columns[self._start][place] = value - slope * since
        columns[self._slope][place] = slope
        if self._has_pauses:
            columns[self._most][place] = value

    def at(self, now: float) -> Floats:
        columns, count = self._table.columns, self._table.count
        value: Floats = columns[self._slope][:count] * now
        value += columns[self._start][:count]
        return np.minimum(value, columns[self._most][:count]) if self._has_pauses else value
