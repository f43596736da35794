"""Assumed speed-ups of jobs without a model: profiles drawn from a seed, linear, or a power."""

from __future__ import annotations

from collections import Counter

import pytest

from sterna.backends.simulated.nodes import simulated_nodes
from sterna.backends.simulated.workload import workload_of
from sterna.experiments.scenario import Scenario
from sterna.experiments.simulation import run_simulation
from sterna.workloads.profiles import DRAWN, PROFILES
from sterna.workloads.speedup_assumption import (
    DRAWN_PROFILES,
    LINEAR_SPEEDUP,
    assume_curves,
    draw_model,
    parse_speedup,
)
from sterna.workloads.trace import Trace, make_trace


def a_trace(count: int, workers: int = 1, model: str = "", category: str = "") -> Trace:
    """Jobs that may have up to twice the workers that they request."""
    return a_rigid_trace(count, workers, model, category).elastic(1, 2)


def a_rigid_trace(count: int, workers: int = 1, model: str = "", category: str = "") -> Trace:
    return make_trace(
        name=[f"job-{number}" for number in range(count)],
        submit_seconds=[float(number) for number in range(count)],
        workers=[workers] * count,
        duration_seconds=[100.0] * count,
        model=[model] * count,
        category=[category] * count,
    )


def test_every_profile_that_may_stand_for_a_request_is_drawn_about_equally_often() -> None:
    for workers in (1, 8, 32, 64, 1_000):
        drawn = Counter(draw_model(f"job-{number}", workers, 7) for number in range(4_000))
        allowed = {model for model, each in DRAWN.items() if each.fewest <= min(workers, 32) <= each.most}
        assert set(drawn) == allowed
        assert max(drawn.values()) < 1.25 * 4_000 / len(allowed)


def test_draw_depends_on_seed_and_name_only() -> None:
    trace = a_trace(50)
    whole = assume_curves(trace, {}, DRAWN_PROFILES, 3).model
    assert assume_curves(trace.take(range(10, 30)), {}, DRAWN_PROFILES, 3).model == whole[10:30]
    assert assume_curves(trace, {}, DRAWN_PROFILES, 4).model != whole
    # Committed: a change of the draw changes published numbers.
    assert whole[:3] == ("roberta", "t5", "gpt2_a800")


def test_known_models_and_own_curves_are_kept() -> None:
    own = {"mine": (1.0, 1.5)}
    assert assume_curves(a_trace(1, model="ResNet-50"), {}, DRAWN_PROFILES, 0).model == ("ResNet-50",)
    assert assume_curves(a_trace(1, model="mine"), own, DRAWN_PROFILES, 0).model == ("mine",)
    assert assume_curves(a_trace(1, model="mine"), {}, DRAWN_PROFILES, 0).model[0] in PROFILES


def test_drawn_model_is_the_category_of_a_job_without_one() -> None:
    drawn = assume_curves(a_trace(3), {}, DRAWN_PROFILES, 0)
    assert drawn.category == drawn.model
    assert assume_curves(a_trace(3, category="c"), {}, DRAWN_PROFILES, 0).category == ("c",) * 3


def test_power_gives_every_unknown_job_the_same_concave_curve() -> None:
    workload = workload_of(a_trace(2, workers=4), None, parse_speedup("power:0.5"))
    assert workload.curves.speed_of(int(workload.curve[0]), 4) == pytest.approx(2.0)
    assert workload.work.tolist() == pytest.approx([200.0, 200.0])
    assert str(parse_speedup("power:0.5")) == "power:0.5"
    assert parse_speedup("power:1") == LINEAR_SPEEDUP


@pytest.mark.parametrize(
    ("speedup", "sentence"),
    [
        (
            "profiles",
            "2 of 2 jobs may change their size and have no model with a known speed-up; each gets a measured profile",
        ),
        ("linear", "their speed-up is taken to be linear (--speedup linear)."),
        ("power:0.8", "n workers are taken to be n^0.8 times as fast as one (--speedup power:0.8)."),
    ],
)
def test_result_says_what_was_assumed(speedup: str, sentence: str) -> None:
    scenario = Scenario(a_trace(2), simulated_nodes("1x8"), speedup=parse_speedup(speedup))
    result = run_simulation(scenario, "fifo")
    assert sentence in result.notices[-1]
    assert result.summary["speedup"] == speedup


@pytest.mark.parametrize("text", ["profiles", "power:0.6"])
def test_rigid_jobs_need_no_assumption_and_are_ordered_by_device_seconds(text: str) -> None:
    assumed = assume_curves(a_rigid_trace(9, workers=4), {}, parse_speedup(text), 0)
    assert (assumed.model, assumed.notices) == (("",) * 9, ())
    workload = workload_of(a_rigid_trace(9, workers=4), None, parse_speedup(text))
    assert workload.work.tolist() == [400.0] * 9
