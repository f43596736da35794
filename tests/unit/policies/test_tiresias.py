"""`tiresias` and `elastic-tiresias`: queues, thresholds, returns, the Gittins order, compaction. VODA-34 to 41."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sterna.engine.ordering.tiresias_queues import gittins_index
from sterna.errors import UserError
from sterna.model.plan import Mark
from sterna.model.snapshot import NEVER, Snapshot
from sterna.wiring import make_policy
from tests.builders import AJob, Source, a_job, a_snapshot, after, decided

BOTH = pytest.mark.parametrize("policy", ["tiresias", "elastic-tiresias"])


def ran(name: str, seconds: float, *, since: float, priority: int = 0) -> AJob:
    """A job that ran `seconds` on 4 devices and has waited since then."""
    return a_job(
        name, 4, attained=4 * seconds, executed=seconds, first_start=0.0, waiting_since=since, priority=priority
    )


@BOTH
def test_a_job_leaves_the_first_queue_when_its_device_time_passes_the_threshold(policy: str) -> None:
    """VODA-36: within 1e-6 of the threshold counts as past it."""
    new = a_job("new", 4, submit=1)
    for attained, keeps in ((3599.9, True), (3600 - 1e-7, False), (3600.0, False), (9000.0, False)):
        old = a_job("old", 4, on={"n0": 4}, attained=attained, executed=900)
        result = decided(a_snapshot([old, new], 4, now=1000), policy)
        assert result.allocation == ({"old": 4, "new": 0} if keeps else {"old": 0, "new": 4})


@BOTH
def test_the_decision_stands_until_the_threshold_is_crossed(policy: str) -> None:
    """VODA-36: 3600 - 1600 device-seconds are left, which 4 devices use in 500 s."""
    old = a_job("old", 4, on={"n0": 4}, attained=1600, executed=400)
    assert decided(a_snapshot([old, a_job("new", 4, submit=1)], 4, now=1000), policy).decision.until == 1500


@BOTH
def test_the_threshold_of_a_job_that_starts_now_counts_too(policy: str) -> None:
    """VODA-36: no job runs yet, but one that starts now will have used its 3600 device-seconds in 900 s."""
    jobs = [a_job("a", 4), a_job("b", 4, submit=1)]
    assert decided(a_snapshot(jobs, 4, now=10), policy).decision.until == 910


@BOTH
def test_the_threshold_is_a_parameter(policy: str) -> None:
    old = a_job("old", 4, on={"n0": 4}, attained=1600, executed=400)
    snapshot = a_snapshot([old, a_job("new", 4, submit=1)], 4, now=1000)
    assert decided(snapshot, f"{policy}:threshold=1000").allocation == {"old": 0, "new": 4}
    assert decided(snapshot, f"{policy}:threshold=2000").decision.until == 1100


@BOTH
def test_a_job_that_waited_eight_times_its_run_returns_to_the_first_queue(policy: str) -> None:
    """VODA-37: it ran 1000 s and has waited 8000 s; the start carries the promotion."""
    runs = a_job("runs", 4, submit=1, on={"n0": 4}, attained=8000, executed=2000, first_start=-1.0)
    back = ran("back", 1000, since=2000)
    for now, returns in ((9999.0, False), (10_000.0, True)):
        result = decided(a_snapshot([back, runs], 4, now=now), policy)
        assert result.allocation["back"] == (4 if returns else 0)
        marks = {action.mark for action in result.decision.plan if action.after.workers}
        assert marks == ({Mark.PROMOTED} if returns else set())


@BOTH
def test_the_decision_stands_until_the_next_job_returns(policy: str) -> None:
    runs = a_job("runs", 4, submit=1, on={"n0": 4}, attained=8000, executed=2000)
    assert decided(a_snapshot([ran("back", 1000, since=2000), runs], 4, now=9000), policy).decision.until == 10_000


@BOTH
def test_the_return_of_a_job_that_is_stopped_now_counts_too(policy: str) -> None:
    """VODA-37: stopped at 1000 after 900 s, it is due at 1000 + 8 x 900."""
    old = a_job("old", 4, on={"n0": 4}, attained=3600, executed=900)
    result = decided(a_snapshot([old, a_job("new", 4, submit=1)], 4, now=1000), policy)
    assert result.actions == [("STOP", "old"), ("START", "new")]
    assert result.decision.until <= 8200


@BOTH
def test_returns_can_be_switched_off_or_come_sooner(policy: str) -> None:
    runs = a_job("runs", 4, submit=1, on={"n0": 4}, attained=8000, executed=2000, first_start=-1.0)
    snapshot = a_snapshot([ran("back", 1000, since=2000), runs], 4, now=50_000)
    assert decided(snapshot, f"{policy}:promote=0").allocation == {"back": 0, "runs": 4}
    early = a_snapshot([ran("back", 1000, since=2000), runs], 4, now=4000)
    assert decided(early, f"{policy}:promote=2").allocation == {"back": 4, "runs": 0}


@BOTH
def test_a_job_that_returned_is_not_demoted_at_once(policy: str) -> None:
    """VODA-37: not before it has used the threshold again, whatever queue its user chose for it."""
    new = a_job("new", 4, submit=1)
    for priority in (0, -1):
        snapshot = a_snapshot([ran("back", 1000, since=2000, priority=priority), new], 4, now=10_000)
        first = decided(snapshot, policy)
        assert first.allocation == {"back": 4, "new": 0}
        assert decided(after(snapshot, first.decision), policy).actions == []


@BOTH
def test_a_job_that_returns_has_the_whole_threshold_before_it(policy: str) -> None:
    """VODA-37: 3600 device-seconds on 4 devices are 900 s, whatever it used before."""
    jobs = [ran("back", 1000, since=2000), a_job("new", 4, submit=1)]
    assert decided(a_snapshot(jobs, 4, now=10_000), policy).decision.until == 10_900


@BOTH
def test_a_job_in_the_second_queue_that_never_ran_has_nothing_to_return_from(policy: str) -> None:
    low = a_job("low", 4, priority=-1)
    runs = a_job("runs", 4, submit=1, on={"n0": 4})
    result = decided(a_snapshot([low, runs], 4, now=1e6), policy)
    assert result.allocation == {"low": 0, "runs": 4}


def test_priorities_below_minus_one_are_in_the_second_queue_too() -> None:
    """Voda left them out of its answer."""
    jobs = [a_job("low", 2, priority=-5), a_job("high", 2, submit=1)]
    assert decided(a_snapshot(jobs, 4), "tiresias").allocation == {"low": 2, "high": 2}


def test_first_starts_order_a_queue() -> None:
    """VODA-34, 35: all wait; the one that started earliest goes first, then those that never did, by submission."""
    late = a_job("late", 4, submit=0, first_start=50, executed=10, attained=40)
    early = a_job("early", 4, submit=1, first_start=20, executed=10, attained=40)
    never = a_job("never", 4, submit=0)
    assert decided(a_snapshot([late, early, never], 4, now=60), "tiresias").allocation["early"] == 4
    assert decided(a_snapshot([late, never], 4, now=60), "tiresias").allocation["late"] == 4


def test_the_request_is_what_a_job_gets() -> None:
    """VODA-34: not its minimum, and nothing if that does not fit."""
    jobs = [a_job("a", (1, 8), workers=4), a_job("b", (1, 8), workers=4, submit=1)]
    assert decided(a_snapshot(jobs, 6), "tiresias").allocation == {"a": 4, "b": 0}


def test_a_request_the_cluster_cannot_hold_is_held_to_what_it_can() -> None:
    """With or without another job that cannot run at all."""
    wide = a_job("wide", (1, 8), workers=8)
    assert decided(a_snapshot([wide], 4), "tiresias").allocation == {"wide": 4}
    assert decided(a_snapshot([wide, a_job("huge", 99)], 4), "tiresias").allocation == {"wide": 4, "huge": 0}


# The Gittins order: index = P(ends within the quantum) / E(service used in it).


@pytest.mark.parametrize(
    ("used", "quantum", "index"),
    [
        (0.0, 10.0, 1 / (10 + 10 + 10)),  # of 10, 20, 40 one ends; all three use 10
        (0.0, 20.0, 2 / (10 + 20 + 20)),
        (0.0, NEVER, 3 / (10 + 20 + 40)),
        (10.0, 10.0, 1 / (10 + 10)),  # 20 and 40 are alive, 20 ends
        (15.0, 10.0, 1 / (5 + 10)),
        (20.0, NEVER, 1 / 20),
        (40.0, NEVER, 0.0),  # longer than any that finished
        (5.0, 0.0, 0.0),
    ],
)
def test_gittins_index(used: float, quantum: float, index: float) -> None:
    found = gittins_index(np.array([10.0, 20.0, 40.0]), np.array([used]), np.array([quantum]))
    assert found.tolist() == [pytest.approx(index)]


def test_gittins_serves_the_likeliest_to_end_first() -> None:
    """Finished jobs used 100, 100 and 3000; one that used 90 is likelier to end soon than one that used 200."""
    young = a_job("young", 4, attained=90, executed=30, first_start=50, submit=1)
    old = a_job("old", 4, attained=200, executed=50, first_start=20)
    snapshot = a_snapshot([old, young], 4, now=60, finished=(100, 100, 3000))
    assert decided(snapshot, "tiresias").allocation == {"old": 4, "young": 0}
    assert decided(snapshot, "tiresias:gittins=true").allocation == {"old": 0, "young": 4}


def test_gittins_without_history_is_the_order_of_first_starts() -> None:
    young = a_job("young", 4, attained=90, executed=30, first_start=50, submit=1)
    old = a_job("old", 4, attained=200, executed=50, first_start=20)
    assert decided(a_snapshot([old, young], 4, now=60), "tiresias:gittins=true").allocation == {"old": 4, "young": 0}


def test_by_gittins_a_job_that_returns_is_judged_as_it_will_be_once_it_runs() -> None:
    """The return of `back` resets its service, so it has the rank now that it will have then."""
    jobs = [
        a_job("first", waiting_since=634),
        a_job("back", (1, 6), workers=3, first_start=173, waiting_since=283, attained=5000, executed=50),
        a_job("last", waiting_since=940),
    ]
    before = a_snapshot(jobs, 4, now=1000, finished=(76, 739, 2606, 2646, 4913))
    for policy in ("tiresias:gittins=true", "elastic-tiresias:gittins=true"):
        first = decided(before, policy)
        assert decided(after(before, first.decision), policy).actions == []


@BOTH
def test_a_return_that_is_due_when_all_jobs_fit_is_not_lost(policy: str) -> None:
    """The start carries the promotion although no job has to make room for it."""
    result = decided(a_snapshot([ran("back", 1000, since=2000)], 4, now=10_000.0), policy)
    assert [action.mark for action in result.decision.plan] == [Mark.PROMOTED]


# What elastic-tiresias adds.


@pytest.mark.parametrize("maximum", [4, 5])
def test_elastic_tiresias_serves_rigid_jobs_by_the_rule_of_elastic_ones(maximum: int) -> None:
    """Whether or not one job could grow, the job that started first goes first in its queue."""
    jobs = [
        a_job("younger", (4, maximum), on={"n0": 4}, first_start=50, attained=9000, executed=2000),
        a_job("older", 4, first_start=5, attained=9000, executed=2000, waiting_since=9000),
    ]
    assert decided(a_snapshot(jobs, 4, now=10_000.0), "elastic-tiresias").allocation == {"younger": 0, "older": 4}


def test_first_start_breaks_ties_of_the_gittins_index() -> None:
    jobs = [
        a_job("runs", 4, on={"n0": 4}, first_start=598, attained=100, executed=50),
        a_job("elder", (3, 11), workers=5, first_start=238, waiting_since=900, attained=100, executed=50),
    ]
    before = a_snapshot(jobs, 8, now=1000, finished=(1177, 4237, 5487))
    first = decided(before, "elastic-tiresias:gittins=true")
    assert first.allocation["elder"] >= 3
    assert decided(after(before, first.decision), "elastic-tiresias:gittins=true").actions == []


def test_a_waiting_job_competes_with_its_speed_a_worker_and_enters_whole() -> None:
    """VODA-39: S(2)/2 = 0.9 beats a third worker that adds 0.4; the newcomer gets its minimum at once."""
    runs = a_job("runs", (2, 4), workers=2, on={"n0": 2}, speedup=(1, 1.8, 2.2, 2.5))
    new = a_job("new", (2, 4), workers=4, submit=1, speedup=(1, 1.8, 2.5, 3.0))
    assert decided(a_snapshot([runs, new], 4, now=10), "elastic-tiresias").allocation == {"runs": 2, "new": 2}


def test_a_worker_that_adds_more_goes_before_a_waiting_job() -> None:
    """VODA-38, 39: S(2)/2 = 0.6 loses to workers that add 1 each."""
    runs = a_job("runs", (2, 4), workers=2, on={"n0": 2})
    new = a_job("new", (2, 4), workers=4, submit=1, speedup=(1, 1.2, 1.3, 1.4))
    assert decided(a_snapshot([runs, new], 4, now=10), "elastic-tiresias").allocation == {"runs": 4, "new": 0}


def test_nothing_is_given_that_brings_no_gain() -> None:
    """VODA-41."""
    flat = a_job("flat", (1, 8), workers=1, speedup=(1, 1.5, 1.5))
    assert decided(a_snapshot([flat], 8), "elastic-tiresias").allocation == {"flat": 2}


def test_how_many_must_wait_before_jobs_are_compacted_is_a_parameter() -> None:
    """VODA-40."""
    low = a_job("low", (1, 4), workers=4, priority=-1, on={"n0": 4})
    waiting = [a_job(f"w{number}", (1, 4), workers=4, priority=-1, submit=1) for number in range(3)]
    snapshot = a_snapshot([low, *waiting], 4, now=10)
    assert decided(snapshot, "elastic-tiresias:compact=3").allocation["low"] == 4
    assert decided(snapshot, "elastic-tiresias:compact=2").allocation == {"low": 1, "w0": 1, "w1": 1, "w2": 1}


def test_only_the_second_queue_is_compacted() -> None:
    """VODA-40."""
    first = a_job("first", (1, 4), workers=4, on={"n0": 4})
    waiting = [a_job(f"w{number}", (1, 4), workers=4, priority=-1, submit=1) for number in range(12)]
    assert decided(a_snapshot([first, *waiting], 4, now=10), "elastic-tiresias").allocation["first"] == 4


def test_no_device_is_given_twice_when_gains_differ_by_rounding_only() -> None:
    """A curve is taken as concave within 1e-9, so a third worker may seem to add more than the first two did."""
    curve = (1, 2, 3.0000000005)
    runs = a_job("runs", 1, on={"n0": 1})
    jobs = [a_job(name, (2, 3), workers=3, speedup=curve, submit=1) for name in "ab"]
    assert decided(a_snapshot([runs, *jobs], 3), "elastic-tiresias").allocation == {"runs": 1, "a": 2, "b": 0}


@pytest.mark.parametrize("placement", ["none", "stay"])
def test_no_job_grows_before_it_starts_when_a_curve_is_linear_up_to_rounding(placement: str) -> None:
    """0.7 a worker: 2.1 / 3 and 3.5 - 2.8 are not the same number."""
    curve = tuple(round(0.7 * count, 10) for count in range(1, 9))
    jobs = [a_job("a", (3, 6), workers=4, speedup=curve), a_job("b", (4, 8), workers=8, speedup=curve)]
    given = decided(a_snapshot(jobs, 8), "elastic-tiresias", placement).allocation
    assert given == {"a": 4, "b": 4}


def test_one_that_starts_and_one_that_runs_do_not_change_places_over_a_worker_that_helps_both_alike() -> None:
    jobs = [
        a_job("single", submit=1.0),
        a_job("starts", (3, 4), submit=4.0, remaining=10.0),
        a_job("runs", (3, 6), submit=5.0, remaining=50.0, first_start=1.0, executed=10.0, on={"n0": 3}),
    ]
    before = a_snapshot(jobs, 8, now=1050.0)
    first = decided(before, "elastic-tiresias")
    assert sum(first.allocation.values()) == 8
    assert decided(after(before, first.decision), "elastic-tiresias").actions == []


def test_a_job_let_in_by_what_was_left_does_not_push_its_elders_aside_a_moment_later() -> None:
    """`back` started long ago, waits, and is let in with one worker; that it runs now must not put it before `runs`."""
    runs = a_job("runs", (1, 4), workers=2, on={"n0": 4}, first_start=50)
    back = a_job("back", (1, 3), workers=3, first_start=5, executed=10, attained=30)
    snapshot = a_snapshot([runs, back], 4, now=60)
    first = decided(snapshot, "elastic-tiresias")
    assert decided(after(snapshot, first.decision), "elastic-tiresias").actions == []


@BOTH
def test_stopping_a_job_that_has_just_started_does_not_ask_for_another_decision_now(policy: str) -> None:
    low, high = a_job("low", 4, priority=-1, on={"n0": 4}, first_start=100), a_job("high", 4, submit=1)
    result = decided(a_snapshot([low, high], 4, now=100), policy)
    assert result.actions == [("STOP", "low"), ("START", "high")]
    assert result.decision.until > 100


@BOTH
@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        (
            "threshold=0:promote=inf",
            "With promote=inf no job would ever return: write promote=0 for never, or a number of at least 0.1.",
        ),
        (
            "promote=0.001",
            "With promote=0.001 jobs would change places without getting on: write promote=0 for never, or a number of "
            "at least 0.1.",
        ),
        (
            "threshold=0",
            "With threshold=0 and promote=8 jobs would change places without getting on: write a threshold of at least "
            "1 device-second, or promote=0.",
        ),
    ],
)
def test_turns_too_short_for_any_work_are_refused_in_one_sentence(policy: str, settings: str, refusal: str) -> None:
    with pytest.raises(UserError) as refused:
        make_policy(f"{policy}:{settings}")
    assert str(refused.value) == refusal


@BOTH
def test_without_promotion_any_threshold_will_do(policy: str) -> None:
    jobs = [a_job("a", 4), a_job("b", 4, submit=1)]
    assert decided(a_snapshot(jobs, 4), f"{policy}:threshold=0:promote=0").allocation == {"a": 4, "b": 0}


ENTRY = "tiresias:threshold=1000:second=2000:order=entry:promote=0"


def test_by_entry_a_job_that_reaches_a_threshold_goes_behind_those_that_wait_in_the_next_queue() -> None:
    waiting = a_job("waiting", 4, attained=1000, executed=250, first_start=0.0, waiting_since=50.0)
    running = a_job("running", 4, submit=1, on={"n0": 4}, attained=1000, executed=250, waiting_since=60.0)
    snapshot = with_last_start(a_snapshot([waiting, running], 4, now=400.0), [-NEVER, 150.0])
    assert decided(snapshot, ENTRY).allocation == {"waiting": 4, "running": 0}
    deeper = with_last_start(a_snapshot([waiting, replace(running, attained=1010)], 4, now=402.5), [-NEVER, 150.0])
    assert decided(deeper, ENTRY).allocation == {"waiting": 0, "running": 4}


def test_by_entry_the_last_job_stopped_resumes_first_and_before_those_that_only_entered() -> None:
    jobs = [
        a_job("entered", 4, attained=1000, executed=250, first_start=0.0, waiting_since=10.0),
        a_job("early", 4, submit=1, attained=1200, executed=300, first_start=1.0, waiting_since=100.0),
        a_job("late", 4, submit=2, attained=1100, executed=275, first_start=2.0, waiting_since=200.0),
    ]
    for left, first in ((jobs, "late"), (jobs[:2], "early"), (jobs[:1], "entered")):
        assert decided(a_snapshot(left, 4, now=300.0), ENTRY).allocation[first] == 4


def test_by_entry_there_is_a_third_queue_and_a_round_at_each_threshold() -> None:
    jobs = [
        a_job("third", 4, attained=2000, executed=500, first_start=0.0),
        a_job("second", 4, submit=1, attained=1500, executed=375, first_start=1.0, on={"n0": 4}),
        a_job("wide", 8, submit=2, attained=1900, executed=240, first_start=1.0),
    ]
    result = decided(a_snapshot(jobs, 4, now=600.0), ENTRY)
    assert result.allocation == {"third": 0, "second": 4, "wide": 0}
    assert result.decision.until == 600 + 500 / 4


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("second=7200", "second=7200 makes a third queue, which needs order=entry: add it."),
        ("order=entry", "order=entry has neither promotion nor the Gittins index: write promote=0"),
        ("order=entry:promote=0:gittins=true", "order=entry has neither promotion nor the Gittins index"),
        ("order=entry:promote=0:second=3600", "second=3600 must be above threshold=3600: raise it."),
    ],
)
def test_parameters_that_do_not_go_together_are_refused(settings: str, sentence: str) -> None:
    with pytest.raises(UserError) as refusal:
        make_policy(f"tiresias:{settings}")
    assert sentence in str(refusal.value)


def with_last_start(snapshot: Snapshot, times: list[float]) -> Snapshot:
    source = snapshot.jobs.source
    assert isinstance(source, Source)
    source.columns["last_start"] = np.array(times)
    return snapshot
