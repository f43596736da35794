"""What comes thick and fast is gathered, on a clock of the test's own."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator

import pytest

from sterna.backends.kubernetes.gathering import GatheringSelector

LEAST_SECONDS = 0.01


class Time:
    """Passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
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


def test_the_first_news_after_a_quiet_while_is_seen_at_once(selector: GatheringSelector, time: Time) -> None:
    assert len(selector.select(None)) == 1
    time.now += 1.0
    assert len(selector.select(None)) == 1
    assert time.slept == []


def test_news_that_follows_closely_is_let_gather(selector: GatheringSelector, time: Time) -> None:
    selector.select(None)
    time.now += 0.004
    assert len(selector.select(None)) == 1
    assert time.slept == [0.006]


def test_whoever_has_something_to_do_does_not_sleep(selector: GatheringSelector, time: Time) -> None:
    selector.select(None)
    assert len(selector.select(0)) == 1
    assert time.slept == []


def test_what_is_due_sooner_is_not_slept_through(selector: GatheringSelector, time: Time) -> None:
    selector.select(None)
    assert len(selector.select(0.002)) == 1
    assert time.slept == [0.002]


def test_without_a_time_to_gather_nobody_sleeps(time: Time) -> None:
    with GatheringSelector(0.0, time.clock, time.sleep) as plain:
        for _ in range(3):
            plain.select(0.0001)
    assert time.slept == []
