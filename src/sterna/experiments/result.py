"""Result of one simulation: times of every job, and the summary that commands print.

    completion time   finish - submit
    makespan          last finish - first submit
    wait              time without devices, before the first start and between stops and starts
    utilization       device-seconds held / (devices x makespan)

`metrics` explains the others: slowdown, fairness, lost device time, lower bound.

Averages are over the jobs that finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sterna.experiments.frames import make_frame
from sterna.experiments.job_columns import job_columns
from sterna.experiments.job_times import JobTimes
from sterna.experiments.metrics.lower_bound import LowerBound, lower_bound
from sterna.experiments.metrics.run_metrics import RunMetrics
from sterna.experiments.metrics.user_metric import compute_metrics
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

METRIC_COLUMNS = (
    ("over_bound", "over bound"),
    ("avg_slowdown", "slowdown"),
    ("p99_slowdown", "p99"),
    ("avg_fairness", "fairness"),
    ("p99_fairness", "p99"),
    ("lost_device_hours", "lost dev-h"),
    ("lost_share", "lost"),
    ("cross_node_share", "across nodes"),
    ("fragmentation", "fragmented"),
)
"""Columns of the second table: keys of the summary and their titles."""

_SHARES = frozenset({"utilization", "lost_share", "cross_node_share", "fragmentation"})
_RATIOS = frozenset({"over_bound", "avg_slowdown", "p99_slowdown", "avg_fairness", "p99_fairness"})

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
    metrics: RunMetrics | None = None
    """Slowdown, fairness, lost device time and more; None if no job fits the cluster."""
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
        return make_frame(job_columns(self), frame)

    def plot(self, what: str = "completion") -> go.Figure:
        """Return a plotly figure: `completion`, `utilization`, `queue` or `allocation`."""
        from sterna.experiments.report.plots import plot_result

        return plot_result(self, what)

    @property
    def utilization(self) -> float:
        possible = self.devices * self.times.makespan_seconds
        return self.counts.device_seconds / possible if possible else 0.0

    @cached_property
    def lower_bound(self) -> LowerBound | None:
        """Return the bound of the mean completion time of the jobs that finished, which no policy gets below."""
        if self.metrics is None:
            return None
        done = self.times.is_finished
        return lower_bound(self.times.submit[done], self.metrics.demand.take(done))

    @property
    def over_bound(self) -> float | None:
        """Return the mean completion time over its lower bound."""
        bound = self.lower_bound
        return None if bound is None else float(self.times.completion.mean()) / bound.mean_seconds

    @property
    def metric_columns(self) -> tuple[tuple[str, str], ...]:
        """Return `METRIC_COLUMNS` and the user's own metrics."""
        return *METRIC_COLUMNS, *((name, name) for name in self.scenario.metrics)

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
        summary: Summary = {
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
            **self._metric_summary(),
            "speedup": str(self.scenario.speedup),
            "notices": list(self.notices),
        }
        return summary | compute_metrics(self, summary)

    def _metric_summary(self) -> Summary:
        metrics, bound, done = self.metrics, self.lower_bound, self.times.is_finished
        if metrics is None:
            return dict.fromkeys((key for key, _ in METRIC_COLUMNS), None)
        held = self.counts.device_seconds / 3600
        return {
            "over_bound": _ratio(self.over_bound),
            "lower_bound_s": None if bound is None else bound.as_json(),
            **_mean_and_p99("slowdown", metrics.slowdown[done]),
            **_mean_and_p99("fairness", metrics.fairness[done]),
            "lost_device_hours": round(metrics.lost.total, 4),
            "lost_share": _ratio(metrics.lost.total / held if held else 0.0),
            "lost_by_cause": metrics.lost.as_json(),
            "cross_node_share": _ratio(metrics.cross_node_share),
            "fragmentation": _ratio(metrics.fragmentation),
            "by_size": metrics.by_size(self.times),
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
        if key in _SHARES:
            return f"{value:.1%}"
        return f"{value:,.2f}" if key in _RATIOS or key in self.scenario.metrics else f"{value:,.{decimals}f}"


def describe_jobs(what: str, names: Sequence[str]) -> list[str]:
    """Return a sentence with the number of jobs and the first names; nothing for no jobs."""
    if not names:
        return []
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return [f"{format_count(len(names), 'job')} {what}: {', '.join(names[:_MOST_LISTED])}{more}"]


def _mean_and_p99(name: str, values: Floats) -> Summary:
    p99 = float(np.percentile(values, 99)) if len(values) else None
    return {f"avg_{name}": _ratio(_mean(values)), f"p99_{name}": _ratio(p99)}


def _ratio(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
