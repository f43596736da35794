"""Costs of changes to simulated jobs, and faults of simulated nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sterna.model.cluster import Assignment, Ints


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Price of each change to a running job. All zero: changes are free, as in most published simulators."""

    restart_seconds: float = 0.0
    """Time without progress at every start, move and resize by restart."""
    rescale_seconds: float | None = None
    """Time without progress at a resize; None: a resize is a restart."""
    checkpoint_seconds: float = 0.0
    """Run time between two checkpoints of a job; a stop, a move, a resize by restart or a node failure throws away the
    work since the last one. 0: jobs save whenever they are stopped."""
    can_save: float = 1.0
    """Share of jobs that can save, drawn by the seed; all others lose all their work whenever they are stopped."""
    cross_node_penalty: float = 0.0
    """Fraction of speed lost while replicas span several nodes, and again while they span several racks."""

    @property
    def resize_seconds(self) -> float:
        return self.restart_seconds if self.rescale_seconds is None else self.rescale_seconds

    @property
    def resize_loses_work(self) -> bool:
        return self.rescale_seconds is None

    @property
    def loses_work(self) -> bool:
        """True if some stop throws work away."""
        return self.checkpoint_seconds > 0 or self.can_save < 1

    @property
    def are_free(self) -> bool:
        """True if no change costs any job anything."""
        return not (self.restart_seconds or self.resize_seconds or self.loses_work)

    def slowdown(self, assignment: Assignment, rack: Sequence[int]) -> float:
        """Return the speed factor of this assignment, parameter servers included."""
        if not self.cross_node_penalty or len(assignment.workers) + len(assignment.ps) < 2:
            return 1.0
        nodes = {node for node, _ in (*assignment.workers, *assignment.ps)}
        spans = (len(nodes) > 1) + (len({rack[node] for node in nodes}) > 1)
        return float((1.0 - self.cross_node_penalty) ** spans)


@dataclass(frozen=True)
class Fault:
    """Failure of a node and, after `for_seconds`, its recovery."""

    node: int
    at_seconds: float
    for_seconds: float = float("inf")


def draw_saving_jobs(jobs: int, share: float, seed: int) -> Ints:
    """Draw which jobs can save: 1 for about `share` of them, else 0."""
    return (np.random.default_rng([seed, 7]).random(jobs) < share).astype(np.int64)


def random_faults(
    nodes: int, mtbf_seconds: float, repair_seconds: float, horizon_seconds: float, seed: int
) -> list[Fault]:
    """Draw faults per node with exponential time between them and fixed length; deterministic for a seed."""
    random = np.random.default_rng(seed)
    faults = []
    for node in range(nodes):
        at = float(random.exponential(mtbf_seconds))
        while at < horizon_seconds:
            faults.append(Fault(node, at, repair_seconds))
            at += repair_seconds + float(random.exponential(mtbf_seconds))
    return sorted(faults, key=lambda fault: (fault.at_seconds, fault.node))
