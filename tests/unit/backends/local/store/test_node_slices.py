"""Parsing of `--nodes` and the division of a machine into nodes."""

from __future__ import annotations

import pytest

from sterna.backends.local.store.node_slices import Machine, slice_machine, this_machine
from sterna.errors import UserError
from sterna.model.cluster import ResourceKind

GIB = 1 << 30
FOUR = Machine((0, 1, 2, 3), 0, 16 * GIB)
WITH_GPUS = Machine(tuple(range(8)), 2, 64 * GIB)


@pytest.mark.parametrize(
    ("spec", "machine", "cores", "devices"),
    [
        ("auto", FOUR, [(0,), (1,), (2,), (3,)], [0, 0, 0, 0]),
        ("auto", Machine((3,), 0, GIB), [(3,), (3,)], [0, 0]),
        ("auto", WITH_GPUS, [(0, 1, 2, 3), (4, 5, 6, 7)], [1, 1]),
        ("2x1cpu", FOUR, [(0,), (1,)], [0, 0]),
        ("1x2cpu,2x1cpu", FOUR, [(0, 1), (2,), (3,)], [0, 0, 0]),
        ("2x3cpu", FOUR, [(0, 1, 2), (0, 1, 3)], [0, 0]),
        ("1x4cpu2gpu, 1x4cpu", WITH_GPUS, [(0, 1, 2, 3), (4, 5, 6, 7)], [2, 0]),
        ("2x2cpu+1gpu+8gb", WITH_GPUS, [(0, 1), (2, 3)], [1, 1]),
    ],
)
def test_nodes_get_cores_and_devices_in_order(
    spec: str, machine: Machine, cores: list[tuple[int, ...]], devices: list[int]
) -> None:
    slices = slice_machine(spec, machine)
    assert [node.cores for node in slices.nodes] == cores
    assert [len(node.devices) for node in slices.nodes] == devices
    given = [device for node in slices.nodes for device in node.devices]
    assert len(given) == len(set(given))
    table = slices.table()
    assert table.capacity[ResourceKind.CPUS].tolist() == [1000 * len(each) for each in cores]


def test_overcommitted_nodes_carry_a_notice() -> None:
    assert "6 cores of 4" in slice_machine("2x3cpu", FOUR).nodes[0].notice
    assert not slice_machine("2x2cpu", FOUR).nodes[0].notice


def test_memory_is_divided_by_cores_unless_the_spec_names_it() -> None:
    assert [node.memory_bytes for node in slice_machine("2x1cpu", FOUR).nodes] == [4 * GIB, 4 * GIB]
    said = slice_machine("1x1cpu2gb", FOUR).nodes[0]
    assert said.memory_bytes == 2 * GIB
    assert said.limits_memory


@pytest.mark.parametrize("spec", ["2x1cpu,shared", "shared,2x1cpu", "2x1cpu, shared: true"])
def test_spec_can_make_nodes_shared(spec: str) -> None:
    slices = slice_machine(spec, FOUR)
    assert slices.is_shared
    assert len(slices) == 2
    assert slice_machine("2x1cpu", FOUR, shared=True).is_shared
    assert not slice_machine("2x1cpu", FOUR).is_shared


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("many", "not of the form"),
        ("2x", "not of the form"),
        ("٢x1cpu", "not of the form"),
        ("1_0x1cpu", "not of the form"),
        ("0x1cpu", "at least one CPU"),
        ("2x0cpu", "at least one CPU"),
        ("1x5cpu", "more than this machine has"),
        ("1x1cpu1gpu", "has none that answer"),
        ("2x1cpu,,", "not of the form"),
    ],
)
def test_impossible_spec_is_rejected_with_a_message(spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        slice_machine(spec, FOUR)


def test_this_machine_has_cores_and_memory() -> None:
    here = this_machine()
    assert here.cores
    assert here.memory_bytes > 1 << 20
