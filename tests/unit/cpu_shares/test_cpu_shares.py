"""Division of the CPUs of a shared node, by each rule."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sterna.model.growth import Growth
from sterna.model.plan import ActionKind
from tests.shared_nodes import SharedCluster, SharedJob, decided, weights_of

EIGHT = tuple(SharedJob(f"j{number}", left=100.0 * (number + 1)) for number in range(8))
"""Eight jobs that can use 4 of 16 cores each, the first nearest to its end."""


def test_those_with_least_left_have_all_they_can_use() -> None:
    weights = weights_of(SharedCluster(EIGHT, now=0.0), "finish")
    assert [weights[f"j{n}"] for n in range(8)] == pytest.approx([2, 2, 2, 2, 0.01, 0.01, 0.01, 0.01], abs=0.001)


def test_every_job_has_an_equal_share_where_there_are_cores_for_all() -> None:
    assert set(weights_of(SharedCluster(EIGHT[:4]), "finish").values()) == {1.0}


def test_a_share_changes_in_place() -> None:
    decision = decided(SharedCluster(EIGHT), cpu_share="finish")
    assert {action.kind for action in decision.plan} == {ActionKind.SET_CPU_SHARE}
    assert all(action.before == action.after for action in decision.plan)


def test_a_job_that_would_end_too_late_gets_its_share_back() -> None:
    """The guard: by equal shares the longest would have ended at 200 s, so that it may not wait for all others."""
    late = replace(EIGHT[7], default_finish=200.0)
    weights = weights_of(SharedCluster((*EIGHT[:7], late), now=0.0), "finish:tail=9")
    assert weights["j7"] >= 1
    assert weights_of(SharedCluster(EIGHT, now=0.0), "finish:tail=9")["j7"] < 1


def test_a_guard_of_twice_the_time_lets_it_wait() -> None:
    late = replace(EIGHT[7], default_finish=200.0)
    weights = weights_of(SharedCluster((*EIGHT[:7], late), now=0.0), "finish:tail=9:guard=2")
    assert weights["j7"] < 1


def test_the_last_job_of_a_node_is_not_put_off_beyond_what_is_possible() -> None:
    """A long job among short ones determines when the node is done: it runs from the start."""
    long = SharedJob("long", left=2000.0)
    weights = weights_of(SharedCluster((*EIGHT[:6], long), now=0.0), "finish")
    assert weights["long"] > 1
    assert weights_of(SharedCluster((*EIGHT[:6], long), now=0.0), "finish:tail=9")["long"] < 1


def test_a_job_of_unknown_total_keeps_an_equal_share() -> None:
    unknown = SharedJob("unknown", left=math.nan)
    weights = weights_of(SharedCluster((*EIGHT, unknown), now=0.0), "finish")
    assert weights["unknown"] == 1
    assert sum(weights.values()) == pytest.approx(9, abs=0.1)


def test_where_every_total_is_unknown_shares_are_equal() -> None:
    cluster = SharedCluster(tuple(replace(job, left=math.nan) for job in EIGHT))
    assert set(weights_of(cluster, "finish").values()) == {1.0}


def test_where_nodes_are_not_shared_nothing_is_divided() -> None:
    cluster = SharedCluster(tuple(replace(job, cap=math.nan) for job in EIGHT))
    for rule in ("finish", "growth"):
        assert len(decided(cluster, cpu_share=rule).plan) == 0


def test_quality_puts_those_that_still_improve_first() -> None:
    jobs = (*(replace(job, growth=Growth.CONVERGED) for job in EIGHT[:4]), *EIGHT[4:])
    weights = weights_of(SharedCluster(jobs, now=0.0), "finish:objective=quality:tail=9")
    assert [weights[f"j{n}"] > 1 for n in range(8)] == [False] * 4 + [True] * 4


def test_growth_takes_from_converged_jobs_whatever_they_have_left() -> None:
    kinds = (Growth.PROGRESSING, Growth.WATCHING, Growth.CONVERGED)
    jobs = tuple(SharedJob(kind.name, growth=kind, left=math.nan) for kind in kinds)
    weights = weights_of(SharedCluster(jobs), "growth:strict=true")
    assert weights == {"PROGRESSING": 1.0, "WATCHING": 0.5, "CONVERGED": 0.05}


def test_growth_takes_no_more_from_a_job_than_its_guard_allows() -> None:
    kinds = (Growth.PROGRESSING, Growth.WATCHING, Growth.CONVERGED)
    jobs = tuple(SharedJob(kind.name, growth=kind, left=math.nan) for kind in kinds)
    weights = weights_of(SharedCluster(jobs), "growth:guard=1.25")
    assert weights == {"PROGRESSING": 1.0, "WATCHING": 0.8, "CONVERGED": 0.8}


def test_growth_leaves_a_converged_job_more_if_it_still_gains() -> None:
    slow = SharedJob("slow", growth=Growth.CONVERGED, growth_rate=0.001)
    fast = SharedJob("fast", growth_rate=0.003)
    assert weights_of(SharedCluster((slow, fast)), "growth:strict=true")["slow"] == pytest.approx(0.5)


def test_shares_become_equal_again_when_no_rule_divides() -> None:
    cluster = SharedCluster((replace(EIGHT[0], cpu_share=5.0), EIGHT[1]))
    assert set(weights_of(cluster, "equal").values()) == {1.0}
    assert [action.cpu_share for action in decided(cluster).plan] == [1.0]


def test_every_cpu_share_has_a_reason_with_its_number() -> None:
    sentences = [reason.sentence for reason in decided(SharedCluster(EIGHT), cpu_share="finish").reasons]
    assert "gets 2 times an equal share of the CPU of its node." in sentences
