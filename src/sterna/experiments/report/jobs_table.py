"""Results as CSV with one row per job, for `--jobs-csv`."""

from __future__ import annotations

import csv
import io

from sterna.experiments.job_columns import job_columns
from sterna.experiments.result import Result


def jobs_table(result: Result) -> str:
    """Return every job of the trace in submit order; jobs that could not run have no times."""
    columns = job_columns(result)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_format(value) for value in row] for row in zip(*columns.values(), strict=True))
    return out.getvalue()


def _format(value: object) -> object:
    """Format numbers with at most microseconds, and None as nothing."""
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    return "" if value is None else value
