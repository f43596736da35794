"""Traces from values in memory: records, data frames, columns. Checked as the native CSV format is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from sterna.errors import UserError
from sterna.workloads.formats import native
from sterna.workloads.table import Table
from sterna.workloads.trace import Trace


def trace_from_records(records: Iterable[Mapping[str, object]]) -> Trace:
    rows = list(records)
    names = dict.fromkeys(name for row in rows for name in row)
    return _read("records", {str(name): [row.get(name) for row in rows] for name in names})


def trace_from_columns(frame: Any) -> Trace:
    """Read a frame through the mapping interface that pandas, polars and plain dicts share."""
    names = getattr(frame, "columns", None)
    if names is None:
        if not isinstance(frame, Mapping):
            raise UserError(
                f"found {type(frame).__name__}, expected a data frame or a mapping of columns; "
                "use Trace.from_records for a list of mappings."
            )
        names = frame
    columns = {str(name): list(frame[name]) for name in names}
    if len(set(map(len, columns.values()))) > 1:
        raise UserError("frame: the columns differ in length; give every column one value per job.")
    return _read("frame", columns)


def _read(source: str, columns: dict[str, list[Any]]) -> Trace:
    missing = [name for name in native.REQUIRED if name not in columns]
    count = len(next(iter(columns.values()), ()))
    if not count:
        raise UserError(f"{source}: the trace has no jobs.")
    if missing:
        raise UserError(f"{source}: there is no column {', '.join(map(repr, missing))}; add it.")
    texts = {name: tuple(map(_as_text, values)) for name, values in columns.items()}
    return native.read(Table(source, texts, range(1, count + 1)))


def _as_text(value: Any) -> str:
    """Format a value as CSV would; empty for None, NaN and pandas' NA, which frames use for missing values."""
    is_missing = value is None or (isinstance(value, float) and math.isnan(value))
    text = "" if is_missing else str(value)
    return "" if text == "<NA>" else text
