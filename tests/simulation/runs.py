"""Runs of the round loop on the simulator, with results by job name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.costs import Costs, Fault
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.workload import Workload
from sterna.control.round_loop import RoundLoop
from sterna.model.cluster import Ints, Nodes, Shapes
from sterna.model.plan import Decision
from sterna.model.snapshot import Snapshot
from sterna.model.speedup import Curves, concave
from sterna.wiring import make_rules
from tests.builders import AJob


@dataclass
class Log:
    """Observer that records the time, kind and job name of every action."""

    actions: list[tuple[float, str, str]] = field(default_factory=list)

    def record(self, snapshot: Snapshot, decision: Decision) -> None:
        names = snapshot.jobs.name_of
        self.actions += [(snapshot.now, action.kind.name, names(action.row)) for action in decision.plan]

    def times(self, kind: str) -> list[float]:
        return [when for when, what, _ in self.actions if what == kind]


@dataclass
class Run:
    finish: dict[str, float]
    backend: SimulatedBackend
    log: Log


def a_workload(jobs: Sequence[AJob]) -> Workload:
    """Make a workload of jobs; `remaining` is their work."""
    rows = sorted(jobs, key=lambda job: (job.submit, job.name))
    shapes = tuple(dict.fromkeys(job.shape for job in rows))
    curves = ((1.0,), *dict.fromkeys(concave(job.speedup) for job in rows if job.speedup))
    codes = [curves.index(concave(job.speedup), 1) if job.speedup else 0 for job in rows]

    def whole(name: str) -> Ints:
        return np.array([getattr(job, name) for job in rows], dtype=np.int64)

    return Workload(
        tuple(job.name for job in rows),
        np.array([job.submit for job in rows]),
        whole("request"),
        whole("minimum"),
        whole("maximum"),
        np.array([shapes.index(job.shape) for job in rows], dtype=np.int64),
        np.array(codes, dtype=np.int64),
        whole("priority"),
        np.array([job.remaining for job in rows]),
        Shapes(shapes),
        Curves(curves),
    )


def a_run(
    jobs: Sequence[AJob],
    nodes: str | Nodes = "1x4",
    policy: str = "fifo",
    placement: str = "stay",
    *,
    costs: Costs | None = None,
    faults: Sequence[Fault] = (),
    is_recorded: bool = True,
) -> Run:
    """Run all jobs to completion; without an observer, rounds that change nothing may be skipped."""
    cluster = simulated_nodes(nodes) if isinstance(nodes, str) else nodes
    backend = SimulatedBackend(a_workload(jobs), cluster, SimulationConfig(costs=costs or Costs(), faults=faults))
    log = Log()
    RoundLoop(backend, make_rules(policy, placement), (log,) if is_recorded else ()).run()
    return Run(dict(zip(backend.jobs.name, backend.finish, strict=True)), backend, log)
