"""What comes thick and fast is gathered, on a clock of the test's own."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator

import pytest

from sterna.backends.kubernetes.transport.wakeup_limiter import GatheringSelector

LEAST_SECONDS = 2**-7
"""And not a hundredth: sums of these are exact."""
AT_ONCE = 3


class Time:
    """Passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def selector(time: Time) -> Iterator[GatheringSelector]:
    """One that always has something to tell."""
    with GatheringSelector(LEAST_SECONDS, time.clock, time.sleep) as gathering:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.send(b"news")
            gathering.register(ours, selectors.EVENT_READ)
            yield gathering


def busy(selector: GatheringSelector) -> None:
    for _ in range(AT_ONCE):
        assert len(selector.select(None)) == 1


def test_a_question_and_its_answer_after_a_quiet_while_are_seen_at_once(
    selector: GatheringSelector, time: Time
) -> None:
    busy(selector)
    time.now += 1.0
    busy(selector)
    assert time.slept == []


def test_news_that_follows_closely_is_let_gather(selector: GatheringSelector, time: Time) -> None:
    busy(selector)
    time.now += LEAST_SECONDS / 4
    assert len(selector.select(None)) == 1
    assert time.slept == [LEAST_SECONDS * 3 / 4]


def test_under_load_it_wakes_up_no_more_often_than_it_may(selector: GatheringSelector, time: Time) -> None:
    busy(selector)
    for _ in range(100):
        selector.select(None)
    assert time.slept == [LEAST_SECONDS] * 100


def test_whoever_has_something_to_do_does_not_sleep(selector: GatheringSelector, time: Time) -> None:
    busy(selector)
    assert len(selector.select(0)) == 1
    assert time.slept == []


def test_what_is_due_sooner_is_not_slept_through(selector: GatheringSelector, time: Time) -> None:
    busy(selector)
    assert len(selector.select(LEAST_SECONDS / 4)) == 1
    assert time.slept == [LEAST_SECONDS / 4]


def test_without_a_time_to_gather_nobody_sleeps(time: Time) -> None:
    with GatheringSelector(0.0, time.clock, time.sleep) as plain:
        for _ in range(3):
            plain.select(0.0001)
    assert time.slept == []
