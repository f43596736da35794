"""How much work Voda's jobs were, found by inverse simulation, and how well the model of Voda then fits what it did.

The logs say how many device-seconds the jobs of each model held under ElasticFIFO. The work is chosen so that the
model of Voda holds the same; everything else that was published is then a test of the model, not an input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from sterna.experiments.reproduction.voda.algorithms import ALGORITHMS
from sterna.experiments.reproduction.voda.model import Run, run_voda
from sterna.workloads.published import voda

FITTED_TO = "ElasticFIFO"


class Published(NamedTuple):
    """One run of Voda on the first arrival pattern, from its authors' logs."""

    mean_seconds: float
    makespan_seconds: float
    restarts: int
    """Of whole jobs, because all workers were moved."""
    halts: int


PUBLISHED: Mapping[str, Published] = {
    "ElasticFIFO": Published(3506, 6196, 60, 0),
    "ElasticTiresias": Published(4506, 7269, 55, 25),
    "FfDLOptimizer": Published(3504, 6071, 64, 0),
    "AFS-L": Published(3079, 6016, 66, 11),
}

_TIES = range(20)
"""Seeds for Voda's ties; the model is judged by its average over them."""
_STEPS = 16
_FIRST_GUESS = 0.9
"""Work over device-seconds: some of what a job holds goes into pauses and into workers that add less than one."""


@dataclass(frozen=True)
class Calibration:
    """The work of each model, and what the model of Voda makes of the published arrivals with it."""

    work_seconds: Mapping[str, float]
    """At one worker."""
    device_seconds: Mapping[str, float]
    """By model under ElasticFIFO: what was fitted."""
    runs: Mapping[str, Sequence[Run]]
    """By algorithm, one for each seed of the ties."""

    def mean_seconds(self, algorithm: str) -> float:
        return _average([run.mean_seconds for run in self.runs[algorithm]])

    def makespan_seconds(self, algorithm: str) -> float:
        return _average([run.makespan_seconds for run in self.runs[algorithm]])

    def restarts(self, algorithm: str) -> float:
        return _average([run.restarts for run in self.runs[algorithm]])

    def halts(self, algorithm: str) -> float:
        return _average([run.halts for run in self.runs[algorithm]])

    @property
    def longest_epoch_seconds(self) -> float:
        """At one worker, of any model: the most that a restart can throw away."""
        return max(work / voda.EPOCHS[model] for model, work in self.work_seconds.items())


@cache
def calibrated() -> Calibration:
    """Scale each model's work by what it should have held over what it held, and keep the best of all steps: epochs are
    whole, so the last step need not be the best."""
    wanted = voda.device_seconds()
    work = {model: held * _FIRST_GUESS for model, held in wanted.items()}
    tries = []
    for _ in range(_STEPS):
        held = _held([run_voda(voda.jobs(), work, FITTED_TO, seed) for seed in _TIES])
        error = max(abs(held[model] / wanted[model] - 1) for model in wanted)
        tries.append((error, work, held))
        work = {model: work[model] * wanted[model] / held[model] for model in wanted}
    _, work, held = min(tries, key=lambda each: each[0])
    runs = {name: [run_voda(voda.jobs(), work, name, seed) for seed in _TIES] for name in ALGORITHMS}
    return Calibration(work, held, runs)


def _held(runs: Sequence[Run]) -> dict[str, float]:
    """Device-seconds of a job of each model, on average."""
    rows_of = {model: [row for row, job in enumerate(voda.jobs()) if job.model == model] for model in voda.EPOCHS}
    return {
        model: _average([run.device_seconds[row] for run in runs for row in rows]) for model, rows in rows_of.items()
    }


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)
