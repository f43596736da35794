"""Simulated cluster whose rules have wrong estimates of every job: `--knowledge noisy:0.3`.

The remaining work of each job is multiplied by an error factor, the gains of its curve beyond the first worker by
another one; both are log-normal around 1 and drawn once per job. Nothing is learned: the error is the same from the
first round of a job to its last. Jobs progress by the truth, and restart costs are known.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.job_table import Array, ComputedColumn
from sterna.backends.simulated.workload import Workload
from sterna.model.cluster import Ints, Nodes
from sterna.model.snapshot import Snapshot
from sterna.model.speedup import LINEAR, Curves, Floats

_GRID = 0.02
"""The logarithm of a curve's factor is rounded to this, so that jobs share curves."""


class NoisyBackend(SimulatedBackend):
    """Simulated backend whose snapshots carry noisy curves and remaining work."""

    def __init__(
        self, workload: Workload, nodes: Nodes, config: SimulationConfig | None = None, *, sigma: float, seed: int
    ) -> None:
        super().__init__(workload, nodes, config)
        random = np.random.default_rng([seed, 6])
        factor = np.exp(sigma * random.standard_normal(len(workload)))
        code, self._curves = noisy_curves(workload, sigma * random.standard_normal(len(workload)), self.reach)
        self.table.sources["curve"], self.table.sources["factor"] = code, factor
        self.lines["remaining"] = _NoisyWork(self, self.lines["remaining"])

    def observe(self) -> Snapshot:
        return replace(super().observe(), curves=self._curves)


class _NoisyWork:
    """Remaining work of each active job times its error factor."""

    def __init__(self, backend: NoisyBackend, truth: ComputedColumn) -> None:
        self._backend, self._truth = backend, truth

    def at(self, now: float) -> Array:
        left: Floats = self._truth.at(now) * self._backend.table.read("factor")
        left.flags.writeable = False
        return left


def noisy_curves(workload: Workload, logs: Floats, most: int) -> tuple[Ints, Curves]:
    """Scale the gains of each job's curve by `exp(logs)`; return each job's curve row and the table of all curves."""
    rounded = np.rint(logs / _GRID).astype(np.int64)
    pairs, code = np.unique(np.stack([workload.curve, rounded]), axis=1, return_inverse=True)
    truth = workload.curves.table(most)
    rows = [_scale_gains(truth[curve, 1 : most + 1], float(np.exp(_GRID * step))) for curve, step in pairs.T.tolist()]
    return code.reshape(-1) + LINEAR + 1, Curves(((1.0,), *rows))


def _scale_gains(speeds: Floats, factor: float) -> tuple[float, ...]:
    """Scale the gains of a curve, at most 1 each; scaling and the bound keep it concave."""
    gains = np.minimum(np.diff(speeds) * factor, 1.0)
    return (1.0, *(1.0 + gains.cumsum()).tolist())
