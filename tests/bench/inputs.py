"""Inputs of benchmarks: published traces where they are present, else generated ones.

A generated trace has the number of jobs of the published one, and nothing else of it; the table and the JSON mark it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sterna.workloads.generate import Mix, poisson
from sterna.workloads.load import load_trace
from sterna.workloads.trace import Trace
from tests.published import DATA, LARGE

SEED = 7
ELASTIC = (1.0, 4.0)
SIZES = {1: 2.0, 2: 2.0, 4: 3.0, 8: 9.0}
"""Requests of the decision benchmarks: mostly whole nodes, so that devices are scarce."""


@dataclass(frozen=True)
class StandIn:
    file: str
    jobs: int
    devices: int


TRACES = {
    "b1k": StandIn("bench/b1k.csv", 1_000, 640),
    "b10k": StandIn("bench/b10k.csv", 10_000, 640),
    "philly": StandIn("philly/philly_jobs.csv", 82_247, 512),
}


def trace_named(name: str) -> Trace:
    stand_in = TRACES[name]
    path = _published_file(name)
    if path is not None:
        return load_trace(path)
    return steady(stand_in.jobs, stand_in.devices, load=0.9, pools=8)


def is_made_up(name: str) -> bool:
    return _published_file(name) is None


def _published_file(name: str) -> Path | None:
    paths = [folder / TRACES[name].file for folder in (DATA, LARGE)]
    return next((path for path in paths if path.is_file()), None)


def steady(jobs: int, devices: int, load: float, pools: int = 1) -> Trace:
    """Poisson arrivals that ask for `load` times the devices on average, over the whole trace."""
    made = poisson(jobs=jobs, seed=SEED, mean_gap_seconds=1.0, mix=Mix(models={}))
    wanted = float((made.workers * made.duration_seconds).sum())
    stretch = wanted / (load * devices) / max(float(made.submit_seconds[-1]), 1.0)
    names = tuple(f"pool-{number % pools}" for number in range(jobs))
    return replace(made, submit_seconds=made.submit_seconds * stretch, pool=names)


def waiting_jobs_trace(jobs: int, newcomers: int, come_at_seconds: float) -> Trace:
    """`jobs` jobs at once and `newcomers` later; as many of the first as there are newcomers end within a second."""
    mix = Mix(workers=SIZES, least=ELASTIC[0], most=ELASTIC[1])
    made = poisson(jobs=jobs + newcomers, seed=SEED, mix=mix)
    submit = np.zeros(len(made))
    submit[jobs:] = come_at_seconds
    duration = made.duration_seconds + 1e5
    duration[_every_nth(jobs, newcomers)] = 1.0
    return replace(made, submit_seconds=submit, duration_seconds=duration)


def _every_nth(jobs: int, count: int) -> npt.NDArray[np.int64]:
    return np.arange(count) * (jobs // max(count, 1))


def pools_of(trace: Trace, largest: int) -> list[Trace]:
    """The virtual clusters with most jobs, most first."""
    pool = np.array(trace.pool)
    names, count = np.unique(pool, return_counts=True)
    order = np.argsort(-count, kind="stable")[:largest]
    return [trace.take(pool == names[at]) for at in order]


def fair_devices(trace: Trace, percentile: float) -> int:
    """The rule of `cases.yaml` for how many devices a virtual cluster has."""
    begin, end = trace.submit_seconds, trace.submit_seconds + trace.duration_seconds
    moments = np.concatenate([begin, end])
    order = np.argsort(moments, kind="stable")
    used = np.concatenate([trace.workers, -trace.workers])[order].cumsum()
    lasts = np.diff(moments[order])
    by_use = np.argsort(used[:-1], kind="stable")
    share = lasts[by_use].cumsum() / lasts.sum()
    level = int(used[by_use[int(share.searchsorted(percentile / 100))]])
    return -(-max(level, int(trace.workers.max())) // 8) * 8
