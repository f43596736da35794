"""Speed-up curves: concave ones are kept, others repaired with a notice, and none is extrapolated."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from sterna.model.speedup import LINEAR, Curves, Repaired, concave


@pytest.mark.parametrize("speeds", [(1,), (1, 2, 3), (1, 1.9, 2.7), (1, 1, 1), (2, 4, 5), (1, 1.5, 1.5)])
def test_a_concave_curve_is_kept(speeds: tuple[float, ...]) -> None:
    curve = concave(speeds)
    assert not isinstance(curve, Repaired)
    assert curve == pytest.approx([speed / speeds[0] for speed in speeds])


@pytest.mark.parametrize("speeds", [(1, 1.2, 2.0), (1, 0.5), (1, 2.5), (1, 3, 2), (1, 1, 1.5, 1.4)])
def test_curve_that_is_not_concave_is_repaired(speeds: tuple[float, ...]) -> None:
    curve = concave(speeds)
    assert isinstance(curve, Repaired)
    gains = np.diff([0.0, *curve])
    assert curve[0] == 1
    assert gains.min() >= 0
    assert np.diff(gains).max(initial=-1.0) <= 1e-12
    assert len(curve) == len(speeds)


def test_repairing_twice_is_repairing_once() -> None:
    random = Random(3)
    for _ in range(200):
        curve = concave([random.uniform(0.5, 5) for _ in range(random.randint(1, 8))])
        again = concave(curve)
        assert not isinstance(again, Repaired)
        assert again == pytest.approx(curve)


def test_a_curve_is_flat_beyond_what_was_measured() -> None:
    curves = Curves(((1.0,), (1.0, 1.8)))
    assert [curves.speed_of(1, workers) for workers in range(5)] == [0, 1, 1.8, 1.8, 1.8]
    assert [curves.speed_of(LINEAR, workers) for workers in (0, 1, 100)] == [0, 1, 100]


def test_beyond_its_last_gain_no_worker_is_of_use() -> None:
    """Nor is a step that falls by less than is repaired."""
    curves = Curves(((1.0,), (1.0, 1.8), (1.0, 1.5, 1.6, 1.6), (1.0,), (1.0, 1.2, 1.2 - 1e-10)))
    assert curves.useful[1:].tolist() == [2, 3, 1, 2]
    assert curves.useful[LINEAR] > 1_000_000_000


def test_many_at_once_is_one_by_one() -> None:
    curves = Curves(((1.0,), (1.0, 1.8), (1.0, 1.5, 1.6, 1.6)))
    curve, workers = np.array([0, 1, 2, 0, 2, 1]), np.array([3, 3, 2, 90, 0, 1])
    expected = [curves.speed_of(int(c), int(w)) for c, w in zip(curve, workers, strict=True)]
    assert curves.speed(curve, workers).tolist() == expected
    assert curves.speed(np.array([0]), np.array([500])).tolist() == [500]
