"""The jobs of a journal, simulated from the first on: under the rules that were recorded, and under others.

Completion times and waits are means over the jobs that ended every time, so that no run is judged by other jobs than
the next. What the journal does not hold (what a resize costs, work lost at a stop) is taken as nothing; where that
matters, the recorded rules give other numbers than were recorded, and a notice says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.costs import Costs
from sterna.backends.simulated.workload import Workload
from sterna.control.round_loop import RoundLoop
from sterna.engine.decide import Rules
from sterna.explain.history import History, PastJob
from sterna.model.cluster import Bools, Nodes, ResourceKind, Shapes
from sterna.model.formatting import counted
from sterna.model.plan import ActionKind
from sterna.model.speedup import Curves, Floats

Document = dict[str, Any]

_AGREEMENT = 1e-6
"""Relative difference of means that is mere rounding."""


@dataclass(frozen=True)
class Rerun:
    """What came of simulating again; no document where it could not be done."""

    document: Document | None
    notices: list[str]


@dataclass(frozen=True)
class _Run:
    """Times by job, in the order of the history, and how often things were done."""

    finish: Floats
    waited: Floats
    preemptions: int
    migrations: int
    resizes: int


def rerun(history: History, recorded_rules: Rules, rules: Rules) -> Rerun:
    jobs = sorted(history.jobs, key=lambda job: job.submit)
    nodes = history.nodes
    if not jobs or nodes is None or nodes.unit is not ResourceKind.DEVICES:
        return Rerun(None, ["Nothing was simulated: the journal tells of no jobs that use devices."])
    workload = _workload(jobs)
    recorded = _recorded(history, jobs)
    rebuilt, other = (_simulated(history, workload, nodes, each) for each in (recorded_rules, rules))
    is_counted = np.isfinite(recorded.finish) & np.isfinite(rebuilt.finish) & np.isfinite(other.finish)
    if not is_counted.any():
        return Rerun(None, ["Nothing is compared as a whole: no job ended in the journal and in the simulation."])
    before, check, after = (_figures(run, workload, is_counted) for run in (recorded, rebuilt, other))
    document: Document = {"jobs": int(is_counted.sum()), "recorded": before, "rebuilt": check, "policy": after}
    return Rerun(document, _notices(history, recorded, is_counted, before, check))


def _workload(jobs: Sequence[PastJob]) -> Workload:
    shapes = list(dict.fromkeys(job.shape for job in jobs))
    curves: list[tuple[float, ...]] = [(1.0,), *dict.fromkeys(job.curve for job in jobs if job.curve is not None)]
    shape_code = {shape: code for code, shape in enumerate(shapes)}
    curve_code = {None: 0} | {curve: code for code, curve in enumerate(curves) if code}

    def column(value: Callable[[PastJob], int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        return np.array([value(job) for job in jobs], dtype=np.int64)

    return Workload(
        tuple(job.name for job in jobs),
        np.array([job.submit for job in jobs]),
        column(lambda job: job.request),
        column(lambda job: job.minimum),
        column(lambda job: job.maximum),
        column(lambda job: shape_code[job.shape]),
        column(lambda job: curve_code[job.curve]),
        column(lambda job: job.priority),
        np.array([job.work for job in jobs]),
        Shapes(tuple(shapes)),
        Curves(tuple(curves)),
    )


def _recorded(history: History, jobs: Sequence[PastJob]) -> _Run:
    counts = history.counts
    return _Run(
        np.array([job.finish for job in jobs]),
        np.array([job.waited for job in jobs]),
        counts[ActionKind.STOP],
        counts[ActionKind.MIGRATE],
        counts[ActionKind.SHRINK] + counts[ActionKind.GROW],
    )


def _simulated(history: History, workload: Workload, nodes: Nodes, rules: Rules) -> _Run:
    world = SimulatedBackend(
        workload, nodes, SimulationConfig(costs=Costs(history.restart_seconds), faults=history.faults)
    )
    RoundLoop(world, rules).run()
    counters = world.counters
    return _Run(
        np.array(world.finish), np.array(world.waited), counters.preemptions, counters.migrations, counters.resizes
    )


def _figures(run: _Run, workload: Workload, is_counted: Bools) -> dict[str, float]:
    completion = (run.finish - workload.submit)[is_counted]
    return {
        "avg_jct_s": round(float(completion.mean()), 3),
        "avg_wait_s": round(float(run.waited[is_counted].mean()), 3),
        "makespan_s": round(float(run.finish[is_counted].max() - workload.submit[0]), 3),
        "preemptions": run.preemptions,
        "migrations": run.migrations,
        "resizes": run.resizes,
    }


def _notices(
    history: History, recorded: _Run, is_counted: Bools, before: dict[str, float], check: dict[str, float]
) -> list[str]:
    notices = []
    unfinished = int((~np.isfinite(recorded.finish)).sum())
    if unfinished:
        notices.append(f"{counted(unfinished, 'job')} had not ended when the journal did; left out of all means.")
    stuck = int((~is_counted).sum()) - unfinished
    if stuck:
        notices.append(f"{counted(stuck, 'job')} never ended when simulated; left out of all means.")
    if history.early:
        notices.append(f"{counted(history.early, 'job')} came before the journal; counted from its start.")
    if not history.are_nodes_known:
        notices.append("Nodes came or went; the simulation has those of the first round throughout.")
    then, now = before["avg_jct_s"], check["avg_jct_s"]
    if abs(then - now) > _AGREEMENT * then:
        notices.append(
            f"Simulated again, the recorded rules give a mean completion time of {now:,.2f} s, not the recorded "
            f"{then:,.2f} s: the journal does not hold all costs; compare with the line 'rebuilt'."
        )
    return notices
