"""How much of a file is read: all of a real one, and no more than that of what has no end."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sterna.errors import UserError
from sterna.workloads.text import read_text

WriteFile = Callable[[str | bytes], Path]

MEBIBYTE = 1 << 20


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
def test_a_file_may_hold_so_much_and_no_more(write_file: WriteFile, pack: Callable[[bytes], bytes]) -> None:
    path = write_file(pack(b"a" * MEBIBYTE))
    assert len(read_text(path, most_bytes=MEBIBYTE)) == MEBIBYTE
    path = write_file(pack(b"a" * (MEBIBYTE + 1)))
    with pytest.raises(UserError, match="this holds more than 1 MiB, which is not read; give a smaller file"):
        read_text(path, most_bytes=MEBIBYTE)


def test_a_gzipped_file_may_have_several_members_and_padding(write_file: WriteFile) -> None:
    path = write_file(gzip.compress(b"one\n") + gzip.compress(b"two\n") + b"\0" * 512)
    assert read_text(path) == "one\ntwo\n"


def test_a_member_that_is_cut_off_is_noticed_behind_a_whole_one(write_file: WriteFile) -> None:
    path = write_file(gzip.compress(b"one\n") + gzip.compress(b"two\n" * 99)[:-9])
    with pytest.raises(UserError, match="the gzip data is damaged or cut off"):
        read_text(path)


def test_a_path_may_not_be_empty() -> None:
    with pytest.raises(UserError, match="The path of a file is empty; give a CSV or JSON file"):
        read_text("")


def test_binary_data_is_refused_before_all_of_it_is_read() -> None:
    with pytest.raises(UserError, match="/dev/zero, line 1: found binary data"):
        read_text("/dev/zero")


def test_text_without_an_end_is_refused() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "while True: print('a: 1' * 1000)"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as endless:
        assert endless.stdout is not None
        with pytest.raises(UserError, match="this holds more than 4 MiB"):
            read_text(f"/dev/fd/{endless.stdout.fileno()}", most_bytes=4 * MEBIBYTE)
        endless.kill()
