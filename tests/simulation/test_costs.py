"""Cost of changes: every number is worked out by hand, in the docstring or beside the assertion."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sterna.backends.simulated.costs import Costs, Fault, draw_saving_jobs
from sterna.backends.simulated.nodes import simulated_nodes
from tests.builders import AJob, a_job
from tests.simulation.runs import a_run

pytestmark = pytest.mark.usefixtures("unpriced")

LONG = a_job("long", remaining=100)
SHORT = a_job("short", submit=20, remaining=10)


def test_without_costs_changes_are_free() -> None:
    assert a_run([LONG, SHORT], "1x1", "srjf").finish == {"short": 30, "long": 110}


def test_a_start_costs_a_restart() -> None:
    run = a_run([LONG], "1x1", costs=Costs(restart_seconds=10))
    assert run.finish == {"long": 110}


def test_every_start_costs_a_restart_and_work_done_is_kept() -> None:
    """long: 5 s start, 15 s of work until 20; short: 20 to 25 start, until 35; long: start until 40, 85 s left."""
    run = a_run([LONG, SHORT], "1x1", "srjf", costs=Costs(restart_seconds=5))
    assert run.finish == {"short": 35, "long": 125}
    assert run.backend.counters.preemptions == 1


@pytest.mark.parametrize(("every", "thrown_away"), [(4, 3), (15, 0), (30, 15)])
def test_a_stop_throws_away_the_work_since_the_last_checkpoint(every: float, thrown_away: float) -> None:
    """long has run 15 s when it is stopped."""
    run = a_run([LONG, SHORT], "1x1", "srjf", costs=Costs(restart_seconds=5, checkpoint_seconds=every))
    assert run.finish == {"short": 35, "long": 125 + thrown_away}
    assert run.backend.counters.lost_seconds == thrown_away


def elastic_pair() -> list[AJob]:
    return [a_job("a", (1, 2), remaining=100), a_job("b", (1, 2), submit=20, remaining=10)]


def test_a_resize_is_a_restart() -> None:
    """a: from 5 on two workers, 70 left at 20; from 25 on one, 60 left at 35, when b ends; from 40 on two: 70."""
    run = a_run(elastic_pair(), "1x2", "elastic-fifo", costs=Costs(restart_seconds=5))
    assert run.finish == {"b": 35, "a": 70}
    assert run.backend.counters.resizes == 2


def test_a_resize_without_restart_costs_its_own_time_and_loses_nothing() -> None:
    """a: 70 left at 20; from 21 on one worker, 56 left at 35; from 36 on two: 64."""
    costs = Costs(restart_seconds=5, rescale_seconds=1, checkpoint_seconds=3)
    run = a_run(elastic_pair(), "1x2", "elastic-fifo", costs=costs)
    assert run.finish == {"b": 35, "a": 64}
    assert run.backend.counters.lost_seconds == 0


def test_a_resize_does_not_cut_a_start_short() -> None:
    """a starts until 30; b comes at 20, so a goes on with one worker, from 30 on; b starts until 50 and ends at 60;
    from 61 on a has two again, 70 left: 96."""
    costs = Costs(restart_seconds=30, rescale_seconds=1)
    run = a_run(elastic_pair(), "1x2", "elastic-fifo", costs=costs)
    assert run.finish == {"b": 60, "a": 96}


def test_a_resize_by_restart_loses_work_like_a_stop() -> None:
    """a: at 20 it loses 3 of 15 s on two workers, 76 left; at 35 2 of 10 s on one, 76 - 10 + 2 = 68 left: 40 + 34."""
    run = a_run(elastic_pair(), "1x2", "elastic-fifo", costs=Costs(restart_seconds=5, checkpoint_seconds=4))
    assert run.finish == {"b": 35, "a": 74}
    assert run.backend.counters.lost_seconds == 8


def test_a_job_that_cannot_save_loses_all_its_work_at_a_node_failure() -> None:
    costs, faults = Costs(can_save=0), [Fault(0, at_seconds=40, for_seconds=10)]
    run = a_run([LONG], "1x1", costs=costs, faults=faults)
    assert run.finish == {"long": 150}
    assert run.backend.counters.lost_seconds == 40


def test_the_share_of_jobs_that_can_save_is_drawn_by_the_seed() -> None:
    drawn = draw_saving_jobs(1000, 0.8, seed=1)
    assert 750 < drawn.sum() < 850
    assert (drawn == draw_saving_jobs(1000, 0.8, seed=1)).all()
    assert (drawn != draw_saving_jobs(1000, 0.8, seed=2)).any()


@pytest.mark.parametrize(("every", "thrown_away"), [(1, 0), (5, 2 + 2), (4, 2 + 8 + 2), (11, 0 + 2), (1000, 42 + 2)])
def test_a_resize_in_place_saves_nothing(every: float, thrown_away: float) -> None:
    """a: 10 s on four workers, 1 s on two, then c stops it and b, which ran 1 s on two: the work since the last
    checkpoint is lost."""
    jobs = [
        a_job("a", (2, 4), workers=4, remaining=400),
        a_job("b", 2, submit=10, remaining=100),
        a_job("c", 4, submit=11, remaining=4),
    ]
    costs = Costs(rescale_seconds=0, checkpoint_seconds=every)
    run = a_run(jobs, "1x4", "elastic-srjf", costs=costs)
    assert run.backend.counters.lost_seconds == pytest.approx(thrown_away)
    assert run.backend.counters.device_seconds == pytest.approx(400 + 100 + 4 + thrown_away)


def test_what_a_stop_has_saved_is_not_lost_by_the_next_one() -> None:
    """a: 10 s on two workers and 10 on one, lost at 20; then 10 s on two and 5 on one, lost at 45, and no more."""
    jobs = [
        a_job("a", (1, 2), remaining=1000),
        a_job("b", 1, submit=10, remaining=10),
        a_job("c", 2, submit=20, remaining=20),
        a_job("d", 1, submit=40, remaining=5),
        a_job("e", 2, submit=45, remaining=10),
    ]
    run = a_run(jobs, "1x2", "elastic-srjf", costs=Costs(rescale_seconds=0, checkpoint_seconds=1000))
    assert run.backend.counters.resizes == 2
    assert run.backend.counters.lost_seconds == pytest.approx((20 + 10) + (20 + 5))


def test_work_from_before_a_resize_is_lost_though_the_resize_still_goes_on() -> None:
    """a: 10 s on two workers; a resize until 15, at 12 it is stopped, and b, which ran 2 s."""
    jobs = [
        a_job("a", (1, 2), remaining=100),
        a_job("b", 1, submit=10, remaining=10),
        a_job("c", 2, submit=12, remaining=2),
    ]
    run = a_run(jobs, "1x2", "elastic-srjf", costs=Costs(rescale_seconds=5, checkpoint_seconds=1000))
    assert run.backend.counters.lost_seconds == pytest.approx(20 + 2)


def test_a_move_restarts_only_the_moved_job() -> None:
    """p and q leave a and b on a node each; at 20 one of them makes way for a worker of a whole node."""
    jobs = [
        a_job("p", 3, remaining=30),
        a_job("q", 3, remaining=30),
        a_job("r", 1, remaining=100),
        a_job("s", 1, remaining=100),
        a_job("whole", 1, devices=4, submit=20, remaining=50),
    ]
    run = a_run(jobs, "2x4", "fifo", "stay:repack=stuck", costs=Costs(restart_seconds=5))
    assert run.backend.counters.migrations == 1
    assert sorted((run.finish["r"], run.finish["s"])) == [105, 110]
    assert run.finish["whole"] == 75


def test_workers_on_several_nodes_are_slower() -> None:
    """Two workers of 100 s: 50 s together, 100 s apart at half the speed, 200 s in two racks."""
    together, apart, racks = (simulated_nodes(spec, racks) for spec, racks in (("1x2", 1), ("2x1", 1), ("2x1", 2)))
    costs = Costs(cross_node_penalty=0.5)
    job = a_job("a", 2, remaining=100)
    assert [a_run([job], nodes, costs=costs).finish["a"] for nodes in (together, apart, racks)] == [50, 100, 200]
    assert a_run([job], apart).finish == {"a": 50}


def test_restart_time_counts_as_use_of_devices_but_not_as_progress() -> None:
    run = a_run([a_job("a", 2, remaining=100)], "1x2", costs=Costs(restart_seconds=10))
    assert run.finish == {"a": 60}
    assert run.backend.counters.device_seconds == 120


def test_a_job_stopped_while_it_starts_has_lost_nothing_but_time() -> None:
    """long starts at 0 and would be ready at 50; at 20 it is stopped, at 80 it starts again: 80 + 50 + 100."""
    run = a_run([LONG, SHORT], "1x1", "srjf", costs=Costs(restart_seconds=50, checkpoint_seconds=9))
    assert run.finish == {"short": 80, "long": 230}
    assert run.backend.counters.lost_seconds == 0


def test_a_job_that_ends_at_the_instant_of_a_change_has_ended() -> None:
    """At 100 the first ends and the second arrives: nothing is resized, nothing goes back in time."""
    jobs = [a_job("a", (1, 2), remaining=200), a_job("b", (1, 2), submit=100, remaining=50)]
    run = a_run(jobs, "1x2", "elastic-fifo", costs=Costs(restart_seconds=0))
    assert run.finish == {"a": 100, "b": 125}
    assert run.backend.counters.resizes == 0


def test_remaining_work_stands_still_while_a_job_starts() -> None:
    """Shortest first must not think that a job in its start has done more than it has."""
    jobs = [a_job("a", remaining=30), replace(SHORT, submit=20.0, remaining=25.0)]
    run = a_run(jobs, "1x1", "srjf", costs=Costs(restart_seconds=10))
    assert run.finish == {"a": 40, "short": 75}
    assert np.isfinite(list(run.finish.values())).all()
