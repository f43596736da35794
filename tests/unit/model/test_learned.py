"""Learned curves of a category: usable from the first job on, better with every size, and serializable."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.model.learned import CategoryRecord, Learned, Prior, fit_curve, restart_seconds
from sterna.workloads.profiles import PROFILES

VODA = ("vgg16", "resnet50", "inceptionv3", "transformer")

stretches = st.lists(
    st.tuples(st.integers(1, 64), st.floats(0.01, 1e6), st.floats(1e-3, 1e5)), max_size=8
)  # workers, steps, seconds a step


def a_record(model: str, sizes: tuple[int, ...], step_seconds: float = 7.0, steps: float = 50.0) -> CategoryRecord:
    """Measurements of steady jobs of a published curve at these sizes."""
    record = CategoryRecord(model)
    for size in sizes:
        record = record.with_steps(size, steps, steps * step_seconds / PROFILES[model][size - 1])
    return record


def test_an_unknown_category_is_linear() -> None:
    fit = fit_curve(CategoryRecord("new"))
    assert fit.speeds(8) == pytest.approx(np.arange(1, 9))
    assert fit.step_seconds == pytest.approx(1.0)
    assert fit.remaining_seconds(50) == pytest.approx(50.0)


@settings(deadline=None)
@given(stretches)
def test_every_fit_is_monotone_and_concave_whatever_was_seen(seen: list[tuple[int, float, float]]) -> None:
    record = CategoryRecord("x")
    for workers, steps, step_seconds in seen:
        record = record.with_steps(workers, steps, steps * step_seconds)
    fit = fit_curve(record)
    speeds = fit.speeds(128)
    gains = np.diff(speeds, prepend=0.0)
    assert speeds[0] == 1.0
    assert (gains >= -1e-9).all()
    assert (np.diff(gains) <= 1e-9).all()
    assert 0 < fit.step_seconds < math.inf


@pytest.mark.parametrize("model", VODA)
def test_three_sizes_give_the_fourth(model: str) -> None:
    fit = fit_curve(a_record(model, (1, 2, 4)))
    assert fit.speeds(4) == pytest.approx(PROFILES[model], rel=0.03)
    assert fit.step_seconds == pytest.approx(7.0, rel=0.02)


def test_what_two_places_saw_is_what_one_would_have_seen() -> None:
    here, there = (
        CategoryRecord("a").with_steps(1, 10, 70.0),
        CategoryRecord("a").with_steps(1, 10, 90.0).with_steps(2, 5, 15.0),
    )
    whole = CategoryRecord("a").with_steps(1, 20, 160.0).with_steps(2, 5, 15.0)
    assert here.merge(there) == there.merge(here) == whole


def test_of_a_category_that_was_never_seen_nothing_is_known() -> None:
    assert Learned((a_record("bert", (1,)),)).of("never seen") == CategoryRecord("never seen")


def test_it_is_kept_as_plain_text_and_comes_back_the_same() -> None:
    learned = Learned((a_record("bert", (1, 4)).with_restart(31.5), a_record("vgg16", (2,))))
    assert msgspec.json.decode(msgspec.json.encode(learned), type=Learned) == learned


@pytest.mark.parametrize(
    ("workers", "steps", "seconds"),
    [
        (0, 1, 1),
        (1, 0, 1),
        (1, 1, 0),
        (1, -1, 1),
        (1, math.nan, 1),
        (1, 1, math.nan),
        (1, math.inf, 1),
        (2, 1, math.inf),
    ],
)
def test_what_cannot_be_a_measurement_teaches_nothing(workers: int, steps: float, seconds: float) -> None:
    assert CategoryRecord("x").with_steps(workers, steps, seconds) == CategoryRecord("x")
    assert CategoryRecord("x").with_restart(math.nan) == CategoryRecord("x").with_restart(-1) == CategoryRecord("x")


def test_remaining_time_is_steps_left_at_one_worker_and_no_number_where_the_total_is_unknown() -> None:
    fit = fit_curve(a_record("vgg16", (1, 2)))
    assert fit.remaining_seconds(10) == pytest.approx(70, rel=0.02)
    assert math.isnan(fit.remaining_seconds(None))


def test_a_restart_costs_what_was_seen_and_at_first_what_is_assumed() -> None:
    record = CategoryRecord("x")
    assert restart_seconds([record], Prior(restart_seconds=10)) == 10
    for _ in range(99):
        record = record.with_restart(60)
    assert restart_seconds([record, CategoryRecord("y")], Prior(restart_seconds=10)) == pytest.approx(59.5)
