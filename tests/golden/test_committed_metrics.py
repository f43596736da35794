"""Numbers that must not change unnoticed: a small trace of our own, and the values on which public simulators agree."""

from __future__ import annotations

import numpy as np
import pytest

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.workload import workload_of
from sterna.control.round_loop import RoundLoop
from sterna.wiring import make_rules
from sterna.workloads.load import load_trace
from tests.golden.metrics import committed_metrics, label, measure_metrics, settings
from tests.published import DATA


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
    ],
)
def test_public_simulators_agree_on_the_thousand_job_trace(policy: str, mean_jct_s: float, preemptions: int) -> None:
    """First-fit FIFO, strict FIFO, shortest time and shortest service, on 640 counted devices without costs."""
    workload = workload_of(load_trace(DATA / "bench" / "b1k.csv"))
    backend = SimulatedBackend(workload, simulated_nodes("80x8"))
    RoundLoop(backend, make_rules(policy, "none")).run()
    assert np.mean(np.array(backend.finish) - workload.submit) == pytest.approx(mean_jct_s, abs=0.01)
    assert backend.counters.preemptions == preemptions
