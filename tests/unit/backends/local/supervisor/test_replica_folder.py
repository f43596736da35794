"""Files of a replica folder: launch spec, lock, log, and the phase that the launcher derives from them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sterna.backends.local.kernel.proc_table import boot_id
from sterna.backends.local.kernel.record_files import read_record, write_record
from sterna.backends.local.supervisor import kill_tree
from sterna.backends.local.supervisor.kill_tree import survivors
from sterna.backends.local.supervisor.launch_spec import LaunchSpec, groups_of
from sterna.backends.local.supervisor.launcher import Launcher, ReplicaPhase
from sterna.backends.local.supervisor.lock_file import acquire, read_lock, void
from sterna.backends.local.supervisor.log_rotation import Log


def test_launch_spec_round_trips_through_its_file(tmp_path: Path) -> None:
    launch_spec = LaunchSpec(
        token="t", command=["a", "b c"], env={"X": "ü"}, cwd="/", groups=["/g"], cpus=[0, 3], nice=5, uid=7, gid=8
    )
    write_record(str(tmp_path), "launch.json", launch_spec.to_record())
    record = read_record(str(tmp_path), "launch.json")
    assert record is not None
    assert LaunchSpec.from_record(record).to_record() == launch_spec.to_record()
    assert groups_of(str(tmp_path)) == ("/g",)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"token": 1}', '{"token": "t", "command": [], "env": {}}'])
def test_truncated_launch_spec_has_no_groups(tmp_path: Path, content: str) -> None:
    (tmp_path / "launch.json").write_text(content)
    assert groups_of(str(tmp_path)) == ()


def test_first_acquire_wins_the_lock(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert read_lock(folder) is None
    assert acquire(folder)
    assert not acquire(folder)
    assert not void(folder)
    found = read_lock(folder)
    assert found is not None
    assert (found.pid, found.is_void, found.holder_lives()) == (os.getpid(), False, True)
    assert os.listdir(folder) == ["lock"]


def test_void_lock_cannot_be_acquired(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert void(folder)
    assert not acquire(folder)
    assert void(folder)


def test_log_above_its_limit_is_copied_and_truncated(tmp_path: Path) -> None:
    log = Log(str(tmp_path), 100)
    os.write(log.descriptor, b"x" * 60)
    log.look()
    assert not (tmp_path / "out.log.1").exists()
    os.write(log.descriptor, b"y" * 60)
    log.look()
    assert (tmp_path / "out.log").read_bytes() == b""
    assert (tmp_path / "out.log.1").read_bytes() == b"x" * 40 + b"y" * 60, "the last bytes, as many as are allowed"
    os.write(log.descriptor, b"z")
    assert (tmp_path / "out.log").read_bytes() == b"z"
    os.close(log.descriptor)


def test_quiet_log_is_checked_every_60_seconds_and_unlimited_log_never(tmp_path: Path) -> None:
    log = Log(str(tmp_path), 1 << 20)
    log.look()
    assert log.pause_seconds == 60.0
    assert Log(str(tmp_path), 0).pause_seconds is None


def test_recycled_session_id_has_no_survivors(tmp_path: Path) -> None:
    record: dict[str, object] = {"boot_id": boot_id(), "session": os.getsid(0), "ticks": 1}
    write_record(str(tmp_path), "shim.json", record)
    assert survivors(str(tmp_path), ()) == [], "its leader is a younger process than the one that was noted"
    write_record(str(tmp_path), "shim.json", {**record, "boot_id": "another"})
    assert survivors(str(tmp_path), ()) == []


def test_replica_phase_is_derived_from_the_files_of_its_folder(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    assert launcher.inspect(tmp_path / "jobs" / "a" / "1" / "worker-0").phase is ReplicaPhase.ABSENT
    (tmp_path / "launch.json").write_text("{}")
    assert launcher.inspect(tmp_path).phase is ReplicaPhase.ASKED
    (tmp_path / "exit.json").write_text('{"code": 3, "signal": null, "at": 5, "asked": true, "saved": false}')
    found = launcher.inspect(tmp_path)
    assert found.exit is not None
    assert (found.phase, found.exit.code, found.exit.at, found.exit.was_asked) == (ReplicaPhase.ENDED, 3, 5.0, True)


def test_supervisor_and_agent_use_the_same_folder_variable() -> None:
    assert kill_tree.FOLDER_VARIABLE == "STERNA_DIR"
