"""A scenario: everything about a simulation but the policy, so that policies can be compared on the same ground."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sterna.backends.simulated.costs import Costs, Fault
from sterna.backends.simulated.knowledge import TRUE, Knowledge
from sterna.model.cluster import MILLI, Nodes, ResourceKind
from sterna.model.formatting import counted
from sterna.wiring import preferred_placement
from sterna.workloads.profiles import model_key
from sterna.workloads.trace import Trace

_MOST_NAMED = 8
"""Models in a notice."""


@dataclass(frozen=True)
class Scenario:
    """Jobs, nodes and what befalls them. Sent to other processes as it is."""

    trace: Trace
    nodes: Nodes
    placement: str | None = None
    """None: the one that each policy was made for."""
    costs: Costs = field(default_factory=Costs)
    faults: tuple[Fault, ...] = ()
    speedups: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    seed: int = 0
    """Already spent on `faults`; noisy knowledge is drawn from it, and a result can name it."""
    knowledge: Knowledge = TRUE
    """What policies may know of the jobs."""

    @property
    def devices(self) -> int:
        return int(self.nodes.capacity[ResourceKind.DEVICES].sum()) // MILLI

    @property
    def cluster(self) -> str:
        """The nodes in words: `80 nodes, 640 devices`."""
        each = np.unique(self.nodes.capacity[ResourceKind.DEVICES] // MILLI)
        alike = f" of {counted(int(each[0]), 'device')}" if len(each) == 1 else ""
        return f"{counted(len(self.nodes), 'node')}{alike}, {counted(self.devices, 'device')} in all"

    @property
    def notices(self) -> tuple[str, ...]:
        """What whoever described it should know."""
        present = {model_key(model) for model in self.trace.model}
        unused = [model for model in self.speedups if model_key(model) not in present]
        if not unused:
            return self.trace.notices
        whose = f"{', '.join(unused[:_MOST_NAMED])}{' and others' if len(unused) > _MOST_NAMED else ''}"
        return *self.trace.notices, f"No job of the trace is of these models of --speedups: {whose}."

    def placement_of(self, policy: str) -> str:
        return preferred_placement(policy) if self.placement is None else self.placement
