"""Serving pods go first: capacity is freed where that costs least, and reserved until they are bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.engine.check import check
from sterna.engine.decide import decide
from sterna.model.cluster import MILLI, Shape
from sterna.model.serving_pod import ServingPod
from sterna.model.snapshot import NEVER, Snapshot
from sterna.reservations.serving import Serving
from sterna.wiring import make_rules
from tests.builders import AJob, ANode, Decided, a_job, a_node, a_snapshot, after, decided, some_nodes


def a_pod(name: str = "chat", devices: float = 1, since: float = 0.0, cpus: int = 0) -> ServingPod:
    return ServingPod(name, Shape(devices=round(devices * MILLI), cpus=cpus * MILLI), since)


def an_instant(
    jobs: Iterable[AJob], nodes: Iterable[ANode], *pods: ServingPod, now: float = 1.0, restart_seconds: float = 0.0
) -> Snapshot:
    return replace(a_snapshot(jobs, nodes, now=now), serving=pods, restart_seconds=restart_seconds)


def running(name: str, workers: tuple[int, int], on: dict[str, int], **more: float) -> AJob:
    return a_job(name, workers, on=on, submit=0, first_start=0, remaining=1000, **more)  # type: ignore[arg-type]


def jobs_that_grow(result: Decided) -> set[str]:
    return {job for kind, job in result.actions if kind in ("START", "GROW")}


def test_a_pod_without_room_makes_a_job_above_its_minimum_shrink() -> None:
    """DRAGON-54."""
    result = decided(an_instant([running("a", (1, 4), {"n0": 4})], some_nodes(4), a_pod()), "elastic-fifo")
    assert result.actions == [("SHRINK", "a")]
    assert result.allocation == {"a": 3}
    assert result.reasons["a"] == "shrank from 4 to 3 workers to make room for serving pod chat."


def test_no_job_starts_or_grows_in_the_round_that_makes_room() -> None:
    """DRAGON-55, 57: b waits and a device is free elsewhere, but this round is the pod's."""
    jobs = [running("a", (1, 4), {"n0": 4}), a_job("b", 1, submit=0)]
    result = decided(an_instant(jobs, some_nodes(4, 1), a_pod(devices=2)), "elastic-fifo")
    assert result.actions == [("SHRINK", "a")]
    assert result.decision.until == 1.0


def test_freed_room_is_kept_until_the_pod_is_bound() -> None:
    """DRAGON-59: the job that shrank does not grow back, and the one that waits does not start there."""
    jobs = [running("a", (1, 4), {"n0": 2}), a_job("b", 2, submit=0)]
    nodes = some_nodes(4)
    kept = decided(an_instant(jobs, nodes, a_pod(devices=2)), "elastic-fifo")
    assert not jobs_that_grow(kept)
    assert kept.reasons["b"].startswith("waits: 2 more devices needed")
    bound = decided(an_instant(jobs, [a_node("n0", 4, foreign_devices=2)]), "elastic-fifo")
    withdrawn = decided(an_instant(jobs, nodes), "elastic-fifo")
    assert not jobs_that_grow(bound)
    assert jobs_that_grow(withdrawn) == {"b"}  # DRAGON-58


def test_room_is_kept_only_for_so_long() -> None:
    """DRAGON-59: and the decision has a time to decide again."""
    jobs, pod = [running("a", (1, 4), {"n0": 2})], a_pod(devices=2, since=10)
    waiting = decided(an_instant(jobs, some_nodes(4), pod, now=100), "elastic-fifo")
    assert waiting.actions == []
    assert waiting.decision.until == 610
    assert jobs_that_grow(decided(an_instant(jobs, some_nodes(4), pod, now=610), "elastic-fifo")) == {"a"}


def test_pod_that_no_node_can_hold_stops_no_job() -> None:
    """DRAGON-59."""
    jobs = [running("a", (1, 4), {"n0": 3}), a_job("b", 1, submit=0)]
    result = decided(an_instant(jobs, some_nodes(4), a_pod(devices=5)), "elastic-fifo")
    assert result.actions == [("START", "b")]


def test_pod_that_fits_into_free_capacity_costs_no_job_anything() -> None:
    jobs = [running("a", (1, 4), {"n0": 3})]
    assert decided(an_instant(jobs, some_nodes(4), a_pod()), "elastic-fifo").actions == []


def test_room_is_made_where_it_costs_least() -> None:
    """Both could give one worker; a large job would have to pause eight devices for it, a small one two."""
    jobs = [running("large", (1, 8), {"n0": 8}), running("small", (1, 2), {"n1": 2})]
    instant = an_instant(jobs, some_nodes(8, 2), a_pod(), restart_seconds=30)
    assert decided(instant, "elastic-fifo").actions == [("SHRINK", "small")]


def test_jobs_are_stopped_only_if_shrinking_helps_nowhere() -> None:
    jobs = [running("rigid", 4, {"n0": 4}), running("elastic", (1, 4), {"n1": 4})]  # type: ignore[arg-type]
    assert decided(an_instant(jobs, some_nodes(4, 4), a_pod(devices=3)), "fifo").actions == [("SHRINK", "elastic")]
    stopped = decided(an_instant(jobs, some_nodes(4, 4), a_pod(devices=4)), "fifo")
    assert [kind for kind, _ in stopped.actions] == ["STOP"]
    assert "to make room for serving pod chat" in next(iter(stopped.reasons.values()))


def test_the_last_resort_can_be_ruled_out_or_given_a_limit() -> None:
    jobs = [running("rigid", 4, {"n0": 4})]  # type: ignore[arg-type]
    instant = an_instant(jobs, some_nodes(4), a_pod(), restart_seconds=30)
    for reservation, stops in (("serving", True), ("serving:preempt=false", False), ("serving:most=100", False)):
        plan = decide(instant, make_rules("fifo", "stay", reservation=reservation)).plan
        assert bool(plan.actions) == stops


def test_several_pods_are_seen_to_in_the_order_in_which_they_came() -> None:
    """The first gets the free device, the second has room made for it; a has no more to give for the third."""
    jobs = [running("a", (2, 3), {"n0": 3})]
    pods = [a_pod("late", since=3), a_pod("early", since=1), a_pod("middle", since=2)]
    instant = an_instant(jobs, some_nodes(4), *pods, now=5)
    result = decide(instant, make_rules("elastic-fifo", "stay", reservation="serving:preempt=false"))
    assert [(action.kind.name, action.after.size) for action in result.plan] == [("SHRINK", 2)]
    assert result.reasons[0].who == ("serving pod middle",)


def test_a_pod_of_a_lower_rank_goes_before_one_that_came_earlier() -> None:
    """DRAGON-55."""
    jobs = [running("a", (1, 2), {"n0": 2})]
    pods = [a_pod("early", since=1)._replace(rank=1), a_pod("late", since=2)]
    result = decide(an_instant(jobs, some_nodes(2), *pods, now=5), make_rules("fifo", "stay", reservation="serving"))
    assert result.reasons[0].who == ("serving pod late",)


def test_reservations_cover_cpus_memory_and_fractions_of_devices() -> None:
    jobs = [a_job("a", (1, 4), on={"n0": 4}, slots=(0, 0, 1, 1), devices=0.5, cpus=1, submit=0, first_start=0)]
    nodes = [a_node("n0", 2, cpus=4)]
    part = decided(an_instant(jobs, nodes, a_pod(devices=0.5)), "elastic-fifo", "pack")
    assert part.allocation == {"a": 3}
    cpus = decided(an_instant(jobs, nodes, a_pod(devices=0, cpus=2)), "elastic-fifo", "pack")
    assert cpus.allocation == {"a": 2}


def test_the_first_worker_of_a_job_never_leaves_it() -> None:
    jobs = [running("a", (1, 3), {"n0": 1, "n1": 2})]
    result = decided(an_instant(jobs, [a_node("n0", 1), a_node("n1", 2)], a_pod()), "elastic-fifo")
    assert result.assignments == {"a": {"n0": 1, "n1": 1}}


def test_pods_are_ignored_without_a_reservation_rule() -> None:
    instant = an_instant([running("a", (1, 4), {"n0": 4})], some_nodes(4), a_pod())
    assert not decide(instant, make_rules("elastic-fifo", "stay", reservation="none")).plan.actions


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), pods=st.integers(1, 5), policy=st.sampled_from(["elastic-fifo", "fifo", "dragon"]))
def test_freeing_capacity_converges_and_never_over_commits(seed: int, pods: int, policy: str) -> None:
    random = np.random.default_rng(seed)
    jobs = [
        a_job(f"j{number}", (int(least), int(least + random.integers(0, 4))), submit=float(number), remaining=1e6)
        for number, least in enumerate(random.integers(1, 4, 8))
    ]
    snapshot = a_snapshot(jobs, some_nodes(4, 4, 2), now=100.0)
    for _ in range(20):
        decision = decide(snapshot, make_rules(policy, "stay"))
        if not decision.plan.actions:
            break
        snapshot = after(snapshot, decision)
    waiting = tuple(a_pod(f"p{number}", int(random.integers(1, 4)), since=100.0) for number in range(pods))
    for _ in range(20):
        instant = replace(snapshot, serving=waiting)
        decision = decide(instant, make_rules(policy, "stay"))
        check(decision.plan, instant)
        if not decision.plan.actions:
            break
        snapshot = after(snapshot, decision)
    else:
        raise AssertionError("reservations and the policy undo one another")
    room = Serving()(replace(snapshot, serving=waiting))
    assert not room.actions
    assert room.until in (NEVER, 700.0)
