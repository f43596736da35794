"""The price of a move, and the record that keeps two jobs from swapping places repeatedly."""

from __future__ import annotations

import pytest

from sterna.engine.price import MoveHistory, cost, devices, pays
from tests.shared_nodes import SharedCluster, SharedJob


def test_a_move_costs_devices_times_what_is_lost_and_waited_for() -> None:
    cluster = SharedCluster((SharedJob("a", ((0, 3),), devices=2, unsaved=20.0),), devices=(8, 8), restart_seconds=10.0)
    assert cost(cluster.snapshot, 0) == 6 * 30


def test_a_worker_without_devices_counts_as_one() -> None:
    cluster = SharedCluster((SharedJob("a", ((0, 2),), unsaved=5.0),), restart_seconds=10.0)
    assert devices(cluster.snapshot, 0) == 2
    assert cost(cluster.snapshot, 0) == 2 * 15


def test_where_a_restart_costs_nothing_and_all_is_saved_the_price_is_nothing() -> None:
    assert cost(SharedCluster((SharedJob("a"),)).snapshot, 0) == 0


@pytest.mark.parametrize(
    ("gain", "price", "margin", "is_worth_it"),
    [(10, 9, 1, True), (10, 10, 1, False), (10, 4, 3, False), (0, 0, 1, False), (1, 0, 3, True), (-1, 0, 0, False)],
)
def test_a_move_pays_only_if_the_gain_exceeds_the_price(
    gain: float, price: float, margin: float, is_worth_it: bool
) -> None:
    assert pays(gain, price, margin) is is_worth_it


MOVED = SharedJob("victim", ((1, 1),), moves=1, moved_at=90.0, moved_from=0, evictor=1)
STAYED = SharedJob("evictor", ((0, 1),))


def test_no_job_moves_back_until_something_has_changed() -> None:
    cluster = SharedCluster((MOVED, STAYED), last_event=80.0)
    assert MoveHistory(cluster.snapshot).undoes(_row(cluster, "victim"), 0)
    assert not MoveHistory(cluster.snapshot).undoes(_row(cluster, "victim"), 1)


def test_no_job_follows_the_one_it_displaced_until_something_has_changed() -> None:
    cluster = SharedCluster((MOVED, STAYED), last_event=80.0)
    assert MoveHistory(cluster.snapshot).undoes(_row(cluster, "evictor"), 1)


@pytest.mark.parametrize("cluster", [
    SharedCluster((MOVED, STAYED), last_event=95.0),
    SharedCluster((MOVED, SharedJob("evictor", growth_since=95.0)), last_event=80.0),
], ids=["a job came or ended", "a job grows otherwise"])  # fmt: skip
def test_a_change_makes_the_way_back_free(cluster: SharedCluster) -> None:
    history = MoveHistory(cluster.snapshot)
    assert not history.undoes(_row(cluster, "victim"), 0)
    assert not history.undoes(_row(cluster, "evictor"), 1)


def _row(cluster: SharedCluster, name: str) -> int:
    jobs = cluster.snapshot.jobs
    return next(row for row in range(len(jobs)) if jobs.name_of(row) == name)
