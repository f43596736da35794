"""Run one scenario under one policy, from the trace to the result."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.change_log import ChangeKind
from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.knowledge import make_backend
from sterna.backends.simulated.unknown_ends import hide_early_ends
from sterna.backends.simulated.workload import Workload, workload_of
from sterna.control.round_loop import RoundLoop, RoundObserver
from sterna.experiments.job_times import JobTimes
from sterna.experiments.metrics.run_metrics import metrics_of
from sterna.experiments.progress_callback import ProgressCallback
from sterna.experiments.report.allocation import spans_of
from sterna.experiments.report.timeline import timeline_of
from sterna.experiments.result import Counts, Result
from sterna.experiments.scenario import Scenario
from sterna.model.cluster import Ints, Nodes
from sterna.model.snapshot import NEVER
from sterna.settings import is_count_only
from sterna.wiring import make_rules
from sterna.workloads.trace import Trace

_ROUNDS_BETWEEN_REPORTS = 500


def run_simulation(
    scenario: Scenario,
    policy: str,
    *,
    journal: RoundObserver | None = None,
    progress: ProgressCallback | None = None,
    detailed: bool = False,
) -> Result:
    """Replay the trace; a `detailed` result also has the timeline and the spans of every job."""
    rules = make_rules(policy, scenario.placement_of(policy))
    trace, nodes = scenario.trace, scenario.nodes
    workload = _workload_of(scenario, trace)
    rows = _rows_that_fit(workload, nodes)
    unschedulable: tuple[str, ...] = ()
    if len(rows) < len(trace):
        fits = set(rows.tolist())
        unschedulable = tuple(name for row, name in enumerate(trace.name) if row not in fits)
        if not fits:
            return _empty_result(scenario, policy, unschedulable)
        workload = _workload_of(scenario, trace.take(rows))
    if not scenario.known_ends:
        workload = hide_early_ends(workload, trace.take(rows), scenario.seed)
    backend = make_backend(
        scenario.knowledge,
        workload,
        nodes,
        SimulationConfig(costs=scenario.costs, faults=scenario.faults, seed=scenario.seed, has_timeline=detailed),
        seed=scenario.seed,
    )
    loop = RoundLoop(
        backend,
        rules,
        () if journal is None else (journal,),
        on_round=_reporting(backend, progress) if progress else None,
    )
    began = time.perf_counter()
    loop.run()
    wall_seconds = time.perf_counter() - began
    times = _times(backend, rows)
    return Result(
        scenario=scenario,
        policy=policy,
        times=times,
        metrics=metrics_of(
            backend, times, nodes, scenario.faults, is_counted_only=is_count_only(scenario.placement_of(policy))
        ),
        counts=_counts(backend, loop.rounds),
        wall_seconds=wall_seconds,
        unschedulable=unschedulable,
        unfinished=tuple(workload.name[job] for job in np.flatnonzero(~times.is_finished)),
        notices=tuple(dict.fromkeys((*scenario.notices, *workload.notices))),
        timeline=timeline_of(backend.counters.times, backend.counters.devices_used, backend.counters.jobs_waiting)
        if detailed
        else None,
        spans=spans_of(backend.changes) if detailed else (),
    )


def _workload_of(scenario: Scenario, trace: Trace) -> Workload:
    return workload_of(trace, scenario.speedups, scenario.speedup, scenario.seed)


def _rows_that_fit(workload: Workload, nodes: Nodes) -> Ints:
    """Return the jobs whose minimum fits the empty cluster."""
    most = np.array(nodes.most_workers(workload.shapes), dtype=np.int64)
    return np.flatnonzero(workload.minimum <= most[workload.shape])


def _empty_result(scenario: Scenario, policy: str, unschedulable: tuple[str, ...]) -> Result:
    none, no_rows = np.zeros(0), np.zeros(0, dtype=np.int64)
    return Result(
        scenario=scenario,
        policy=policy,
        times=JobTimes(row=no_rows, submit=none, start=none, finish=none, wait=none, stops=no_rows),
        counts=Counts(),
        wall_seconds=0.0,
        unschedulable=unschedulable,
        notices=scenario.notices,
        timeline=timeline_of([], [], []),
    )


def _times(backend: SimulatedBackend, rows: Ints) -> JobTimes:
    changes = backend.changes
    stopped = np.array(changes.job, dtype=np.int64)[np.array(changes.kind) == ChangeKind.STOP]
    return JobTimes(
        row=rows,
        submit=np.array(backend.jobs.submit),
        start=np.array(backend.first_start),
        finish=np.array(backend.finish),
        wait=np.array(backend.waited),
        stops=np.bincount(stopped, minlength=len(rows)),
    )


def _counts(backend: SimulatedBackend, rounds: int) -> Counts:
    counters = backend.counters
    return Counts(
        preemptions=counters.preemptions,
        migrations=counters.migrations,
        resizes=counters.resizes,
        failures=counters.failures,
        rounds=rounds,
        lost_seconds=counters.lost_seconds,
        device_seconds=counters.device_seconds,
    )


def _reporting(backend: SimulatedBackend, progress: ProgressCallback) -> Callable[[float], None]:
    """Return a hook that counts finished jobs every few hundred rounds: counting costs more than a round."""
    rounds = 0

    def report(seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        if rounds % _ROUNDS_BETWEEN_REPORTS == 0:
            progress(sum(at < NEVER for at in backend.finish), len(backend.finish))

    return report
