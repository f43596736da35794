"""A scenario: everything about a simulation but the policy, so that policies are compared on equal terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

import numpy as np

from sterna.backends.simulated.costs import Costs, Fault
from sterna.backends.simulated.knowledge import TRUE, Knowledge
from sterna.model.cluster import MILLI, Nodes, ResourceKind
from sterna.model.formatting import format_count
from sterna.wiring import preferred_placement
from sterna.workloads.profiles import model_key
from sterna.workloads.speedup_assumption import DRAWN_PROFILES, SpeedupAssumption
from sterna.workloads.trace import Trace

_MOST_NAMED = 8
"""Upper bound on the models listed in a notice."""


@dataclass(frozen=True)
class Scenario:
    """Jobs, nodes, costs and faults. Pickled for the processes of a comparison."""

    trace: Trace
    nodes: Nodes
    _: KW_ONLY
    placement: str | None = None
    """Rule that chooses nodes; None: the one that each policy was made for."""
    costs: Costs = field(default_factory=Costs)
    faults: tuple[Fault, ...] = ()
    speedups: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    speedup: SpeedupAssumption = DRAWN_PROFILES
    """Speed-up of jobs whose model has no curve."""
    seed: int = 0
    """Seed that `faults` were drawn with; noisy knowledge and profiles are drawn from it, and results report it."""
    knowledge: Knowledge = TRUE
    """Accuracy of what policies know of the jobs."""
    known_ends: bool = False
    """Policies know the recorded end of jobs that failed or were killed, not the planned one."""
    metrics: tuple[str, ...] = ()
    """Names of the user's own metrics that results have."""

    @property
    def devices(self) -> int:
        return int(self.nodes.capacity[ResourceKind.DEVICES].sum()) // MILLI

    @property
    def cluster(self) -> str:
        """Describe the nodes: `80 nodes of 8 devices, 640 devices in all`."""
        each = np.unique(self.nodes.capacity[ResourceKind.DEVICES] // MILLI)
        alike = f" of {format_count(int(each[0]), 'device')}" if len(each) == 1 else ""
        return f"{format_count(len(self.nodes), 'node')}{alike}, {format_count(self.devices, 'device')} in all"

    @property
    def notices(self) -> tuple[str, ...]:
        """Return the notices of the trace, and one for speed-ups that no job uses."""
        present = {model_key(model) for model in self.trace.model}
        unused = [model for model in self.speedups if model_key(model) not in present]
        if not unused:
            return self.trace.notices
        whose = f"{', '.join(unused[:_MOST_NAMED])}{' and others' if len(unused) > _MOST_NAMED else ''}"
        return *self.trace.notices, f"No job of the trace is of these models of --speedups: {whose}."

    def placement_of(self, policy: str) -> str:
        return preferred_placement(policy) if self.placement is None else self.placement
