"""`finish`: least remaining work first, with a bound on the delay of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sterna.engine.cpu_sharing.shared_nodes import GUARD, TAIL, SharedNodes, build_shared_nodes
from sterna.rules import CpuShares, Floats, Growth, Snapshot, cpu_share, knob


@cpu_share("finish")
@dataclass(frozen=True)
class Finish:
    """Jobs near their end have all the cores they can use; no job ends much later than by equal shares.

    A share is taken from a job only if it still ends within the guard when all that go before it are done. Jobs whose
    total is unknown keep an equal share.
    """

    takes_turns: ClassVar[bool] = True
    """Migrations forecast the jobs of a node one after the other."""

    guard: float = knob(
        GUARD, "No job ends later than this many times its completion time under equal shares.", least=1.0
    )
    tail: float = knob(TAIL, "How much later than possible a node's last job may end, as a part of that time.")
    floor: float = knob(0.01, "What every job keeps, as a part of an equal share.", least=1e-4)
    objective: str = knob(
        "finish", "What comes first: jobs that end soon, or jobs that still improve.", choices=("finish", "quality")
    )
    interval: float = knob(30.0, "Seconds after which shares are computed again without an event.", least=1.0)

    def __call__(self, snapshot: Snapshot) -> CpuShares:
        weight = np.ones(len(snapshot.jobs))
        shared = build_shared_nodes(snapshot, self.guard, self.tail)
        if shared is None:
            return CpuShares(weight)
        if self.objective == "quality":
            converged = snapshot.jobs.growth == Growth.CONVERGED
            shared.rank = {row: float(converged[row]) for row in shared.remaining_work}
        contended = [self._divide(shared, node, weight) for node in range(len(shared.rows_on))]
        return CpuShares(weight, snapshot.now + self.interval) if any(contended) else CpuShares(weight)

    def _divide(self, shared: SharedNodes, node: int, weight: Floats) -> bool:
        """Set weights in proportion to the cores that each job gets; return False if there are enough for all."""
        rows, cores = shared.rows_on[node], shared.cores[node]
        if not shared.is_contended(node):
            return False
        left, equal = shared.available_cores(node), cores / (len(rows) + shared.opaque_jobs[node])
        for row in shared.order(node, rows):
            given = min(shared.core_limits[row], left)
            weight[row] = max(given / equal, self.floor)
            left -= given
        return True
