"""Lower bound of the mean completion time: no policy, not even one that knows the future, gets below it.

It is the largest of three bounds, each of which drops a constraint that real schedules obey:

    alone      every job runs at once, at its fastest size, as if it had the cluster to itself
    SRPT       all devices are one machine that works on any part of any job, stops cost nothing, and a job needs only
               its least device time; shortest remaining device time first is then optimal
    busy time  the same machine, which minimises the sum of mean busy times (smallest job first); a job ends at least
               half of its time alone after its mean busy time, because it cannot be served faster than alone

Assumptions: speed-up curves are concave, a job holds at least its minimum while it starts and runs, and every job
starts once. Stops, resizes, lost work, faults, nodes and penalties can only make a schedule longer.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from sterna.experiments.metrics.demand import JobDemand
from sterna.model.speedup import Floats


@dataclass(frozen=True)
class LowerBound:
    """Bounds of the mean completion time, in seconds."""

    alone_seconds: float
    srpt_seconds: float
    busy_time_seconds: float

    @property
    def mean_seconds(self) -> float:
        return max(self.alone_seconds, self.srpt_seconds, self.busy_time_seconds)

    def as_json(self) -> dict[str, float]:
        parts = {"alone": self.alone_seconds, "srpt": self.srpt_seconds, "busy_time": self.busy_time_seconds}
        return {name: round(seconds, 3) for name, seconds in {"mean": self.mean_seconds, **parts}.items()}


def lower_bound(submit: Floats, demand: JobDemand) -> LowerBound | None:
    """Bound the mean completion time of jobs in submit order; None if there are none."""
    if not len(submit):
        return None
    service = demand.device_seconds / demand.devices
    release, served = (submit - submit[0]).tolist(), service.tolist()
    finish, _ = _serve_one_pool(release, served, by_remaining=True)
    _, busy = _serve_one_pool(release, served, by_remaining=False)
    submit_mean = sum(release) / len(release)
    return LowerBound(
        alone_seconds=float(demand.alone_seconds.mean()),
        srpt_seconds=sum(finish) / len(finish) - submit_mean,
        busy_time_seconds=sum(busy) / len(busy) - submit_mean + float(_end_after_busy_time(demand).mean()),
    )


def _end_after_busy_time(demand: JobDemand) -> Floats:
    """Return the least time from the mean busy time of each job to its end.

    It is least if the job runs at its fastest until its end, right after its start.
    """
    start, runs = demand.start_seconds, demand.alone_seconds - demand.start_seconds
    start_share = demand.start_device_seconds / demand.device_seconds
    least: Floats = (1 - start_share) * runs / 2 + start_share * (runs + start / 2)
    return least


def _serve_one_pool(
    release: list[float], seconds: list[float], *, by_remaining: bool
) -> tuple[list[float], list[float]]:
    """Serve jobs one at a time with preemption; return when each ends and its mean busy time.

    Serves the job with the least remaining service, or with the least total service. `release` ascends; `seconds` is
    the service of each job if it has the whole pool.
    """
    count, now, arrived = len(release), 0.0, 0
    left, moment, finish = seconds.copy(), [0.0] * count, [0.0] * count
    waiting: list[tuple[float, int]] = []
    while arrived < count or waiting:
        if not waiting:
            now = max(now, release[arrived])
        while arrived < count and release[arrived] <= now:
            heapq.heappush(waiting, (seconds[arrived], arrived))
            arrived += 1
        job = waiting[0][1]
        end, until = now + left[job], release[arrived] if arrived < count else np.inf
        then = min(end, until)
        moment[job] += (then - now) * (then + now) / 2
        left[job] -= then - now
        if end <= until:
            finish[job] = end
            heapq.heappop(waiting)
        elif by_remaining:
            heapq.heapreplace(waiting, (left[job], job))
        now = then
    return finish, [area / total for area, total in zip(moment, seconds, strict=True)]
