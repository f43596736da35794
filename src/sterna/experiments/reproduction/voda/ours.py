"""Sterna on Voda's jobs: the engine as it is, in the simulated world, at Voda's costs and with its rate limit."""

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
"""Voda's name: the policy, with the parameters of the experiment."""

STICKY = "stay"
"""What runs is never moved."""
RESTLESS = "stay:repack=always"
"""Everything is packed anew at every change, as Voda does, but without random ties."""


@dataclass(frozen=True)
class OurRun:
    completion_seconds: Floats
    makespan_seconds: float
    migrations: int
    halts: int
    used: Sequence[tuple[float, float]]
    """Devices held, from an instant on."""

    @property
    def mean_seconds(self) -> float:
        return float(self.completion_seconds.mean())


@dataclass(frozen=True)
class Terms:
    """What Sterna is charged for changes."""

    lost_seconds: float
    """At every stop and move, but never more than was done since the last."""
    cross_node_penalty: float = 0.0
    placement: str = STICKY


def run_ours(
    submitted: Sequence[voda.SubmittedJob], work_seconds: Mapping[str, float], algorithm: str, terms: Terms
) -> OurRun:
    """What Sterna makes of these jobs under its policy of that name."""
    workload = workload_of(voda.trace_of(submitted, work_seconds))
    costs = Costs(PAUSE_SECONDS, PAUSE_SECONDS, terms.lost_seconds, terms.cross_node_penalty)
    world = SimulatedBackend(workload, simulated_nodes(voda.NODES), SimulationConfig(costs=costs, has_timeline=True))
    RoundLoop(RateLimited(world, RATE_LIMIT_SECONDS), make_rules(POLICIES[algorithm], terms.placement)).run()
    finish = np.array(world.finish)
    counters = world.counters
    return OurRun(
        finish - workload.submit,
        float(finish.max() - workload.submit[0]),
        counters.migrations,
        counters.preemptions,
        list(zip(counters.times, counters.devices_used, strict=True)),
    )
