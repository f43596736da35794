"""Process table entries parsed from /proc/<pid>/stat."""

from __future__ import annotations

import os

import pytest

from sterna.backends.local.kernel.proc_table import Process, descendants


def a_process(pid: int, parent: int, state: str = "S", command: str = "sh") -> Process:
    rest = " ".join(str(number) for number in range(100, 150))
    return Process(pid, f"{pid} ({command}) {state} {parent} 7 8 0 0 0 0 0 0 0 250 150 100 0 {rest}".encode())


def test_command_can_contain_brackets_and_blanks() -> None:
    found = a_process(5, 4, command="a) R 1 (b")
    assert (found.pid, found.parent, found.session, found.state) == (5, 4, 8, "S")
    assert found.cpu_seconds * os.sysconf("SC_CLK_TCK") == 400


@pytest.mark.parametrize(("state", "is_gone"), [("Z", True), ("X", True), ("R", False), ("D", False), ("T", False)])
def test_zombies_are_gone(state: str, is_gone: bool) -> None:
    assert a_process(5, 4, state).is_gone is is_gone


def test_descendants_exclude_the_roots() -> None:
    table = [a_process(2, 1), a_process(3, 2), a_process(4, 3), a_process(9, 1), a_process(10, 9)]
    assert {each.pid for each in descendants(table, {2})} == {3, 4}
    assert {each.pid for each in descendants(table, {2, 9})} == {3, 4, 10}
