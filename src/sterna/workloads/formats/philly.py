"""Microsoft Philly (Jeon et al., ATC'19): the published JSON log, and the flat CSV that was prepared from it.

A job's duration is the sum of its attempts, its size that of the last attempt; what it lost between attempts does not
matter to a replay. A job whose last attempt has no end was still running when the log was taken, and counts as one
without a duration. Only the log says whether a job passed, failed or was killed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.errors import UserError
from sterna.workloads.dates import read_dates
from sterna.workloads.domain import FloatColumn
from sterna.workloads.formats.foreign import foreign_trace
from sterna.workloads.formats.layout import CsvLayout
from sterna.workloads.trace import Trace

JSON_KIND = "philly-json"

FLAT = CsvLayout(
    kind="philly-csv",
    submit="timestamp",
    is_dated=True,
    workers="num_gpus",
    duration="duration",
    pool="cluster",
)


def read_json(source: str, text: str) -> Trace:
    jobs = _jobs(source, text)
    attempts = [_list(source, number, "attempts", job) for number, job in enumerate(jobs, 1)]
    never_started = np.array([not tries for tries in attempts])
    return foreign_trace(
        source=source,
        kind=JSON_KIND,
        name=[_text(job, "jobid") or f"job-{number}" for number, job in enumerate(jobs, 1)],
        submit_seconds=_dates(source, "submitted_time", range(1, len(jobs) + 1), jobs),
        workers=np.array([float(_devices(source, number, tries)) for number, tries in enumerate(attempts, 1)]),
        duration_seconds=_durations(source, attempts),
        user=[_text(job, "user") for job in jobs],
        pool=[_text(job, "vc") for job in jobs],
        status=[_text(job, "status") for job in jobs],
        without={"attempts": never_started},
        is_dated=True,
    )


def _jobs(source: str, text: str) -> list[dict[str, Any]]:
    try:
        jobs = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{source}, line {error.lineno}, column {error.colno}: this is not JSON ({error.msg}); "
            "expected a list of jobs as Philly's cluster_job_log has."
        ) from error
    except (RecursionError, ValueError) as error:
        raise UserError(f"{source}: the JSON cannot be read ({error}); expected a list of jobs.") from error
    if not isinstance(jobs, list):
        found = "an object" if isinstance(jobs, dict) else "a value"
        raise UserError(f"{source}: found {found}, expected a list of jobs as Philly's cluster_job_log has.")
    if not jobs:
        raise UserError(f"{source}: the trace has no jobs.")
    for number, job in enumerate(jobs, 1):
        if not isinstance(job, dict):
            raise _rejection(source, number, "the list", job, "an object for each job")
        for key in ("jobid", "submitted_time", "attempts"):
            if key not in job:
                raise UserError(f"{source}, job {number}: '{key}' is missing; Philly's cluster_job_log always has it.")
    return jobs


def _durations(source: str, attempts: Sequence[list[dict[str, Any]]]) -> FloatColumn:
    """Sum the attempts of each job; NaN if the last one has no end. Attempts that lack a time count as 0."""
    owner = [number for number, tries in enumerate(attempts, 1) for _ in tries]
    tries = [attempt for job in attempts for attempt in job]
    end = _dates(source, "end_time", owner, tries)
    lengths = np.maximum(0, np.nan_to_num(end - _dates(source, "start_time", owner, tries)))
    index = np.array(owner, dtype=np.int64) - 1
    total = np.bincount(index, weights=lengths, minlength=len(attempts)).astype(np.float64)
    last = np.cumsum([len(tries) for tries in attempts]) - 1
    is_open = np.array([bool(tries) for tries in attempts])
    is_open[is_open] = np.isnan(end[last[is_open]])
    total[is_open] = np.nan
    return total


def _devices(source: str, number: int, attempts: list[dict[str, Any]]) -> int:
    """Return the devices of the last attempt that has any."""
    for attempt in reversed(attempts):
        detail = _list(source, number, "detail", attempt)
        devices = sum(len(machine["gpus"]) for machine in detail if isinstance(machine.get("gpus"), list))
        if devices:
            return devices
    return 0


def _list(source: str, number: int, key: str, holder: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects under `key`; none if it is missing or null."""
    found = holder.get(key) or []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise _rejection(source, number, f"'{key}'", found, "a list of objects")
    return found


def _dates(source: str, key: str, numbers: Sequence[int], holders: Sequence[dict[str, Any]]) -> FloatColumn:
    texts = [_text(holder, key) for holder in holders]
    moments = read_dates(texts)
    if moments.unreadable is not None:
        row = moments.unreadable
        raise _rejection(source, numbers[row], f"'{key}'", texts[row], "a date like 2017-10-09 07:01:55")
    return moments.seconds


def _text(holder: dict[str, Any], key: str) -> str:
    value = holder.get(key)
    return "" if value is None else str(value)


def _rejection(source: str, number: int, place: str, found: object, expected: str) -> UserError:
    return UserError(f"{source}, job {number}: found {str(found)[:40]!r} in {place}, expected {expected}.")
