"""Fragmented free devices: relaxation of the target, and `stay:repack=`. VODA-85."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from tests.builders import AJob, a_job, a_node, a_snapshot, after, decided, some_nodes, spec_of

ALL = pytest.mark.parametrize("placement", ["stay", "pack", "topology", "spread"])


def spread_jobs(*more: AJob) -> list[AJob]:
    """Two of four devices taken on each of three nodes, and then some."""
    return [a_job(f"y{number}", 2, submit=5 + number, on={f"n{number}": 2}) for number in range(3)] + list(more)


@ALL
def test_no_job_is_stopped_in_vain_for_workers_of_a_whole_node(placement: str) -> None:
    """By count `older` fits once y2 is stopped; but only one node would be empty, and it needs two."""
    older = a_job("older", 2, devices=4)
    result = decided(a_snapshot(spread_jobs(older), some_nodes(4, 4, 4)), "fifo", placement)
    assert result.actions == []
    assert result.reasons["older"].startswith("waits: ")


@ALL
def test_what_cannot_be_placed_makes_way_for_the_next(placement: str) -> None:
    """Six devices are free, two on each node: nothing for a worker of four, enough for four of one."""
    older, next_one = a_job("older", 1, devices=4), a_job("next", 4, submit=1)
    result = decided(a_snapshot(spread_jobs(older, next_one), some_nodes(4, 4, 4)), "fifo:preempt=false", placement)
    assert result.allocation == {"older": 0, "next": 4, "y0": 2, "y1": 2, "y2": 2}


@ALL
def test_a_job_that_cannot_have_all_it_was_counted_gets_what_fits(placement: str) -> None:
    """3 + 3 devices are free: by count three workers of two, by nodes two."""
    nodes = some_nodes(4, 4)
    jobs = [a_job("x", 1, on={"n0": 1}), a_job("y", 1, on={"n1": 1}), a_job("a", (1, 3), devices=2, submit=1)]
    result = decided(a_snapshot(jobs, nodes), "elastic-fifo", placement)
    assert result.assignments["a"] == {"n0": 1, "n1": 1}


@ALL
def test_what_one_job_cannot_use_another_of_its_shape_still_can(placement: str) -> None:
    """`big` counts on three workers of two devices, two can be placed: `small` must not stay small for that."""
    nodes = some_nodes(4, 4, 2)
    jobs = [
        a_job("x", 1, on={"n0": 1}),
        a_job("y", 1, on={"n1": 1}),
        a_job("small", (1, 3), devices=2, on={"n2": 1}),
        a_job("big", 3, devices=2, submit=1),
    ]
    result = decided(a_snapshot(jobs, nodes), "elastic-fifo", placement)
    assert result.allocation == {"x": 1, "y": 1, "small": 3, "big": 0}


@ALL
def test_a_request_that_nodes_cannot_hold_is_cut_to_what_they_can(placement: str) -> None:
    """Tiresias asks for the request; four of eight workers find a node that suits them, and that is settled."""
    nodes = [a_node("n0", 4, labels={"zone": "a"}), a_node("n1", 12)]
    job = a_job("a", (1, 8), workers=8, selector={"zone": "a"})
    for policy in ("tiresias", "elastic-tiresias", "dragon"):
        assert decided(a_snapshot([job, a_job("b", 16, submit=1)], nodes), policy, placement).allocation["a"] == 4


@ALL
def test_what_is_left_once_a_job_has_been_cut_is_found_at_once(placement: str) -> None:
    """`j6` needs CPUs that only n0 has; it must not take a second look to see that one of its workers fits."""
    nodes = [a_node("n0", 3, cpus=4), a_node("n1", 4)]
    jobs = [a_job("j1", (1, 4)), a_job("j5", (1, 2)), a_job("j6", (1, 2), cpus=2)]
    snapshot = a_snapshot(jobs, nodes)
    first = decided(snapshot, "elastic-fifo", placement)
    assert decided(after(snapshot, first.decision), "elastic-fifo", placement).actions == []


def test_a_small_shape_that_does_not_fit_leaves_room_for_others_in_one_decision() -> None:
    """`j3` uses parts of a device, `j5` a whole one for which `j1` must shrink; both are seen at once."""
    jobs = [
        a_job("j1", (1, 3), on={"n0": 3}),
        a_job("j2", 1, on={"n0": 1}),
        a_job("j3", (1, 2), devices=0.25),
        a_job("j5", 1),
    ]
    snapshot = a_snapshot(jobs, some_nodes(4, 1))
    first = decided(snapshot, "afs-l", "spread")
    assert decided(after(snapshot, first.decision), "afs-l", "spread").actions == []


@ALL
@pytest.mark.parametrize("policy", ["elastic-fifo", "elastic-srjf", "ffdl", "afs-l", "elastic-tiresias"])
def test_no_job_grows_into_the_room_of_anothers_minimum(policy: str, placement: str) -> None:
    """Devices that no job may use are counted, so growth is promised that is not there: growth must give way."""
    tainted = [a_node("n0", 2), a_node("n1", 4, cpus=2), a_node("n2", 4, taints=("lab",))]
    jobs = [a_job("a", (1, 5), ps=1, ps_cpus=1), a_job("b", (1, 2)), a_job("c", (2, 4))]
    assert min(decided(a_snapshot(jobs, tainted), policy, placement).allocation.values()) >= 1
    odd = [a_node("n0", 1, taints=("lab",)), a_node("n1", 4), a_node("n2", 3)]
    jobs = [a_job("a", 1), a_job("b", (1, 4)), a_job("c", (1, 2), devices=2)]
    assert min(decided(a_snapshot(jobs, odd), policy, placement).allocation.values()) >= 1


@ALL
def test_a_minimum_goes_before_growth_though_it_needs_two_devices_of_one_node(placement: str) -> None:
    jobs = [a_job("a", (1, 2), on={"n0": 1}), a_job("b", (1, 3), on={"n0": 1}), a_job("c", 1, devices=2)]
    assert decided(a_snapshot(jobs, some_nodes(3, 3)), "elastic-fifo", placement).allocation["c"] == 1


@ALL
def test_a_small_job_is_not_forgotten_because_a_large_one_was_refused(placement: str) -> None:
    """`big` finds no CPUs for its servers; two devices and two CPUs are left on n1, and `small` needs one of each."""
    nodes = [a_node("n0", 4, cpus=4), a_node("n1", 2, cpus=2), a_node("n2", 4, cpus=8)]
    jobs = [
        a_job("wide", (1, 5), ps=1, ps_cpus=1, priority=-2, on={"n0": 3, "n1": 2}, ps_on={"n0": 1}),
        a_job("one", 3, ps=2, ps_cpus=2),
        a_job("big", 3, cpus=1, ps=2, ps_cpus=2),
        a_job("two", 3, ps=1, ps_cpus=1),
        a_job("small", 1, cpus=1, submit=1),
    ]
    result = decided(a_snapshot(jobs, nodes), "fifo", placement)
    assert result.allocation["small"] == 1 or result.allocation["big"] == 3


@ALL
def test_a_job_with_a_worker_on_a_closed_node_still_grows_on_open_ones(placement: str) -> None:
    nodes = [a_node("n0", 1, is_open=False), a_node("n1", 3)]
    job = a_job("a", (1, 4), on={"n1": 2, "n0": 1})
    assert decided(a_snapshot([job], nodes), "elastic-fifo", placement).assignments == {"a": {"n1": 3, "n0": 1}}


# Re-packing.


def test_a_stuck_job_has_others_moved_aside() -> None:
    """VODA-85: two of three scattered jobs go together, which empties one node; as few workers move as must."""
    snapshot = a_snapshot(spread_jobs(a_job("whole", 1, submit=9, devices=4)), some_nodes(4, 4, 4))
    assert decided(snapshot, "fifo", "stay").allocation["whole"] == 0
    result = decided(snapshot, "fifo", "stay:repack=stuck")
    assert [kind for kind, _ in result.actions] == ["MIGRATE", "START"]
    assert result.allocation == {"y0": 2, "y1": 2, "y2": 2, "whole": 1}


def test_repacking_when_stuck_moves_no_job_if_none_is_stuck() -> None:
    jobs = [a_job("a", 2, on={"n0": 1, "n1": 1}), a_job("b", 1, submit=1)]
    assert decided(a_snapshot(jobs, some_nodes(2, 2)), "fifo", "stay:repack=stuck").actions == [("START", "b")]


def test_repacking_always_brings_scattered_workers_together_at_the_next_change() -> None:
    jobs = [a_job("a", 2, on={"n0": 1, "n1": 1}), a_job("b", 2, on={"n0": 1, "n1": 1}), a_job("c", 2, submit=1)]
    result = decided(a_snapshot(jobs, some_nodes(4, 4)), "fifo", "stay:repack=always")
    assert all(len(assignment) == 1 for assignment in result.assignments.values())
    assert decided(a_snapshot(jobs[:2], some_nodes(4, 4)), "fifo", "stay:repack=always").actions == []


@pytest.mark.parametrize("repack", ["stuck", "always"])
def test_a_full_cluster_is_no_reason_to_fail(repack: str) -> None:
    """The one open node is full and what is free is tainted: there is nothing to re-pack."""
    nodes = [a_node("n0", 4), a_node("n1", 1, taints=("lab",))]
    jobs = [a_job("a", (1, 4), on={"n0": 4}), a_job("b", 1)]
    assert sum(decided(a_snapshot(jobs, nodes), "elastic-fifo", f"stay:repack={repack}").allocation.values()) == 4


@pytest.mark.parametrize("repack", ["stuck", "always"])
def test_jobs_that_no_node_accepts_are_not_moved(repack: str) -> None:
    """A selector, a part of a device and parameter servers tie a job to where it is."""
    nodes = [a_node(f"n{number}", 4, cpus=8, labels={"zone": "a"}) for number in range(3)]
    tied = [
        a_job("s", 1, selector={"zone": "a"}, on={"n0": 1}),
        a_job("p", 1, ps=1, ps_cpus=1, on={"n1": 1}, ps_on={"n1": 1}),
        a_job("f", 1, devices=0.5, on={"n2": 1}, slots=(0,)),
    ]
    result = decided(a_snapshot([*tied, a_job("whole", 1, devices=4)], nodes), "fifo", f"stay:repack={repack}")
    assert result.actions == []


def count_kept(before: list[dict[str, int]], now: list[dict[str, int]]) -> int:
    """Workers that find themselves on the node they were on; by node, workers by job."""
    return sum(min(old.get(job, 0), count) for old, new in zip(before, now, strict=True) for job, count in new.items())


def by_node(jobs: dict[str, dict[str, int]], nodes: int) -> list[dict[str, int]]:
    return [
        {job: assignment[f"n{at}"] for job, assignment in jobs.items() if f"n{at}" in assignment} for at in range(nodes)
    ]


@pytest.mark.parametrize("sizes", [(4, 4, 4, 4), (2, 2, 3, 3), (2, 3, 4, 5)], ids=["equal", "in pairs", "unequal"])
@pytest.mark.parametrize("seed", range(4))
def test_a_repack_keeps_most_workers_in_place(sizes: tuple[int, ...], seed: int) -> None:
    """VODA-85: no other naming of its nodes that holds the same layout would keep more of them where they are."""
    random = Random(seed)
    for _ in range(12):
        jobs = [a_job(f"j{number}", random.randint(1, 4)) for number in range(random.randint(3, 6))]
        placed = a_snapshot(jobs, some_nodes(*sizes))
        placed = after(placed, decided(placed, "fifo", "spread").decision)
        gone = random.choice(jobs).name
        jobs = [job for job in spec_of(placed).jobs if job.name != gone]
        jobs.append(a_job("new", random.randint(1, 5), submit=1))
        old = by_node({job.name: dict(job.on) for job in jobs}, len(sizes))
        result = decided(a_snapshot(jobs, some_nodes(*sizes)), "fifo", "stay:repack=always")
        new = by_node(result.assignments, len(sizes))
        layouts = permutations(new)
        best = max(
            count_kept(old, list(layout))
            for layout in layouts
            if all(sum(here.values()) <= size for here, size in zip(layout, sizes, strict=True))
        )
        assert count_kept(old, new) == best
