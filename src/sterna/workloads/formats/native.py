"""Sterna's own CSV format: one line per job, written by hand or by `sterna trace make`.

    job,submit_s,workers,duration_s          required; the duration is that with `workers` workers
    min_workers,max_workers                  workers, if left out
    gpus_per_worker                          1, if left out; a fraction shares a device
    model,category,user,priority,pool        empty, or 0
    status                                   how the job ended: completed, failed, killed; completed, if left out
    requested_s                              unknown, if left out: run time that the user requested

Lines that start with # are comments. Nothing is repaired: a mistake in a native trace is an error, never a notice.
"""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from sterna.errors import did_you_mean
from sterna.workloads.domain import FloatColumn, plain
from sterna.workloads.table import Format, Table
from sterna.workloads.text import unreadable
from sterna.workloads.trace import NUMBER_COLUMNS, TEXT_COLUMNS, Trace, make_trace

KIND = "native"
REQUIRED = ("job", "submit_s", "workers", "duration_s")
_EMPTY = frozenset({""})
_BLANK = {"minimum": np.nan, "maximum": np.nan, "devices_per_worker": 1.0, "priority": 0.0, "requested_seconds": np.nan}


def read(table: Table) -> Trace:
    table = replace(table, blanks=_EMPTY)
    columns: dict[str, Any] = {field: table.text(column) for field, column in TEXT_COLUMNS.items()}
    for field, (column, domain) in NUMBER_COLUMNS.items():
        if column in table:
            columns[field] = table.numbers(column, domain, blank=_BLANK.get(field))
    for field in ("minimum", "maximum"):
        if field in columns:
            bound: FloatColumn = columns[field]
            columns[field] = np.where(np.isnan(bound), columns["workers"], bound)
    return make_trace(**columns, source=table.source, kind=KIND, notices=_unread(table), lines=table.lines)


def write_native(trace: Trace, file: str | Path | TextIO) -> None:
    """Write a file that `load_trace` reads back as the same jobs; a path that ends in .gz is compressed."""
    text = _as_csv(trace)
    if not isinstance(file, str | Path):
        file.write(text)
        return
    data = text.encode()
    try:
        # A fixed time stamp, so that equal traces give equal files.
        Path(file).write_bytes(gzip.compress(data, mtime=0) if str(file).endswith(".gz") else data)
    except (OSError, ValueError) as error:
        raise unreadable(file, error) from error


def _as_csv(trace: Trace) -> str:
    """Format a trace; optional columns in which every job has the default are omitted."""
    columns = {TEXT_COLUMNS["name"]: trace.name}
    for field, (column, _) in NUMBER_COLUMNS.items():
        if column in REQUIRED or not _is_default(trace, field):
            columns[column] = tuple(map(_format_number, getattr(trace, field).tolist()))
    for field, column in TEXT_COLUMNS.items():
        if column in REQUIRED or not _is_default(trace, field):
            columns[column] = getattr(trace, field)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()


def _format_number(value: float) -> str:
    return "" if np.isnan(value) else plain(value)


def _is_default(trace: Trace, field: str) -> bool:
    if field in ("minimum", "maximum"):
        return np.array_equal(getattr(trace, field), trace.workers)
    if field == "category":
        return trace.category == trace.model
    if field in TEXT_COLUMNS:
        return not any(getattr(trace, field))
    return np.array_equal(getattr(trace, field), np.full(len(trace), _BLANK[field]), equal_nan=True)


def _unread(table: Table) -> list[str]:
    known = {column for column, _ in NUMBER_COLUMNS.values()} | set(TEXT_COLUMNS.values())
    unused = known - set(table.columns)
    return [f"ignored the column '{name}'; {did_you_mean(name, unused)}" for name in table.columns if name not in known]


FORMAT = Format(KIND, REQUIRED, read)
