"""Eight recorded trainings: when each is watched and converged, and whether the bands hold.

Times are seconds of CPU. A recent rate is that of the last eighth of the run so far, so a verdict follows the phase
change that a one-second view shows by a few seconds; the ranges below allow for that.
"""

from __future__ import annotations

import numpy as np
import pytest

from sterna.experiments.reproduction.eta.coverage import coverage_of
from sterna.experiments.reproduction.eta.curves import SEEN, finish_forecasts, value_forecasts
from sterna.model.eta import SHARED_CORE, fit_factors
from sterna.model.growth import Growth, GrowthRule, GrowthTable, History, Report, Strict
from sterna.workloads.published.curves import MODELS, RecordingClock, recording

PHASE_CHANGE = {"logreg": 1, "mlp": 1, "vae": 2, "cnn": 3, "gan": 6, "lstm": 8, "gru": 8, "birnn": 11}
"""Where |change| of one-second windows falls below a tenth of its peak for three windows."""

Changes = list[tuple[Growth, float]]


def recorded(model: str, clock: RecordingClock = RecordingClock.CPU) -> tuple[Report, ...]:
    return tuple(Report(*sample) for sample in recording(model, clock))


def changes(model: str, rule: GrowthRule | None = None, reports: tuple[Report, ...] = ()) -> Changes:
    table, found = GrowthTable(1, rule), []
    for r in reports or recorded(model):
        if len(table.update([0], [r.step], [r.seconds], [r.value], [r.attempt])):
            found.append((Growth(int(table.growth[0])), r.seconds))
    return found


def first(growth: Growth, found: Changes) -> float:
    return next((seconds for category, seconds in found if category is growth), float("inf"))


@pytest.mark.parametrize("model", MODELS)
def test_a_job_is_watched_soon_after_its_phase_changes(model: str) -> None:
    watched = [seconds for category, seconds in changes(model) if category is Growth.WATCHING]
    assert any(PHASE_CHANGE[model] - 2.2 <= seconds <= PHASE_CHANGE[model] + 5 for seconds in watched)


def test_models_that_still_improve_in_the_second_half_are_watched_and_not_converged() -> None:
    converged = [model for model in MODELS if first(Growth.CONVERGED, changes(model)) < float("inf")]
    assert converged == ["logreg", "mlp", "vae", "gan"]


@pytest.mark.parametrize("model", ["logreg", "mlp", "vae", "gan"])
def test_a_job_that_converged_had_nine_tenths_of_its_improvement(model: str) -> None:
    found, reports = changes(model), recorded(model)
    values = np.array([r.value for r in reports])
    best_then = min(r.value for r in reports if r.seconds <= first(Growth.CONVERGED, found))
    assert (values[0] - best_then) / (values[0] - values.min()) > 0.9


@pytest.mark.parametrize("model", MODELS)
def test_reporting_every_fourth_time_gives_the_same_verdict(model: str) -> None:
    fourth = changes(model, reports=recorded(model)[::4])
    assert (first(Growth.CONVERGED, fourth) < float("inf")) == (first(Growth.CONVERGED, changes(model)) < float("inf"))


def test_a_growing_bidirectional_rnn_is_never_converged_before_a_finished_vae() -> None:
    assert first(Growth.WATCHING, changes("birnn")) > first(Growth.CONVERGED, changes("vae"))


def test_raw_absolute_progress_has_them_the_wrong_way_round() -> None:
    raw = GrowthRule(strict=Strict.SPECON, alpha_is_relative=False, interval_seconds=1.0)
    assert first(Growth.CONVERGED, changes("birnn", raw)) < 9
    assert first(Growth.CONVERGED, changes("vae", raw)) == float("inf")


@pytest.mark.parametrize("model", MODELS)
def test_accuracy_turned_round_is_judged_like_loss(model: str) -> None:
    falling = History.of(recorded(model))
    rising = History.of(Report(r.step, r.seconds, -r.value) for r in recorded(model))
    assert (rising.growth, rising.best) == (falling.growth, -falling.best)


@pytest.mark.parametrize("model", MODELS)
def test_taken_in_at_once_or_one_by_one_is_the_same(model: str) -> None:
    reports = recorded(model)[:900]
    one_by_one = History.of()
    for report in reports:
        one_by_one = one_by_one.extend([report])
    at_once = History.of(reports)
    assert at_once.growth == one_by_one.growth
    assert at_once.values.tolist() == one_by_one.values.tolist()


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("clock", RecordingClock)
def test_eight_in_ten_finishes_lie_in_the_band_that_other_models_taught(clock: RecordingClock, seen: float) -> None:
    coverage = coverage_of(finish_forecasts(clock, seen))
    assert coverage.is_honest
    assert coverage.width < 60


@pytest.mark.parametrize("seen", SEEN)
def test_eight_in_ten_best_values_lie_in_the_band_of_the_curve(seen: float) -> None:
    assert coverage_of(value_forecasts(seen)).is_honest


def test_the_assumed_factors_are_those_of_the_recordings_by_the_wall_clock() -> None:
    found = fit_factors([History.of(recorded(model, RecordingClock.WALL)) for model in MODELS])
    assert found == pytest.approx(SHARED_CORE, abs=0.03)
