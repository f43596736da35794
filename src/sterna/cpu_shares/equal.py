"""`equal`: the kernel's own division of a shared node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sterna.engine.registry import Shares, share
from sterna.model.snapshot import Snapshot


@share("equal")
@dataclass(frozen=True)
class Equal:
    """Everybody on a node has the same weight."""

    def __call__(self, snapshot: Snapshot) -> Shares:
        return Shares(np.ones(len(snapshot.jobs)))
