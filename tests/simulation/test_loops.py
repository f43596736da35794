"""Loops and columns are two ways to the same plans: every action of a whole simulation at the same instant."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from sterna.backends.simulated.nodes import simulated_nodes
from sterna.engine.kernels.native import PLAIN, Loops, installed, machine_code, use
from sterna.engine.placement.free_capacity import Room
from sterna.model.cluster import Shape
from tests.builders import AJob, a_job, a_node, a_snapshot, decided
from tests.properties.worlds import NOW, a_world, snapshot_of
from tests.simulation.runs import a_run

POLICIES = ("fifo", "srjf", "srjf:by=time", "tiresias", "tiresias:promote=0", "tiresias:threshold=300:promote=2")


@pytest.fixture(autouse=True)
def _columns_unless_told() -> Iterator[None]:
    before = machine_code()
    use(None)
    yield
    use(before)


def machine_made() -> Loops:
    """The loops as they were compiled when Sterna was installed."""
    code = installed()
    if code is None:
        pytest.skip("there is no machine code: Sterna was installed without a C compiler")
    return code


def a_crowd(seed: int, **needs: Any) -> list[AJob]:
    """Jobs of one size each, more than fit at once, with ties in everything."""
    random = Random(seed)
    return [
        a_job(
            f"j{number}",
            random.choice((1, 1, 2, 3, 8, 12)),
            submit=float(random.randint(0, 2000)),
            remaining=float(random.choice((100, 300, 300, 2000))) * random.randint(1, 5),
            **needs,
        )
        for number in range(80)
    ]


@pytest.mark.parametrize("needs", [{}, {"devices": 2}], ids=["one device", "two devices"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_loops_do_what_columns_do(policy: str, seed: int, needs: dict[str, Any]) -> None:
    crowd = [*a_crowd(seed, **needs), *[a_job(f"small{number}", submit=number * 50.0) for number in range(20)]]
    with_columns = a_run(crowd, "3x8", policy)
    use(PLAIN)
    with_loops = a_run(crowd, "3x8", policy)
    assert with_loops.log.actions == with_columns.log.actions
    assert with_loops.finish == with_columns.finish
    assert with_columns.world.counters.preemptions


@pytest.mark.parametrize("policy", POLICIES)
def test_machine_code_does_what_columns_do(policy: str) -> None:
    code, crowd = machine_made(), a_crowd(4)
    with_columns = a_run(crowd, "3x8", policy)
    use(code)
    assert a_run(crowd, "3x8", policy).log.actions == with_columns.log.actions


@pytest.mark.parametrize("policy", ["fifo", "srjf", "tiresias", "elastic-fifo", "elastic-srjf", "elastic-tiresias"])
@pytest.mark.parametrize("placement", ["stay", "pack", "none"])
@pytest.mark.parametrize("is_compiled", [False, True], ids=["plain", "compiled"])
def test_loops_know_what_they_do_not_cover(policy: str, placement: str, is_compiled: bool) -> None:
    """Priorities, growth, parts of devices, labels, closed nodes: the same plan, whoever makes it."""
    code = machine_made() if is_compiled else PLAIN
    for seed in range(40):
        snapshot = snapshot_of(a_world(seed, 8, 3, placement))
        with_columns = decided(snapshot, policy, placement)
        use(code)
        with_loops = decided(snapshot, policy, placement)
        use(None)
        assert with_loops.actions == with_columns.actions
        assert with_loops.assignments == with_columns.assignments
        assert with_loops.decision.until == with_columns.decision.until


@pytest.mark.parametrize("policy", ["elastic-fifo", "elastic-srjf", "elastic-tiresias", "ffdl", "dragon"])
def test_jobs_that_may_grow_do_so_as_with_columns(policy: str) -> None:
    """Also one that gets what another leaves, while a third does not fit."""
    crowd = [a_job("a", (1, 2), remaining=1000.0), a_job("b", remaining=100.0), a_job("c", 2, submit=10.0)]
    with_columns = a_run(crowd, "1x2", policy)
    use(PLAIN)
    assert a_run(crowd, "1x2", policy).log.actions == with_columns.log.actions


@pytest.mark.parametrize("policy", ["srjf", "srjf:by=time", "elastic-srjf"])
@pytest.mark.parametrize("known", [0, 30])
def test_many_jobs_of_unknown_length_fill_what_the_others_leave(policy: str, known: int) -> None:
    unknown = [a_job(f"u{number}", remaining=np.nan, submit=50.0 + number) for number in range(20)]
    crowd = [*[a_job(f"k{number}", 5, submit=float(number)) for number in range(known)], *unknown]
    given = decided(a_snapshot(crowd, 8), policy).allocation
    assert sum(given.values()) == 8
    assert given["u0"] == 1
    use(PLAIN)
    assert decided(a_snapshot(crowd, 8), policy).allocation == given


def test_a_cluster_of_which_others_took_more_than_there_is_stops_nobody() -> None:
    crowd = [
        a_job("second", 2, attained=9000.0, executed=9000.0, first_start=1.0, on={"n0": 2}),
        a_job("first", 2, submit=5.0),
    ]
    nodes = [a_node("n0", 4, foreign_devices=7)]
    with_columns = decided(a_snapshot(crowd, nodes, now=NOW), "tiresias").allocation
    assert with_columns == {"second": 2, "first": 0}
    use(PLAIN)
    assert decided(a_snapshot(crowd, nodes, now=NOW), "tiresias").allocation == with_columns


def test_a_job_of_unknown_length_comes_last() -> None:
    crowd = [a_job("unknown", 4, remaining=np.nan), a_job("long", 4, remaining=1e6), a_job("short", 4, remaining=1.0)]
    expected = {"unknown": 0, "long": 4, "short": 4}
    assert decided(a_snapshot(crowd, 8), "srjf").allocation == expected
    use(PLAIN)
    assert decided(a_snapshot(crowd, 8), "srjf").allocation == expected


@pytest.mark.parametrize("name", ["remaining", "attained", "executed"])
def test_what_machine_code_makes_may_not_be_written_to_either(name: str) -> None:
    use(machine_made())
    jobs = a_run([a_job("a")], "1x1", "fifo").world.observe().jobs
    assert not getattr(jobs, name).flags.writeable


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("is_compiled", [False, True], ids=["plain", "compiled"])
def test_equal_jobs_larger_than_a_node_sit_where_the_numpy_kernels_put_them(seed: int, is_compiled: bool) -> None:
    random = Random(seed)
    nodes = simulated_nodes(",".join(f"{random.randint(1, 4)}x{random.randint(1, 8)}" for _ in range(6)))
    shape, count, jobs = Shape(devices=random.choice((1000, 2000))), random.randint(5, 20), random.randint(1, 15)
    room = Room(nodes)
    with_columns = room.tightest_many(shape, count, jobs)
    use(machine_made() if is_compiled else PLAIN)
    with_loops = Room(nodes)
    assert with_loops.tightest_many(shape, count, jobs) == with_columns
    assert (with_loops.free == room.free).all()
    assert (room.free >= 0).all()
