"""A trace: jobs with their durations, as columns.

Loaders and generators make traces, the simulator replays them. Policies never see a trace, because it knows durations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from sterna.errors import Bug, UserError
from sterna.workloads.domain import (
    COUNT,
    DEVICES,
    INTEGER,
    MOST_COUNTED,
    NOT_NEGATIVE,
    POSITIVE,
    BoolColumn,
    Domain,
    FloatColumn,
    IntColumn,
    plain,
)

if TYPE_CHECKING:
    from sterna.workloads.generate import Mix

Numbers = Sequence[float] | FloatColumn | IntColumn
ColumnArray = TypeVar("ColumnArray", FloatColumn, IntColumn)

NUMBER_COLUMNS: dict[str, tuple[str, Domain]] = {
    "submit_seconds": ("submit_s", NOT_NEGATIVE),
    "workers": ("workers", COUNT),
    "duration_seconds": ("duration_s", POSITIVE),
    "minimum": ("min_workers", COUNT),
    "maximum": ("max_workers", COUNT),
    "devices_per_worker": ("gpus_per_worker", DEVICES),
    "priority": ("priority", INTEGER),
    "requested_seconds": ("requested_s", POSITIVE),
}
"""Column name in files and messages, and domain, by field of `Trace`."""

TEXT_COLUMNS: dict[str, str] = {
    "name": "job",
    "model": "model",
    "category": "category",
    "user": "user",
    "pool": "pool",
    "status": "status",
}

COMPLETED_STATUSES = frozenset({"", "completed", "complete", "pass", "passed", "succeeded", "success", "terminated"})
"""Statuses, in lower case, of jobs that ran to their end; a job without a status is taken for one of them."""


@dataclass(frozen=True, slots=True, repr=False)
class Trace:
    """Jobs in (submit, name) order, one row each. `make_trace` sorts and checks."""

    name: tuple[str, ...]
    submit_seconds: FloatColumn
    """Seconds after the first submission of the original trace."""
    workers: IntColumn
    """Workers that the user requested."""
    minimum: IntColumn
    maximum: IntColumn
    duration_seconds: FloatColumn
    """Run time with `workers` workers and without interruptions."""
    devices_per_worker: FloatColumn
    """A whole number of devices, or a fraction of one."""
    priority: IntColumn
    """Higher goes first."""
    requested_seconds: FloatColumn
    """Run time that the user requested, with `workers` workers; NaN if unknown."""
    model: tuple[str, ...]
    """Model, which selects the speed-up curve; empty if unknown."""
    category: tuple[str, ...]
    """Jobs of one category are assumed to behave alike."""
    user: tuple[str, ...]
    pool: tuple[str, ...]
    """Virtual cluster of the job; empty if there is only one."""
    status: tuple[str, ...]
    """How the job ended, in the words of the trace; empty if unknown."""
    source: str
    """File or generator, for messages."""
    kind: str
    """Detected format, e.g. `philly-csv`."""
    notices: tuple[str, ...] = ()
    """Sentences for the user: rows that were dropped, clocks that were shifted."""

    def __len__(self) -> int:
        return len(self.name)

    def __repr__(self) -> str:
        return f"Trace({self.source}, {self.kind}: {len(self):,} jobs)"

    @property
    def ended_early(self) -> BoolColumn:
        """Return which jobs failed or were killed: their durations are not what their users planned."""
        return np.array([status.lower() not in COMPLETED_STATUSES for status in self.status], dtype=np.bool_)

    @staticmethod
    def load(path: str | PathLike[str], format: str | None = None) -> Trace:
        """Read a file, plain or gzipped; `format` overrides the one that its contents suggest."""
        from sterna.workloads.load import load_trace

        return load_trace(fspath(path), format)

    @staticmethod
    def from_records(records: Iterable[Mapping[str, object]]) -> Trace:
        """Make a trace from one mapping per job with the columns of the native format: `job`, `submit_s`, `workers`,
        `duration_s`, and any of the optional ones."""
        from sterna.workloads.records import trace_from_records

        return trace_from_records(records)

    @staticmethod
    def from_frame(frame: Any) -> Trace:
        """Make a trace from a pandas or polars `DataFrame`, or any mapping of columns, named as in `from_records`."""
        from sterna.workloads.records import trace_from_columns

        return trace_from_columns(frame)

    @staticmethod
    def poisson(*, jobs: int = 100, seed: int = 0, mean_gap_seconds: float = 60.0, mix: Mix | None = None) -> Trace:
        """Generate independent arrivals, `mean_gap_seconds` apart on average. `Mix` describes the jobs."""
        from sterna.workloads import generate

        return generate.poisson(jobs=jobs, seed=seed, mean_gap_seconds=mean_gap_seconds, mix=mix)

    @staticmethod
    def bursty(
        *,
        jobs: int = 100,
        seed: int = 0,
        burst_jobs: int = 10,
        mean_gap_seconds: float = 1.0,
        mean_pause_seconds: float = 600.0,
        mix: Mix | None = None,
    ) -> Trace:
        """Generate bursts of `burst_jobs` jobs with pauses between them."""
        from sterna.workloads import generate

        return generate.bursty(
            jobs=jobs,
            seed=seed,
            burst_jobs=burst_jobs,
            mean_gap_seconds=mean_gap_seconds,
            mean_pause_seconds=mean_pause_seconds,
            mix=mix,
        )

    @staticmethod
    def fixed(*, jobs: int = 100, seed: int = 0, gap_seconds: float = 30.0, mix: Mix | None = None) -> Trace:
        """Generate one job every `gap_seconds`."""
        from sterna.workloads import generate

        return generate.fixed(jobs=jobs, seed=seed, gap_seconds=gap_seconds, mix=mix)

    @staticmethod
    def random(*, jobs: int = 100, seed: int = 0, window_seconds: float = 500.0, mix: Mix | None = None) -> Trace:
        """Generate arrivals that are uniform in a window, as SpeCon's random schedule."""
        from sterna.workloads import generate

        return generate.random(jobs=jobs, seed=seed, window_seconds=window_seconds, mix=mix)

    def take(self, rows: Sequence[int] | IntColumn | BoolColumn) -> Trace:
        """Select rows; submit times do not change."""
        index = np.arange(len(self))[rows]
        pick = index.tolist()
        columns: dict[str, Any] = {field: _freeze(getattr(self, field)[index]) for field in NUMBER_COLUMNS}
        for field in TEXT_COLUMNS:
            values = getattr(self, field)
            columns[field] = tuple([values[row] for row in pick])
        return replace(self, **columns)

    def elastic(self, least: float, most: float) -> Trace:
        """Set the bounds of every job to `least` and `most` times its request."""
        if not (0 < least <= 1 <= most and math.isfinite(most)):
            raise UserError(
                f"--elastic {least:g}x:{most:g}x: give a multiple of at most 1 and one of at least 1, e.g. 1x:4x."
            )
        if float(self.workers.max()) * most > MOST_COUNTED:
            raise UserError(
                f"--elastic {least:g}x:{most:g}x: a job may have at most {MOST_COUNTED:,.0f} workers; give a smaller "
                "multiple."
            )
        low = np.maximum(1, _times(self.workers, least))
        return replace(self, minimum=_freeze(low), maximum=_freeze(_times(self.workers, most)))

    def with_requested_times(self, factor: float) -> Trace:
        """Set the requested time of every job that has none to `factor` times its duration."""
        unknown = np.isnan(self.requested_seconds)
        requested = np.where(unknown, factor * self.duration_seconds, self.requested_seconds)
        return replace(self, requested_seconds=_freeze(requested))


def parse_elastic(text: str) -> tuple[float, float]:
    """Parse the two multiples of `1x:4x`."""
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)x?\s*:\s*(\d+\.?\d*|\.\d+)x?\s*", text, re.ASCII)
    if not match:
        raise UserError(f"--elastic {text}: write the fewest and the most as multiples of the request, e.g. 1x:4x.")
    return float(match[1]), float(match[2])


def make_trace(
    *,
    name: Sequence[str],
    submit_seconds: Numbers,
    workers: Numbers,
    duration_seconds: Numbers,
    minimum: Numbers | None = None,
    maximum: Numbers | None = None,
    devices_per_worker: Numbers | None = None,
    priority: Numbers | None = None,
    requested_seconds: Numbers | None = None,
    model: Sequence[str] | None = None,
    category: Sequence[str] | None = None,
    user: Sequence[str] | None = None,
    pool: Sequence[str] | None = None,
    status: Sequence[str] | None = None,
    source: str = "trace",
    kind: str = "made",
    notices: Sequence[str] = (),
    lines: Sequence[int] | None = None,
) -> Trace:
    """Check the columns and sort the rows. Nothing is shifted, dropped or renamed.

    Defaults: `minimum` and `maximum` are `workers`, each worker has one device, priorities are 0, requested times
    unknown (NaN) and texts empty; an empty category is the model. `lines` are line numbers of the source file, for
    messages.
    """
    count = len(name)
    if count == 0:
        raise UserError(f"{source}: the trace has no jobs.")
    where = _Where(source, name, lines)
    numbers = {
        "submit_seconds": submit_seconds,
        "workers": workers,
        "duration_seconds": duration_seconds,
        "minimum": workers if minimum is None else minimum,
        "maximum": workers if maximum is None else maximum,
        "devices_per_worker": np.ones(count) if devices_per_worker is None else devices_per_worker,
        "priority": np.zeros(count) if priority is None else priority,
        "requested_seconds": np.full(count, np.nan) if requested_seconds is None else requested_seconds,
    }
    checked = {field: _check_numbers(field, values, where) for field, values in numbers.items()}
    _check_bounds(checked, where)
    given = {"name": name, "model": model, "category": category, "user": user, "pool": pool, "status": status}
    texts = {field: _strip_texts(field, values, count) for field, values in given.items()}
    texts["category"] = tuple(map(_either, texts["category"], texts["model"]))
    _check_texts(texts, where)
    order = _submit_order(checked["submit_seconds"], texts["name"])
    pick = order.tolist()
    columns: dict[str, Any] = {field: _as_stored(field, values[order]) for field, values in checked.items()}
    columns |= {field: tuple([values[row] for row in pick]) for field, values in texts.items()}
    return Trace(source=source, kind=kind, notices=tuple(notices), **columns)


def numbered_names(count: int) -> tuple[str, ...]:
    """Return `job-00001` and so on, padded so that names sort as their numbers."""
    width = max(5, len(str(count)))
    return tuple([f"job-{number:0{width}d}" for number in range(1, count + 1)])


@dataclass(frozen=True, slots=True)
class _Where:
    """Position of a row in messages: its line if there is a file, else its job."""

    source: str
    name: Sequence[str]
    lines: Sequence[int] | None

    def __call__(self, row: int) -> str:
        place = f"job '{self.name[row]}'" if self.lines is None else f"line {self.lines[row]}"
        return f"{self.source}, {place}"

    def of_name(self, row: int) -> str:
        return self(row) if self.lines is None else f"{self(row)}, column '{TEXT_COLUMNS['name']}'"


def _check_numbers(field: str, values: Numbers, where: _Where) -> FloatColumn:
    column, domain = NUMBER_COLUMNS[field]
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.shape != (len(where.name),):
        raise Bug(f"make_trace: {field} has shape {numbers.shape}, but there are {len(where.name)} names.")
    is_optional = field == "requested_seconds"
    outside = domain.first_outside(np.where(np.isnan(numbers), 1.0, numbers) if is_optional else numbers)
    if outside is not None:
        found = plain(numbers[outside]) if np.isfinite(numbers[outside]) else str(numbers[outside])
        expected = domain.describe_valid(float(numbers[outside]))
        raise UserError(f"{where(outside)}, column '{column}': found {found}, expected {expected}.")
    return numbers


def _check_bounds(checked: dict[str, FloatColumn], where: _Where) -> None:
    workers, low, high = checked["workers"], checked["minimum"], checked["maximum"]
    if (low > high).any():
        row = int(np.argmax(low > high))
        raise UserError(
            f"{where(row)}: min_workers {plain(low[row])} is above max_workers {plain(high[row])}; "
            "make it at most as large."
        )
    outside = (workers < low) | (workers > high)
    if outside.any():
        row = int(np.argmax(outside))
        raise UserError(
            f"{where(row)}: workers {plain(workers[row])} is not between min_workers {plain(low[row])} and "
            f"max_workers {plain(high[row])}; widen the bounds or change workers."
        )


def _strip_texts(field: str, values: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if values is None:
        return ("",) * count
    if len(values) != count:
        raise Bug(f"make_trace: {field} has {len(values)} rows, but there are {count} names.")
    return tuple(map(str.strip, values))


def _check_texts(texts: dict[str, tuple[str, ...]], where: _Where) -> None:
    for field, values in texts.items():
        if not "".join(values).isprintable():
            row = next(row for row, value in enumerate(values) if not value.isprintable())
            raise UserError(
                f"{where(row)}, column '{TEXT_COLUMNS[field]}': found {values[row]!r}, expected text without "
                "line breaks or control characters."
            )
    names = texts["name"]
    for row, name in enumerate(names):
        if not name or name[0] == "#":
            found = f"the name '{name}'" if name else "no name"
            raise UserError(
                f"{where.of_name(row)}: found {found}, expected one that is not empty and does not start with #."
            )
    if len(set(names)) < len(names):
        _reject_duplicate(names, where)


def _reject_duplicate(names: tuple[str, ...], where: _Where) -> None:
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        before = first.setdefault(name, row)
        if before != row:
            place = f"line {where.lines[before]}" if where.lines is not None else f"row {before + 1}"
            raise UserError(f"{where.of_name(row)}: the name '{name}' is taken by {place}; give each job its own name.")


def _submit_order(submit_seconds: FloatColumn, names: tuple[str, ...]) -> IntColumn:
    by_name = np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)
    return by_name[np.argsort(submit_seconds[by_name], kind="stable")]


def _either(text: str, otherwise: str) -> str:
    return text or otherwise


def _times(counts: IntColumn, multiple: float) -> IntColumn:
    """Multiply and round down, tolerating float errors: 100 times 0.29 is 28.999999999999996."""
    product: FloatColumn = np.floor(counts * multiple + 1e-9)
    return product.astype(np.int64)


def _as_stored(field: str, values: FloatColumn) -> FloatColumn | IntColumn:
    is_whole = NUMBER_COLUMNS[field][1].is_whole
    return _freeze(values.astype(np.int64)) if is_whole else _freeze(values + 0.0)


def _freeze(values: ColumnArray) -> ColumnArray:
    values.setflags(write=False)
    return values
