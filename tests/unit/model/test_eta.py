"""Remaining time: from a steady pace, from a known curve, and nothing where nothing is known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.model.eta import (
    Band,
    growth_curve,
    remaining_seconds,
    seconds_for,
    seconds_to,
    time_coverage,
    value_coverage,
)
from sterna.model.growth import Direction, History, Report


def decaying(count: int = 120, floor: float = 0.5, sign: int = 1) -> list[Report]:
    """A loss of floor + 2 e^(-step / 200), reported every 10 steps of 0.2 s."""
    return [Report(10 * i, 2.0 * i, sign * (floor + 2 * math.exp(-i / 20))) for i in range(count)]


def test_a_steady_job_is_told_its_time_with_a_band_around_it() -> None:
    band = remaining_seconds(History.of(decaying(60)), total_steps=1190)
    assert band is not None
    assert band.middle == pytest.approx((1190 - 590) * 0.2)
    assert 0.8 * band.middle < band.low < band.middle < band.high < 1.25 * band.middle


def test_nothing_is_said_of_a_job_just_started() -> None:
    history = History.of(decaying(15))
    assert remaining_seconds(history, 1000) is None
    assert growth_curve(history) is None
    assert seconds_to(history, 0.5) is None


def test_a_job_at_its_last_step_needs_no_time() -> None:
    assert remaining_seconds(History.of(decaying(60)), total_steps=100) == Band(0, 0, 0)


def test_an_uneven_pace_widens_the_band() -> None:
    seconds, uneven = 0.0, []
    for i in range(120):
        seconds += 0.5 if (i // 15) % 2 else 4.0
        uneven.append(Report(10 * i, seconds, 1.0))
    steady, wavy = seconds_for(History.of(decaying()), 500), seconds_for(History.of(uneven), 500)
    assert steady is not None
    assert wavy is not None
    assert wavy.high / wavy.low > 1.5 * steady.high / steady.low


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


def test_a_finished_curve_has_converged() -> None:
    curve = growth_curve(History.of(decaying(120)))
    assert curve is not None
    assert curve.steps_to_convergence().low == 0
    early = growth_curve(History.of(decaying(24)))
    assert early is not None
    assert early.steps_to_convergence().middle > 0


def test_time_to_a_value_is_its_steps_at_the_present_pace() -> None:
    history = History.of(decaying(40))
    curve, band = growth_curve(history), seconds_to(history, 0.7)
    assert curve is not None
    assert band is not None
    assert band.middle == pytest.approx(curve.steps_to(0.7).middle * 0.2)


def test_a_perfectly_even_recording_is_covered() -> None:
    assert time_coverage(decaying()) == 1
    assert value_coverage(decaying()) > 0.7


@given(
    st.lists(st.floats(-1e150, 1e150), min_size=16, max_size=80), st.floats(-1e150, 1e150), st.sampled_from(Direction)
)
def test_any_history_has_an_ordered_band(values: list[float], target: float, direction: Direction) -> None:
    history = History.of((Report(i, float(i), value) for i, value in enumerate(values)), direction=direction)
    curve, seconds = growth_curve(history), seconds_for(history, 100)
    assert curve is not None
    assert seconds is not None
    for band in (seconds, curve.value_at(1000), curve.steps_to(target), curve.steps_to_convergence()):
        assert band.low <= band.middle <= band.high
