"""One row per job, as CSV: what happened to each, for whoever wants to look closer than averages do."""

from __future__ import annotations

import csv
import io
import math

from sterna.experiments.result import Result
from sterna.workloads.trace import Trace

COLUMNS = (
    "job", "submit_s", "start_s", "finish_s", "jct_s", "wait_s", "workers", "min_workers", "max_workers",
    "gpus_per_worker", "preemptions", "state", "model", "user", "pool",
)  # fmt: skip


def jobs_table(result: Result, trace: Trace) -> str:
    """Every job of the trace in submit order; those that could not run have no times."""
    times = result.times
    entry_of = {row: entry for entry, row in enumerate(times.row.tolist())}
    submit, start, finish, wait = (column.tolist() for column in (times.submit, times.start, times.finish, times.wait))
    stops = times.stops.tolist() if times.stops is not None else None
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row, name in enumerate(trace.name):
        entry = entry_of.get(row)
        if entry is None:
            happened = [_plain(float(trace.submit_seconds[row])), "", "", "", ""]
            state = "unschedulable"
        else:
            waited = wait[entry] if math.isfinite(start[entry]) else math.inf  # nobody knows for how long it would have
            numbers = (submit[entry], start[entry], finish[entry], finish[entry] - submit[entry], waited)
            happened = [_plain(number) for number in numbers]
            state = "finished" if math.isfinite(finish[entry]) else "unfinished"
        writer.writerow(
            [
                name,
                *happened,
                int(trace.workers[row]),
                int(trace.minimum[row]),
                int(trace.maximum[row]),
                _plain(float(trace.devices_per_worker[row])),
                "" if entry is None or stops is None else stops[entry],
                state,
                trace.model[row],
                trace.user[row],
                trace.pool[row],
            ]
        )
    return out.getvalue()


def _plain(number: float) -> str:
    """Microseconds and no more; nothing for what never happened."""
    return f"{number:.6f}".rstrip("0").rstrip(".") if math.isfinite(number) else ""
