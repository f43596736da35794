"""Work of Voda's jobs, inferred by inverse simulation.

The logs have the device-seconds of the jobs of each model under ElasticFIFO. The work is fitted so that the model of
Voda uses the same; every other published figure is a test of the model, not an input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from sterna.experiments.reproduction.voda.algorithms import ALGORITHMS
from sterna.experiments.reproduction.voda.model import VodaRun, run_voda
from sterna.workloads.published import voda

FITTED_TO = "ElasticFIFO"


class PublishedRun(NamedTuple):
    """One run of Voda on the first arrival pattern, from its authors' logs."""

    mean_seconds: float
    makespan_seconds: float
    restarts: int
    """Restarts of whole jobs because all workers moved."""
    halts: int


PUBLISHED: Mapping[str, PublishedRun] = {
    "ElasticFIFO": PublishedRun(3506, 6196, 60, 0),
    "ElasticTiresias": PublishedRun(4506, 7269, 55, 25),
    "FfDLOptimizer": PublishedRun(3504, 6071, 64, 0),
    "AFS-L": PublishedRun(3079, 6016, 66, 11),
}

_TIES = range(20)
"""Seeds of Voda's tie-breaks; the model is compared by its mean over them."""
_STEPS = 16
_FIRST_GUESS = 0.9
"""Work divided by device-seconds; below 1 because of pauses and sublinear speed-ups."""


@dataclass(frozen=True)
class Calibration:
    """Work of each model, and the runs of the model of Voda on the published arrivals."""

    work_seconds: Mapping[str, float]
    """Seconds at one worker, by model."""
    device_seconds: Mapping[str, float]
    """Fitted device-seconds by model under ElasticFIFO."""
    runs: Mapping[str, Sequence[VodaRun]]
    """Runs by algorithm, one per seed of the tie-breaks."""

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
        """Return the longest epoch of any model at one worker: the most that a restart can lose."""
        return max(work / voda.EPOCHS[model] for model, work in self.work_seconds.items())


@cache
def calibrate_work() -> Calibration:
    """Fit the work of each model by fixed-point iteration and keep the best step: epochs are whole, so the last step
    need not be the best."""
    wanted = voda.device_seconds()
    work = {model: held * _FIRST_GUESS for model, held in wanted.items()}
    tries = []
    for _ in range(_STEPS):
        held = _mean_device_seconds([run_voda(voda.jobs(), work, FITTED_TO, seed) for seed in _TIES])
        error = max(abs(held[model] / wanted[model] - 1) for model in wanted)
        tries.append((error, work, held))
        work = {model: work[model] * wanted[model] / held[model] for model in wanted}
    _, work, held = min(tries, key=lambda each: each[0])
    runs = {name: [run_voda(voda.jobs(), work, name, seed) for seed in _TIES] for name in ALGORITHMS}
    return Calibration(work, held, runs)


def _mean_device_seconds(runs: Sequence[VodaRun]) -> dict[str, float]:
    """Return mean device-seconds of a job by model."""
    rows_of = {model: [row for row, job in enumerate(voda.jobs()) if job.model == model] for model in voda.EPOCHS}
    return {
        model: _average([run.device_seconds[row] for run in runs for row in rows]) for model, rows in rows_of.items()
    }


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)
