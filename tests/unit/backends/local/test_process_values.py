"""What is read from the process table and from a replica's folder, values in and values out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sterna.backends.local.cgroups.leaf import groups_to_enter, leaf_name, leaves, pins_cores
from sterna.backends.local.kernel import cgroup_files
from sterna.backends.local.kernel.proc_table import Process, boot_id, descendants
from sterna.backends.local.kernel.record_files import read_record, write_record
from sterna.backends.local.supervisor import kill_tree
from sterna.backends.local.supervisor.kill_tree import survivors
from sterna.backends.local.supervisor.launch_spec import LaunchSpec, groups_of
from sterna.backends.local.supervisor.launcher import Launcher, ReplicaPhase
from sterna.backends.local.supervisor.lock_file import acquire, read_lock, void
from sterna.backends.local.supervisor.log_rotation import Log


def a_process(pid: int, parent: int, state: str = "S", command: str = "sh") -> Process:
    rest = " ".join(str(number) for number in range(100, 150))
    return Process(pid, f"{pid} ({command}) {state} {parent} 7 8 0 0 0 0 0 0 0 250 150 100 0 {rest}".encode())


def test_a_command_may_hold_brackets_and_blanks() -> None:
    found = a_process(5, 4, command="a) R 1 (b")
    assert (found.pid, found.parent, found.session, found.state) == (5, 4, 8, "S")
    assert found.cpu_seconds * os.sysconf("SC_CLK_TCK") == 400


@pytest.mark.parametrize(("state", "is_gone"), [("Z", True), ("X", True), ("R", False), ("D", False), ("T", False)])
def test_zombies_are_gone(state: str, is_gone: bool) -> None:
    assert a_process(5, 4, state).is_gone is is_gone


def test_descendants_are_all_below_and_not_the_roots() -> None:
    table = [a_process(2, 1), a_process(3, 2), a_process(4, 3), a_process(9, 1), a_process(10, 9)]
    assert {each.pid for each in descendants(table, {2})} == {3, 4}
    assert {each.pid for each in descendants(table, {2, 9})} == {3, 4, 10}


def test_an_intent_survives_its_file(tmp_path: Path) -> None:
    launch_spec = LaunchSpec(
        token="t", command=["a", "b c"], env={"X": "ü"}, cwd="/", groups=["/g"], cpus=[0, 3], nice=5, uid=7, gid=8
    )
    write_record(str(tmp_path), "launch.json", launch_spec.to_record())
    record = read_record(str(tmp_path), "launch.json")
    assert record is not None
    assert LaunchSpec.from_record(record).to_record() == launch_spec.to_record()
    assert groups_of(str(tmp_path)) == ("/g",)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"token": 1}', '{"token": "t", "command": [], "env": {}}'])
def test_a_torn_intent_has_no_groups_and_is_no_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "launch.json").write_text(content)
    assert groups_of(str(tmp_path)) == ()


def test_the_first_claim_wins(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert read_lock(folder) is None
    assert acquire(folder)
    assert not acquire(folder)
    assert not void(folder)
    found = read_lock(folder)
    assert found is not None
    assert (found.pid, found.is_void, found.holder_lives()) == (os.getpid(), False, True)
    assert os.listdir(folder) == ["lock"]


def test_a_void_claim_keeps_others_out(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert void(folder)
    assert not acquire(folder)
    assert void(folder)


def test_a_record_never_follows_a_link_that_somebody_laid(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / f"exit.json.{os.getpid()}").symlink_to(precious)
    write_record(str(folder), "exit.json", {"code": 0})
    assert precious.read_text() == "kept"
    assert read_record(str(folder), "exit.json") == {"code": 0}


def test_a_log_is_copied_and_emptied_when_it_is_too_large(tmp_path: Path) -> None:
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


def test_a_quiet_log_is_looked_at_once_a_minute_and_one_without_a_limit_never(tmp_path: Path) -> None:
    log = Log(str(tmp_path), 1 << 20)
    log.look()
    assert log.pause_seconds == 60.0
    assert Log(str(tmp_path), 0).pause_seconds is None


def test_a_session_whose_number_came_round_is_not_ours(tmp_path: Path) -> None:
    record: dict[str, object] = {"boot_id": boot_id(), "session": os.getsid(0), "ticks": 1}
    write_record(str(tmp_path), "shim.json", record)
    assert survivors(str(tmp_path), ()) == [], "its leader is a younger process than the one that was noted"
    write_record(str(tmp_path), "shim.json", {**record, "boot_id": "another"})
    assert survivors(str(tmp_path), ()) == []


def test_a_leaf_is_found_under_whatever_node_its_job_went_to(tmp_path: Path) -> None:
    for node in ("node-0", "node-1"):
        (tmp_path / node / "job").mkdir(parents=True)
        (tmp_path / node / "job" / "cgroup.kill").touch()
    folder = "/state/jobs/job/2/worker-3"
    groups = (str(tmp_path / "node-0" / "job"), "/elsewhere")
    entered = groups_to_enter(groups, folder)
    assert entered == (str(tmp_path / "node-0" / "job" / leaf_name(folder)), "/elsewhere")
    moved = tmp_path / "node-1" / "job" / leaf_name(folder)
    moved.mkdir()
    (moved / "cgroup.procs").touch()
    assert leaves(groups, folder) == (str(moved),)


def test_an_affinity_is_set_only_where_no_cpu_set_holds(tmp_path: Path) -> None:
    assert not pins_cores([str(tmp_path / "node" / "job")])
    (tmp_path / "node" / "job").mkdir(parents=True)
    (tmp_path / "node" / "cpuset.cpus").touch()
    assert pins_cores([str(tmp_path / "node" / "job")])


def test_a_refused_write_names_its_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"cpu\.shares"):
        cgroup_files.write(str(tmp_path), "cpu.shares", "1")
    with pytest.raises(OSError, match="sterna-none"):
        cgroup_files.make(str(tmp_path / "missing" / "sterna-none"))
    assert cgroup_files.members(str(tmp_path)) == []


def test_an_empty_folder_tells_that_nothing_was_asked_for(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    assert launcher.inspect(tmp_path / "jobs" / "a" / "1" / "worker-0").phase is ReplicaPhase.ABSENT
    (tmp_path / "launch.json").write_text("{}")
    assert launcher.inspect(tmp_path).phase is ReplicaPhase.ASKED
    (tmp_path / "exit.json").write_text('{"code": 3, "signal": null, "at": 5, "asked": true, "saved": false}')
    found = launcher.inspect(tmp_path)
    assert found.exit is not None
    assert (found.phase, found.exit.code, found.exit.at, found.exit.was_asked) == (ReplicaPhase.ENDED, 3, 5.0, True)


def test_the_folder_variable_is_the_agent_s() -> None:
    assert kill_tree.FOLDER_VARIABLE == "STERNA_DIR"
