"""Windows over the steps of many jobs: means of the reports in equal slices of each run.

A window is a number of steps, a power of two, and not a number of reports: a job that reports every step and one that
reports every fourth have the same windows. When a run outgrows its windows, neighbours are merged in pairs, which is
exact, so a window is 1/64 to 1/32 of a long run.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from sterna.model.cluster import Ints
from sterna.model.speedup import Floats

CAPACITY = 64
"""Windows kept per job."""

_MERGES = CAPACITY.bit_length()
"""Merges in pairs after which all windows are one."""


@dataclass
class StepWindows:
    """Windows of many jobs: one column per job, one row per window. Sums are of the reports in a window."""

    origin: Floats
    """First step of each job; NaN before it."""
    width: Floats
    """Steps per window; 0 before the second report."""
    open: Ints
    """Number of the window that receives reports; those before it are closed."""
    count: Ints
    step: Floats
    seconds: Floats
    least: Floats
    most: Floats
    inner: Floats
    """Sum of the values without the least and the most. Subtracting an outlier from a sum would leave its rounding
    error behind."""

    @classmethod
    def empty(cls, jobs: int) -> StepWindows:
        shape = (CAPACITY, jobs)
        return cls(
            np.full(jobs, np.nan),
            np.zeros(jobs),
            np.zeros(jobs, dtype=np.int64),
            np.zeros(shape, dtype=np.int64),
            np.zeros(shape),
            np.zeros(shape),
            np.full(shape, np.inf),
            np.full(shape, -np.inf),
            np.zeros(shape),
        )

    def take(self, rows: Ints) -> StepWindows:
        return StepWindows(*(getattr(self, f.name)[..., rows] for f in fields(self)))

    def put(self, rows: Ints, other: StepWindows) -> None:
        for f in fields(self):
            getattr(self, f.name)[..., rows] = getattr(other, f.name)

    def add(self, rows: Ints, step: Floats, seconds: Floats, value: Floats) -> Ints:
        """Add one report to each of these rows, at a step above the last; return the rows where it closed a window."""
        at = self._place(rows, step)
        count, least, most = self.count[at, rows], self.least[at, rows], self.most[at, rows]
        self.inner[at, rows] += np.where(count > 1, np.clip(value, least, most), 0.0)
        self.least[at, rows], self.most[at, rows] = np.minimum(least, value), np.maximum(most, value)
        self.step[at, rows] += step
        self.seconds[at, rows] += seconds
        self.count[at, rows] = count + 1
        closed = rows[at > self.open[rows]]
        self.open[rows] = at
        return closed

    def means(self, rows: Ints, used: int) -> Floats:
        """Return the mean of each of the first `used` windows without its extremes; of an empty window, the mean of
        the window before it."""
        count = self.count[:used].take(rows, axis=1)
        least, most = self.least[:used].take(rows, axis=1), self.most[:used].take(rows, axis=1)
        with np.errstate(invalid="ignore"):
            few = np.where(count == 1, least, (least + most) / 2)
        means: Floats = np.where(count > 2, self.inner[:used].take(rows, axis=1) / np.maximum(count - 2, 1), few)
        if not count.all():
            for number in range(1, used):
                np.copyto(means[number], means[number - 1], where=count[number] == 0)
        return means

    @property
    def closed_count(self) -> Ints:
        """Number of closed windows of each job that have reports."""
        number: Ints = np.count_nonzero(self.count, axis=0) - ~np.isnan(self.origin)
        return number

    def middles(self) -> tuple[Floats, Floats]:
        """Return the mean step and the mean seconds of the windows that have reports, without gaps."""
        number = np.maximum(self.count, 1)
        step, seconds = self.step / number, self.seconds / number
        if bool((self.closed_count < self.open).any()):
            order = np.argsort(self.count == 0, axis=0, kind="stable")
            step, seconds = np.take_along_axis(step, order, axis=0), np.take_along_axis(seconds, order, axis=0)
        return step, seconds

    def _place(self, rows: Ints, step: Floats) -> Ints:
        """Return the window of each step, after making the windows wide enough to reach it."""
        is_first = np.isnan(self.origin[rows])
        self.origin[rows] = np.where(is_first, step, self.origin[rows])
        along = step - self.origin[rows]
        second = (self.width[rows] == 0) & ~is_first
        if second.any():
            self.width[rows[second]] = np.exp2(np.ceil(np.log2(along[second])))
        over = along >= CAPACITY * self.width[rows]
        over &= ~is_first
        for _ in range(_MERGES):
            if not over.any():
                break
            self._merge(rows[over])
            over &= along >= CAPACITY * self.width[rows]
        if over.any():  # a leap: all that was before it is in the first window now
            self.width[rows[over]] = np.exp2(np.floor(np.log2(along[over] / CAPACITY)) + 1)
        width = self.width[rows]
        return np.floor(np.divide(along, width, out=np.zeros_like(along), where=width > 0)).astype(np.int64)

    def _merge(self, rows: Ints) -> None:
        """Merge the windows of these rows in pairs."""
        half = CAPACITY // 2
        count, step, seconds = self.count[:, rows], self.step[:, rows], self.seconds[:, rows]
        least, most, inner = self.least[:, rows], self.most[:, rows], self.inner[:, rows]
        few, many = count == 1, count > 1
        with np.errstate(invalid="ignore"):
            between = np.maximum(least[::2], least[1::2]) + np.minimum(most[::2], most[1::2])
            between = np.where(many[::2] & many[1::2], between, 0.0)
        for one, other in ((0, 1), (1, 0)):
            middle = np.clip(least[one::2], least[other::2], most[other::2])
            between = np.where(few[one::2] & many[other::2], middle, between)
        self.inner[:half, rows] = inner[::2] + inner[1::2] + between
        self.least[:half, rows] = np.minimum(least[::2], least[1::2])
        self.most[:half, rows] = np.maximum(most[::2], most[1::2])
        self.count[:half, rows] = count[::2] + count[1::2]
        self.step[:half, rows] = step[::2] + step[1::2]
        self.seconds[:half, rows] = seconds[::2] + seconds[1::2]
        self.count[half:, rows] = 0
        self.step[half:, rows] = self.seconds[half:, rows] = self.inner[half:, rows] = 0.0
        self.least[half:, rows], self.most[half:, rows] = np.inf, -np.inf
        self.open[rows] //= 2
        self.width[rows] *= 2
