"""Remaining time in replayed traces: each job's finish is foretold when a quarter and when half of its work is done.

A made-up trace runs through the real engine under an elastic policy, so jobs are resized and stopped while their
forecasts stand. A forecast is the work left at the speed of the workers that the job has at that moment; its band comes
from what had become of the forecasts of other jobs by then, jobs that still run included. Nothing of the future enters,
and no parameter is fitted.
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
from sterna.experiments.reproduction.eta.coverage import Forecast
from sterna.experiments.scenario import Scenario
from sterna.experiments.simulation import run_simulation
from sterna.model.eta import learned_until
from sterna.model.speedup import Floats
from sterna.workloads.generate import Mix, poisson

POLICIES = ("elastic-fifo", "elastic-tiresias", "dragon")
SEEN = (0.25, 0.5)
"""Parts of a job's work after which its finish is foretold."""

NODES = "8x8"
JOBS = 300
MEAN_GAP_SECONDS = 70.0
"""Nine tenths of the devices are busy then, so that there is something to resize for."""
MIX = Mix(mean_duration_seconds=1800.0, duration_spread=1.0, least=0.5, most=2.0)
RESTART_SECONDS = 20.0
MISJUDGED = 0.1
"""Standard error of the logarithm of the pace that a forecaster sees; the simulated world itself has no noise."""


class Replay(NamedTuple):
    """What one run yields."""

    forecasts: dict[float, list[Forecast]]
    """By part of the work done."""
    silent: dict[float, int]
    """Jobs of which nothing was said, because too few had finished before."""
    changes: float
    """Resizes and stops for each job."""


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
        forecasts[seen] = _foretold(at, left_seconds * misjudged, result.times.finish)
        silent[seen] = len(workload) - len(forecasts[seen])
    return Replay(forecasts, silent, (result.counts.resizes + result.counts.preemptions) / len(workload))


def _moments(workload: Workload, spans: Sequence[Span], seen: float) -> tuple[Floats, Floats]:
    """When each job had done this part of its work, and how long the rest takes at the speed it had then."""
    of_job: dict[int, list[Span]] = defaultdict(list)
    for span in spans:
        of_job[span.job].append(span)
    at, left_seconds = np.zeros(len(workload)), np.zeros(len(workload))
    for job in range(len(workload)):
        at[job], speed = _moment(workload, of_job[job], seen * float(workload.work[job]), job)
        left_seconds[job] = (1 - seen) * float(workload.work[job]) / speed
    return at, left_seconds


def _moment(workload: Workload, spans: Sequence[Span], goal: float, job: int) -> tuple[float, float]:
    """When a job had done so much work, and its speed then."""
    done, speed, end = 0.0, 1.0, 0.0
    for span in spans:
        speed, end = workload.curves.speed_of(int(workload.curve[job]), span.workers), span.end_seconds
        begin = span.start_seconds + RESTART_SECONDS
        more = max(end - begin, 0.0) * speed
        if done + more >= goal:
            return begin + (goal - done) / speed, speed
        done += more
    return end, speed


def _foretold(at: Floats, forecast: Floats, finish: Floats) -> list[Forecast]:
    """Each job's forecast with the band that the jobs before it taught."""
    order = np.argsort(at, kind="stable")
    made, ended, guessed = at[order], finish[order], forecast[order]
    found = []
    for place, now in enumerate(made.tolist()):
        factors = learned_until(now, made[:place], guessed[:place], ended[:place])
        if factors is not None:
            found.append(Forecast(factors.around(float(guessed[place])), float(ended[place]) - now))
    return found
