"""The result of one simulation: times of every job, and the summary that commands print.

    completion time   finish - submit
    makespan          last finish - first submit
    wait              time without devices, before the first start and between stops and starts
    utilization       device-seconds held / (devices x makespan)

Averages are over the jobs that finished. Nothing here knows how the numbers came about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sterna.experiments.report.allocation import Span
from sterna.experiments.report.timeline import Timeline
from sterna.model.cluster import Bools, Ints
from sterna.model.formatting import counted
from sterna.model.speedup import Floats

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
"""What tables of results show: keys of the summary and their titles; times in seconds."""

_MOST_LISTED = 10


@dataclass(frozen=True)
class JobTimes:
    """One entry for each job that was simulated, in submit order. Infinite: it never came to that."""

    row: Ints
    """Its row in the trace."""
    submit: Floats
    start: Floats
    finish: Floats
    wait: Floats
    stops: Ints | None = None
    """How often the policy stopped it; None unless details were asked for."""

    @cached_property
    def is_finished(self) -> Bools:
        return np.isfinite(self.finish)

    @cached_property
    def completion(self) -> Floats:
        """Completion times of those that finished."""
        times: Floats = (self.finish - self.submit)[self.is_finished]
        return times

    @property
    def makespan_seconds(self) -> float:
        return float(self.finish[self.is_finished].max() - self.submit[0]) if len(self.completion) else 0.0


@dataclass(frozen=True)
class Counts:
    """How often things happened, and what they amounted to."""

    preemptions: int = 0
    migrations: int = 0
    resizes: int = 0
    failures: int = 0
    rounds: int = 0
    lost_seconds: float = 0.0
    device_seconds: float = 0.0


@dataclass(frozen=True)
class Result:
    """What one policy made of a scenario."""

    policy: str
    """As the user wrote it."""
    placement: str
    nodes: int
    devices: int
    seed: int
    times: JobTimes
    counts: Counts
    wall_seconds: float
    """Time spent in the controller's loop; loading and start-up do not count."""
    unschedulable: tuple[str, ...] = ()
    """Jobs that would not fit if the cluster were empty; they were not simulated."""
    unfinished: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    timeline: Timeline | None = None
    spans: Sequence[Span] = ()
    knowledge: str = "true"
    """What the policy knew of the jobs, as the user wrote it."""

    @property
    def utilization(self) -> float:
        possible = self.devices * self.times.makespan_seconds
        return self.counts.device_seconds / possible if possible else 0.0

    @property
    def left_out(self) -> list[str]:
        """Which jobs are in no average, and why."""
        return [*self.never_fit, *jobs_that("never finished", self.unfinished)]

    @property
    def never_fit(self) -> list[str]:
        return jobs_that("cannot run on this cluster, not even alone", self.unschedulable)

    @cached_property
    def summary(self) -> Summary:
        """The JSON document of `sterna simulate`."""
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
            "nodes": self.nodes,
            "devices": self.devices,
            "failures": counts.failures,
            "lost_work_s": _seconds(counts.lost_seconds),
            "rounds": counts.rounds,
            "seed": self.seed,
            "knowledge": self.knowledge,
            "notices": list(self.notices),
        }

    def number(self, key: str) -> float | None:
        """A number of the summary, by its key; None where no job finished."""
        value = self.summary[key]
        return value if isinstance(value, int | float) else None

    def shown(self, key: str, decimals: int = 0) -> str:
        """The same as people read it."""
        value = self.number(key)
        if value is None:
            return "-"
        return f"{value:.1%}" if key == "utilization" else f"{value:,.{decimals}f}"


def jobs_that(what: str, names: Sequence[str]) -> list[str]:
    """How many jobs there are of which this can be said, and the first of them; nothing where there are none."""
    if not names:
        return []
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return [f"{counted(len(names), 'job')} {what}: {', '.join(names[:_MOST_LISTED])}{more}"]


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
