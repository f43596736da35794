"""`growth`: jobs that still improve get more. FlowCon's rule, with categories relative to each job's own growth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sterna.rules import CpuShares, Growth, Snapshot, cpu_share, knob


@cpu_share("growth")
@dataclass(frozen=True)
class Improving:
    """A job that has converged gives up most of its share to those that still improve; no total need be known.

    It keeps its growth rate relative to the mean of all jobs, at least `1 / beta` of an equal share.
    """

    watching: float = knob(0.5, "What a watched job keeps, as a part of an equal share.", least=1e-4)
    beta: float = knob(20.0, "A converged job keeps at least 1/beta of an equal share.", least=1.0)
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
        return CpuShares(weight, snapshot.now + self.interval)
