"""Workers that leave when a job shrinks; the rest stay. VODA-88 to 90, DRAGON-24 to 28."""

from __future__ import annotations

import pytest

from sterna.model.cluster import Assignment
from sterna.placements.pack import Pack
from tests.builders import Seats, a_job, a_node, a_snapshot, decided, some_nodes

ALL = pytest.mark.parametrize("placement", ["stay", "pack", "topology", "spread"])


@pytest.mark.parametrize("placement", ["stay", "topology", "spread"])
def test_the_highest_numbered_workers_leave_first(placement: str) -> None:
    """VODA-88."""
    workers: Seats = (("n1", 2), ("n0", 2), ("n2", 1))
    jobs = [a_job("a", (2, 5), on=workers), a_job("new", 6, submit=1)]
    result = decided(a_snapshot(jobs, some_nodes(2, 4, 2)), "fifo", placement)
    assert result.assignments["a"] == {"n1": 2}


@pytest.mark.parametrize(
    ("assignment", "count", "left"),
    [
        pytest.param(Assignment(((0, 2), (1, 1)), ((0, 1),)), 1, ((0, 2),), id="away from the servers first"),
        pytest.param(Assignment(((0, 2), (1, 2), (2, 1)), ((0, 1),)), 2, ((0, 2), (1, 1)), id="the loneliest first"),
        pytest.param(Assignment(((0, 2), (1, 1)), ((0, 1),)), 2, ((0, 1),), id="then beside the servers"),
        pytest.param(Assignment(((1, 3), (0, 1))), 2, ((1, 2),), id="without servers the first worker's node is home"),
        pytest.param(Assignment(((1, 1), (0, 2)), ((0, 1),)), 1, ((1, 1), (0, 1)), id="the first worker never leaves"),
        pytest.param(Assignment(((1, 1), (0, 2)), ((0, 1),)), 2, ((1, 1),), id="the first worker is the last to stay"),
        pytest.param(
            Assignment(((1, 2), (0, 2)), ((0, 1),)), 2, ((1, 1), (0, 1)), id="its lonely neighbour leaves first"
        ),
    ],
)
def test_lonely_workers_leave_first(assignment: Assignment, count: int, left: tuple[tuple[int, int], ...]) -> None:
    """DRAGON-25, 26: workers away from the parameter servers, fewest together first; never the first worker."""
    after = Pack().shed(assignment, count)
    assert after.workers == left
    assert after.ps == assignment.ps


def test_parts_of_devices_leave_with_their_workers() -> None:
    """Worker 2 on the second node leaves; the others keep the very devices they share."""
    assignment = Assignment(((0, 2), (1, 1)), (), (0, 1, 7))
    assert Pack().shed(assignment, 1) == Assignment(((0, 2),), (), (0, 1))
    twice = Assignment(((0, 1), (1, 1), (0, 1)), (), (4, 5, 6))
    assert Pack().shed(twice, 1) == Assignment(((0, 1), (0, 1)), (), (4, 6))


@ALL
def test_parameter_servers_stay_when_a_job_shrinks(placement: str) -> None:
    """DRAGON-25."""
    nodes = [a_node("n0", 4, cpus=8), a_node("n1", 2, cpus=8)]
    wide = a_job("wide", (1, 4), ps=1, ps_cpus=1, on={"n0": 3, "n1": 1}, ps_on={"n0": 1})
    result = decided(a_snapshot([wide, a_job("head", 4, submit=1)], nodes, now=40), "dragon", placement)
    shrink = next(action for action in result.decision.plan if action.before.workers)
    assert shrink.after.ps == ((0, 1),)
    assert result.allocation == {"wide": 2, "head": 4}


@ALL
def test_what_does_not_change_does_not_move(placement: str) -> None:
    """VODA-90: it sits badly, but nothing has changed."""
    jobs = [a_job("a", 2, on={"n0": 1, "n1": 1}), a_job("b", 2, submit=1, on={"n0": 1, "n1": 1})]
    assert decided(a_snapshot(jobs, some_nodes(2, 2)), "fifo", placement).actions == []


@ALL
def test_arrival_moves_no_job(placement: str) -> None:
    """VODA-86: others are not touched."""
    jobs = [a_job("a", 2, on={"n0": 1, "n1": 1}), a_job("b", 1, submit=1)]
    assert decided(a_snapshot(jobs, some_nodes(2, 2)), "fifo", placement).actions == [("START", "b")]


@ALL
def test_a_job_that_is_stopped_frees_all_it_had(placement: str) -> None:
    """VODA-89."""
    jobs = [a_job("older", 4), a_job("younger", 3, submit=1, on={"n0": 1, "n1": 2})]
    result = decided(a_snapshot(jobs, some_nodes(2, 2)), "fifo", placement)
    assert result.assignments == {"older": {"n0": 2, "n1": 2}}
