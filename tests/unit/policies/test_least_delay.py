"""`least-delay`: each rule of it on a few jobs."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import numpy as np
import pytest

from sterna.engine.ordering.device_worth import device_worth, remaining_seconds
from sterna.model.snapshot import Snapshot
from tests.builders import AJob, a_job, a_snapshot, decided

BENT = (1, 1.5, 1.75, 1.875)


def allocate(*jobs: AJob, devices: int = 8, restart: float = 0.0, policy: str = "least-delay") -> dict[str, int]:
    return decided(priced(a_snapshot(jobs, devices), restart), policy).allocation


def priced(snapshot: Snapshot, restart_seconds: float) -> Snapshot:
    return replace(snapshot, restart_seconds=restart_seconds)


def worth_of(*jobs: AJob, devices: int = 8) -> list[float]:
    snapshot = a_snapshot(jobs, devices)
    most = snapshot.jobs.maximum
    return [float(each) for each in device_worth(snapshot, remaining_seconds(snapshot), most)]


def test_shorter_job_enters_before_longer_one() -> None:
    assert allocate(a_job("long", 4, remaining=9000), a_job("short", 4, remaining=900), devices=4) == {
        "long": 0,
        "short": 4,
    }


def test_size_is_remaining_time_at_the_minimum_times_its_devices() -> None:
    """The narrow job takes longer but holds fewer devices."""
    narrow, wide = worth_of(a_job("narrow", 1, remaining=1500), a_job("wide", 4, remaining=4000), devices=4)
    assert narrow > wide


def test_higher_priority_enters_before_a_shorter_job() -> None:
    urgent = a_job("urgent", 4, remaining=9000, priority=1)
    assert allocate(urgent, a_job("short", 4, remaining=90), devices=4) == {"urgent": 4, "short": 0}


def test_growth_does_not_keep_a_job_of_lower_priority_out_because_of_priority_alone() -> None:
    urgent = a_job("urgent", (1, 4), remaining=9000, priority=1)
    assert allocate(urgent, a_job("short", 1, remaining=90), devices=4) == {"urgent": 3, "short": 1}


def test_short_job_with_a_steep_curve_grows_before_a_long_one_enters() -> None:
    steep = a_job("steep", (1, 4), remaining=100)
    assert allocate(steep, a_job("long", (1, 4), remaining=100_000), devices=4) == {"steep": 4, "long": 0}


def test_long_job_enters_before_a_short_one_with_a_bent_curve_grows() -> None:
    bent = a_job("bent", (1, 4), remaining=100, speedup=BENT)
    assert allocate(bent, a_job("long", 1, remaining=500), devices=4)["long"] == 1


def test_worker_that_adds_no_speed_is_not_given() -> None:
    assert allocate(a_job("flat", (1, 4), speedup=(1, 1.9)), devices=4) == {"flat": 2}


def test_running_job_stays_unless_the_other_is_clearly_smaller() -> None:
    running = a_job("running", 4, remaining=1000, on={"n0": 4})
    assert allocate(running, a_job("other", 4, remaining=900), devices=4)["running"] == 4
    assert allocate(running, a_job("other", 4, remaining=100), devices=4)["running"] == 0


def test_wide_job_is_forced_in_where_its_worth_exceeds_what_it_displaces() -> None:
    """The narrow job is shorter, but with it six devices would stay idle."""
    narrow, wide = a_job("narrow", 2, remaining=190), a_job("wide", 8, remaining=800)
    assert allocate(narrow, wide) == {"narrow": 0, "wide": 8}


def test_forced_job_does_not_displace_a_higher_priority() -> None:
    narrow = a_job("narrow", 2, remaining=190, priority=1)
    assert allocate(narrow, a_job("wide", 8, remaining=800)) == {"narrow": 2, "wide": 0}


@pytest.mark.parametrize(("remaining", "workers"), [(600.0, 4), (80.0, 1)])
def test_job_grows_only_if_that_saves_four_restarts(remaining: float, workers: int) -> None:
    job = a_job("job", (1, 4), remaining=remaining, on={"n0": 1}, executed=10_000)
    assert allocate(job, devices=4, restart=25)["job"] == workers


def test_devices_of_refused_growth_go_to_the_next_job() -> None:
    ending = a_job("ending", (1, 4), remaining=80, on={"n0": 1}, executed=10_000)
    assert allocate(ending, a_job("waiting", 2, remaining=90_000), devices=4, restart=25) == {
        "ending": 1,
        "waiting": 2,
    }


def test_job_that_soon_ends_is_not_stopped() -> None:
    ending = a_job("ending", 4, remaining=4 * 70, on={"n0": 4}, executed=10_000)
    assert allocate(ending, a_job("other", 4, remaining=4), devices=4, restart=25) == {"ending": 4, "other": 0}


def test_higher_priority_stops_a_job_that_soon_ends() -> None:
    ending = a_job("ending", 4, remaining=4 * 70, on={"n0": 4}, executed=10_000)
    urgent = a_job("urgent", 4, remaining=4000, priority=1)
    assert allocate(ending, urgent, devices=4, restart=25) == {"ending": 0, "urgent": 4}


def test_wide_job_is_not_restarted_to_free_one_device() -> None:
    wide = a_job("wide", (1, 8), remaining=8 * 400, on={"n0": 8}, executed=10_000)
    assert allocate(wide, a_job("long", 1, remaining=3000), restart=25)["wide"] == 8


def test_unknown_length_is_the_median_of_what_longer_jobs_of_the_past_still_needed() -> None:
    job = a_job("job", 2, remaining=nan, attained=100.0)
    snapshot = a_snapshot([job], finished=(50.0, 300.0, 500.0, 900.0))
    assert remaining_seconds(snapshot).tolist() == [200.0]


def test_unknown_length_beyond_the_longest_of_the_past_is_as_much_again() -> None:
    job = a_job("job", 2, remaining=nan, attained=4000.0)
    assert remaining_seconds(a_snapshot([job], finished=(50.0,))).tolist() == [2000.0]


def test_worth_rises_with_the_number_of_jobs_that_are_at_least_as_large() -> None:
    jobs = [a_job(name, remaining=remaining) for name, remaining in (("a", 50), ("b", 100), ("c", 200))]
    first, second, third = worth_of(*jobs, devices=2)
    assert np.isclose(first - second, second - third)
    assert second > third


def test_worth_does_not_depend_on_size_where_all_jobs_can_grow_as_far_as_they_gain() -> None:
    first, second = worth_of(a_job("a", (1, 4), remaining=50), a_job("b", (1, 4), remaining=5000))
    assert first == second == 0.25
