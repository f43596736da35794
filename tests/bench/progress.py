"""Measure the progress-aware parts: growth of many jobs at once, and decisions with migrations and reservations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from time import perf_counter

import msgspec
import numpy as np

from sterna.engine.check import check
from sterna.engine.decide import decide
from sterna.model.cluster import MILLI, Shape
from sterna.model.eta import remaining_of
from sterna.model.growth import GrowthTable
from sterna.model.serving_pod import ServingPod
from sterna.wiring import make_rules
from tests.bench.decisions import COME_AT_SECONDS, PLACEMENT, apply_cold_plan, make_benchmark_backend
from tests.bench.inputs import waiting_jobs_trace
from tests.bench.measurement import Measurement, Say


class ProgressCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    jobs: int
    growth_ms: float
    few_ms: dict[int, float]
    """Jobs and nodes: budget of a decision with few changes."""
    policy: str
    migrations: list[str]
    pods: int


def measure_progress(case: ProgressCase, repeat: int, say: Say) -> Iterator[Measurement]:
    say(f"growth and time left of {case.jobs:,} jobs")
    yield from _growth(case, repeat)
    for jobs, budget in case.few_ms.items():
        backend = make_benchmark_backend(waiting_jobs_trace(jobs, jobs // 100, COME_AT_SECONDS), jobs)
        apply_cold_plan(backend, make_rules(case.policy, PLACEMENT))
        pods = [ServingPod(f"pod-{number}", Shape(devices=MILLI), backend.now) for number in range(case.pods)]
        for migration in case.migrations:
            say(f"decide with {migration} and {case.pods} serving pods, {jobs:,} jobs on {jobs:,} nodes of 8")
            rules = make_rules(case.policy, PLACEMENT, migration)
            taken = []
            for _ in range(repeat + 1):
                begin = perf_counter()
                snapshot = replace(backend.observe(), serving=pods)
                check(decide(snapshot, rules).plan, snapshot)
                taken.append((perf_counter() - begin) * 1000)
            name = f"decide {jobs} few {case.policy} {migration} serving"
            yield Measurement(name, median(taken[1:]), "ms", budget, note=f"slowest {max(taken):.1f} ms")


def _growth(case: ProgressCase, repeat: int) -> Iterator[Measurement]:
    """Every job reports once a second; windows close at the same moments, which is the worst that can happen."""
    table, rows = GrowthTable(case.jobs), np.arange(case.jobs)
    noise = np.random.default_rng(0).normal(0.0, 0.01, (10, case.jobs))
    taken = []
    for second in range(20 * repeat):
        values = 2 * np.exp(-second / 60) + noise[second % len(noise)]
        steps, times = np.full(case.jobs, 10.0 * second), np.full(case.jobs, float(second))
        begin = perf_counter()
        table.update(rows, steps, times, values)
        taken.append((perf_counter() - begin) * 1000)
    note = f"slowest {max(taken[20:]):.1f} ms"
    yield Measurement(f"growth update {case.jobs}", median(taken[20:]), "ms", case.growth_ms, note=note)
    begin = perf_counter()
    remaining_of(table, np.full(case.jobs, 100_000.0))
    yield Measurement(f"time left {case.jobs}", (perf_counter() - begin) * 1000, "ms", case.growth_ms)
