"""The published rules to the letter, on vectors worked out by hand (DRAGON-61 to 63, 81 to 84)."""

from __future__ import annotations

import math

import pytest

from sterna.model.growth import Growth, GrowthRule, GrowthTable, Strict

P, W, C = Growth.PROGRESSING, Growth.WATCHING, Growth.CONVERGED

SPECON = GrowthRule(strict=Strict.SPECON)
ABSOLUTE = GrowthRule(strict=Strict.SPECON, alpha_is_relative=False)
FITTED = GrowthRule(strict=Strict.CONTAINER_MIGRATION)


def categories(rule: GrowthRule, samples: list[tuple[float, float]]) -> list[Growth]:
    """After each (seconds, value)."""
    table, found = GrowthTable(1, rule), []
    for step, (seconds, value) in enumerate(samples):
        table.update([0], [step], [seconds], [value])
        found.append(Growth(int(table.growth[0])))
    return found


@pytest.mark.parametrize("sign", [1, -1], ids=["falling", "rising"])
def test_specon_needs_two_low_samples_and_one_high_one_brings_it_back(sign: int) -> None:
    # Progress 1, 0.5, 0.05, 0.05, 0.05, 0.2 against a tenth of the highest, 0.1.
    values = [100, 90, 85, 84.5, 84, 83.5, 81.5]
    samples = [(10.0 * i, sign * value) for i, value in enumerate(values)]
    assert categories(SPECON, samples) == [P, P, P, W, C, C, P]


def test_specon_counts_getting_worse_as_progress() -> None:
    assert categories(SPECON, [(0, 10), (10, 0), (20, 0), (30, 0), (40, 10)]) == [P, P, W, C, P]


def test_specon_looks_only_every_interval() -> None:
    # At 5 s and 14 s nothing is due; from 0 to 10 s progress is 1, from 10 to 21 s it is 0.
    assert categories(SPECON, [(0, 10), (5, 10), (10, 0), (14, 9), (21, 0)]) == [P, P, P, P, W]


def test_specon_with_an_absolute_threshold() -> None:
    # Progress 0.2, 0.1 (on the threshold: low), 0.05, 0.11.
    assert categories(ABSOLUTE, [(0, 5), (10, 3), (20, 2), (30, 1.5), (40, 0.4)]) == [P, P, W, C, P]


def test_container_migration_compares_with_its_own_fit() -> None:
    # Scores e^0, e^-1, e^-2 at 1, 2, 3 s lie on a line: alpha is the score itself, so the third is not above it.
    # e^-4 at 4 s: slope -1.3, alpha e^-3.7, beta 0.0343: below alpha, and e^-4 x 1.0343 < e^-2.
    # e^0 at 5 s is above any of it.
    scores = [1.0, math.exp(-1), math.exp(-2), math.exp(-4), 1.0]
    value, samples = 10.0, [(0.0, 10.0)]
    for i, score in enumerate(scores):
        value -= score
        samples.append((i + 1.0, value))
    assert categories(FITTED, samples) == [P, P, P, W, C, P]


def test_container_migration_survives_zero_scores() -> None:
    # No fit before three scores, so alpha is 0 and a zero is low; zero after zero has not fallen, so it stays watched.
    assert categories(FITTED, [(0, 3), (1, 2), (2, 2), (3, 2), (4, 1), (5, 1)]) == [P, P, W, W, P, W]


def test_a_steady_score_is_on_its_fit_and_does_not_fall() -> None:
    assert categories(FITTED, [(float(i), -2.0 * i) for i in range(6)]) == [P, P, P, W, W, W]


@pytest.mark.parametrize("rule", [SPECON, ABSOLUTE, FITTED])
def test_numbers_that_are_none_are_no_samples(rule: GrowthRule) -> None:
    good = [(0.0, 9.0), (10.0, 4.0)]
    bad = [(10.0 * i, math.nan if i % 2 else math.inf) for i in range(2, 30)]
    assert categories(rule, good + bad)[-1] is P


def test_the_first_sample_after_a_resume_gives_no_score() -> None:
    table = GrowthTable(1, SPECON)
    for step, (seconds, value, attempt) in enumerate([(0, 9, 0), (10, 4, 0), (500, 4, 1), (505, 4, 1)]):
        table.update([0], [step], [seconds], [value], [attempt])
    assert table.growth.tolist() == [P]
