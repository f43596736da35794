"""Simulation of SpeCon's experiment: 50 jobs on four shared nodes, with work inferred from the published column.

Inverse simulation finds the work exactly: submit and finish times under the default scheduler determine which jobs
shared a node at any time, and thereby their progress. A run of the default scheduler therefore reproduces the column to
the last digit, for any submit times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import numpy as np

from sterna.backends.simulated.config import SharedConfig
from sterna.backends.simulated.costs import Costs
from sterna.backends.simulated.shared.backend import SharedBackend, shared_nodes
from sterna.backends.simulated.shared.workload import GrowthCurves, SharedWorkload
from sterna.control.round_loop import RoundLoop
from sterna.engine.registry import Placed
from sterna.model.cluster import NOWHERE, Assignment, Ints
from sterna.model.plan import Action, ActionKind
from sterna.model.snapshot import JobKey, Snapshot
from sterna.model.speedup import Floats
from sterna.wiring import growth_rule_of, make_rules
from sterna.workloads.published import specon

COSTS = Costs(restart_seconds=10.0, checkpoint_seconds=30.0)
"""Time without progress at a move, and time between checkpoints; SpeCon's own were not published."""


@dataclass(frozen=True)
class Draw:
    """Workload and first nodes for one seed."""

    workload: SharedWorkload
    count: list[int]
    """Node that the default scheduler chooses for each job: the one with fewest jobs."""
    skew: list[int]

    def start(self, baseline: str) -> list[int]:
        return self.count if baseline == "count" else self.skew


@dataclass(frozen=True)
class SpeconRun:
    """Measurements of one run; times are seconds after submission, by job."""

    completion: Floats
    quality: Floats
    """Seconds until 95 % of the final quality."""
    makespan: float
    moves: Sequence[tuple[float, int, int, int]]
    times: Sequence[float]
    cores_used: Sequence[float]


@cache
def draw_experiment(seed: int) -> Draw:
    submit, seconds = specon.submit_seconds(seed), specon.default_seconds()
    start = _spread(submit, submit + seconds)
    work = _implied_work(submit, submit + seconds, start)
    curves = GrowthCurves(np.array(list(specon.losses().values())))
    count = len(seconds)
    workload = SharedWorkload(
        tuple(f"job{number:02d}" for number in range(1, count + 1)),
        submit,
        work,
        np.full(count, specon.CORES_A_JOB),
        np.ones(count, dtype=np.int64),
        np.array(specon.families(seed)),
        curves,
    )
    return Draw(workload, start, specon.skewed_nodes(seed))


def _spread(submit: Floats, finish: Floats) -> list[int]:
    """Choose the node with fewest jobs, the first of a tie, as `spread` does."""
    start: list[int] = []
    for job, at in enumerate(submit.tolist()):
        counts = [0] * specon.NODES
        for other in range(job):
            counts[start[other]] += bool(finish[other] > at)
        start.append(counts.index(min(counts)))
    return start


def _implied_work(submit: Floats, finish: Floats, start: list[int]) -> Floats:
    """Return the core-seconds that each job received while it ran."""
    work = np.zeros(len(submit))
    nodes = np.array(start)
    for since, until in pairwise(np.unique(np.concatenate([submit, finish])).tolist()):
        runs = (submit <= since) & (finish > since)
        jobs_on = np.bincount(nodes[runs], minlength=specon.NODES)
        cpu_share = np.minimum(specon.CORES_A_JOB, specon.CORES / np.maximum(jobs_on, 1))
        work[runs] += cpu_share[nodes[runs]] * (until - since)
    return work


def run(
    drawn: Draw,
    baseline: str,
    migration: str = "none",
    cpu_share: str = "equal",
    *,
    keeps_map: bool = False,
    believed: Floats | None = None,
) -> SpeconRun:
    """Run the experiment. On `count` new jobs go to the node with fewest jobs, or, with `keeps_map`, to their node in
    the default run; on `skew` they go to the node of the map."""
    rules = make_rules("fifo", "spread", migration, cpu_share)
    start = drawn.start(baseline)
    if baseline == "skew" or keeps_map:
        rules = replace(rules, placement=FixedNodes(start))
    workload = drawn.workload if believed is None else replace(drawn.workload, estimate=believed)
    nodes = shared_nodes(specon.NODES, specon.CORES)
    backend = SharedBackend(workload, nodes, SharedConfig(costs=COSTS, growth=growth_rule_of(rules), first_nodes=start))
    RoundLoop(backend, rules).run()
    submit, counters = workload.submit, backend.counters
    return SpeconRun(
        backend.finish - submit,
        backend.quality_at - submit,
        float(backend.finish.max()),
        counters.moves,
        counters.times,
        counters.cores_used,
    )


class FixedNodes:
    """Placement that starts every job on the node of a map, as the authors' manifests did."""

    def __init__(self, start: Sequence[int]) -> None:
        self._start = start

    def __call__(self, snapshot: Snapshot, target: Ints) -> Placed:
        rows = ((target > 0) & (snapshot.jobs.workers == 0)).nonzero()[0].tolist()
        keys = [JobKey(snapshot.jobs.key.item(row)) for row in rows]
        return Placed(
            [
                Action(ActionKind.START, key, row, NOWHERE, Assignment(((self._start[key], target.item(row)),)))
                for key, row in zip(keys, rows, strict=True)
            ],
            [],
        )
