"""Speed-up curves: S(n), the speed of a job with n workers relative to one worker.

A curve is a row of a table: S(0) = 0, S(1) = 1, non-decreasing and concave. Beyond the last known count it is flat.
`learned` fits curves to progress reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sterna.model.cached_attribute import cached_attribute
from sterna.model.cluster import Ints

Floats = npt.NDArray[np.float64]

LINEAR = 0
"""Row of the curve for jobs of unknown speed-up: S(n) = n."""

_TOLERANCE = 1e-9

_ENDLESS = 1 << 40
"""Sentinel: more workers than any job has."""


class Repaired(tuple[float, ...]):
    """A curve that was changed to become concave."""

    __slots__ = ()


def concave(speeds: Sequence[float]) -> tuple[float, ...]:
    """Return the curve if it is concave, else a `Repaired` one with the nearest non-increasing gains between 0 and
    1."""
    raw = np.asarray(speeds, dtype=np.float64) / speeds[0]
    gains = np.diff(raw, prepend=0.0)
    if bool(np.all(gains >= -_TOLERANCE)) and bool(np.all(np.diff(gains) <= _TOLERANCE)):
        return tuple(float(s) for s in raw)
    from scipy.optimize import isotonic_regression  # half a second to import: only where a curve is broken

    falling = isotonic_regression(gains[1:], increasing=False).x if len(gains) > 1 else gains[1:]
    repaired = np.concatenate([[1.0], np.clip(falling, 0.0, 1.0)]).cumsum()
    return Repaired(float(s) for s in repaired)


@dataclass(frozen=True)
class Curves:
    """All curves of a snapshot; the `curve` column of `Jobs` indexes them. Row 0 is linear."""

    rows: tuple[tuple[float, ...], ...] = ((1.0,),)
    """Speed-ups at 1, 2, .. workers; the entry at `LINEAR` is ignored."""

    @cached_attribute
    def is_linear(self) -> bool:
        return len(self.rows) == 1

    def table(self, max_workers: int) -> Floats:
        """Return curve by worker count, from 0 to at least `max_workers`."""
        if self._cache and self._cache[-1].shape[1] > max_workers:
            return self._cache[-1]
        width = max(max_workers + 1, 65)
        table = np.empty((len(self.rows), width))
        for code, row in enumerate(self.rows):
            table[code] = np.arange(width) if code == LINEAR else _extend(row, width)
        table.setflags(write=False)
        self._cache.append(table)
        return table

    @cached_attribute
    def _cache(self) -> list[Floats]:
        return []

    def speed(self, curve: Ints, workers: Ints) -> Floats:
        """Return S(workers) for each pair."""
        if self.is_linear:
            return workers.astype(np.float64)
        return self.table(int(workers.max(initial=0)))[curve, workers]

    def gain(self, curve: Ints, workers: Ints) -> Floats:
        """Return S(workers + 1) - S(workers) for each pair."""
        if self.is_linear:
            return np.ones(len(workers))
        table = self.table(int(workers.max(initial=0)) + 1)
        if not self._gains or self._gains[-1].shape[1] < table.shape[1] - 1:
            self._gains.append(np.diff(table, axis=1))
        gains = self._gains[-1]
        value: Floats = gains.ravel().take(curve * gains.shape[1] + workers)
        return value

    @cached_attribute
    def _gains(self) -> list[Floats]:
        return []

    @cached_attribute
    def useful(self) -> Ints:
        """Workers beyond which another one adds no speed, by curve; `_ENDLESS` for the linear one."""
        rising = [(np.diff(row, prepend=0.0) > 0).nonzero()[0] for row in self.rows]
        last = np.array([steps.item(-1) + 1 for steps in rising], dtype=np.int64)
        last[LINEAR] = _ENDLESS
        return last

    def speed_of(self, curve: int, workers: int) -> float:
        if curve == LINEAR:
            return float(workers)
        row = self.rows[curve]
        return row[min(workers, len(row)) - 1] if workers else 0.0


def _extend(row: Iterable[float], width: int) -> Floats:
    known = np.concatenate([[0.0], np.fromiter(row, dtype=np.float64)])[:width]
    return np.concatenate([known, np.full(width - len(known), known[-1])])
