"""`easy` and `conservative`: backfill that respects reservations, from requested times or remaining work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.workload import workload_of
from sterna.control.round_loop import RoundLoop
from sterna.engine.ordering.backfill import FreeUnits, remaining_seconds
from sterna.model.snapshot import NEVER, ColumnSource, Jobs, Snapshot
from sterna.wiring import make_rules
from sterna.workloads.trace import make_trace
from tests.builders import a_job, a_snapshot, after, decided


def with_requested(snapshot: Snapshot, *seconds: float) -> Snapshot:
    jobs = snapshot.jobs
    names = ("key", "submit", "priority", "minimum", "maximum", "request", "workers", "shape", "curve", "remaining")
    more = ("first_start", "waiting_since", "attained", "executed", "promotions")
    columns = {name: getattr(jobs, name) for name in (*names, *more)}
    columns["requested_seconds"] = np.array(seconds)
    return replace(snapshot, jobs=Jobs(ColumnSource([jobs.name_of(row) for row in range(len(jobs))], columns)))


def a_queue() -> Snapshot:
    """Four of six devices run for 100 s more; the head needs five; the others need one or two."""
    return a_snapshot(
        [
            a_job("running", 4, on={"n0": 4}, remaining=400),
            a_job("head", 5, submit=1, remaining=500),
            a_job("long", 2, submit=2, remaining=2000),
            a_job("short", 2, submit=3, remaining=100),
            a_job("narrow", 1, submit=4, remaining=9999),
        ],
        6,
    )


def test_easy_starts_only_jobs_that_do_not_delay_the_head() -> None:
    """`long` would hold devices that the head needs at 100 s; `short` ends before; then no device is left."""
    result = decided(a_queue(), "easy")
    assert result.allocation == {"running": 4, "head": 0, "long": 0, "short": 2, "narrow": 0}
    assert result.reasons["long"] == "waits: 2 more devices needed (0 free)."
    assert decided(a_queue(), "fifo:preempt=false").allocation["long"] == 2


def test_easy_lets_a_long_job_use_devices_that_the_head_leaves() -> None:
    jobs = [a_job("running", 4, on={"n0": 4}, remaining=400), a_job("head", 5, submit=1), a_job("n", 1, submit=2)]
    assert decided(a_snapshot(jobs, 6), "easy").allocation == {"running": 4, "head": 0, "n": 1}


def test_conservative_delays_no_earlier_job() -> None:
    """The second job is reserved all devices from 200 s on; a long job beside the head would hold one of them."""
    jobs = [
        a_job("running", 4, on={"n0": 4}, remaining=400),
        a_job("head", 4, submit=1, remaining=400),
        a_job("second", 5, submit=2, remaining=2000),
        a_job("third", 1, submit=3, remaining=9999),
    ]
    snapshot = a_snapshot(jobs, 5)
    assert decided(snapshot, "easy").allocation["third"] == 1
    assert decided(snapshot, "conservative").allocation["third"] == 0
    assert decided(snapshot, "easy:reservations=2").allocation["third"] == 0


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_no_running_job_is_stopped_and_deciding_again_changes_nothing(policy: str) -> None:
    before = a_queue()
    result = decided(before, policy)
    assert {kind for kind, _ in result.actions} == {"START"}
    assert decided(after(before, result.decision), policy).actions == []


def test_requested_time_counts_instead_of_the_remaining_work() -> None:
    """`running` requested 1,000 s, so `long`, 1,000 s at 2 workers, ends by the head's reservation."""
    snapshot = with_requested(a_queue(), 1000, 100, np.nan, np.nan, np.nan)
    assert remaining_seconds(snapshot).tolist() == [1000, 100, 1000, 50, 9999]
    assert decided(snapshot, "easy").allocation["long"] == 2


def test_requested_time_is_reduced_by_the_time_run_and_scaled_to_the_size() -> None:
    snapshot = with_requested(
        a_snapshot(
            [a_job("half", (2, 4), workers=4, on={"n0": 2}, executed=50), a_job("late", 1, submit=1, executed=70)], 4
        ),
        100,
        60,
    )
    assert remaining_seconds(snapshot).tolist() == [150.0, 1.0]


def test_job_of_unknown_length_gets_only_devices_that_no_reservation_needs() -> None:
    jobs = [
        a_job("running", 4, on={"n0": 4}, remaining=400),
        a_job("head", 5, submit=1),
        a_job("u", 2, submit=2, remaining=np.nan),
        a_job("v", 1, submit=3, remaining=np.nan),
    ]
    assert decided(a_snapshot(jobs, 6), "easy").allocation == {"running": 4, "head": 0, "u": 0, "v": 1}


def test_free_units_are_found_between_reservations() -> None:
    profile = FreeUnits(0.0, 2, np.array([10.0, 20.0, NEVER]), np.array([1, 3, 4]))
    assert profile.earliest_start(2, 100) == 0.0
    assert profile.earliest_start(3, 100) == 10.0
    assert profile.earliest_start(6, 100) == 20.0
    assert profile.earliest_start(7, 1) == NEVER
    profile.take(10.0, 5.0, 3)
    assert profile.earliest_start(2, 10) == 0.0
    assert profile.earliest_start(2, 11) == 15.0
    assert profile.earliest_start(1, NEVER) == 15.0


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_wide_job_starts_no_later_than_its_first_reservation(policy: str) -> None:
    """A stream of small jobs starves a wide one under plain backfill, not under reservations."""
    names = ["first", "wide", *(f"small{number}" for number in range(40))]
    trace = make_trace(
        name=names,
        submit_seconds=[0.0, 1.0, *(2.0 + 5 * number for number in range(40))],
        workers=[2, 4, *([2] * 40)],
        duration_seconds=[100.0, 50.0, *([60.0] * 40)],
    )

    def start_of_wide(under: str) -> float:
        backend = SimulatedBackend(workload_of(trace), simulated_nodes("1x4"))
        RoundLoop(backend, make_rules(under, "none")).run()
        return backend.first_start[1]

    assert start_of_wide(policy) == 100.0
    assert start_of_wide("fifo:preempt=false") > 1000.0


def test_overestimated_times_leave_gaps_for_backfill() -> None:
    trace = make_trace(
        name=["a", "b", "c"],
        submit_seconds=[0.0, 1.0, 2.0],
        workers=[3, 4, 1],
        duration_seconds=[100.0, 50.0, 150.0],
        requested_seconds=[200.0, 50.0, np.nan],
    )
    ends = {}
    for label, each in (("trace", trace), ("exact", replace(trace, requested_seconds=trace.duration_seconds))):
        backend = SimulatedBackend(workload_of(each), simulated_nodes("1x4"))
        RoundLoop(backend, make_rules("easy", "none")).run()
        ends[label] = list(backend.finish)
    assert ends["exact"] == [100.0, 150.0, 300.0]
    assert ends["trace"] == [100.0, 202.0, 152.0]
