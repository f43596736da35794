"""Moves are requested for pods that have converged or are on an overloaded node, and for no others."""

from __future__ import annotations

import pytest

from sterna.backends.kubernetes.lifecycle.overload import NodeInfo
from sterna.backends.kubernetes.monitor.convergence import ConvergenceDetector, MetricSample
from sterna.model.growth import Growth, GrowthRule, Strict

ALIKE = {name: NodeInfo(cpu_total=10, mem_total=10, cpu_max_request=5) for name in ("node-1", "node-2")}
OVERLOADED = ALIKE | {"node-1": NodeInfo(cpu_total=10, mem_total=10, cpu_max_request=9, mem_max_request=9)}


def add_samples(judging: ConvergenceDetector, pod: str, value: float, now: float) -> bool:
    return bool(judging.add_samples([MetricSample(pod, value, now)], now))


FALLING = [1.0 / (number + 1) for number in range(8)]
"""Less and less steep, and yet steeper than a line through the logarithms of all its changes."""


def growth_after(values: list[float], rule: GrowthRule | None = None, every: float = 10.0) -> Growth:
    judging = ConvergenceDetector("node-1", rule) if rule else ConvergenceDetector("node-1")
    for number, value in enumerate(values):
        add_samples(judging, "p", value, number * every)
    return judging.growth_of("p")


def test_a_pod_begins_as_progressing() -> None:
    """DRAGON-61: the first sample gives no score."""
    judging = ConvergenceDetector("node-1")
    assert judging.growth_of("p") is Growth.PROGRESSING
    assert not add_samples(judging, "p", 5.0, 0.0)
    assert judging.growth_of("p") is Growth.PROGRESSING


def test_a_pod_whose_metric_stands_still_converges_after_two_low_samples() -> None:
    """DRAGON-62, 63: alpha and beta come from a new fit at each sample, and a score of zero spoils none."""
    assert growth_after(FALLING) is not Growth.CONVERGED
    assert growth_after([*FALLING, FALLING[-1] * 0.999]) is Growth.WATCHING
    assert growth_after([*FALLING, FALLING[-1] * 0.999, FALLING[-1] * 0.999]) is Growth.CONVERGED


def test_one_high_sample_brings_a_pod_back() -> None:
    """DRAGON-63, 83."""
    still = [FALLING[-1] * 0.99] * 3
    assert growth_after([*FALLING, *still]) is Growth.CONVERGED
    assert growth_after([*FALLING, *still, FALLING[-1] + 5.0]) is Growth.PROGRESSING


@pytest.mark.parametrize("sign", [1, -1], ids=["rising", "falling"])
def test_specon_s_threshold_and_interval_are_the_monitor_s_to_set(sign: int) -> None:
    """DRAGON-81 to 83: alpha of the highest progress, taken over the interval, for metrics of either direction."""
    curve = [sign * 0.5**number for number in range(4)]
    slow = [*curve, curve[-1] + 0.001, curve[-1] + 0.002]
    loose = GrowthRule(strict=Strict.SPECON, alpha=0.1, interval_seconds=10.0)
    strict = GrowthRule(strict=Strict.SPECON, alpha=1e-6, interval_seconds=10.0)
    assert growth_after(slow, loose) is Growth.CONVERGED
    assert growth_after(slow, strict) is Growth.PROGRESSING
    assert growth_after(slow, loose, every=1.0) is Growth.PROGRESSING, "no interval has passed"


def test_a_converged_pod_is_asked_for_at_most_every_three_seconds() -> None:
    """DRAGON-65, 84."""
    judging = ConvergenceDetector("node-1")
    asked = [add_samples(judging, "p", value, 10.0 * number) for number, value in enumerate(FALLING)]
    assert not any(asked)
    still = [add_samples(judging, "p", 0.99 * FALLING[-1], 80.0 + number) for number in range(12)]
    first = still.index(True)
    assert [number for number, is_asked in enumerate(still) if is_asked] == list(range(first, 12, 3))


def test_pods_of_an_overloaded_node_are_asked_for_whatever_they_measure() -> None:
    """DRAGON-64, 65."""
    judging = ConvergenceDetector("node-1", threshold=0.9)
    judging.set_node_infos(OVERLOADED, 0.0)
    assert add_samples(judging, "p", 5.0, 1.0)
    judging.set_node_infos(ALIKE, 5.0)
    assert not add_samples(judging, "p", 4.0, 6.0)


def test_news_of_the_cluster_are_wanted_each_minute_and_count_for_five() -> None:
    """DRAGON-66."""
    judging = ConvergenceDetector("node-1", threshold=0.9)
    assert judging.wants_info(0.0)
    judging.set_node_infos(OVERLOADED, 0.0)
    assert not judging.wants_info(59.0)
    assert judging.wants_info(60.0)
    assert add_samples(judging, "p", 5.0, 299.0)
    assert not add_samples(judging, "p", 4.0, 400.0)


def test_pods_that_are_silent_for_a_minute_are_forgotten() -> None:
    """DRAGON-66."""
    judging = ConvergenceDetector("node-1")
    add_samples(judging, "p", 1.0, 0.0)
    add_samples(judging, "q", 1.0, 30.0)
    judging.forget_silent(60.0)
    assert len(judging) == 1


def test_more_names_than_a_node_can_hold_are_not_taken_in() -> None:
    judging = ConvergenceDetector("node-1")
    judging.add_samples([MetricSample(f"p{number}", 1.0, 0.0) for number in range(5000)], 0.0)
    assert len(judging) == 4096
