"""Consolidate: a job that talks across nodes comes together when room has become free."""

from __future__ import annotations

import math
from dataclasses import replace

from tests.crowds import Instant, Member, decided, moves_of

NAN = math.nan
SPREAD = Member("spread", ((0, 2), (1, 2)), left=40_000.0, cap=1.0, devices=1)
ROOMY = (4, 4)


def test_a_spread_job_moves_to_one_node_that_holds_it() -> None:
    instant = Instant((SPREAD,), devices=ROOMY)
    assert moves_of(instant, decided(instant, "consolidate")) == {"spread": (0,)}


def test_it_stays_where_nothing_holds_it_whole() -> None:
    instant = Instant((SPREAD,), devices=(3, 3))
    assert moves_of(instant, decided(instant, "consolidate")) == {}


def test_it_moves_only_if_it_saves_more_than_it_costs() -> None:
    """A tenth of its speed: 40,000 s of work on 4 workers, 10,000 s left, 1,111 s saved on each of 4 devices."""
    cheap, dear = (Instant((SPREAD,), devices=ROOMY, restart_seconds=cost) for cost in (1_100.0, 1_120.0))
    assert moves_of(cheap, decided(cheap, "consolidate")) == {"spread": (0,)}
    assert moves_of(dear, decided(dear, "consolidate")) == {}


def test_nothing_is_guessed_where_the_work_left_is_unknown() -> None:
    instant = Instant((replace(SPREAD, left=NAN),), devices=ROOMY)
    assert moves_of(instant, decided(instant, "consolidate")) == {}


def test_room_that_one_leaves_is_room_for_the_next() -> None:
    """The one that would gain more does not fit until the other has left node 0."""
    other = Member("other", ((0, 1), (1, 3)), left=20_000.0, cap=1.0, devices=1)
    instant = Instant((SPREAD, other), devices=(4, 6))
    assert moves_of(instant, decided(instant, "consolidate")) == {"other": (1,), "spread": (0,)}


def test_a_job_moves_once() -> None:
    instant = Instant((replace(SPREAD, moves=1),), devices=ROOMY)
    assert moves_of(instant, decided(instant, "consolidate")) == {}
