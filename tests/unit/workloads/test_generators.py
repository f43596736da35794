"""Generated traces: when jobs come, what they are like, and that a seed is all it takes to have them again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sterna.errors import ParameterError, UserError
from sterna.workloads.generate import GENERATORS, Mix, bursty, fixed, poisson, random
from sterna.workloads.profiles import GENERATED
from sterna.workloads.trace import NUMBER_COLUMNS, Trace


def numbers(trace: Trace) -> list[list[float]]:
    return [getattr(trace, field).tolist() for field in NUMBER_COLUMNS if field != "requested_seconds"]


@pytest.mark.parametrize("kind", GENERATORS)
def test_the_same_seed_gives_the_same_trace(kind: str) -> None:
    one, again, other = (GENERATORS[kind](jobs=50, seed=seed) for seed in (1, 1, 2))
    assert (one.kind, one.name[0], len(one)) == (kind, "job-00001", 50)
    assert (numbers(one), one.model) == (numbers(again), again.model)
    assert numbers(one) != numbers(other)


@pytest.mark.parametrize("kind", GENERATORS)
def test_names_are_in_the_order_of_submission(kind: str) -> None:
    trace = GENERATORS[kind](jobs=200, seed=3)
    assert list(trace.name) == sorted(trace.name)


def test_changing_when_jobs_come_leaves_the_jobs_as_they_were() -> None:
    often, rarely = (poisson(jobs=50, seed=1, mean_gap_seconds=gap) for gap in (1, 1000))
    assert often.duration_seconds.tolist() == rarely.duration_seconds.tolist()
    assert often.model == rarely.model
    assert fixed(jobs=50, seed=1).workers.tolist() == often.workers.tolist()


def test_poisson_arrivals_have_the_mean_gap_and_start_at_zero() -> None:
    gaps = np.diff(poisson(jobs=5_000, seed=1, mean_gap_seconds=60).submit_seconds)
    assert poisson(seed=1).submit_seconds[0] == 0
    assert gaps.mean() == pytest.approx(60, rel=0.05)
    assert gaps.std() == pytest.approx(60, rel=0.1)


def test_fixed_arrivals_are_equally_far_apart() -> None:
    assert fixed(jobs=4, gap_seconds=0.5).submit_seconds.tolist() == [0.0, 0.5, 1.0, 1.5]


def test_bursts_are_close_together_and_far_from_each_other() -> None:
    trace = bursty(jobs=40, seed=1, burst_jobs=10, mean_gap_seconds=1, mean_pause_seconds=100_000)
    gaps = np.diff(trace.submit_seconds)
    opens = np.arange(1, 40) % 10 == 0
    assert trace.submit_seconds[0] == 0
    assert gaps[opens].min() > gaps[~opens].max()


def test_random_arrivals_fill_their_window() -> None:
    times = random(jobs=2_000, seed=1, window_seconds=500).submit_seconds
    assert times.min() >= 0
    assert times.max() <= 500
    assert times.mean() == pytest.approx(250, rel=0.05)


def test_durations_have_the_mean_and_a_heavy_tail() -> None:
    durations = np.sort(poisson(jobs=20_000, seed=1, mix=Mix(mean_duration_seconds=3600)).duration_seconds)
    assert durations.mean() == pytest.approx(3600, rel=0.1)
    assert durations[-2_000:].sum() / durations.sum() == pytest.approx(0.59, abs=0.05)
    assert durations.min() >= 1


def test_without_spread_all_durations_are_alike() -> None:
    trace = poisson(jobs=5, mix=Mix(mean_duration_seconds=100, duration_spread=0))
    assert trace.duration_seconds.tolist() == [100.0] * 5


def test_workers_and_models_come_by_their_weights() -> None:
    trace = poisson(jobs=5_000, seed=1, mix=Mix(workers={1: 3, 4: 1}, models={"bert": 1, "ResNet-50": 0}))
    assert (trace.workers == 1).mean() == pytest.approx(0.75, abs=0.03)
    assert set(trace.workers.tolist()) == {1, 4}
    assert set(trace.model) == {"bert"}


def test_all_generated_models_occur_unless_others_are_named() -> None:
    assert set(poisson(jobs=1_000, seed=1).model) == set(GENERATED)
    assert set(poisson(jobs=5, mix=Mix(models={})).model) == {""}


def test_elastic_bounds_are_multiples() -> None:
    trace = poisson(jobs=5, mix=Mix(workers={4: 1}, least=0.5, most=2))
    assert set(trace.minimum.tolist()) == {2}
    assert set(trace.maximum.tolist()) == {8}


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "no jobs": ("poisson", {"jobs": 0}, "jobs: found 0, expected a whole number of at least 1."),
    "half a job": ("fixed", {"jobs": 1.5}, "jobs: found 1.5, expected a whole number"),
    "negative seed": ("random", {"seed": -1}, "seed: found -1, expected a whole number of at least 0."),
    "no gap": ("poisson", {"mean_gap_seconds": 0}, "mean_gap_seconds: found 0, expected a number above 0."),
    "unknown gap": ("fixed", {"gap_seconds": float("nan")}, "gap_seconds: found nan, expected a number above 0."),
    "endless window": (
        "random",
        {"window_seconds": float("inf")},
        "window_seconds: found inf, expected a number above",
    ),
    "empty bursts": ("bursty", {"burst_jobs": 0}, "burst_jobs: found 0, expected a whole number of at least 1."),
    "jobs beyond memory": ("fixed", {"jobs": 10**12}, "jobs: found 1000000000000, expected a whole number of at most"),
    "a gap of ages": ("fixed", {"gap_seconds": 1e308}, "gap_seconds: found 1e+308, expected a number of at most 1e15"),
    "no pause": ("bursty", {"mean_pause_seconds": 0}, "mean_pause_seconds: found 0, expected a number above 0."),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_generator_refuses(case: str) -> None:
    kind, arguments, message = REFUSED[case]
    with pytest.raises(UserError) as refusal:
        GENERATORS[kind](**arguments)
    assert message in str(refusal.value)


MIX_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no duration": ({"mean_duration_seconds": 0}, "mean_duration_seconds: found 0, expected a number above 0."),
    "negative spread": ({"duration_spread": -1}, "duration_spread: found -1, expected a number of at least 0."),
    "boundless spread": ({"duration_spread": 1e3}, "duration_spread: found 1000, expected a number of at most 10."),
    "no workers": ({"workers": {0: 1}}, "workers: found 0, expected a whole number of at least 1."),
    "no choice of workers": ({"workers": {}}, "workers: all weights are 0 or there is none"),
    "no weight": ({"models": {"bert": 0}}, "models: all weights are 0 or there is none"),
    "negative weight": ({"workers": {1: -1}}, "workers: found the weight -1, expected a number of at least 0."),
    "unknown model": ({"models": {"berd": 1}}, "models: there is no profile of 'berd'; did you mean 'bert'?"),
}


@pytest.mark.parametrize("case", MIX_REFUSED)
def test_a_mix_refuses(case: str) -> None:
    arguments, message = MIX_REFUSED[case]
    with pytest.raises(ParameterError) as refusal:
        Mix(**arguments)
    assert message in str(refusal.value)
    assert refusal.value.parameter in arguments
