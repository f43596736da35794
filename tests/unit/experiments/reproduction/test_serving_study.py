"""Serving pods in a simulated day: a reservation gets them capacity soon, at little cost to training."""

from __future__ import annotations

import numpy as np
import pytest

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.serving_pods import ServingBackend, ServingLoad
from sterna.backends.simulated.workload import workload_of
from sterna.control.round_loop import RoundLoop
from sterna.experiments.reproduction import serving
from sterna.model.cluster import MILLI, Shape
from sterna.wiring import make_rules
from sterna.workloads.trace import make_trace


def run_backend(loads: list[ServingLoad], reservation: str) -> ServingBackend:
    """One elastic job that fills one node of four devices for a long time."""
    trace = make_trace(name=["a"], submit_seconds=[0.0], workers=[4], duration_seconds=[1e5], minimum=[1], maximum=[4])
    training = SimulatedBackend(workload_of(trace), simulated_nodes("1x4"))
    backend = ServingBackend(training, loads, release_seconds=30, horizon_seconds=5000)
    RoundLoop(backend, make_rules("elastic-fifo", "stay", reservation=reservation)).run()
    return backend


def test_a_pod_is_bound_once_the_worker_that_made_room_has_left() -> None:
    backend = run_backend([ServingLoad("p", 100, 1000, Shape(devices=MILLI))], "serving")
    assert backend.bound_at == {"p": 130}


def test_a_pod_that_is_left_to_itself_waits() -> None:
    assert run_backend([ServingLoad("p", 100, 1000, Shape(devices=MILLI))], "none").bound_at == {}


def test_devices_of_a_pod_that_ended_go_back_to_training() -> None:
    backend = run_backend([ServingLoad("p", 100, 1000, Shape(devices=MILLI))], "serving")
    assert backend.observe().jobs.workers.tolist() == [4]


def test_reservation_serves_pods_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates an eighth of a day, to be quick."""
    monkeypatch.setattr(serving, "DAY_SECONDS", 10_800.0)
    alone = serving.a_day("elastic-fifo", "none", 1, 260.0, pods=30)
    reserved = serving.a_day("elastic-fifo", "serving", 1, 260.0, pods=30)
    assert np.percentile(reserved.waits, 99) < np.percentile(alone.waits, 99)
    assert reserved.waits.max() < 120
    assert reserved.work > 0.9 * alone.work
