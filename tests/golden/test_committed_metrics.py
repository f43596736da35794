"""Numbers that must not change unnoticed: a small trace of our own, and the values on which public simulators agree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.workload import workload_of
from sterna.control.round_loop import RoundLoop
from sterna.wiring import make_rules
from sterna.workloads.load import load_trace
from tests.golden.metrics import committed_metrics, label, measure_metrics, settings
from tests.published import DATA, large_file

PUBLIC_TIRESIAS = "tiresias:threshold=3250:second=7200:order=entry:promote=0"
"""2D-LAS with the parameters of the public simulator: three queues, no promotion."""


@pytest.mark.parametrize("setting", settings(), ids=lambda setting: label(*setting))
def test_the_lab_trace_gives_what_is_committed(setting: tuple[str, str, float]) -> None:
    """A difference is either a defect or a change to be read: `python -m tests.golden.metrics` updates it."""
    assert measure_metrics(*setting) == committed_metrics()[label(*setting)]


def test_nothing_is_committed_that_no_longer_exists() -> None:
    assert set(committed_metrics()) == {label(*setting) for setting in settings()}


@pytest.mark.parametrize(
    ("policy", "mean_jct_s", "preemptions"),
    [
        ("fifo:preempt=false", 35_051.44, 0),
        ("fifo:preempt=false:backfill=false", 36_236.03, 0),
        ("srjf:by=time", 28_560.1, 80),
        ("srjf", 28_144.19, 29),
        (PUBLIC_TIRESIAS, 28_757.22, 326),
        ("easy", 35_200.19, 0),
        ("conservative", 35_368.51, 0),
    ],
)
def test_independent_simulators_agree_on_the_thousand_job_trace(
    policy: str, mean_jct_s: float, preemptions: int
) -> None:
    """First-fit FIFO, strict FIFO, shortest time, shortest service, Tiresias with three queues, EASY and conservative
    backfill, on 640 counted devices without costs."""
    mean, stops = _mean_and_stops(DATA / "bench" / "b1k.csv", policy)
    assert mean == pytest.approx(mean_jct_s, abs=0.01)
    assert stops == preemptions


@pytest.mark.slow
def test_independent_simulators_agree_with_tiresias_on_the_ten_thousand_job_trace() -> None:
    """17,688.65 s with lists for queues; jobs that were stopped at the same instant may resume in another order."""
    mean, _ = _mean_and_stops(large_file("bench/b10k.csv"), PUBLIC_TIRESIAS)
    assert mean == pytest.approx(17_688.65, abs=0.1)


def _mean_and_stops(trace: Path, policy: str) -> tuple[float, int]:
    workload = workload_of(load_trace(trace))
    backend = SimulatedBackend(workload, simulated_nodes("80x8"))
    RoundLoop(backend, make_rules(policy, "none")).run()
    return float(np.mean(np.array(backend.finish) - workload.submit)), backend.counters.preemptions
