"""Forecasts of remaining time in replayed traces, made at a quarter and at half of each job's work.

A generated trace runs through the real engine under an elastic policy, so jobs are resized and stopped after the
forecast. A forecast is the remaining work at the current speed of the job; its band comes from the outcomes of earlier
forecasts of other jobs, running jobs included. No future information enters, and no parameter is fitted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sterna.backends.simulated.costs import Costs
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.workload import Workload, workload_of
from sterna.experiments.report.allocation import Span
from sterna.experiments.reproduction.eta.coverage import BandForecast
from sterna.experiments.scenario import Scenario
from sterna.experiments.simulation import run_simulation
from sterna.model.eta import fit_factors_until
from sterna.model.speedup import Floats
from sterna.workloads.generate import Mix, poisson

POLICIES = ("elastic-fifo", "elastic-tiresias", "dragon")
SEEN = (0.25, 0.5)
"""Fractions of a job's work after which its finish is forecast."""

NODES = "8x8"
JOBS = 300
MEAN_GAP_SECONDS = 70.0
"""Keeps nine tenths of the devices busy, so that jobs are resized."""
MIX = Mix(mean_duration_seconds=1800.0, duration_spread=1.0, least=0.5, most=2.0)
RESTART_SECONDS = 20.0
MISJUDGED = 0.1
"""Standard error of the logarithm of the speed that the forecast uses; the simulator itself has no noise."""


class Replay(NamedTuple):
    """Forecasts of one run."""

    forecasts: dict[float, list[BandForecast]]
    """Forecasts by fraction of completed work."""
    silent: dict[float, int]
    """Jobs without a forecast, because too few had finished before."""
    changes: float
    """Resizes and stops per job."""


def replay(policy: str, seed: int, jobs: int = JOBS) -> Replay:
    trace = poisson(jobs=jobs, seed=seed, mean_gap_seconds=MEAN_GAP_SECONDS, mix=MIX)
    scenario = Scenario(trace, simulated_nodes(NODES), costs=Costs(restart_seconds=RESTART_SECONDS))
    result = run_simulation(scenario, policy, detailed=True)
    workload = workload_of(trace)
    random = np.random.default_rng([seed, 80])
    misjudged = np.exp(random.normal(0.0, MISJUDGED, len(workload)))
    forecasts, silent = {}, {}
    for seen in SEEN:
        at, left_seconds = _moments(workload, result.spans, seen)
        forecasts[seen] = _make_forecasts(at, left_seconds * misjudged, result.times.finish)
        silent[seen] = len(workload) - len(forecasts[seen])
    return Replay(forecasts, silent, (result.counts.resizes + result.counts.preemptions) / len(workload))


def _moments(workload: Workload, spans: Sequence[Span], seen: float) -> tuple[Floats, Floats]:
    """Return the time at which each job had done this fraction of its work, and the time for the rest at that speed."""
    of_job: dict[int, list[Span]] = defaultdict(list)
    for span in spans:
        of_job[span.job].append(span)
    at, left_seconds = np.zeros(len(workload)), np.zeros(len(workload))
    for job in range(len(workload)):
        at[job], speed = _moment(workload, of_job[job], seen * float(workload.work[job]), job)
        left_seconds[job] = (1 - seen) * float(workload.work[job]) / speed
    return at, left_seconds


def _moment(workload: Workload, spans: Sequence[Span], goal: float, job: int) -> tuple[float, float]:
    """Return the time at which a job had done `goal` work, and its speed then."""
    done, speed, end = 0.0, 1.0, 0.0
    for span in spans:
        speed, end = workload.curves.speed_of(int(workload.curve[job]), span.workers), span.end_seconds
        begin = span.start_seconds + RESTART_SECONDS
        more = max(end - begin, 0.0) * speed
        if done + more >= goal:
            return begin + (goal - done) / speed, speed
        done += more
    return end, speed


def _make_forecasts(at: Floats, forecast: Floats, finish: Floats) -> list[BandForecast]:
    """Make the forecast of each job with a band learned from the jobs before it."""
    order = np.argsort(at, kind="stable")
    made, ended, guessed = at[order], finish[order], forecast[order]
    found = []
    for place, now in enumerate(made.tolist()):
        factors = fit_factors_until(now, made[:place], guessed[:place], ended[:place])
        if factors is not None:
            found.append(BandForecast(factors.around(float(guessed[place])), float(ended[place]) - now))
    return found
