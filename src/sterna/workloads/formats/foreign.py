"""Clean-up of published traces: drop rows that cannot run, rename duplicate ids, start the clock at 0.

Such rows (no device, never finished) are not mistakes of the user, so they are repaired and counted in a notice.
Loaders have rejected unreadable cells before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from sterna.errors import UserError
from sterna.workloads.dates import date_text
from sterna.workloads.domain import BoolColumn, FloatColumn, plain
from sterna.workloads.trace import Trace, make_trace

Cell = TypeVar("Cell", str, int)


def foreign_trace(
    *,
    source: str,
    kind: str,
    submit_seconds: FloatColumn,
    workers: FloatColumn,
    duration_seconds: FloatColumn,
    name: Sequence[str],
    devices_per_worker: FloatColumn | None = None,
    model: Sequence[str] | None = None,
    category: Sequence[str] | None = None,
    user: Sequence[str] | None = None,
    pool: Sequence[str] | None = None,
    status: Sequence[str] | None = None,
    lines: Sequence[int] | None = None,
    without: Mapping[str, BoolColumn] | None = None,
    is_dated: bool = False,
) -> Trace:
    """Make a trace that starts at 0. NaN marks values that the file lacks; `without` adds reasons to drop rows."""
    devices = np.ones(len(name)) if devices_per_worker is None else devices_per_worker
    lacking = {
        **(without or {}),
        "GPUs": ~((workers > 0) & (devices > 0)),
        "a submission time": np.isnan(submit_seconds),
        "a duration": ~(duration_seconds > 0),
    }
    kept, notices = _complete_rows(lacking, len(name), source)
    submit, shifted = _from_zero(submit_seconds[kept], is_dated)
    names, renamed = _unique(_pick(name, kept))
    devices, rounded = _whole_above_one(devices[kept])
    return make_trace(
        name=names,
        submit_seconds=submit,
        workers=workers[kept],
        duration_seconds=duration_seconds[kept],
        devices_per_worker=devices,
        model=None if model is None else _pick(model, kept),
        category=None if category is None else _pick(category, kept),
        user=None if user is None else _pick(user, kept),
        pool=None if pool is None else _pick(pool, kept),
        status=None if status is None else _pick(status, kept),
        source=source,
        kind=kind,
        notices=[*notices, *rounded, *renamed, *shifted],
        lines=None if lines is None else _pick(lines, kept),
    )


def _complete_rows(lacking: Mapping[str, BoolColumn], count: int, source: str) -> tuple[list[int], list[str]]:
    """Return the complete rows and a notice per missing value; a row counts once, for the first value it lacks."""
    keep = np.ones(count, dtype=bool)
    notices = []
    for what, lacks in lacking.items():
        dropped = int((keep & lacks).sum())
        keep &= ~lacks
        if dropped:
            notices.append(f"left out {_jobs(dropped)} without {what}.")
    if not keep.any():
        raise UserError(f"{source}: the trace has no jobs to replay; {' '.join(notices)}")
    return np.flatnonzero(keep).tolist(), notices


def _pick(values: Sequence[Cell], rows: list[int]) -> Sequence[Cell]:
    return values if len(rows) == len(values) else [values[row] for row in rows]


def _from_zero(submit_seconds: FloatColumn, is_dated: bool) -> tuple[FloatColumn, list[str]]:
    first = float(submit_seconds.min())
    if first == 0:
        return submit_seconds, []
    origin = date_text(first) if is_dated else f"{plain(first)} s"
    return submit_seconds - first, [f"submit times count from the first job, at {origin} in the file."]


def _unique(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Rename a second `a` to `a-2`, or to the next number that is not taken."""
    if len(set(names)) == len(names):
        return list(names), []
    taken = set(names)
    seen: dict[str, int] = {}
    unique: list[str] = []
    renamed: list[str] = []
    for name in names:
        number = seen.get(name, 0) + 1
        fresh = name
        while number > 1 and (fresh := f"{name}-{number}") in taken:
            number += 1
        if fresh != name:
            taken.add(fresh)
            renamed.append(f"'{name}' to '{fresh}'")
        seen[name] = number
        unique.append(fresh)
    return unique, [f"renamed {_jobs(len(renamed))} whose id had occurred before, e.g. {renamed[0]}."]


def _whole_above_one(devices: FloatColumn) -> tuple[FloatColumn, list[str]]:
    """Round 1.5 devices up to 2; fractions below 1 are fractions of one device."""
    broken = (devices > 1) & (devices != np.floor(devices))
    if not broken.any():
        return devices, []
    return np.where(broken, np.ceil(devices), devices), [
        f"rounded the GPUs per worker of {_jobs(int(broken.sum()))} up to a whole number."
    ]


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
