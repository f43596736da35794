"""Finish-time fairness, as Themis defines it: the time of a job in the shared cluster over its time with a fair part.

The fair part of a job is 1/N of the devices, N being the mean number of jobs in the cluster (waiting or running) from
its submission to its end. With a part smaller than its minimum the job is taken to run a part of the time. A ratio of
at most 1 means that the job gained by sharing.
"""

from __future__ import annotations

import numpy as np

from sterna.backends.simulated.workload import Workload
from sterna.experiments.job_times import JobTimes
from sterna.experiments.metrics.demand import JobDemand
from sterna.model.speedup import Floats


def finish_time_fairness(times: JobTimes, workload: Workload, devices_per_worker: Floats, demand: JobDemand) -> Floats:
    """Return the ratio of every job; infinite for one that never finished."""
    shared: Floats = times.finish - times.submit
    part = demand.devices / mean_jobs_in_cluster(times) / devices_per_worker
    return shared / (demand.start_seconds + workload.work / _speed_with_part(workload, part, demand))


def mean_jobs_in_cluster(times: JobTimes) -> Floats:
    """Return the mean number of jobs in the cluster over the time that each job is in it, itself included."""
    done = times.is_finished
    moments = np.concatenate([times.submit, times.finish[done]])
    order = np.argsort(moments, kind="stable")
    clock = moments[order]
    count = np.concatenate([np.ones(len(times.submit)), -np.ones(int(done.sum()))])[order].cumsum()
    area = np.concatenate([[0.0], np.cumsum(count[:-1] * np.diff(clock))])
    until = np.where(done, times.finish, clock[-1])
    span = until - times.submit
    between = np.interp(until, clock, area) - np.interp(times.submit, clock, area)
    mean: Floats = np.maximum(np.divide(between, span, out=np.ones(len(span)), where=span > 0), 1.0)
    return mean


def _speed_with_part(workload: Workload, part: Floats, demand: JobDemand) -> Floats:
    """Return the speed of each job with `part` workers, whole or not, within its bounds."""
    fewest = workload.minimum
    capped = np.clip(part, fewest, np.maximum(workload.maximum, fewest))
    low = np.floor(capped).astype(np.int64)
    speed = workload.curves.speed(workload.curve, low)
    speed = speed + (capped - low) * workload.curves.gain(workload.curve, low)
    least_part: Floats = np.minimum(part / fewest, 1.0)
    return speed * least_part
