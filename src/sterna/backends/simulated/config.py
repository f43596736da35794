"""Settings of a simulated cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sterna.backends.simulated.costs import Costs, Fault
from sterna.model.growth import GrowthRule


@dataclass(frozen=True, kw_only=True)
class SimulationConfig:
    """Costs of changes, faults to inject, and what to record."""

    costs: Costs = field(default_factory=Costs)
    faults: Sequence[Fault] = ()
    seed: int = 0
    """Seed of the draw of the jobs that can save."""
    has_timeline: bool = False
    """Record devices in use and jobs waiting at every event."""


@dataclass(frozen=True, kw_only=True)
class SharedConfig:
    """Settings of a simulated cluster of CPU-shared nodes."""

    costs: Costs = field(default_factory=Costs)
    growth: GrowthRule = field(default_factory=GrowthRule)
    report_seconds: float = 5.0
    """Time between two progress reports of a running job."""
    first_nodes: Sequence[int] = ()
    """Node that the default scheduler gives each job; empty: the node with the fewest jobs."""
