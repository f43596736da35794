"""Growth of a job's metric: progress reports become a category (progressing, watching, converged) and a short history.

Used by rules that move jobs or divide CPUs by growth, and by `eta`, which fits a curve to a history. Time is the job's
own: steps, or seconds of work where it does not count them. A job that is slowed down, paused, silent or reports less
often does not look different. Invalid reports (not finite, out of order, of an older attempt, of a repeated step) are
dropped and never make a job converged. No curve shows what comes later: rules that act on a category bound its harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import Enum, IntEnum
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from sterna.errors import UserError
from sterna.model.cluster import Ints
from sterna.model.speedup import Floats
from sterna.model.step_windows import StepWindows

MOST_AT_ONCE = 1024
"""Most reports of one job that one update evaluates; of more, an evenly spaced subset is used."""

_ABSURD = 1e150
"""Largest magnitude of a valid value; squares of larger ones would overflow."""

_BLOCK = 1024
"""Jobs evaluated at once, which bounds the scratch memory."""

_LEAST_WINDOWS = 12
"""Fewest closed windows for a category other than PROGRESSING."""

_RECENT = 8
"""The recent rate is measured over one part of the run in this many."""

_NOISE = 4.0
"""Multiple of the mean change between two reports below which an improvement counts as noise."""

_NEAR = 0.1
"""Fraction of its improvement within which the metric of a converged job is at its best value."""

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
    """The direction in which it went farther from its first value."""
    FALLING = 1


class Strict(Enum):
    """Published rule to apply literally."""

    NO = "no"
    SPECON = "specon"
    CONTAINER_MIGRATION = "container-migration"


@dataclass(frozen=True)
class GrowthRule:
    """Thresholds of the growth categories."""

    low: float = 0.2
    """Rate of improvement in the last eighth of the run, relative to the mean rate, below which it is low."""
    high: float = 0.6
    """Relative rate from which a job is progressing again; between `low` and `high` nothing changes."""
    late: float = 0.05
    """Fraction of its improvement that a converged job made at most in the second half of its run so far; from twice
    as much on it is no longer converged."""
    least_done: float = 0.5
    """Fraction of its steps before which a job is not converged, if their total is known."""
    strict: Strict = Strict.NO
    """Published rule that replaces the fields above."""
    alpha: float = 0.1
    """SpeCon: threshold up to which progress is low."""
    alpha_is_relative: bool = True
    """SpeCon: `alpha` is a fraction of the job's highest progress, else in metric units per second."""
    interval_seconds: float = 10.0
    """SpeCon: shortest time between two samples."""

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high <= 1:
            raise UserError(f"growth: low is {self.low} and high {self.high}; give 0 < low <= high <= 1.")
        for name in ("late", "least_done"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"growth: {name} is {getattr(self, name)}; give a fraction from 0 to 1.")
        for name in ("alpha", "interval_seconds"):
            if not 0 <= getattr(self, name) < np.inf:
                raise UserError(f"growth: {name} is {getattr(self, name)}; give a number that is 0 or more.")


@dataclass(frozen=True, slots=True)
class Report:
    """One measurement of a job's metric."""

    step: float
    """Steps done; negative if the job does not count steps: then seconds of work are counted."""
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
    floor: Floats
    ceiling: Floats
    total: Floats
    """Steps of the whole run; NaN if unknown."""
    first: Floats
    last: Floats
    variation: Floats
    """Sum of the changes between two reports, either way."""
    reports: Ints
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
    windows: StepWindows

    @classmethod
    def empty(cls, jobs: int, rule: GrowthRule) -> _Columns:
        kinds = {"growth": np.int8, "direction": np.int8}
        ints = ("attempt", "reports", "scores")
        made: dict[str, Any] = {
            f.name: np.zeros(jobs, kinds.get(f.name, np.int64 if f.name in ints else np.float64))
            for f in fields(cls)
            if f.name != "windows"
        }
        columns = cls(**made, windows=StepWindows.empty(jobs))
        columns.attempt += _UNSTARTED
        columns.high_step += _NO_STEP
        columns.lowest += np.inf
        columns.highest -= np.inf
        columns.floor += np.inf
        columns.ceiling -= np.inf
        columns.total += np.nan
        return columns

    def take(self, rows: Ints) -> _Columns:
        return _Columns(**{name: column[rows] for name, column in self._by_name()}, windows=self.windows.take(rows))

    def put(self, rows: Ints, other: _Columns) -> None:
        for name, column in self._by_name():
            column[rows] = getattr(other, name)
        self.windows.put(rows, other.windows)

    def _by_name(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        return ((f.name, getattr(self, f.name)) for f in fields(self) if f.name != "windows")


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
    def windows(self) -> StepWindows:
        return self._columns.windows

    def declare(self, rows: Sequence[int] | Ints, direction: Direction) -> None:
        """Set the direction in which the metric of these jobs improves, instead of detecting it."""
        self._columns.direction[rows] = direction

    def set_totals(self, rows: Sequence[int] | Ints, steps: ArrayLike) -> None:
        """Set the number of steps of these jobs' whole runs; NaN if unknown."""
        self._columns.total[rows] = steps

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
        growth = self._columns.growth
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
        step = np.where(batch.step < 0, np.maximum(c.high_step[rows] + elapsed, 0.0), batch.step)
        is_new = step > c.high_step[rows]
        is_strict = self.rule.strict is not Strict.NO
        c.worked[rows] += elapsed if is_strict else np.where(is_new, elapsed, 0.0)
        if is_strict:
            _sample(c, self.rule, rows, batch.value, fresh)
        rows, step, value = rows[is_new], step[is_new], batch.value[is_new]
        c.high_step[rows] = step
        has_last = c.reports[rows] > 0
        c.variation[rows] += np.where(has_last, np.abs(value - c.last[rows]), 0.0)
        c.first[rows] = np.where(has_last, c.first[rows], value)
        c.last[rows] = value
        c.reports[rows] += 1
        closed = c.windows.add(rows, step, c.worked[rows], value)
        ready = closed[c.windows.open[closed] >= _LEAST_WINDOWS]
        if not is_strict:
            for start in range(0, len(ready), _BLOCK):
                _categorise(c, self.rule, ready[start : start + _BLOCK])


def _categorise(c: _Columns, rule: GrowthRule, rows: Ints) -> None:
    """Compare the improvement in the last eighth and in the second half of each run with that of the whole run."""
    closed = c.windows.open[rows]
    value = _smooth(c.windows.means(rows, int(closed.max())))
    last, column = closed - 1, np.arange(len(rows))
    now = value[last, column]
    c.floor[rows], c.ceiling[rows] = np.minimum(c.floor[rows], now), np.maximum(c.ceiling[rows], now)
    sign = _signs(c, rows)
    best = value * sign
    for before, after in pairwise(best):  # ten times as fast as NumPy's own running minimum
        np.minimum(before, after, out=after)
    part, at_best = closed // _RECENT, best[last, column]
    improved = sign * c.first[rows] - at_best
    recent = (best[last - part, column] - at_best) * closed / part
    second_half = best[last - closed // 2, column] - at_best
    noise = c.variation[rows] / np.maximum(c.reports[rows] - 1, 1)
    grew, was = improved > _NOISE * noise, c.growth[rows]
    is_low, is_high = recent < rule.low * improved, grew & (recent >= rule.high * improved)
    loose = np.where(was == Growth.CONVERGED, 2.0, 1.0)  # hysteresis
    is_near = sign * now - at_best <= loose * (_NEAR * improved + 2 * noise)
    is_late = ~(c.high_step[rows] < rule.least_done * c.total[rows])
    settled = grew & is_late & is_near & (second_half < loose * rule.late * improved)
    watched = is_low | ~grew | (was != Growth.PROGRESSING)
    c.growth[rows] = np.select(
        [is_high, settled & (is_low | (was == Growth.CONVERGED)), watched],
        [Growth.PROGRESSING, Growth.CONVERGED, Growth.WATCHING],
        Growth.PROGRESSING,
    )


def _smooth(value: Floats) -> Floats:
    """Return the median of each window and the two before it, so that one wild value changes nothing."""
    medians = _medians(value)
    return np.concatenate((medians[:1], medians[:1], medians))


def _medians(value: Floats) -> Floats:
    """Return the median of every three successive windows."""
    one, two, three = value[:-2], value[1:-1], value[2:]
    median: Floats = np.maximum(np.minimum(one, two), np.minimum(np.maximum(one, two), three))
    return median


def _signs(c: _Columns, rows: Ints | slice = slice(None)) -> Ints:
    """Return 1 where lower is better, -1 where higher is: as declared, else by the larger distance from the first
    value."""
    declared, first = c.direction[rows].astype(np.int64), c.first[rows]
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
    """State of one job: its best value, its category, and at most 64 windows of its reports. Immutable."""

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
        """Mean step of each closed window that has reports."""
        return self._means(self._table.windows.step)

    @property
    def seconds(self) -> Floats:
        """Mean time of each closed window that has reports, in worked seconds."""
        return self._means(self._table.windows.seconds)

    @property
    def values(self) -> Floats:
        """Mean value of each closed window that has reports, without extremes: the median of it and its neighbours."""
        windows = self._table.windows
        closed = int(windows.open[0])
        means: Floats = windows.means(np.zeros(1, dtype=np.int64), closed)[windows.count[:closed, 0] > 0, 0]
        if len(means) > 2:
            means[1:-1] = _medians(means)
        return means

    def _means(self, sums: Floats) -> Floats:
        count = self._table.windows.count[: int(self._table.windows.open[0]), 0]
        used = count > 0
        means: Floats = sums[: len(count), 0][used] / count[used]
        return means
