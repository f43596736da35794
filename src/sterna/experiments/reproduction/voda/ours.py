"""Run Voda's jobs with Sterna's engine on the simulated backend, at Voda's costs and rate limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.costs import Costs
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.workload import workload_of
from sterna.control.rate_limit import RateLimited
from sterna.control.round_loop import RoundLoop
from sterna.experiments.reproduction.voda.model import PAUSE_SECONDS, RATE_LIMIT_SECONDS
from sterna.model.speedup import Floats
from sterna.wiring import make_rules
from sterna.workloads.published import voda

POLICIES: Mapping[str, str] = {
    "ElasticFIFO": "elastic-fifo",
    "ElasticTiresias": "elastic-tiresias:threshold=1800:promote=4:compact=4",
    "FfDLOptimizer": "ffdl",
    "AFS-L": "afs-l",
}
"""Policy with the parameters of the experiment, by Voda's name."""

STAYING = "stay"
"""Placement that never moves a running job."""
REPACKING = "stay:repack=always"
"""Placement that re-packs everything at every change, as Voda does, but without random ties."""


@dataclass(frozen=True)
class OurRun:
    completion_seconds: Floats
    makespan_seconds: float
    migrations: int
    halts: int
    used: Sequence[tuple[float, float]]
    """Devices in use by the time from which on."""

    @property
    def mean_seconds(self) -> float:
        return float(self.completion_seconds.mean())


@dataclass(frozen=True)
class PausePenalty:
    """Costs of changes for Sterna, and its placement."""

    checkpoint_seconds: float
    """Run time between two checkpoints; a stop or move loses the work since the last one."""
    cross_node_penalty: float = 0.0
    placement: str = STAYING


def run_ours(
    submitted: Sequence[voda.SubmittedJob],
    work_seconds: Mapping[str, float],
    algorithm: str,
    change_costs: PausePenalty,
) -> OurRun:
    """Run the jobs under Sterna's policy for one of Voda's algorithms."""
    workload = workload_of(voda.trace_of(submitted, work_seconds))
    costs = Costs(
        restart_seconds=PAUSE_SECONDS,
        rescale_seconds=PAUSE_SECONDS,
        checkpoint_seconds=change_costs.checkpoint_seconds,
        cross_node_penalty=change_costs.cross_node_penalty,
    )
    backend = SimulatedBackend(workload, simulated_nodes(voda.NODES), SimulationConfig(costs=costs, has_timeline=True))
    RoundLoop(RateLimited(backend, RATE_LIMIT_SECONDS), make_rules(POLICIES[algorithm], change_costs.placement)).run()
    finish = np.array(backend.finish)
    counters = backend.counters
    return OurRun(
        finish - workload.submit,
        float(finish.max() - workload.submit[0]),
        counters.migrations,
        counters.preemptions,
        list(zip(counters.times, counters.devices_used, strict=True)),
    )
