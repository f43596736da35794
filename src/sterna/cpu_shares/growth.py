"""`growth`: jobs that still improve get more. FlowCon's rule, with categories relative to each job's own growth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sterna.engine.cpu_sharing.shared_nodes import GUARD
from sterna.rules import CpuShares, Growth, Snapshot, cpu_share, knob


@cpu_share("growth")
@dataclass(frozen=True)
class Improving:
    """A job that has converged gives up a part of its share to those that still improve; no total need be known.

    A curve does not show whether a job will improve again, so every job keeps `1 / guard` of an equal share: if the
    category is wrong, the job ends later by that factor at most. `strict` is the published rule without that bound: a
    converged job keeps its growth rate relative to the mean of all jobs, at least `1 / beta` of an equal share.
    """

    guard: float = knob(
        GUARD, "No job ends later than this many times its completion time under equal shares.", least=1.0
    )
    watching: float = knob(0.5, "With strict: what a watched job keeps, as a part of an equal share.", least=1e-4)
    beta: float = knob(20.0, "With strict: a converged job keeps at least 1/beta of an equal share.", least=1.0)
    strict: bool = knob(False, "The published rule, without a bound on the delay of a job.")
    interval: float = knob(10.0, "Seconds after which shares are computed again without an event.", least=1.0)

    def __call__(self, snapshot: Snapshot) -> CpuShares:
        jobs = snapshot.jobs
        shares_a_node = (jobs.workers > 0) & ~np.isnan(jobs.most_cores)
        if not shares_a_node.any():
            return CpuShares(np.ones(len(jobs)))
        rate = np.where(shares_a_node, np.nan_to_num(jobs.growth_rate), 0.0)
        usual = rate.sum() / np.count_nonzero(shares_a_node)
        late = np.clip(rate / usual, 1.0 / self.beta, 1.0) if usual > 0 else np.full(len(jobs), 1.0 / self.beta)
        weight = np.select(
            [~shares_a_node, jobs.growth == Growth.CONVERGED, jobs.growth == Growth.WATCHING],
            [np.ones(len(jobs)), late, np.full(len(jobs), self.watching)],
            1.0,
        )
        if not self.strict:
            weight = np.maximum(weight, 1.0 / self.guard)
        return CpuShares(weight, snapshot.now + self.interval)
