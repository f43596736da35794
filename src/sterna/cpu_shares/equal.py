"""`equal`: the kernel's own division of a shared node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sterna.rules import CpuShares, Snapshot, cpu_share


@cpu_share("equal")
@dataclass(frozen=True)
class Equal:
    """All jobs on a node have the same weight."""

    def __call__(self, snapshot: Snapshot) -> CpuShares:
        return CpuShares(np.ones(len(snapshot.jobs)))
