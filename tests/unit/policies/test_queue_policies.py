"""The policies that walk the queue: `fifo`, `srjf`, their elastic forms, and their parameters. VODA-29 to 33, 46."""

from __future__ import annotations

import pytest

from sterna.errors import UserError
from sterna.wiring import make_policy
from tests.builders import a_job, a_snapshot, after, decided


def test_an_arrival_never_takes_an_older_jobs_minimum() -> None:
    """VODA-46."""
    old = a_job("old", (2, 8), on={"n0": 8})
    for policy in ("fifo", "elastic-fifo"):
        allocation = decided(a_snapshot([old, a_job("new", 8, submit=1)], 8), policy).allocation
        assert allocation["old"] >= 2
        assert allocation["new"] == 0


def test_a_younger_job_in_a_gap_is_stopped_as_soon_as_an_older_one_fits() -> None:
    """VODA-46: the older of the two starts, though the younger ran."""
    older, younger = a_job("older", 4), a_job("younger", 2, submit=1, on={"n0": 2})
    result = decided(a_snapshot([older, younger], 4), "fifo")
    assert result.actions == [("STOP", "younger"), ("START", "older")]
    assert result.reasons["younger"] == (
        "stopped with 2 workers to make room for older, which goes first under this policy."
    )


def test_without_preemption_the_younger_one_runs_on() -> None:
    older, younger = a_job("older", 4), a_job("younger", 2, submit=1, on={"n0": 2})
    result = decided(a_snapshot([older, younger], 4), "fifo:preempt=false")
    assert result.allocation == {"older": 0, "younger": 2}
    assert result.reasons["older"] == "waits: 2 more devices needed (2 free)."


def test_without_backfill_no_job_passes_the_first_that_does_not_fit() -> None:
    jobs = [a_job("a", 3), a_job("b", 4, submit=1), a_job("c", 1, submit=2)]
    assert decided(a_snapshot(jobs, 6), "fifo:preempt=false:backfill=false").allocation == {"a": 3, "b": 0, "c": 0}
    assert decided(a_snapshot(jobs, 6), "fifo:backfill=false").allocation == {"a": 3, "b": 0, "c": 0}
    assert decided(a_snapshot(jobs, 6), "fifo:preempt=false").allocation == {"a": 3, "b": 0, "c": 1}


def test_job_that_can_never_fit_blocks_no_other_even_in_strict_order() -> None:
    jobs = [a_job("huge", 9), a_job("small", 1, submit=1)]
    result = decided(a_snapshot(jobs, 8), "fifo:preempt=false:backfill=false")
    assert result.allocation == {"huge": 0, "small": 1}
    assert result.reasons["huge"] == "cannot run: it needs 9 workers at once and the whole cluster has room for 8."


@pytest.mark.parametrize("policy", ["fifo", "srjf", "elastic-fifo", "elastic-srjf", "ffdl", "afs-l"])
def test_a_higher_priority_goes_before_an_earlier_submission(policy: str) -> None:
    for low, high in ((-1, 0), (0, 1), (-2, -1), (3, 4)):
        jobs = [a_job("low", 4, priority=low), a_job("high", 4, submit=1, priority=high)]
        assert decided(a_snapshot(jobs, 4), policy).allocation == {"low": 0, "high": 4}


def test_shortest_remaining_work_goes_first() -> None:
    """VODA-32."""
    jobs = [a_job("long", 2, remaining=100), a_job("short", 2, remaining=10, submit=1), a_job("mid", 2, remaining=50)]
    assert decided(a_snapshot(jobs, 4), "srjf").allocation == {"long": 0, "mid": 2, "short": 2}


def test_short_may_mean_time_at_the_minimum_instead_of_work() -> None:
    """100 s of work on 4 linear workers last 25 s; 50 s on one last 50 s."""
    jobs = [a_job("wide", 4, remaining=100), a_job("narrow", 1, remaining=50)]
    assert decided(a_snapshot(jobs, 4), "srjf").allocation == {"narrow": 1, "wide": 0}
    assert decided(a_snapshot(jobs, 4), "srjf:by=time").allocation == {"narrow": 0, "wide": 4}


def test_equal_jobs_do_not_swap() -> None:
    """The one that runs stays, though the other was submitted earlier."""
    jobs = [a_job("waits", 4), a_job("runs", 4, submit=1, on={"n0": 4})]
    for policy in ("srjf", "elastic-srjf"):
        assert decided(a_snapshot(jobs, 4), policy).actions == []


def test_growth_among_equal_jobs_does_not_depend_on_which_ran_before() -> None:
    """All are equally short: once all run, deciding again must not shift a worker from one to the other."""
    jobs = [a_job("a", (1, 2)), a_job("b", (2, 4)), a_job("c", (1, 3), submit=2, on={"n0": 2})]
    snapshot = a_snapshot(jobs, 8)
    first = decided(snapshot, "elastic-srjf")
    assert sum(first.allocation.values()) == 8
    assert decided(after(snapshot, first.decision), "elastic-srjf").actions == []


def test_growth_goes_round_in_submit_order() -> None:
    """VODA-30: a job at its maximum steps out, the rest goes on."""
    jobs = [a_job("a", (1, 2)), a_job("b", (1, 9), submit=1), a_job("c", (1, 3), submit=2)]
    assert decided(a_snapshot(jobs, 9), "elastic-fifo").allocation == {"a": 2, "b": 4, "c": 3}


def test_workers_of_several_devices_are_dealt_while_they_fit() -> None:
    jobs = [a_job("two", (1, 4), devices=2), a_job("one", (1, 4), submit=1)]
    assert decided(a_snapshot(jobs, 8), "elastic-fifo").allocation == {"two": 3, "one": 2}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("fif", "There is no policy 'fif': did you mean 'fifo'?"),
        ("fifo:premept=false", "The policy 'fifo' has no parameter 'premept': did you mean 'preempt'?"),
        ("fifo:preempt=maybe", "In 'fifo:preempt=maybe' the value must be true or false."),
        ("fifo:preempt", "In 'fifo:preempt' the parameter 'preempt' has no value: write preempt=true."),
        ("fifo:", "In 'fifo:' nothing follows a colon: write fifo or fifo:key=value."),
        ("fifo::preempt=no", "In 'fifo::preempt=no' nothing follows a colon: write fifo or fifo:key=value."),
        (
            "fifo:preempt=true:preempt=false",
            "In 'fifo:preempt=true:preempt=false' the parameter 'preempt' is given twice: keep one of them.",
        ),
        ("srjf:by=size", "In 'srjf:by=size' the value is unknown: choose one of: service, time."),
        ("tiresias:threshold=-1", "In 'tiresias:threshold=-1' the value must be a number of at least 0."),
        ("tiresias:threshold=nan", "In 'tiresias:threshold=nan' the value must be a number of at least 0."),
        ("tiresias:threshold=much", "In 'tiresias:threshold=much' the value must be a number."),
        ("elastic-tiresias:compact=1.5", "In 'elastic-tiresias:compact=1.5' the value must be a whole number."),
    ],
)
def test_a_rule_that_is_misspelt_is_refused_in_one_sentence(spec: str, words: str) -> None:
    with pytest.raises(UserError) as refusal:
        make_policy(spec)
    assert str(refusal.value) == words
