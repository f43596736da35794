"""Remaining time: from a steady pace, from a known curve, and nothing where nothing is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.model.eta import (
    SHARED_CORE,
    Band,
    Factors,
    factors_of,
    fit_factors,
    fit_factors_until,
    fit_margin,
    growth_curve,
    remaining_of,
    remaining_seconds,
    seconds_for,
    seconds_to,
)
from sterna.model.growth import Direction, GrowthTable, History, Report


def decaying(count: int = 120, floor: float = 0.5, sign: int = 1) -> list[Report]:
    """A loss of floor + 2 e^(-step / 200), reported every 10 steps of 0.2 s."""
    return [Report(10 * i, 2.0 * i, sign * (floor + 2 * math.exp(-i / 20))) for i in range(count)]


def uneven(seed: int, spread: float, count: int = 120) -> History:
    """A job whose every step takes a time of its own, and whose pace changes now and then."""
    random = np.random.default_rng(seed)
    pace = np.repeat(np.exp(random.normal(0, spread, count // 20)), 20)
    return History.of(Report(10 * i, seconds, 1.0) for i, seconds in enumerate(pace.cumsum().tolist()))


def test_steady_job_gets_a_forecast_with_a_band() -> None:
    band = remaining_seconds(History.of(decaying(60)), total_steps=1190)
    assert band is not None
    assert band.middle == pytest.approx((1190 - 590) * 0.2 * SHARED_CORE.middle)
    assert 0.7 * band.middle < band.low < band.middle < band.high < 1.4 * band.middle


def test_job_just_started_has_no_forecast() -> None:
    history = History.of(decaying(8))
    assert remaining_seconds(history, 1000) is None
    assert growth_curve(history) is None
    assert seconds_to(history, 0.5) is None


def test_a_job_at_its_last_step_needs_no_time() -> None:
    assert remaining_seconds(History.of(decaying(60)), total_steps=100) == Band(0, 0, 0)


def test_where_other_jobs_were_uneven_the_band_is_wider() -> None:
    even = fit_factors([uneven(seed, 0.02) for seed in range(20)])
    wild = fit_factors([uneven(seed, 0.4) for seed in range(20)])
    assert even is not None
    assert wild is not None
    assert wild.high / wild.low > 1.5 * even.high / even.low


def test_too_few_jobs_teach_nothing() -> None:
    assert fit_factors([]) is None
    assert fit_factors([History.of()] * 5) is None
    assert fit_factors([uneven(seed, 0.1) for seed in range(3)]) is None
    assert factors_of([0.1, -0.1, 0.2]) is None


def test_a_band_learned_from_jobs_that_are_alike_holds_eight_in_ten_of_one_more() -> None:
    random = np.random.default_rng(5)
    for others in (5, 8, 9, 40):
        hits = []
        for _ in range(600):
            *known, outcome = random.normal(0.1, 0.5, others + 1).tolist()
            factors = factors_of(known)
            assert factors is not None
            hits.append(factors.low <= math.exp(outcome) <= factors.high)
        assert 0.75 <= np.mean(hits) <= 0.85


def test_a_job_with_many_forecasts_weighs_as_much_as_one_with_few() -> None:
    errors = [0.0] * 100 + [1.0, 2.0, 3.0]
    factors = factors_of(errors, [0] * 100 + [1, 2, 3])
    assert factors is not None
    assert factors.middle > math.e


def test_jobs_that_still_run_widen_the_band() -> None:
    made, forecast = np.zeros(20), np.full(20, 10.0)
    ended = np.append(np.full(12, 10.0), np.full(8, 1000.0))
    at_ten, later = fit_factors_until(20.0, made, forecast, ended), fit_factors_until(2000.0, made, forecast, ended)
    assert at_ten is not None
    assert later is not None
    assert at_ten.high == math.inf  # eight of twenty take more than twice as long, unknown how much more
    assert later.high == pytest.approx(100)
    assert fit_factors_until(5.0, made, forecast, ended) is None


def test_every_row_of_a_table_gets_the_forecast_of_its_history() -> None:
    table = GrowthTable(3)
    for report in decaying(60):
        table.update([0, 1], [report.step, 3 * report.step], [report.seconds] * 2, [report.value] * 2)
    bands = remaining_of(table, [1190, 5000, 100])
    for row, total in ((0, 1190), (1, 5000)):
        band = remaining_seconds(table.history(row), total)
        assert band is not None
        assert (bands.low[row], bands.middle[row], bands.high[row]) == pytest.approx((band.low, band.middle, band.high))
    assert math.isnan(bands.middle[2])


@pytest.mark.parametrize("total", [math.nan, math.inf])
def test_total_that_is_no_number_has_no_forecast(total: float) -> None:
    table = GrowthTable(1)
    for report in decaying(60):
        table.update([0], [report.step], [report.seconds], [report.value])
    assert remaining_seconds(table.history(0), total) is None
    assert math.isnan(remaining_of(table, [total]).middle[0])


def test_a_margin_holds_eight_in_ten_misses() -> None:
    assert fit_margin([-1.0] * 8, range(8)) == 0
    assert 0.6 < fit_margin(np.arange(8) / 8, range(8)) < 0.9


@pytest.mark.parametrize("sign", [1, -1], ids=["falling", "rising"])
def test_the_curve_finds_when_a_value_will_be_reached(sign: int) -> None:
    curve = growth_curve(History.of(decaying(40, sign=sign)))
    assert curve is not None
    truth = 0.5 + 2 * math.exp(-800 / 200)
    assert sign * truth in curve.value_at(800)
    steps = curve.steps_to(sign * truth)
    assert steps.low <= 800 - curve.now_step <= steps.high


def test_a_value_already_reached_takes_no_steps_and_an_impossible_one_for_ever() -> None:
    curve = growth_curve(History.of(decaying(120)))
    assert curve is not None
    assert curve.steps_to(1.5) == Band(0, 0, 0)
    assert curve.steps_to(-1.0).high == math.inf


def test_time_to_a_value_is_its_steps_at_the_present_pace() -> None:
    history = History.of(decaying(40))
    curve, band = growth_curve(history), seconds_to(history, 0.7, Factors(1.0, 1.0, 1.0))
    assert curve is not None
    assert band is not None
    expected = curve.steps_to(0.7).times(0.2)
    assert (band.low, band.middle, band.high) == pytest.approx((expected.low, expected.middle, expected.high))


@given(
    st.lists(st.floats(-1e150, 1e150), min_size=16, max_size=80), st.floats(-1e150, 1e150), st.sampled_from(Direction)
)
def test_any_history_has_an_ordered_band(values: list[float], target: float, direction: Direction) -> None:
    history = History.of((Report(i, float(i), value) for i, value in enumerate(values)), direction=direction)
    curve, seconds = growth_curve(history), seconds_for(history, 100)
    assert curve is not None
    assert seconds is not None
    reached = seconds_to(history, target)
    assert reached is not None
    for band in (seconds, reached, curve.value_at(1000), curve.steps_to(target)):
        assert band.low <= band.middle <= band.high
