"""The study of remaining time: coverage is computed correctly, and bands hold on replays."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest

from sterna.experiments.reproduction.eta.coverage import BandForecast, coverage_of
from sterna.experiments.reproduction.eta.replays import SEEN, replay
from sterna.experiments.reproduction.eta.study import reproduce
from sterna.model.eta import Band
from sterna.workloads.published.curves import MODELS, RecordingClock, recording


def test_every_recording_has_both_clocks_and_never_steps_back() -> None:
    for model in MODELS:
        wall, cpu = recording(model, RecordingClock.WALL), recording(model, RecordingClock.CPU)
        assert [sample.step for sample in wall] == [sample.step for sample in cpu]
        assert all(after.step > before.step for before, after in pairwise(wall))
        assert cpu[-1].seconds < wall[-1].seconds


def test_coverage_weighs_groups_alike_and_leaves_endless_bands_out_of_the_width() -> None:
    hit, miss = BandForecast(Band(8, 10, 12), 11), BandForecast(Band(8, 10, 12), 20)
    coverage = coverage_of([[hit, hit, hit], [miss], []])
    assert coverage.held == 50
    assert coverage.width == pytest.approx(40)
    assert coverage.error == pytest.approx(10)
    endless = coverage_of([[hit, BandForecast(Band(1, 2, math.inf), 5)]])
    assert endless.endless == 50
    assert endless.width == pytest.approx(40)


def test_a_band_that_holds_everything_is_as_dishonest_as_one_that_holds_half() -> None:
    hit, miss = BandForecast(Band(8, 10, 12), 11), BandForecast(Band(8, 10, 12), 20)
    assert not coverage_of([[hit]]).is_honest
    assert not coverage_of([[hit, miss]]).is_honest
    assert coverage_of([[hit, hit, hit, hit, miss]]).is_honest


@pytest.mark.parametrize("policy", ["elastic-fifo", "elastic-tiresias", "dragon"])
def test_bands_of_a_replay_hold_and_are_narrower_than_the_time_itself(policy: str) -> None:
    runs = [replay(policy, seed, jobs=150) for seed in range(2)]
    assert all(run.changes > 0.5 for run in runs)
    for seen in SEEN:
        coverage = coverage_of([run.forecasts[seen] for run in runs])
        assert 65 <= coverage.held <= 92
        assert coverage.width < 100
        assert all(run.silent[seen] < 40 for run in runs)


def test_a_replay_is_the_same_for_the_same_seed() -> None:
    assert replay("dragon", 3, jobs=60) == replay("dragon", 3, jobs=60)


@pytest.mark.slow
def test_the_study_sets_coverage_beside_width_and_can_be_written_as_json() -> None:
    study = reproduce(1)
    held = [row for row in study.rows if row.holds is not None]
    assert all(row.target_text == "70 to 90" for row in held)
    recorded = [row for row in held if row.case.startswith("recordings")]
    assert all(row.holds for row in recorded)
    assert json.loads(json.dumps(study.as_document(), allow_nan=False))["name"] == "eta"
    assert all(figure.plot["data"] for figure in study.figures())
