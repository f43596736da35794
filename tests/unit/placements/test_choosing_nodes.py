"""Nodes that a job gets: packing, labels, taints, CPU, memory. VODA-82 to 84, 91, DRAGON-15 to 18, 31, 36, 41."""

from __future__ import annotations

import gc

import pytest

from tests.builders import a_job, a_node, a_snapshot, after, decided, some_nodes

TIGHT = pytest.mark.parametrize("placement", ["stay", "pack", "topology"])
ALL = pytest.mark.parametrize("placement", ["stay", "pack", "topology", "spread"])


@TIGHT
@pytest.mark.parametrize(
    ("sizes", "nodes", "shapes"),
    [
        pytest.param((3, 3, 2, 2, 2), (4, 4, 4), [[3], [3], [2], [2], [1, 1]], id="P1"),
        pytest.param((6, 2), (4, 4), [[4, 2], [2]], id="P2"),
        pytest.param((5, 3), (4, 4), [[4, 1], [3]], id="P2 the other way"),
        pytest.param((8,), (4, 4), [[4, 4]], id="P3"),
        pytest.param((3, 3, 3, 3), (4, 4, 4), [[3], [3], [3], [1, 1, 1]], id="P4"),
        pytest.param((4, 2, 2), (4, 4), [[4], [2], [2]], id="P5"),
        pytest.param((3, 2, 1), (1, 2, 3), [[3], [2], [1]], id="unequal nodes, tightest first"),
        pytest.param((7,), (2, 5, 3), [[5, 2]], id="unequal nodes, emptiest first, then tightest"),
        pytest.param((1, 6), (2, 6), [[1], [6]], id="larger jobs first"),
    ],
)
def test_packing(placement: str, sizes: tuple[int, ...], nodes: tuple[int, ...], shapes: list[list[int]]) -> None:
    """VODA-82, 83, 84: workers by node, most first, of each job in turn."""
    jobs = [a_job(f"j{number}", size) for number, size in enumerate(sizes)]
    assignments = decided(a_snapshot(jobs, some_nodes(*nodes)), "fifo", placement).assignments
    assert [sorted(assignments[job.name].values(), reverse=True) for job in jobs] == shapes
    for number, devices in enumerate(nodes):
        assert sum(assignment.get(f"n{number}", 0) for assignment in assignments.values()) <= devices


def test_spread_takes_the_emptiest_node_for_each_worker() -> None:
    nodes = some_nodes(4, 2, 3)
    assert decided(a_snapshot([a_job("a", 4)], nodes), "fifo", "spread").assignments == {"a": {"n0": 3, "n2": 1}}
    assert decided(a_snapshot([a_job("a", 5)], nodes), "fifo", "spread").assignments == {
        "a": {"n0": 3, "n1": 1, "n2": 1}
    }


def test_spread_puts_single_workers_in_turn_too() -> None:
    """As many as are placed in one step: each on the node that is emptiest then."""
    jobs = [a_job(f"j{number:02d}", 1) for number in range(14)]
    assignments = decided(a_snapshot(jobs, some_nodes(6, 4, 5)), "fifo", "spread").assignments
    free = {"n0": 6, "n1": 4, "n2": 5}
    for job in jobs:
        (node,) = assignments[job.name]
        assert free[node] == max(free.values())
        free[node] -= 1


@TIGHT
def test_many_equal_jobs_are_placed_as_one_by_one_would(placement: str) -> None:
    """VODA-82: each on the tightest node that still holds it."""
    for count in (3, 11, 12, 20):
        jobs = [a_job(f"j{number:02d}", 2) for number in range(count)]
        assignments = decided(a_snapshot(jobs, some_nodes(9, 7, 8, 3, 2)), "fifo", placement).assignments
        free = [9, 7, 8, 3, 2]
        for job in jobs[: 4 + 3 + 4 + 1 + 1]:
            node = min((n for n in range(5) if free[n] >= 2), key=lambda n: (free[n], n))
            assert assignments[job.name] == {f"n{node}": 2}
            free[node] -= 2


@ALL
@pytest.mark.parametrize(("workers", "devices"), [(1, 1), (1, 2), (2, 3), (9, 1), (13, 1), (16, 1), (5, 2)])
def test_a_job_gets_the_same_nodes_however_many_equal_ones_start_with_it(
    placement: str, workers: int, devices: int
) -> None:
    """From twelve on they are placed in one step, as far as each fits on a node."""
    nodes = [a_node(f"n{number:02d}", 8, rack=number // 3) for number in range(36)]
    busy = [
        a_job(f"x{number:02d}", number % 7 + 1, on={f"n{number:02d}": number % 7 + 1}) for number in range(0, 36, 5)
    ]
    few, many = (
        decided(
            a_snapshot([*busy, *(a_job(f"j{n:02d}", workers, devices=devices, submit=1) for n in range(count))], nodes),
            "fifo",
            placement,
        ).assignments
        for count in (11, 12)
    )
    assert {name: many[name] for name in few} == few


def test_topology_keeps_many_jobs_larger_than_a_node_in_a_rack_each() -> None:
    nodes = [a_node(f"n{number:02d}", 8, rack=number % 12) for number in range(36)]
    jobs = [a_job(f"j{number:02d}", 16) for number in range(12)]
    assignments = decided(a_snapshot(jobs, nodes), "fifo", "topology").assignments
    assert len(assignments) == 12
    assert all(len({int(node[1:]) % 12 for node in assignment}) == 1 for assignment in assignments.values())


@ALL
def test_jobs_that_need_nothing_of_a_node_are_placed_however_many(placement: str) -> None:
    """Containers without requests share a node's cores; nothing bounds their number."""
    jobs = [a_job(f"j{number:02d}", 1, devices=0) for number in range(13)]
    assert len(decided(a_snapshot(jobs, some_nodes(1, 1)), "fifo", placement).assignments) == 13


@ALL
def test_a_selector_keeps_workers_on_nodes_that_carry_its_labels(placement: str) -> None:
    nodes = [a_node("n0", 4), a_node("n1", 4, labels={"gpu": "a100"}), a_node("n2", 4, labels={"gpu": "t4"})]
    job = a_job("a", (2, 8), selector={"gpu": "a100"})
    assert decided(a_snapshot([job], nodes), "elastic-fifo", placement).assignments == {"a": {"n1": 4}}


@ALL
def test_a_tainted_node_gets_nothing_but_jobs_that_tolerate_it(placement: str) -> None:
    """DRAGON-17."""
    nodes = [a_node("n0", 2, taints=("lab",)), a_node("n1", 2)]
    jobs = [a_job("plain", (1, 4)), a_job("lab", (1, 4), tolerates=("lab",), submit=1)]
    assignments = decided(a_snapshot(jobs, nodes), "elastic-fifo", placement).assignments
    assert set(assignments["plain"]) == {"n1"}
    assert assignments["lab"].get("n0") == 2
    all_tolerant = a_job("a", 4, tolerates=("*",))
    assert decided(a_snapshot([all_tolerant], nodes), "fifo", placement).assignments == {"a": {"n0": 2, "n1": 2}}


@ALL
def test_a_closed_node_gets_nothing_and_keeps_what_it_has(placement: str) -> None:
    nodes = [a_node("n0", 4, is_open=False), a_node("n1", 4)]
    jobs = [a_job("old", (1, 4), on={"n0": 1}), a_job("new", 2, submit=1)]
    result = decided(a_snapshot(jobs, nodes), "elastic-fifo", placement)
    assert result.assignments["new"] == {"n1": 2}
    assert result.assignments["old"].get("n0") == 1
    assert ("STOP", "old") not in result.actions


@ALL
def test_cpu_and_memory_count_beside_devices(placement: str) -> None:
    nodes = [a_node("n0", 8, cpus=4, memory_bytes=100), a_node("n1", 8, cpus=8, memory_bytes=30)]
    job = a_job("a", (1, 16), cpus=2, memory_bytes=10)
    assert decided(a_snapshot([job], nodes), "elastic-fifo", placement).assignments == {"a": {"n0": 2, "n1": 3}}


@ALL
def test_what_others_hold_is_not_ours(placement: str) -> None:
    """DRAGON-18."""
    nodes = [a_node("n0", 4, cpus=8, foreign_devices=3), a_node("n1", 4, cpus=8, foreign_cpus=6)]
    job = a_job("a", (1, 8), cpus=1)
    assert decided(a_snapshot([job], nodes), "elastic-fifo", placement).assignments == {"a": {"n0": 1, "n1": 2}}


@ALL
def test_workers_of_several_devices_do_not_straddle_nodes(placement: str) -> None:
    """Eight devices, but only two workers of three."""
    result = decided(a_snapshot([a_job("a", (1, 9), devices=3)], some_nodes(4, 4)), "elastic-fifo", placement)
    assert result.assignments == {"a": {"n0": 1, "n1": 1}}


@ALL
def test_devices_held_on_a_closed_node_do_not_come_back_when_a_job_leaves_it(placement: str) -> None:
    """VODA-91: the policy counts them, the placement cannot use them; no job is stopped for them."""
    nodes = [a_node("n0", 4, is_open=False), a_node("n1", 4)]
    jobs = [a_job("older", 6), a_job("younger", 4, submit=1, on={"n0": 4})]
    assert decided(a_snapshot(jobs, nodes), "fifo", placement).actions == []


# Racks.


def test_topology_takes_fewest_racks_then_fewest_nodes() -> None:
    nodes = [a_node(f"n{number}", 4, rack=number // 2) for number in range(6)]
    busy = [a_job("x", 2, on={"n0": 2}), a_job("y", 4, on={"n3": 4})]
    assignments = decided(a_snapshot([*busy, a_job("a", 6, submit=1)], nodes), "fifo", "topology").assignments
    assert assignments["a"] == {"n1": 4, "n0": 2}
    assignments = decided(a_snapshot([*busy, a_job("a", 8, submit=1)], nodes), "fifo", "topology").assignments
    assert assignments["a"] == {"n4": 4, "n5": 4}


def test_topology_grows_a_job_inside_its_rack() -> None:
    nodes = [a_node(f"n{number}", 2, rack=number % 2) for number in range(4)]
    job = a_job("a", (1, 4), on={"n2": 2})
    assert decided(a_snapshot([job], nodes), "elastic-fifo", "topology").assignments == {"a": {"n2": 2, "n0": 2}}


# Parameter servers.


@pytest.mark.parametrize("placement", ["pack", "stay", "topology"])
def test_one_node_for_the_whole_job_with_its_parameter_servers(placement: str) -> None:
    """DRAGON-15: n0 holds the workers, but not the servers beside them."""
    nodes = [a_node("n0", 4, cpus=4), a_node("n1", 4, cpus=8)]
    job = a_job("a", 4, cpus=1, ps=2, ps_cpus=2)
    result = decided(a_snapshot([job], nodes), "fifo", placement)
    (action,) = result.decision.plan
    assert (action.after.workers, action.after.ps) == (((1, 4),), ((1, 2),))


def test_pack_fills_the_node_that_holds_most_and_overflows() -> None:
    """DRAGON-16: servers first, then as many workers as fit beside them, the rest where most room is."""
    nodes = [a_node("n0", 2, cpus=8), a_node("n1", 4, cpus=8), a_node("n2", 3, cpus=8)]
    (action,) = decided(a_snapshot([a_job("a", 6, ps=1, ps_cpus=1)], nodes), "fifo", "pack").decision.plan
    assert action.after.ps == ((1, 1),)
    assert action.after.workers == ((1, 4), (2, 2))


@ALL
def test_a_job_whose_parameter_servers_do_not_fit_has_no_replica_at_all(placement: str) -> None:
    """DRAGON-12: and what was tried for it is free for the next."""
    nodes = [a_node("n0", 4, cpus=3)]
    jobs = [a_job("a", 1, ps=2, ps_cpus=2), a_job("b", 4, submit=1)]
    assert decided(a_snapshot(jobs, nodes), "fifo", placement).assignments == {"b": {"n0": 4}}


@pytest.mark.parametrize("placement", ["pack", "stay", "topology"])
def test_growth_goes_beside_the_parameter_servers_while_there_is_room(placement: str) -> None:
    """DRAGON-31."""
    nodes = [a_node("n0", 4, cpus=8), a_node("n1", 3, cpus=8)]
    job = a_job("a", (1, 5), cpus=1, ps=1, ps_cpus=1, on={"n1": 1}, ps_on={"n1": 1})
    assert decided(a_snapshot([job], nodes), "elastic-fifo", placement).assignments == {"a": {"n1": 3, "n0": 2}}


def test_growth_prefers_the_servers_node_to_the_workers_own() -> None:
    """DRAGON-31: the first worker had to sit elsewhere; now there is room beside the server."""
    nodes = [a_node("n0", 4, cpus=8), a_node("n1", 4, cpus=8)]
    job = a_job("a", (1, 2), ps=1, ps_cpus=1, on={"n1": 1}, ps_on={"n0": 1})
    assert decided(a_snapshot([job], nodes), "elastic-fifo", "pack").assignments == {"a": {"n1": 1, "n0": 1}}


# Parts of devices.


@ALL
def test_parts_share_a_device_only_if_they_fit_together(placement: str) -> None:
    """DRAGON-36: two of 0.6 never, two of 0.5 always."""
    for part, assignments in ((0.6, 1), (0.5, 2), (0.4, 2), (0.3, 3)):
        jobs = [a_job(f"j{number}", 1, devices=part) for number in range(4)]
        assert len(decided(a_snapshot(jobs, some_nodes(1)), "fifo", placement).assignments) == assignments


@ALL
def test_a_part_goes_where_least_is_left_over(placement: str) -> None:
    """A device shared already is filled before another is opened, so that whole devices stay whole."""
    jobs = [
        a_job("x", 1, devices=0.5, on={"n0": 1}, slots=(0,)),
        a_job("y", 1, devices=0.3, submit=1),
        a_job("whole", 1, submit=2),
    ]
    result = decided(a_snapshot(jobs, some_nodes(2)), "fifo", placement)
    assert result.allocation == {"x": 1, "y": 1, "whole": 1}


@ALL
def test_shared_device_is_whole_again_when_no_job_uses_it(placement: str) -> None:
    """DRAGON-41."""
    jobs = [a_job("older", 1), a_job("younger", 2, submit=1, devices=0.5, on={"n0": 2}, slots=(0, 0))]
    result = decided(a_snapshot(jobs, some_nodes(1)), "fifo", placement)
    assert result.actions == [("STOP", "younger"), ("START", "older")]


@ALL
def test_half_a_device_that_is_left_is_not_a_whole_one(placement: str) -> None:
    """0.5 + 0.5 are free, on two devices: no job is stopped or started."""
    jobs = [
        a_job("x", 1, devices=0.5, on={"n0": 1}, slots=(0,)),
        a_job("y", 1, devices=0.5, on={"n0": 1}, slots=(1,)),
        a_job("whole", 1, submit=1),
    ]
    result = decided(a_snapshot(jobs, some_nodes(2)), "fifo", placement)
    assert result.actions == []
    assert result.reasons["whole"].startswith("waits: 1 ")


@ALL
def test_a_job_of_parts_that_shrinks_gives_back_its_last_parts(placement: str) -> None:
    jobs = [a_job("older", 1, submit=0), a_job("x", (1, 3), devices=0.5, submit=1, on={"n0": 3}, slots=(0, 0, 1))]
    snapshot = a_snapshot(jobs, some_nodes(2))
    result = decided(snapshot, "fifo", placement)
    assert result.allocation == {"older": 1, "x": 1}
    assert after(snapshot, result.decision).nodes.shared == {0: {0: 500}}


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_start_of_many_jobs_leaves_the_garbage_collector_as_it_was(is_enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if is_enabled else gc.disable)()
        started = decided(a_snapshot([a_job(f"j{number}", (1, 2)) for number in range(300)], 400), "elastic-fifo")
        assert len(started.actions) == 300
        assert gc.isenabled() == is_enabled
    finally:
        (gc.enable if before else gc.disable)()
