"""Growth of a job's metric: progress reports become a category (progressing, watching, converged) and a short history.

Used by rules that move jobs or divide CPUs by growth, and by `eta`, which fits a curve to a history. Time is the job's
own: steps and reports, so a job that is slowed down, paused or silent does not look converged. Invalid reports (not
finite, out of order, of an older attempt, of a repeated step) are dropped and never make a job converged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import Enum, IntEnum
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from sterna.errors import UserError
from sterna.model.cluster import Ints
from sterna.model.speedup import Floats

CAPACITY = 64
"""Windows kept per job besides the first. When they are full, neighbours are merged in pairs, so a window is 1/64 to
1/32 of a long run; the first is never merged, because all improvement is measured from it."""

MOST_AT_ONCE = 1024
"""Most reports of one job that one update evaluates; of more, an evenly spaced subset is used."""

_ABSURD = 1e150
"""Largest magnitude of a valid value; squares of larger ones would overflow."""

_BLOCK = 1024
"""Jobs evaluated at once, which bounds the scratch memory."""

_EQUAL = 1e-9
"""Relative difference up to which a score counts as on its threshold, not above it."""


class Growth(IntEnum):
    """Growth category; higher is nearer to convergence."""

    PROGRESSING = 0
    WATCHING = 1
    CONVERGED = 2


class Direction(IntEnum):
    """Direction in which a metric improves."""

    RISING = -1
    DETECTED = 0
    """The direction in which it went farther from its first window."""
    FALLING = 1


class Strict(Enum):
    """Published rule to apply literally."""

    NO = "no"
    SPECON = "specon"
    CONTAINER_MIGRATION = "container-migration"


@dataclass(frozen=True)
class GrowthRule:
    """Thresholds of the growth categories."""

    window_reports: int = 4
    """Reports per window at first, at least 3; the mean of a window leaves out its best and its worst value."""
    windows: int = 3
    """Windows over which the recent rate of improvement is measured; no category change before one more window."""
    patience: int = 3
    """Consecutive windows with a low rate after which a watched job is converged."""
    low: float = 0.1
    """Fraction of the job's highest rate below which a rate is low."""
    high: float = 0.2
    """Fraction of the highest rate from which a job is progressing again; between `low` and `high` nothing changes."""
    strict: Strict = Strict.NO
    """Published rule that replaces the fields above."""
    alpha: float = 0.1
    """SpeCon: threshold up to which progress is low."""
    alpha_is_relative: bool = True
    """SpeCon: `alpha` is a fraction of the job's highest progress, else in metric units per second."""
    interval_seconds: float = 10.0
    """SpeCon: shortest time between two samples."""

    def __post_init__(self) -> None:
        for name, least in (("window_reports", 3), ("windows", 1), ("patience", 1)):
            if not least <= getattr(self, name) <= CAPACITY // 2:
                raise UserError(f"growth: {name} is {getattr(self, name)}; give {least} to {CAPACITY // 2}.")
        if not 0 < self.low <= self.high <= 1:
            raise UserError(f"growth: low is {self.low} and high {self.high}; give 0 < low <= high <= 1.")
        for name in ("alpha", "interval_seconds"):
            if not 0 <= getattr(self, name) < np.inf:
                raise UserError(f"growth: {name} is {getattr(self, name)}; give a number that is 0 or more.")


@dataclass(frozen=True, slots=True)
class Report:
    """One measurement of a job's metric."""

    step: float
    """Steps done; negative if the job does not count steps: then reports are counted."""
    seconds: float
    """Time, on any clock that is monotonic within an attempt."""
    value: float
    attempt: int = 0
    """Number of the start of the job that made this report."""


_UNSTARTED = -1
_LAST_ATTEMPT = 2**53
_NO_STEP = -1.0


@dataclass
class _Columns:
    """State by job: one entry, or one column of windows."""

    growth: npt.NDArray[np.int8]
    direction: npt.NDArray[np.int8]
    attempt: Ints
    last_seconds: Floats
    worked: Floats
    high_step: Floats
    lowest: Floats
    highest: Floats
    lows: Ints
    width: Ints
    count: Ints
    sum_step: Floats
    sum_worked: Floats
    least: Floats
    most: Floats
    inner: Floats
    filled: Ints
    floor: Floats
    ceiling: Floats
    step: Floats
    seconds: Floats
    value: Floats
    sample_seconds: Floats
    sample_value: Floats
    score: Floats
    peak_score: Floats
    scores: Ints
    mean_time: Floats
    mean_log: Floats
    time_time: Floats
    time_log: Floats
    log_log: Floats

    @classmethod
    def empty(cls, jobs: int, rule: GrowthRule) -> _Columns:
        kinds = {"growth": np.int8, "direction": np.int8}
        ints = ("attempt", "lows", "width", "count", "filled", "scores")
        shapes = dict.fromkeys(("step", "seconds", "value"), (CAPACITY + 1, jobs))
        made = {
            f.name: np.zeros(shapes.get(f.name, (jobs,)), kinds.get(f.name, np.int64 if f.name in ints else np.float64))
            for f in fields(cls)
        }
        columns = cls(**made)
        columns.attempt += _UNSTARTED
        columns.high_step += _NO_STEP
        columns.lowest += np.inf
        columns.highest -= np.inf
        columns.floor += np.inf
        columns.ceiling -= np.inf
        columns.width += rule.window_reports
        return columns

    def take(self, rows: Ints) -> _Columns:
        return _Columns(**{f.name: getattr(self, f.name)[..., rows] for f in fields(self)})

    def put(self, rows: Ints, other: _Columns) -> None:
        for f in fields(self):
            getattr(self, f.name)[..., rows] = getattr(other, f.name)


@dataclass(frozen=True)
class _Batch:
    """Reports as columns."""

    rows: Ints
    step: Floats
    seconds: Floats
    value: Floats
    attempt: Ints

    def where(self, kept: npt.NDArray[np.bool_] | Ints) -> _Batch:
        return _Batch(self.rows[kept], self.step[kept], self.seconds[kept], self.value[kept], self.attempt[kept])

    def drop_invalid(self) -> _Batch:
        """Return the batch without values that are not finite or absurdly large."""
        fine = np.isfinite(self.step) & np.isfinite(self.seconds) & (np.abs(self.value) <= _ABSURD)
        return self if fine.all() else self.where(fine)

    def rounds(self) -> Iterator[_Batch]:
        """Yield the first report of each job, then the second of each and so on, at most `MOST_AT_ONCE` per job."""
        if len(self.rows) < 2 or bool((np.diff(self.rows) > 0).all()):
            yield self
            return
        order = np.lexsort((self.step, self.seconds, self.attempt, self.rows))
        rows = self.rows[order]
        first = np.flatnonzero(np.diff(rows, prepend=rows[0] - 1))
        counts = np.diff(first, append=len(rows))
        for turn in range(min(int(counts.max()), MOST_AT_ONCE)):
            many = counts > turn
            skip = np.where(counts > MOST_AT_ONCE, turn * (counts - 1) // (MOST_AT_ONCE - 1), turn)
            yield self.where(order[(first + skip)[many]])


class GrowthTable:
    """Growth of many jobs, one row each, updated in batches."""

    def __init__(self, jobs: int, rule: GrowthRule | None = None) -> None:
        self.rule = rule or GrowthRule()
        self._columns = _Columns.empty(jobs, self.rule)

    def __len__(self) -> int:
        return len(self._columns.growth)

    @property
    def growth(self) -> npt.NDArray[np.int8]:
        """Category of each row, as values of `Growth`; read-only."""
        view = self._columns.growth.view()
        view.setflags(write=False)
        return view

    @property
    def best(self) -> Floats:
        """Best value of each row so far; NaN before the first report."""
        c = self._columns
        known = c.attempt != _UNSTARTED
        return np.where(known, np.where(_signs(c) > 0, c.lowest, c.highest), np.nan)

    @property
    def last_step(self) -> Floats:
        """Highest step of each row; negative before the first report."""
        return self._columns.high_step.copy()

    @property
    def windows(self) -> tuple[Ints, Floats, Floats]:
        """Number of windows of each row, and the middles of the windows in steps and in worked seconds, one column per
        row."""
        return self._columns.filled, self._columns.step, self._columns.seconds

    def declare(self, rows: Sequence[int] | Ints, direction: Direction) -> None:
        """Set the direction in which the metric of these jobs improves, instead of detecting it."""
        self._columns.direction[rows] = direction

    def resize(self, jobs: int) -> None:
        """Add empty rows at the end, or drop rows there."""
        kept = np.arange(min(jobs, len(self)))
        columns = _Columns.empty(jobs, self.rule)
        columns.put(kept, self._columns.take(kept))
        self._columns = columns

    def forget(self, rows: ArrayLike) -> None:
        """Reset these rows, for other jobs."""
        chosen = np.asarray(rows, dtype=np.int64)
        self._columns.put(chosen, _Columns.empty(len(chosen), self.rule))

    def history(self, row: int) -> History:
        table = GrowthTable(0, self.rule)
        table._columns = self._columns.take(np.array([row]))
        return History(table)

    def update(
        self, rows: ArrayLike, step: ArrayLike, seconds: ArrayLike, value: ArrayLike, attempt: ArrayLike = 0
    ) -> Ints:
        """Process reports, any number per row in any order; return the rows whose category changed, ascending."""
        chosen = np.asarray(rows, dtype=np.int64)
        number = np.nan_to_num(np.asarray(attempt, dtype=np.float64), nan=_UNSTARTED)
        attempts = np.broadcast_to(np.clip(number, _UNSTARTED, _LAST_ATTEMPT).astype(np.int64), chosen.shape)
        steps, clock, values = (np.asarray(part, dtype=np.float64) for part in (step, seconds, value))
        batch = _Batch(chosen, steps, clock, values, attempts).drop_invalid()
        batch = batch.where(batch.attempt >= np.maximum(self._columns.attempt[batch.rows], 0))
        before = self._columns.growth.copy()
        np.minimum.at(self._columns.lowest, batch.rows, batch.value)
        np.maximum.at(self._columns.highest, batch.rows, batch.value)
        for part in batch.rounds():
            self._accept(part)
        # A flood of reports is usually a fault: it may lead to WATCHING, but CONVERGED needs reports after it.
        flooded = np.flatnonzero(np.bincount(batch.rows, minlength=len(self)) > MOST_AT_ONCE)
        growth, self._columns.lows[flooded] = self._columns.growth, 0
        growth[flooded] = np.minimum(growth[flooded], np.maximum(before[flooded], Growth.WATCHING))
        return np.flatnonzero(growth != before)

    def _accept(self, batch: _Batch) -> None:
        """Process at most one report per job."""
        c, rows = self._columns, batch.rows
        fresh = batch.attempt > c.attempt[rows]
        elapsed = np.where(fresh, 0.0, batch.seconds - c.last_seconds[rows])
        usable = (fresh | (elapsed > 0)) & (batch.attempt >= c.attempt[rows])
        batch, rows, fresh, elapsed = batch.where(usable), rows[usable], fresh[usable], elapsed[usable]
        c.attempt[rows] = batch.attempt
        c.last_seconds[rows] = batch.seconds
        step = np.where(batch.step < 0, c.high_step[rows] + 1, batch.step)
        is_new = step > c.high_step[rows]
        is_strict = self.rule.strict is not Strict.NO
        c.worked[rows] += elapsed if is_strict else np.where(is_new, elapsed, 0.0)
        if is_strict:
            _sample(c, self.rule, rows, batch.value, fresh)
        rows, step, value = rows[is_new], step[is_new], batch.value[is_new]
        c.high_step[rows] = step
        closed = _fill(c, rows, step, value)
        ready = closed[c.filled[closed] > self.rule.windows]
        if len(ready) and not is_strict:
            scratch = np.empty((4, int(c.filled[ready].max()), min(len(ready), _BLOCK)))
            for start in range(0, len(ready), _BLOCK):
                _categorise(c, self.rule, ready[start : start + _BLOCK], scratch)


def _fill(c: _Columns, rows: Ints, step: Floats, value: Floats) -> Ints:
    """Add a report to the open window of each row; return the rows whose window it completed."""
    count = c.count[rows]
    least, most = np.where(count, c.least[rows], value), np.where(count, c.most[rows], value)
    # Values between the extremes are summed separately: subtracting an outlier from a sum again would leave its
    # rounding error behind.
    c.inner[rows] += np.where(count > 1, np.clip(value, least, most), 0.0)
    c.least[rows], c.most[rows] = np.minimum(least, value), np.maximum(most, value)
    c.sum_step[rows] += step
    c.sum_worked[rows] += c.worked[rows]
    c.count[rows] = count + 1
    closed = rows[count + 1 >= c.width[rows]]
    if len(closed):
        _close(c, closed)
    return closed


def _close(c: _Columns, rows: Ints) -> None:
    at, count = c.filled[rows], c.count[rows]
    c.step[at, rows] = c.sum_step[rows] / count
    c.seconds[at, rows] = c.sum_worked[rows] / count
    c.value[at, rows] = mean = c.inner[rows] / (count - 2)
    c.floor[rows], c.ceiling[rows] = np.minimum(c.floor[rows], mean), np.maximum(c.ceiling[rows], mean)
    c.filled[rows] = at + 1
    for column in (c.count, c.sum_step, c.sum_worked, c.inner):
        column[rows] = 0
    full = rows[at == CAPACITY]
    if len(full):
        for windows in (c.step, c.seconds, c.value):
            for half in range(1, CAPACITY // 2 + 1):
                windows[half][full] = (windows[2 * half - 1][full] + windows[2 * half][full]) / 2
        c.filled[full] = CAPACITY // 2 + 1
        c.width[full] *= 2


def _categorise(c: _Columns, rule: GrowthRule, rows: Ints, scratch: Floats) -> None:
    """Compare the recent rate of improvement of the best value with the job's highest rate."""
    span, filled = rule.windows, c.filled[rows]
    used = int(filled.max())
    best, step = scratch[:2, :used, : len(rows)]  # allocating memory would cost more than the arithmetic
    rates, spans = scratch[2:, span:used, : len(rows)]
    c.value[:used].take(rows, axis=1, out=best, mode="clip")
    c.step[:used].take(rows, axis=1, out=step, mode="clip")
    best *= _signs(c, rows)
    for before, after in pairwise(best):  # ten times as fast as NumPy's own running minimum
        np.minimum(before, after, out=after)
    np.subtract(best[:-span], best[span:], out=rates)
    np.subtract(step[span:], step[:-span], out=spans)
    if int(filled.min()) < used:
        unknown = np.arange(span, used)[:, None] >= filled
        np.copyto(rates, 0.0, where=unknown)
        np.copyto(spans, 1.0, where=unknown)
    rates /= spans
    peak, recent = rates.max(axis=0), rates[filled - span - 1, np.arange(len(rows))]
    grew = peak > 0
    is_low, is_high = recent < rule.low * peak, grew & (recent >= rule.high * peak)
    c.lows[rows] = lows = np.where(grew & is_low, c.lows[rows] + 1, 0)
    watched = np.maximum(c.growth[rows], Growth.WATCHING)
    # A job that never improved has no rate to compare with and is watched: it may be slow to start.
    kept = np.where(is_low | ~grew, watched, c.growth[rows])
    c.growth[rows] = np.select(
        [is_high, lows >= rule.patience], [Growth.PROGRESSING, Growth.CONVERGED], kept.astype(np.int64)
    )


def _signs(c: _Columns, rows: Ints | slice = slice(None)) -> Ints:
    """Return 1 where lower is better, -1 where higher is: as declared, else by the larger distance from the first
    window."""
    declared, first = c.direction[rows].astype(np.int64), c.value[0, rows]
    falls = first - c.floor[rows] >= c.ceiling[rows] - first
    return np.where(declared, declared, np.where(falls, Direction.FALLING, Direction.RISING))


def _sample(c: _Columns, rule: GrowthRule, rows: Ints, value: Floats, fresh: npt.NDArray[np.bool_]) -> None:
    """Apply a published rule: score the change since the last sample. The first sample of an attempt has no score."""
    least = rule.interval_seconds if rule.strict is Strict.SPECON else 0.0
    dt = c.worked[rows] - c.sample_seconds[rows]
    due = ~fresh & (dt >= least) & (dt > 0)
    score = np.abs(value[due] - c.sample_value[rows[due]]) / dt[due]
    taken, scored = rows[fresh | due], rows[due]
    c.sample_seconds[taken], c.sample_value[taken] = c.worked[taken], value[fresh | due]
    if rule.strict is Strict.SPECON:
        c.peak_score[scored] = peak = np.maximum(c.peak_score[scored], score)
        is_high = score > (rule.alpha * peak if rule.alpha_is_relative else rule.alpha)
        falls = np.ones(len(scored), dtype=np.bool_)
    else:
        alpha, beta = _fit(c, scored, score)
        is_high = score > alpha * (1 + _EQUAL)
        falls = score * (1 + beta) < c.score[scored]
    c.score[scored] = score
    was = c.growth[scored]
    low = np.where(was == Growth.PROGRESSING, Growth.WATCHING, np.where(falls, Growth.CONVERGED, was))
    c.growth[scored] = np.where(is_high, Growth.PROGRESSING, low)


def _fit(c: _Columns, rows: Ints, score: Floats) -> tuple[Floats, Floats]:
    """Return alpha and beta of container-migration: the current value of a line fitted to ln score, and 1 - R².

    Zero scores have no logarithm and are left out of the fit. Before three scores both are 0.
    """
    positive = score > 0
    r, x, y = rows[positive], c.worked[rows[positive]], np.log(score[positive])
    c.scores[r] += 1
    dx, dy = x - c.mean_time[r], y - c.mean_log[r]
    c.mean_time[r] += dx / c.scores[r]
    c.mean_log[r] += dy / c.scores[r]
    c.time_time[r] += dx * (x - c.mean_time[r])
    c.time_log[r] += dx * (y - c.mean_log[r])
    c.log_log[r] += dy * (y - c.mean_log[r])
    ready = (c.scores[rows] >= 3) & (c.time_time[rows] > 0)
    across = np.where(ready, c.time_time[rows], 1.0)
    slope = c.time_log[rows] / across
    spread = c.log_log[rows]
    explained = np.where(spread > 0, slope * c.time_log[rows] / np.where(spread > 0, spread, 1.0), 1.0)
    with np.errstate(over="ignore"):
        alpha = np.exp(c.mean_log[rows] + slope * (c.worked[rows] - c.mean_time[rows]))
    return np.where(ready, alpha, 0.0), np.where(ready, np.clip(1 - explained, 0.0, 1.0), 0.0)


@dataclass(frozen=True)
class History:
    """State of one job: its best value, its category, and at most 65 windows of its reports. Immutable."""

    _table: GrowthTable

    @classmethod
    def of(
        cls, reports: Iterable[Report] = (), rule: GrowthRule | None = None, direction: Direction = Direction.DETECTED
    ) -> History:
        table = GrowthTable(1, rule)
        table.declare([0], direction)
        return cls(table).extend(reports)

    def extend(self, reports: Iterable[Report]) -> History:
        """Return a new history with these reports."""
        longer = self._table.history(0)
        taken = list(reports)
        if taken:
            step, seconds, value = np.array([(r.step, r.seconds, r.value) for r in taken], dtype=np.float64).T
            rows = np.zeros(len(taken), dtype=np.int64)
            longer._table.update(rows, step, seconds, value, [r.attempt for r in taken])
        return longer

    @property
    def growth(self) -> Growth:
        return Growth(int(self._table.growth[0]))

    @property
    def best(self) -> float:
        """Best value so far; NaN before the first report."""
        return float(self._table.best[0])

    @property
    def direction(self) -> Direction:
        return Direction(int(_signs(self._table._columns)[0]))

    @property
    def last_step(self) -> float:
        """Highest step; negative before the first report."""
        return float(self._table._columns.high_step[0])

    @property
    def worked_seconds(self) -> float:
        """Time spent on new steps, without pauses between attempts and repeated steps."""
        return float(self._table._columns.worked[0])

    @property
    def steps(self) -> Floats:
        """Middle of each window, in steps."""
        return self._windows(self._table._columns.step)

    @property
    def seconds(self) -> Floats:
        """Middle of each window, in worked seconds."""
        return self._windows(self._table._columns.seconds)

    @property
    def values(self) -> Floats:
        """Mean of each window without its extremes."""
        return self._windows(self._table._columns.value)

    def _windows(self, column: Floats) -> Floats:
        return column[: int(self._table._columns.filled[0]), 0].copy()
