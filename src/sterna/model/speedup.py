"""Speed-up curves: how much faster a job trains with n workers than with one.

A curve is a row of a table: S(0) = 0, S(1) = 1, never falling, never steeper than before. Beyond the last known count
it is flat: a gain that nobody measured is not promised. Learning curves from progress reports is not done here.
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
"""The curve of a job about which nothing is known: n workers are n times as fast."""

_TOLERANCE = 1e-9

_ENDLESS = 1 << 40
"""More workers than any job has."""


class Repaired(tuple[float, ...]):
    """A curve that had to be changed to become concave."""

    __slots__ = ()


def concave(speeds: Sequence[float]) -> tuple[float, ...]:
    """The curve itself if it is fit for use, else a `Repaired` one: nearest gains that fall, none above 1 or below
    0."""
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
    """All curves of a snapshot; a job's `curve` column says which is its own. Row 0 is linear."""

    rows: tuple[tuple[float, ...], ...] = ((1.0,),)
    """Speed-ups at 1, 2, .. workers; the entry at `LINEAR` is ignored."""

    @cached_attribute
    def is_linear(self) -> bool:
        return len(self.rows) == 1

    def table(self, widest: int) -> Floats:
        """Curve by worker count, from 0 to `widest`."""
        if self._cache and self._cache[-1].shape[1] > widest:
            return self._cache[-1]
        width = max(widest + 1, 65)
        table = np.empty((len(self.rows), width))
        for code, row in enumerate(self.rows):
            table[code] = np.arange(width) if code == LINEAR else _stretched(row, width)
        table.setflags(write=False)
        self._cache.append(table)
        return table

    @cached_attribute
    def _cache(self) -> list[Floats]:
        return []

    def speed(self, curve: Ints, workers: Ints) -> Floats:
        """S(workers) for each pair."""
        if self.is_linear:
            return workers.astype(np.float64)
        widest = int(workers.max(initial=0))
        return self.table(widest)[curve, workers]

    def gain(self, curve: Ints, workers: Ints) -> Floats:
        """S(workers + 1) - S(workers) for each pair."""
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
        """Workers beyond which another one adds nothing, by curve; for a linear one there is no such number."""
        rising = [(np.diff(row, prepend=0.0) > 0).nonzero()[0] for row in self.rows]
        last = np.array([steps.item(-1) + 1 for steps in rising], dtype=np.int64)
        last[LINEAR] = _ENDLESS
        return last

    def speed_of(self, curve: int, workers: int) -> float:
        if curve == LINEAR:
            return float(workers)
        row = self.rows[curve]
        return row[min(workers, len(row)) - 1] if workers else 0.0


def _stretched(row: Iterable[float], width: int) -> Floats:
    known = np.concatenate([[0.0], np.fromiter(row, dtype=np.float64)])[:width]
    return np.concatenate([known, np.full(width - len(known), known[-1])])
