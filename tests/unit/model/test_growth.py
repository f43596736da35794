"""Growth from hand-made reports: which make a job watched or converged, and which never do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.errors import UserError
from sterna.model.growth import MOST_AT_ONCE, Direction, Growth, GrowthRule, GrowthTable, History, Report
from sterna.model.step_windows import CAPACITY

BAD = st.sampled_from([math.nan, math.inf, -math.inf, 1e300, -1e300])


def falling(count: int, pace: float = 20.0, start: int = 0) -> list[Report]:
    """A loss that decays from 2 towards 0."""
    return [Report(i, float(i), 2 * math.exp(-i / pace)) for i in range(start, start + count)]


def flat(count: int, start: int, value: float = 1.0, attempt: int = 0) -> list[Report]:
    return [Report(i, float(i), value, attempt) for i in range(start, start + count)]


def test_a_job_starts_as_progressing_without_a_best() -> None:
    history = History.of()
    assert history.growth is Growth.PROGRESSING
    assert math.isnan(history.best)
    assert len(history.values) == 0


def test_a_job_that_stops_improving_is_watched_then_converged() -> None:
    history = History.of(falling(16))
    seen: list[Growth] = []
    for report in falling(200, start=16):
        history = history.extend([report])
        if not seen or seen[-1] is not history.growth:
            seen.append(history.growth)
    assert seen == [Growth.PROGRESSING, Growth.WATCHING, Growth.CONVERGED]


def test_new_growth_brings_a_converged_job_back() -> None:
    history = History.of([*falling(40, pace=10.0), *flat(60, 40, 0.03)])
    assert history.growth is Growth.CONVERGED
    again = [Report(i, float(i), -0.1 * (i - 100)) for i in range(100, 130)]
    assert history.extend(again).growth is Growth.PROGRESSING


def test_a_job_that_never_improved_is_watched_and_never_converged() -> None:
    assert History.of(flat(500, 0)).growth is Growth.WATCHING


def test_a_job_that_gets_worse_is_watched_and_not_converged() -> None:
    """It may improve again, as in double descent."""
    worse = [Report(i, float(i), 0.3 + 0.01 * (i - 40)) for i in range(40, 120)]
    history = History.of([*falling(40, pace=10.0), *worse], direction=Direction.FALLING)
    assert history.growth is Growth.WATCHING
    assert history.best == pytest.approx(2 * math.exp(-3.9))


def test_one_wild_value_in_a_window_changes_nothing() -> None:
    reports = falling(100)
    wild = [Report(r.step, r.seconds, -1e90 if i % 16 == 9 else r.value) for i, r in enumerate(reports)]
    plain, spoilt = History.of(reports), History.of(wild, direction=Direction.FALLING)
    assert spoilt.growth is plain.growth
    assert spoilt.values.min() > 0


def test_a_resumed_job_that_repeats_steps_is_not_judged_on_them() -> None:
    history = History.of(falling(20))
    repeated = [Report(i % 20, float(i), 1.0, attempt=1) for i in range(400)]
    after = history.extend(repeated)
    assert after.growth is Growth.PROGRESSING
    assert after.last_step == 19
    assert after.values.tolist() == history.values.tolist()


def test_a_late_report_of_an_older_attempt_is_ignored() -> None:
    history = History.of(falling(20)).extend([Report(20, 5.0, 0.7, attempt=2)])
    assert history.extend([Report(50, 99.0, -50.0, attempt=1)]).best == history.best


def test_silence_and_a_slow_node_make_no_difference() -> None:
    slowed = [Report(r.step, r.seconds * 50 + 1e6 * (r.step > 30), r.value) for r in falling(60)]
    assert History.of(slowed).growth is History.of(falling(60)).growth


def test_job_without_steps_is_judged_by_its_seconds_of_work() -> None:
    uncounted = [Report(-1, r.seconds, r.value) for r in falling(100)]
    assert History.of(uncounted).values.tolist() == History.of(falling(100)).values.tolist()


def test_windows_are_the_same_however_often_a_job_reports() -> None:
    every, fourth = History.of(falling(400, pace=50.0)), History.of(falling(400, pace=50.0)[::4])
    assert every.growth is fourth.growth is Growth.CONVERGED
    assert np.diff(every.steps).tolist() == pytest.approx(np.diff(fourth.steps).tolist())


def test_a_leap_in_steps_keeps_the_reports_before_it() -> None:
    history = History.of([*falling(40), Report(1e12, 40.0, 0.5), Report(2e12, 41.0, 0.5)])
    assert history.last_step == 2e12
    assert history.values[0] == pytest.approx(np.mean([r.value for r in falling(39, start=0)][1:]), rel=0.05)


def test_no_job_is_converged_before_half_of_its_known_total() -> None:
    table = GrowthTable(2)
    table.set_totals([0, 1], [150.0, 1000.0])
    for report in [*falling(40, pace=10.0), *flat(60, 40, 0.03)]:
        table.update([0, 1], [report.step] * 2, [report.seconds] * 2, [report.value] * 2)
    assert table.growth.tolist() == [Growth.CONVERGED, Growth.WATCHING]


def test_noise_without_improvement_makes_no_job_converged() -> None:
    for seed in range(50):
        noise = np.random.default_rng(seed).normal(1.0, 0.1, 1000).tolist()
        history = History.of(Report(i, float(i), value) for i, value in enumerate(noise))
        assert history.growth is Growth.WATCHING


def test_the_time_between_attempts_is_not_work() -> None:
    history = History.of([*flat(5, 0), *[Report(5 + i, 1e6 + i, 1.0, attempt=1) for i in range(5)]])
    assert history.worked_seconds == 8


def test_a_million_reports_at_once_are_taken_in_and_the_best_is_kept() -> None:
    count = 1_000_000
    value = np.full(count, 5.0)
    value[765_432] = 0.25
    table = GrowthTable(2)
    table.declare([1], Direction.FALLING)
    table.update(np.ones(count, dtype=np.int64), np.arange(count), np.arange(count), value)
    assert table.best[1] == 0.25
    assert table.growth.tolist() in ([0, 0], [0, 1])
    assert len(table.history(1).values) <= CAPACITY + 1


def test_a_flood_of_reports_makes_no_job_converged_however_they_look() -> None:
    count = 1_000_000
    step = np.arange(count)
    for value in (
        2 * np.exp(-step / 5000.0),
        np.where(step < 1000, 2.0, 1.0),
        np.full(count, np.nan),
        1.0 / (step + 1),
    ):
        table = GrowthTable(1)
        for report in falling(16):
            table.update([0], [report.step], [report.seconds], [report.value])
        table.update(np.zeros(count, dtype=np.int64), step + 16.0, step + 16.0, value)
        assert table.growth[0] < Growth.CONVERGED
    settled = [Report(count + 16 + 8 * i, count + 16.0 + i, 0.0) for i in range(8192)]
    for part in range(0, len(settled), 512):
        rows = settled[part : part + 512]
        table.update([0] * len(rows), [r.step for r in rows], [r.seconds for r in rows], [r.value for r in rows])
    assert table.growth[0] == Growth.CONVERGED  # what follows the flood, a few at a time, is believed


def test_a_flood_leaves_a_converged_job_converged() -> None:
    history = History.of([*falling(40, pace=10.0), *flat(60, 40, 0.03)])
    assert history.growth is Growth.CONVERGED
    assert history.extend(flat(2 * MOST_AT_ONCE, 100, 0.03)).growth is Growth.CONVERGED


@pytest.mark.parametrize("attempt", [-1, -(2**60), math.nan, -math.inf])
def test_reports_of_an_attempt_that_cannot_be_change_nothing(attempt: float) -> None:
    table = GrowthTable(1)
    for report in falling(30):
        table.update([0], [report.step], [report.seconds], [report.value])
    best, growth = table.best.tolist(), table.growth.tolist()
    assert not len(table.update([0] * 50, np.arange(30, 80), np.arange(30, 80), [-5.0] * 50, attempt))
    assert (table.best.tolist(), table.growth.tolist()) == (best, growth)


@pytest.mark.parametrize("attempt", [math.inf, 1e300, 2.0**70])
def test_reports_of_an_attempt_beyond_all_numbers_do_not_crash_or_converge(attempt: float) -> None:
    table = GrowthTable(1)
    for report in falling(30):
        table.update([0], [report.step], [report.seconds], [report.value])
    table.update([0], [30], [30], [5.0], attempt)
    assert table.growth[0] < Growth.CONVERGED


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_step_or_a_time_that_is_no_number_changes_nothing(bad: float) -> None:
    history = History.of(falling(30))
    for report in (Report(bad, 31.0, 0.1), Report(31, bad, 0.1)):
        after = history.extend([report] * 100)
        assert (after.growth, after.best, after.last_step) == (history.growth, history.best, history.last_step)


def test_rows_do_not_disturb_each_other() -> None:
    table = GrowthTable(3)
    for report in falling(200):
        table.update([0, 2], [report.step] * 2, [report.seconds] * 2, [report.value, 1.0])
    assert table.growth.tolist() == [Growth.CONVERGED, Growth.PROGRESSING, Growth.WATCHING]
    table.resize(4)
    table.forget([0])
    assert table.growth.tolist() == [Growth.PROGRESSING, Growth.PROGRESSING, Growth.WATCHING, Growth.PROGRESSING]


@pytest.mark.parametrize(
    "wrong",
    [{"late": 2.0}, {"least_done": -0.1}, {"low": 0.0}, {"low": 0.7}, {"alpha": math.nan}],
)
def test_a_rule_that_cannot_work_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match=r"^growth: .*give "):
        GrowthRule(**wrong)  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.integers(-5, 500), BAD | st.floats(-1e6, 1e6), BAD), max_size=60), st.integers(0, 3))
def test_values_that_are_no_numbers_change_nothing(bad: list[tuple[int, float, float]], attempt: int) -> None:
    history = History.of(falling(30))
    after = history.extend(Report(step, seconds, value, attempt) for step, seconds, value in bad)
    assert (after.growth, after.best, after.last_step) == (history.growth, history.best, history.last_step)


@given(
    st.lists(
        st.tuples(st.integers(-5, 60), st.floats(allow_nan=True), st.floats(allow_nan=True), st.integers(-2, 3)),
        max_size=80,
    )
)
def test_whatever_is_reported_the_best_never_gets_worse(noise: list[tuple[int, float, float, int]]) -> None:
    history = History.of(falling(30), direction=Direction.FALLING)
    best = history.best
    for report in noise:
        history = history.extend([Report(*report)])
        assert history.best <= best
        best = history.best


@given(st.permutations(range(40)), st.integers(1, 3))
def test_order_and_repetition_within_a_batch_do_not_matter(order: list[int], times: int) -> None:
    reports = falling(40)
    mixed = History.of([reports[i] for i in order for _ in range(times)])
    assert mixed.values.tolist() == History.of(reports).values.tolist()


@given(st.lists(st.integers(0, 19), min_size=1, max_size=300))
def test_old_news_never_makes_a_growing_job_converged(steps: list[int]) -> None:
    history = History.of(falling(20))
    late = [Report(step, float(step), 3.0) for step in steps]
    resumed = [Report(step, 100.0 + i, 3.0, attempt=1) for i, step in enumerate(steps)]
    assert history.extend([*late, *resumed]).growth is Growth.PROGRESSING
