"""Simulation of the jobs of a journal under the recorded rules and under others.

Completion times and waits are means over the jobs that ended in all runs, so all runs are compared on the same jobs.
Costs that the journal does not hold (of a resize, of work lost at a stop) are 0; where they matter, the simulation of
the recorded rules differs from the recording, and a notice states it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.costs import Costs
from sterna.backends.simulated.workload import Workload
from sterna.control.round_loop import RoundLoop
from sterna.engine.decide import Rules
from sterna.explain.history import JournalHistory, PastJob
from sterna.model.cluster import Bools, Nodes, ResourceKind, Shapes
from sterna.model.formatting import format_count
from sterna.model.json_object import JsonObject
from sterna.model.plan import ActionKind
from sterna.model.speedup import Curves, Floats

_AGREEMENT = 1e-6
"""Relative difference of means that counts as rounding."""


@dataclass(frozen=True)
class Rerun:
    """Result of the simulations; `document` is None where none was possible."""

    document: JsonObject | None
    notices: list[str]


@dataclass(frozen=True)
class _RunTotals:
    """Times by job, in order of submission, and totals."""

    finish: Floats
    waited: Floats
    preemptions: int
    migrations: int
    resizes: int


def rerun(history: JournalHistory, recorded_rules: Rules, rules: Rules) -> Rerun:
    """Simulate the jobs of a journal under both sets of rules and compare them with the recording."""
    jobs = sorted(history.jobs, key=lambda job: job.submit)
    nodes = history.nodes
    if not jobs or nodes is None or nodes.unit is not ResourceKind.DEVICES:
        return Rerun(None, ["Nothing was simulated: the journal tells of no jobs that use devices."])
    workload = _workload(jobs)
    recorded = _recorded_totals(history, jobs)
    rebuilt, other = (_simulate(history, workload, nodes, each) for each in (recorded_rules, rules))
    is_counted = np.isfinite(recorded.finish) & np.isfinite(rebuilt.finish) & np.isfinite(other.finish)
    if not is_counted.any():
        return Rerun(None, ["Nothing is compared as a whole: no job ended in the journal and in the simulation."])
    before, check, after = (_figures(run, workload, is_counted) for run in (recorded, rebuilt, other))
    document: JsonObject = {"jobs": int(is_counted.sum()), "recorded": before, "rebuilt": check, "policy": after}
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
        requested_seconds=np.array([job.requested_seconds for job in jobs]),
    )


def _recorded_totals(history: JournalHistory, jobs: Sequence[PastJob]) -> _RunTotals:
    counts = history.counts
    return _RunTotals(
        np.array([job.finish for job in jobs]),
        np.array([job.waited for job in jobs]),
        counts[ActionKind.STOP],
        counts[ActionKind.MIGRATE],
        counts[ActionKind.SHRINK] + counts[ActionKind.GROW],
    )


def _simulate(history: JournalHistory, workload: Workload, nodes: Nodes, rules: Rules) -> _RunTotals:
    backend = SimulatedBackend(
        workload, nodes, SimulationConfig(costs=Costs(restart_seconds=history.restart_seconds), faults=history.faults)
    )
    RoundLoop(backend, rules).run()
    counters = backend.counters
    return _RunTotals(
        np.array(backend.finish), np.array(backend.waited), counters.preemptions, counters.migrations, counters.resizes
    )


def _figures(run: _RunTotals, workload: Workload, is_counted: Bools) -> dict[str, float]:
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
    history: JournalHistory, recorded: _RunTotals, is_counted: Bools, before: dict[str, float], check: dict[str, float]
) -> list[str]:
    notices = []
    unfinished = int((~np.isfinite(recorded.finish)).sum())
    if unfinished:
        notices.append(f"{format_count(unfinished, 'job')} had not ended when the journal did; left out of all means.")
    stuck = int((~is_counted).sum()) - unfinished
    if stuck:
        notices.append(f"{format_count(stuck, 'job')} never ended when simulated; left out of all means.")
    if history.early:
        notices.append(f"{format_count(history.early, 'job')} came before the journal; counted from its start.")
    if not history.are_nodes_known:
        notices.append("Nodes came or went; the simulation has those of the first round throughout.")
    then, now = before["avg_jct_s"], check["avg_jct_s"]
    if abs(then - now) > _AGREEMENT * then:
        notices.append(
            f"Simulated again, the recorded rules give a mean completion time of {now:,.2f} s, not the recorded "
            f"{then:,.2f} s: the journal does not hold all costs; compare with the line 'rebuilt'."
        )
    return notices
