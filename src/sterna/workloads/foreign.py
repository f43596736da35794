"""What all traces published by others need before they can be replayed.

Such files hold rows that cannot run here (no device, never finished), ids that occur twice and clocks that start
anywhere. These are not the user's mistakes: they are put right, and a notice counts them. What the loaders could not
read has been refused before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from sterna.errors import UserError
from sterna.workloads.dates import date_text
from sterna.workloads.domain import Bools, Floats, plain
from sterna.workloads.trace import Trace, make_trace

Value = TypeVar("Value", str, int)


def foreign_trace(
    *,
    source: str,
    kind: str,
    submit_seconds: Floats,
    workers: Floats,
    duration_seconds: Floats,
    name: Sequence[str],
    devices_per_worker: Floats | None = None,
    model: Sequence[str] | None = None,
    category: Sequence[str] | None = None,
    user: Sequence[str] | None = None,
    pool: Sequence[str] | None = None,
    lines: Sequence[int] | None = None,
    without: Mapping[str, Bools] | None = None,
    is_dated: bool = False,
) -> Trace:
    """A trace that starts at 0. NaN stands for what the file does not say; `without` adds reasons to leave rows out."""
    devices = np.ones(len(name)) if devices_per_worker is None else devices_per_worker
    lacking = {
        **(without or {}),
        "GPUs": ~((workers > 0) & (devices > 0)),
        "a submission time": np.isnan(submit_seconds),
        "a duration": ~(duration_seconds > 0),
    }
    kept, notices = _left_out(lacking, len(name), source)
    submit, shifted = _from_zero(submit_seconds[kept], is_dated)
    names, renamed = _unique(_picked(name, kept))
    devices, rounded = _whole_above_one(devices[kept])
    return make_trace(
        name=names,
        submit_seconds=submit,
        workers=workers[kept],
        duration_seconds=duration_seconds[kept],
        devices_per_worker=devices,
        model=None if model is None else _picked(model, kept),
        category=None if category is None else _picked(category, kept),
        user=None if user is None else _picked(user, kept),
        pool=None if pool is None else _picked(pool, kept),
        source=source,
        kind=kind,
        notices=[*notices, *rounded, *renamed, *shifted],
        lines=None if lines is None else _picked(lines, kept),
    )


def _left_out(lacking: Mapping[str, Bools], count: int, source: str) -> tuple[list[int], list[str]]:
    """Rows that lack nothing, and a notice for each thing lacked; a row counts once, for the first thing it lacks."""
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


def _picked(values: Sequence[Value], rows: list[int]) -> Sequence[Value]:
    return values if len(rows) == len(values) else [values[row] for row in rows]


def _from_zero(submit_seconds: Floats, is_dated: bool) -> tuple[Floats, list[str]]:
    first = float(submit_seconds.min())
    if first == 0:
        return submit_seconds, []
    origin = date_text(first) if is_dated else f"{plain(first)} s"
    return submit_seconds - first, [f"submit times count from the first job, at {origin} in the file."]


def _unique(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """A second `a` becomes `a-2`, or the next number that no job of the file has."""
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


def _whole_above_one(devices: Floats) -> tuple[Floats, list[str]]:
    """A share is a share of one device; one and a half devices are two."""
    broken = (devices > 1) & (devices != np.floor(devices))
    if not broken.any():
        return devices, []
    return np.where(broken, np.ceil(devices), devices), [
        f"rounded the GPUs per worker of {_jobs(int(broken.sum()))} up to a whole number."
    ]


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
