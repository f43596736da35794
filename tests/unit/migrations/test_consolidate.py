"""Consolidate: a job on several nodes moves to one when capacity has become free."""

from __future__ import annotations

import math
from dataclasses import replace

from tests.shared_nodes import SharedCluster, SharedJob, decided, moves_of

NAN = math.nan
SPREAD = SharedJob("spread", ((0, 2), (1, 2)), left=40_000.0, cap=1.0, devices=1)
ROOMY = (4, 4)


def test_a_spread_job_moves_to_one_node_that_holds_it() -> None:
    cluster = SharedCluster((SPREAD,), devices=ROOMY)
    assert moves_of(cluster, decided(cluster, "consolidate")) == {"spread": (0,)}


def test_it_stays_where_nothing_holds_it_whole() -> None:
    cluster = SharedCluster((SPREAD,), devices=(3, 3))
    assert moves_of(cluster, decided(cluster, "consolidate")) == {}


def test_it_moves_only_if_it_saves_more_than_it_costs() -> None:
    """A tenth of its speed: 40,000 s of work on 4 workers, 10,000 s left, 1,111 s saved on each of 4 devices."""
    cheap, dear = (SharedCluster((SPREAD,), devices=ROOMY, restart_seconds=cost) for cost in (1_100.0, 1_120.0))
    assert moves_of(cheap, decided(cheap, "consolidate")) == {"spread": (0,)}
    assert moves_of(dear, decided(dear, "consolidate")) == {}


def test_nothing_is_guessed_where_the_work_left_is_unknown() -> None:
    cluster = SharedCluster((replace(SPREAD, left=NAN),), devices=ROOMY)
    assert moves_of(cluster, decided(cluster, "consolidate")) == {}


def test_room_that_one_leaves_is_room_for_the_next() -> None:
    """The one that would gain more does not fit until the other has left node 0."""
    other = SharedJob("other", ((0, 1), (1, 3)), left=20_000.0, cap=1.0, devices=1)
    cluster = SharedCluster((SPREAD, other), devices=(4, 6))
    assert moves_of(cluster, decided(cluster, "consolidate")) == {"other": (1,), "spread": (0,)}


def test_a_job_moves_once() -> None:
    cluster = SharedCluster((replace(SPREAD, moves=1),), devices=ROOMY)
    assert moves_of(cluster, decided(cluster, "consolidate")) == {}
