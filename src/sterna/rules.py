"""Everything that the author of a rule imports: decorators, results, the snapshot, and the tools of the built-in rules.

A rule is a frozen dataclass with one method, `__call__(snapshot)`; its decorator registers it under a name, its fields
made with `knob` become parameters:

    @policy("name")       -> Target      workers for each job
    @placement("name")    -> Placed      nodes for each worker
    @migration("name")    -> Moves       running jobs that move
    @cpu_share("name")    -> CpuShares   weight of each job on a shared node
    @reservation("name")  -> Reserved    capacity that goes before training

The modules behind these names are internal and may move; this one stays.
"""

from __future__ import annotations

from sterna.engine.kernels.bin_packing import first_fit
from sterna.engine.ordering.marginal_gain import spend_by_gain
from sterna.engine.ordering.submit_order import distribute_round_robin, fit_minimum_in_order, priority_order
from sterna.engine.placement.free_capacity import FreeCapacity, NodeCounts
from sterna.engine.placement.place import drop_last_workers, fill_in_order, place
from sterna.engine.price import cost, pays
from sterna.engine.registry import (
    CpuShares,
    Misfit,
    Move,
    Moves,
    Placed,
    Reserved,
    Target,
    cpu_share,
    knob,
    migration,
    placement,
    policy,
    reservation,
)
from sterna.model.cluster import ANYWHERE, MILLI, NOWHERE, Assignment, Bools, Ints, Nodes, ResourceKind, Shape
from sterna.model.growth import Growth, GrowthRule
from sterna.model.plan import NO_JOB, Action, ActionKind
from sterna.model.serving_pod import ServingPod
from sterna.model.snapshot import NEVER, JobKey, Jobs, Snapshot
from sterna.model.speedup import Floats

__all__ = [
    "ANYWHERE",
    "MILLI",
    "NEVER",
    "NOWHERE",
    "NO_JOB",
    "Action",
    "ActionKind",
    "Assignment",
    "Bools",
    "CpuShares",
    "Floats",
    "FreeCapacity",
    "Growth",
    "GrowthRule",
    "Ints",
    "JobKey",
    "Jobs",
    "Misfit",
    "Move",
    "Moves",
    "NodeCounts",
    "Nodes",
    "Placed",
    "Reserved",
    "ResourceKind",
    "ServingPod",
    "Shape",
    "Snapshot",
    "Target",
    "cost",
    "cpu_share",
    "distribute_round_robin",
    "drop_last_workers",
    "fill_in_order",
    "first_fit",
    "fit_minimum_in_order",
    "knob",
    "migration",
    "pays",
    "place",
    "placement",
    "policy",
    "priority_order",
    "reservation",
    "spend_by_gain",
]
