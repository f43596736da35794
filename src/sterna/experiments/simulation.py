"""One simulation: a scenario under a policy, from the trace to the result."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.knowledge import world_of
from sterna.backends.simulated.workload import Workload, workload_of
from sterna.control.controller import Controller, Recorder
from sterna.experiments.report.allocation import AllocationLog
from sterna.experiments.report.timeline import timeline_of
from sterna.experiments.result import Counts, JobTimes, Result
from sterna.experiments.scenario import Scenario
from sterna.model.cluster import Ints, Nodes
from sterna.model.snapshot import NEVER
from sterna.wiring import make_rules

Progress = Callable[[int, int], None]
"""Told how much is done, and of how much."""

_ROUNDS_BETWEEN_REPORTS = 500


def simulate(
    scenario: Scenario,
    policy: str,
    *,
    journal: Recorder | None = None,
    progress: Progress | None = None,
    detailed: bool = False,
) -> Result:
    """Replay the trace; a `detailed` result also says how things went over time and how often each job was stopped."""
    placement = scenario.placement_of(policy)
    rules = make_rules(policy, placement)
    trace, nodes = scenario.trace, scenario.nodes
    workload = workload_of(trace, scenario.speedups)
    rows = _rows_that_fit(workload, nodes)
    unschedulable: tuple[str, ...] = ()
    if len(rows) < len(trace):
        fits = set(rows.tolist())
        unschedulable = tuple(name for row, name in enumerate(trace.name) if row not in fits)
        if not fits:
            return _nothing(scenario, policy, placement, unschedulable)
        workload = workload_of(trace.take(rows), scenario.speedups)
    world = world_of(
        scenario.knowledge,
        workload,
        nodes,
        scenario.costs,
        scenario.faults,
        seed=scenario.seed,
        timeline=detailed,
    )
    log = AllocationLog(len(workload), journal) if detailed else None
    controller = Controller(world, rules, log or journal)
    began = time.perf_counter()
    controller.run(_reporting(world, progress) if progress else None)
    wall_seconds = time.perf_counter() - began
    times = _times(world, rows, log)
    return Result(
        policy,
        placement,
        len(nodes),
        scenario.devices,
        scenario.seed,
        times,
        _counts(world, controller.rounds),
        wall_seconds,
        unschedulable,
        tuple(workload.name[job] for job in np.flatnonzero(~times.is_finished)),
        tuple(dict.fromkeys((*scenario.notices, *workload.notices))),
        timeline_of(world.counters.times, world.counters.devices_used, world.counters.jobs_waiting) if log else None,
        log.closed(world.finish, world.observe()) if log else (),
        str(scenario.knowledge),
    )


def _rows_that_fit(workload: Workload, nodes: Nodes) -> Ints:
    """Jobs whose fewest workers the empty cluster can hold."""
    most = np.array(nodes.most_workers(workload.shapes), dtype=np.int64)
    return np.flatnonzero(workload.minimum <= most[workload.shape])


def _nothing(scenario: Scenario, policy: str, placement: str, unschedulable: tuple[str, ...]) -> Result:
    none = np.zeros(0)
    times = JobTimes(none.astype(np.int64), none, none, none, none, none.astype(np.int64))
    return Result(
        policy,
        placement,
        len(scenario.nodes),
        scenario.devices,
        scenario.seed,
        times,
        Counts(),
        0.0,
        unschedulable,
        notices=scenario.notices,
        timeline=timeline_of([], [], []),
        knowledge=str(scenario.knowledge),
    )


def _times(world: SimulatedBackend, rows: Ints, log: AllocationLog | None) -> JobTimes:
    return JobTimes(
        rows,
        np.array(world.jobs.submit),
        np.array(world.first_start),
        np.array(world.finish),
        np.array(world.waited),
        np.array(log.stops) if log else None,
    )


def _counts(world: SimulatedBackend, rounds: int) -> Counts:
    counters = world.counters
    return Counts(
        counters.preemptions,
        counters.migrations,
        counters.resizes,
        counters.failures,
        rounds,
        counters.lost_seconds,
        counters.device_seconds,
    )


def _reporting(world: SimulatedBackend, progress: Progress) -> Callable[[], None]:
    """Counts finished jobs every few hundred rounds: counting costs more than a round."""
    rounds = 0

    def report() -> None:
        nonlocal rounds
        rounds += 1
        if rounds % _ROUNDS_BETWEEN_REPORTS == 0:
            progress(sum(at < NEVER for at in world.finish), len(world.finish))

    return report
