"""Result of one simulation: times of every job, and the summary that commands print.

    completion time   finish - submit
    makespan          last finish - first submit
    wait              time without devices, before the first start and between stops and starts
    utilization       device-seconds held / (devices x makespan)

Averages are over the jobs that finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sterna.experiments.frames import make_frame
from sterna.experiments.job_times import JobTimes, job_columns
from sterna.experiments.report.allocation import Span
from sterna.experiments.report.timeline import Timeline
from sterna.experiments.scenario import Scenario
from sterna.model.formatting import format_count
from sterna.model.speedup import Floats

if TYPE_CHECKING:
    import plotly.graph_objects as go

Summary = dict[str, object]

COLUMNS = (
    ("avg_jct_s", "mean"),
    ("p50_jct_s", "median"),
    ("p95_jct_s", "p95"),
    ("p99_jct_s", "p99"),
    ("makespan_s", "makespan"),
    ("avg_wait_s", "wait"),
    ("utilization", "used"),
    ("preemptions", "stops"),
    ("migrations", "moves"),
    ("resizes", "resizes"),
)
"""Columns of result tables: keys of the summary and their titles; times in seconds."""

_MOST_LISTED = 10


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Totals of a simulation: events, rounds, and seconds of work and devices."""

    preemptions: int = 0
    migrations: int = 0
    resizes: int = 0
    failures: int = 0
    rounds: int = 0
    lost_seconds: float = 0.0
    device_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """Outcome of one scenario under one policy."""

    scenario: Scenario
    policy: str
    """Name and parameters, as the user wrote them."""
    times: JobTimes
    counts: Counts
    wall_seconds: float
    """Time spent in the controller's loop, without loading and start-up."""
    unschedulable: tuple[str, ...] = ()
    """Jobs that do not fit the empty cluster; they were not simulated."""
    unfinished: tuple[str, ...] = ()
    """Jobs that were simulated and never finished."""
    notices: tuple[str, ...] = ()
    """Sentences for the user: rows left out of the trace, unused options."""
    timeline: Timeline | None = None
    """Devices in use and jobs waiting over time; None in results without details."""
    spans: Sequence[Span] = ()
    """Workers of every job over time; empty in results without details."""

    def __repr__(self) -> str:
        mean = self.format_number("avg_jct_s")
        return f"Result({self.policy}, {self.scenario.cluster}: {len(self.times.completion):,} jobs, mean {mean} s)"

    @property
    def placement(self) -> str:
        return self.scenario.placement_of(self.policy)

    @property
    def devices(self) -> int:
        return self.scenario.devices

    @property
    def job_names(self) -> list[str]:
        """Return the names of the simulated jobs; `Span.job` indexes them."""
        return [self.scenario.trace.name[row] for row in self.times.row.tolist()]

    def jobs(self, frame: str | None = None) -> Any:
        """Return one row per job of the trace as a data frame.

        `frame` is `"pandas"`, `"polars"` or `"columns"` (a dict of lists); None takes the first that is installed.
        """
        return make_frame(job_columns(self.times, self.scenario.trace), frame)

    def plot(self, what: str = "completion") -> go.Figure:
        """Return a plotly figure: `completion`, `utilization`, `queue` or `allocation`."""
        from sterna.experiments.report.plots import plot_result

        return plot_result(self, what)

    @property
    def utilization(self) -> float:
        possible = self.devices * self.times.makespan_seconds
        return self.counts.device_seconds / possible if possible else 0.0

    @property
    def left_out(self) -> list[str]:
        """Return sentences about the jobs that no average includes."""
        return [*self.never_fit, *describe_jobs("never finished", self.unfinished)]

    @property
    def never_fit(self) -> list[str]:
        return describe_jobs("cannot run on this cluster, not even alone", self.unschedulable)

    @cached_property
    def summary(self) -> Summary:
        """Return the JSON document of `sterna simulate`."""
        done = self.times.is_finished
        completion = self.times.completion
        p50, p95, p99 = np.percentile(completion, (50, 95, 99)).tolist() if len(completion) else (None,) * 3
        counts = self.counts
        return {
            "policy": self.policy,
            "jobs": int(done.sum()),
            "avg_jct_s": _seconds(_mean(completion)),
            "p50_jct_s": _seconds(p50),
            "p95_jct_s": _seconds(p95),
            "p99_jct_s": _seconds(p99),
            "makespan_s": _seconds(self.times.makespan_seconds),
            "avg_wait_s": _seconds(_mean(self.times.wait[done])),
            "utilization": round(self.utilization, 6),
            "preemptions": counts.preemptions,
            "migrations": counts.migrations,
            "resizes": counts.resizes,
            "wall_s": round(self.wall_seconds, 4),
            "unschedulable": list(self.unschedulable),
            "unfinished": list(self.unfinished),
            "placement": self.placement,
            "nodes": len(self.scenario.nodes),
            "devices": self.devices,
            "failures": counts.failures,
            "lost_work_s": _seconds(counts.lost_seconds),
            "rounds": counts.rounds,
            "seed": self.scenario.seed,
            "knowledge": str(self.scenario.knowledge),
            "speedup": str(self.scenario.speedup),
            "notices": list(self.notices),
        }

    def number(self, key: str) -> float | None:
        """Return a number of the summary by its key; None if no job finished."""
        value = self.summary[key]
        return value if isinstance(value, int | float) else None

    def format_number(self, key: str, decimals: int = 0) -> str:
        """Format a number of the summary for tables."""
        value = self.number(key)
        if value is None:
            return "-"
        return f"{value:.1%}" if key == "utilization" else f"{value:,.{decimals}f}"


def describe_jobs(what: str, names: Sequence[str]) -> list[str]:
    """Return a sentence with the number of jobs and the first names; nothing for no jobs."""
    if not names:
        return []
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return [f"{format_count(len(names), 'job')} {what}: {', '.join(names[:_MOST_LISTED])}{more}"]


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
