"""The simulated jobs under the default scheduler, computed only when a rule reads `default_finish`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sterna.engine.cpu_sharing.equal_share_baseline import EqualShareBaseline
from sterna.model.speedup import Floats


class LazyBaseline:
    """`EqualShareBaseline` that queues arrivals and completions until `completions` is called."""

    def __init__(
        self, cores: Sequence[float], core_limits: Sequence[float], known_work: Floats, first_nodes: Sequence[int]
    ) -> None:
        """`known_work` is the estimate of each job's total, NaN if unknown; `first_nodes` fixes nodes, if not empty."""
        self._baseline = EqualShareBaseline(cores)
        self._core_limits, self._known_work, self._first_nodes = core_limits, known_work.tolist(), first_nodes
        self._events: list[tuple[float, int, float | None]] = []
        """Pending: time, job, and the work that it turned out to need (None: it arrived)."""

    def add_arrival(self, key: int, at: float) -> None:
        self._events.append((at, key, None))

    def add_completion(self, key: int, at: float, work: float) -> None:
        """Record that the real job has ended, and with it how much work it needed."""
        self._events.append((at, key, work))

    def completions(self, now: float) -> Floats:
        """Return when each job ends or has ended, as predicted now; NaN where unknown or not arrived."""
        for at, key, work in self._events:
            self._baseline.advance(at)
            if work is None:
                total = self._known_work[key]
                node = self._first_nodes[key] if self._first_nodes else None
                self._baseline.add(key, self._core_limits[key], math.inf if math.isnan(total) else total, node)
            else:
                self._baseline.set_total(key, work)
        self._events.clear()
        self._baseline.advance(now)
        ends = np.full(len(self._known_work), np.nan)
        found = self._baseline.completions()
        ends[list(found)] = list(found.values())
        return ends
