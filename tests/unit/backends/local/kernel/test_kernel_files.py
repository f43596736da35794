"""Record files and control group files on a real file system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sterna.backends.local.kernel import cgroup_files
from sterna.backends.local.kernel.record_files import read_record, write_record


def test_write_record_does_not_follow_symbolic_links(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / f"exit.json.{os.getpid()}").symlink_to(precious)
    write_record(str(folder), "exit.json", {"code": 0})
    assert precious.read_text() == "kept"
    assert read_record(str(folder), "exit.json") == {"code": 0}


def test_failed_write_names_its_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"cpu\.shares"):
        cgroup_files.write(str(tmp_path), "cpu.shares", "1")
    with pytest.raises(OSError, match="sterna-none"):
        cgroup_files.make(str(tmp_path / "missing" / "sterna-none"))
    assert cgroup_files.members(str(tmp_path)) == []
