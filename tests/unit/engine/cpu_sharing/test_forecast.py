"""CPU shares of a node and the ends of its jobs, compared with manual arithmetic and with a plain simulation."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.engine.cpu_sharing.forecast import TurnSchedule, equal_ends, max_min

amounts = st.floats(0.5, 8.0)


@pytest.mark.parametrize(
    ("cores", "weights", "core_limits", "given_"),
    [
        (16, [1, 1, 1, 1], [4, 4, 4, 4], [4, 4, 4, 4]),
        (16, [1, 1], [4, 4], [4, 4]),
        (6, [1, 1, 1], [4, 4, 1], [2.5, 2.5, 1]),
        (8, [3, 1], [8, 8], [6, 2]),
        (8, [9, 1], [4, 8], [4, 4]),
        (8, [], [], []),
    ],
)
def test_cores_go_by_weight_and_what_a_limit_leaves_goes_to_the_others(
    cores: float, weights: list[float], core_limits: list[float], given_: list[float]
) -> None:
    assert max_min(cores, weights, core_limits) == pytest.approx(given_)


@given(
    cores=st.floats(1, 32),
    jobs=st.lists(st.tuples(st.floats(0.01, 100), amounts), min_size=1, max_size=12),
)
def test_no_usable_core_idles_and_no_job_exceeds_its_limit(cores: float, jobs: list[tuple[float, float]]) -> None:
    weights, core_limits = [weight for weight, _ in jobs], [core_limit for _, core_limit in jobs]
    shares = max_min(cores, weights, core_limits)
    assert sum(shares) == pytest.approx(min(cores, sum(core_limits)))
    assert all(cpu_share <= core_limit + 1e-9 for cpu_share, core_limit in zip(shares, core_limits, strict=True))
    level = [cpu_share / weight for cpu_share, weight in zip(shares, weights, strict=True)]
    held = [
        each
        for each, cpu_share, core_limit in zip(level, shares, core_limits, strict=True)
        if cpu_share < core_limit - 1e-9
    ]
    assert all(each >= max(level) - 1e-6 for each in held)


@given(cores=st.floats(1, 16), jobs=st.lists(st.tuples(amounts, st.floats(1, 500)), min_size=1, max_size=8))
def test_equal_shares_end_as_in_a_simulation_with_small_steps(cores: float, jobs: list[tuple[float, float]]) -> None:
    core_limits, left = [core_limit for core_limit, _ in jobs], [work for _, work in jobs]
    ends = equal_ends(cores, core_limits, left)
    todo, now = dict(enumerate(left)), 0.0
    while todo:
        rates = dict(zip(todo, max_min(cores, [1.0] * len(todo), [core_limits[at] for at in todo]), strict=True))
        step = min(todo[at] / rates[at] for at in todo)
        now += step
        todo = {at: work - rates[at] * step for at, work in todo.items()}
        for at in [at for at, work in todo.items() if work <= 1e-9 * left[at] + 1e-9]:
            assert ends[at] == pytest.approx(now, rel=1e-6)
            del todo[at]


def test_turns_give_each_all_it_can_use() -> None:
    turns = TurnSchedule(16, [4.0] * 5, [40.0, 80.0, 120.0, 160.0, 40.0])
    assert turns.ends([0, 1, 2, 3, 4]) == [10, 20, 30, 40, 20]


def test_turns_count_cores_where_jobs_can_use_different_numbers() -> None:
    turns = TurnSchedule(8, [8.0, 4.0, 4.0], [80.0, 40.0, 40.0])
    assert turns.ends([0, 1, 2]) == [10, 20, 20]
    assert turns.ends([1, 2, 0]) == [20, 10, 10]


def test_the_shortest_job_goes_first_if_no_job_is_due() -> None:
    turns = TurnSchedule(4, [4.0] * 3, [30.0, 10.0, 20.0])
    assert turns.order([float("inf")] * 3, [0.0] * 3) == [1, 2, 0]


def test_a_due_job_goes_before_shorter_ones() -> None:
    turns = TurnSchedule(4, [4.0] * 3, [30.0, 10.0, 20.0])
    assert turns.order([7.5, float("inf"), float("inf")], [0.0] * 3) == [0, 1, 2]


def test_a_rank_goes_before_work_left() -> None:
    turns = TurnSchedule(4, [4.0] * 3, [30.0, 10.0, 20.0])
    assert turns.order([float("inf")] * 3, [0.0, 1.0, 0.0]) == [2, 0, 1]


@given(jobs=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 120)), min_size=1, max_size=6))
def test_one_slot_meets_all_deadlines_if_any_order_can_with_the_least_sum(jobs: list[tuple[int, int]]) -> None:
    """Smith's rule is exact for one job at a time."""
    left, due = [float(work) for work, _ in jobs], [float(when) for _, when in jobs]
    turns = TurnSchedule(1, [1.0] * len(left), left)

    def in_time(order: tuple[int, ...] | list[int]) -> bool:
        return all(end <= when for end, when in zip(turns.ends(order), due, strict=True))

    sums = [sum(turns.ends(order)) for order in permutations(range(len(left))) if in_time(order)]
    chosen = turns.order(due, [0.0] * len(left))
    assert in_time(chosen) == bool(sums)
    if sums:
        assert sum(turns.ends(chosen)) == min(sums)
