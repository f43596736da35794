"""A simulated world whose rules are wrong about every job: `--knowledge noisy:0.3`.

Each job's work is misjudged by a factor, and the gains of its curve beyond the first worker by another, both
log-normal around one and drawn once from a seed. Nothing is learned: a rule is as wrong about a job at its end as at
its start. The truth moves the jobs, and restart costs are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.costs import Costs, Fault
from sterna.backends.simulated.job_table import Array, Reading
from sterna.backends.simulated.workload import Workload
from sterna.model.cluster import Ints, Nodes
from sterna.model.snapshot import Snapshot
from sterna.model.speedup import LINEAR, Curves, Floats

_GRID = 0.02
"""The logarithm of a curve's factor is rounded to this, so that jobs share curves."""


class NoisyBackend(SimulatedBackend):
    """The simulated world, misjudged."""

    def __init__(
        self,
        workload: Workload,
        nodes: Nodes,
        costs: Costs | None = None,
        faults: Sequence[Fault] = (),
        *,
        timeline: bool = False,
        sigma: float,
        seed: int,
    ) -> None:
        super().__init__(workload, nodes, costs, faults, timeline=timeline)
        random = np.random.default_rng([seed, 6])
        factor = np.exp(sigma * random.standard_normal(len(workload)))
        code, self._curves = misjudged(workload, sigma * random.standard_normal(len(workload)), self.reach)
        self.table.books["curve"], self.table.books["factor"] = code, factor
        self.lines["remaining"] = _MisjudgedWork(self, self.books.remaining)

    def observe(self) -> Snapshot:
        return replace(super().observe(), curves=self._curves)


class _MisjudgedWork:
    """What is left of each active job, times its factor."""

    def __init__(self, world: NoisyBackend, truth: Reading) -> None:
        self._world, self._truth = world, truth

    def at(self, now: float) -> Array:
        left: Floats = self._truth.at(now) * self._world.table.read("factor")
        left.flags.writeable = False
        return left


def misjudged(workload: Workload, logs: Floats, most: int) -> tuple[Ints, Curves]:
    """Each job's curve with its gains times a factor, of which the logarithm is given; and all curves there are."""
    rounded = np.rint(logs / _GRID).astype(np.int64)
    pairs, code = np.unique(np.stack([workload.curve, rounded]), axis=1, return_inverse=True)
    truth = workload.curves.table(most)
    rows = [_scaled(truth[curve, 1 : most + 1], float(np.exp(_GRID * step))) for curve, step in pairs.T.tolist()]
    return code.reshape(-1) + LINEAR + 1, Curves(((1.0,), *rows))


def _scaled(speeds: Floats, factor: float) -> tuple[float, ...]:
    """Still concave: gains that fall still fall when they are scaled, and when none may be above one."""
    gains = np.minimum(np.diff(speeds) * factor, 1.0)
    return (1.0, *(1.0 + gains.cumsum()).tolist())
