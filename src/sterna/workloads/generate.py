"""Generated traces: a generator draws the arrivals, a `Mix` describes the jobs.

Equal arguments give equal traces with the same version of NumPy. Arrivals, durations, sizes and models are drawn from
separate streams, so that changing one leaves the others unchanged.
To resemble a real cluster, replay a published trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from sterna.errors import ParameterError, did_you_mean
from sterna.workloads.domain import COUNT, NOT_NEGATIVE, POSITIVE, WHOLE, Domain, FloatColumn, plain
from sterna.workloads.profiles import GENERATED, PROFILES, curve_of
from sterna.workloads.trace import Trace, make_trace, numbered_names

_MILLISECONDS = 3
"""Decimals of generated times."""

_JOBS = replace(COUNT, most=1e7)
"""Upper bound, by memory."""

_SPREAD = replace(NOT_NEGATIVE, most=10.0)
"""Upper bound: beyond it most jobs last one second and a few last years."""

Choice = TypeVar("Choice", int, str)


def _generated_models() -> dict[str, float]:
    return dict.fromkeys(GENERATED, 1.0)


def _mostly_small() -> dict[int, float]:
    return {1: 5.0, 2: 2.0, 4: 2.0, 8: 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Distribution of generated jobs. Weights are relative and need not add up to 1."""

    mean_duration_seconds: float = 3600.0
    """Mean of the log-normal durations, which are at least one second."""
    duration_spread: float = 1.5
    """Standard deviation of the logarithm of durations. 0: all equal; 1.5: a tenth of the jobs has 60 % of the work."""
    workers: Mapping[int, float] = field(default_factory=_mostly_small)
    """Weight by number of workers."""
    models: Mapping[str, float] = field(default_factory=_generated_models)
    """Weight by built-in profile. Empty: jobs without a model."""
    least: float = 1.0
    """Least workers of a job, as a multiple of its request."""
    most: float = 1.0
    """Most workers of a job, as a multiple of its request."""

    def __post_init__(self) -> None:
        _check("mean_duration_seconds", self.mean_duration_seconds, POSITIVE)
        _check("duration_spread", self.duration_spread, _SPREAD)
        for workers in self.workers:
            _check("workers", workers, COUNT)
        for model in self.models:
            if curve_of(model) is None:
                hint = did_you_mean(model, PROFILES)
                raise ParameterError("models", f"there is no profile of '{model}'; {hint}")
        _check_weights("workers", list(self.workers.values()))
        if self.models:
            _check_weights("models", list(self.models.values()))


def poisson(*, jobs: int = 100, seed: int = 0, mean_gap_seconds: float = 60.0, mix: Mix | None = None) -> Trace:
    """Generate independent arrivals, `mean_gap_seconds` apart on average; the first at 0."""
    _check("mean_gap_seconds", mean_gap_seconds, POSITIVE)
    streams = _streams(jobs, seed)
    gaps = streams[0].exponential(mean_gap_seconds, jobs)
    return _trace("poisson", _submit_times(gaps), streams, mix)


def bursty(
    *,
    jobs: int = 100,
    seed: int = 0,
    burst_jobs: int = 10,
    mean_gap_seconds: float = 1.0,
    mean_pause_seconds: float = 600.0,
    mix: Mix | None = None,
) -> Trace:
    """Generate bursts of `burst_jobs` jobs `mean_gap_seconds` apart, with pauses between them."""
    _check("burst_jobs", burst_jobs, COUNT)
    _check("mean_gap_seconds", mean_gap_seconds, POSITIVE)
    _check("mean_pause_seconds", mean_pause_seconds, POSITIVE)
    streams = _streams(jobs, seed)
    opens_burst = np.arange(jobs) % burst_jobs == 0
    gaps = streams[0].exponential(np.where(opens_burst, mean_pause_seconds, mean_gap_seconds))
    return _trace("bursty", _submit_times(gaps), streams, mix)


def fixed(*, jobs: int = 100, seed: int = 0, gap_seconds: float = 30.0, mix: Mix | None = None) -> Trace:
    """Generate one job every `gap_seconds`; the first at 0. The seed affects the jobs only."""
    _check("gap_seconds", gap_seconds, POSITIVE)
    streams = _streams(jobs, seed)
    return _trace("fixed", np.arange(jobs, dtype=np.float64) * gap_seconds, streams, mix)


def random(*, jobs: int = 100, seed: int = 0, window_seconds: float = 500.0, mix: Mix | None = None) -> Trace:
    """Generate arrivals that are uniform in a window: SpeCon's random schedule."""
    _check("window_seconds", window_seconds, POSITIVE)
    streams = _streams(jobs, seed)
    return _trace("random", np.sort(streams[0].uniform(0, window_seconds, jobs)), streams, mix)


GENERATORS: dict[str, Callable[..., Trace]] = {"poisson": poisson, "bursty": bursty, "fixed": fixed, "random": random}


def _streams(jobs: int, seed: int) -> list[np.random.Generator]:
    _check("jobs", jobs, _JOBS)
    _check("seed", seed, WHOLE)
    return [np.random.default_rng(sequence) for sequence in np.random.SeedSequence(int(seed)).spawn(4)]


def _submit_times(gaps: FloatColumn) -> FloatColumn:
    times: FloatColumn = np.cumsum(gaps) - gaps[0]
    return times


def _trace(kind: str, submit_seconds: FloatColumn, streams: list[np.random.Generator], mix: Mix | None) -> Trace:
    mix = mix or Mix()
    jobs = len(submit_seconds)
    _, for_durations, for_workers, for_models = streams
    spread = mix.duration_spread
    log_mean = math.log(mix.mean_duration_seconds) - spread * spread / 2
    durations: FloatColumn = np.maximum(1.0, for_durations.lognormal(log_mean, spread, jobs))
    trace = make_trace(
        name=numbered_names(jobs),
        submit_seconds=np.round(submit_seconds, _MILLISECONDS),
        workers=_draw(for_workers, mix.workers, jobs),
        duration_seconds=np.round(durations, _MILLISECONDS),
        model=_draw(for_models, mix.models, jobs) if mix.models else None,
        source=kind,
        kind=kind,
    )
    return trace.elastic(mix.least, mix.most)


def _draw(stream: np.random.Generator, weights: Mapping[Choice, float], jobs: int) -> list[Choice]:
    choices = sorted(weights)
    parts = np.array([weights[choice] for choice in choices], dtype=np.float64)
    picks = stream.choice(len(choices), size=jobs, p=parts / parts.sum())
    return [choices[pick] for pick in picks.tolist()]


def _check(parameter: str, value: float, domain: Domain, what: str = "") -> None:
    if domain.first_outside(np.array([value], dtype=np.float64)) is not None:
        found = plain(value) if math.isfinite(value) else str(value)
        raise ParameterError(parameter, f"found {what}{found}, expected {domain.describe_valid(value)}.")


def _check_weights(parameter: str, weights: list[float]) -> None:
    for weight in weights:
        _check(parameter, weight, NOT_NEGATIVE, "the weight ")
    if not sum(weights):
        raise ParameterError(parameter, "all weights are 0 or there is none, expected at least one above 0.")
