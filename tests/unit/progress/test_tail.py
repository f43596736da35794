"""A file that grows, is truncated or replaced is tailed without losing a line."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sterna.progress.tail import MOST_BYTES, Tail


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_whole_lines_come_once_and_a_half_one_waits(tmp_path: Path) -> None:
    path = tmp_path / "f"
    tail = Tail(path)
    assert tail.lines() == []
    _append(path, b"one\ntw")
    assert tail.lines() == [b"one"]
    assert tail.lines() == []
    _append(path, b"o\n")
    assert tail.lines() == [b"two"]
    _append(path, b"rest")
    assert tail.lines() == []
    assert tail.lines(is_last=True) == [b"rest"]
    assert tail.lines(is_last=True) == []
    tail.close()


def test_a_file_that_was_cut_off_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "f"
    tail = Tail(path)
    _append(path, b"one\ntwo\n")
    tail.lines()
    path.write_bytes(b"new\n")
    assert tail.lines() == [b"new"]
    assert tail.restarts == 1
    tail.close()


def test_a_file_that_was_rotated_is_read_to_its_end_and_then_its_successor(tmp_path: Path) -> None:
    path = tmp_path / "f"
    tail = Tail(path)
    _append(path, b"one\n")
    assert tail.lines() == [b"one"]
    _append(path, b"two\n")
    path.rename(tmp_path / "f.1")
    _append(path, b"three\n")
    found: list[bytes] = []
    for _ in range(3):
        tail._check_at = 0
        found += tail.lines()
    assert found == [b"two", b"three"]
    tail.close()


def test_a_reader_that_comes_back_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "f"
    first = Tail(path)
    _append(path, b"one\ntwo\nhal")
    first.lines()
    position = first.position
    first.close()
    assert first.position == position
    _append(path, b"f\n")
    assert Tail(path, position).lines() == [b"half"]
    os.unlink(path)
    _append(path, b"other\n")
    assert Tail(path, position).lines() == [b"other"]


def test_a_line_that_is_longer_than_a_look_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "f"
    tail = Tail(path)
    _append(path, b"x" * (2 * MOST_BYTES + 10) + b"\nnext\n")
    assert [line for _ in range(4) for line in tail.lines()] == [b"next"]
    tail.close()


def test_a_log_that_is_far_ahead_is_read_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "f"
    _append(path, b"".join(b"line %d\n" % number for number in range(400_000)))
    tail = Tail(path, is_log=True)
    found = tail.lines()
    assert found[-1] == b"line 399999"
    assert len(found) < 40_000
    every = Tail(path)
    assert sum(len(every.lines()) for _ in range(40)) == 400_000
    every.close()
    tail.close()


def test_a_folder_or_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    assert Tail(tmp_path).lines() == []
    assert Tail(tmp_path / "missing" / "f").lines(is_last=True) == []


@given(pieces=st.lists(st.binary(max_size=20), max_size=20))
def test_however_it_is_written_the_lines_are_the_same(pieces: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "f"
        tail = Tail(path)
        found: list[bytes] = []
        for piece in pieces:
            _append(path, piece)
            found += tail.lines()
        found += tail.lines(is_last=True)
        tail.close()
    assert found == [line for line in b"".join(pieces).split(b"\n") if line]
