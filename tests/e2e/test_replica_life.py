"""A replica from start to exit record, with real processes."""

from __future__ import annotations

import json
import os
import select
import signal
from pathlib import Path

import pytest

from sterna.backends.local.supervisor.launcher import Launcher, ReplicaPhase
from sterna.backends.local.supervisor.lock_file import acquire
from sterna.errors import Retry, UserError
from tests.e2e.replicas import Replicas, a_launch_spec, is_running, numbers, until

WAIT_FOR_TERM = 'trap "echo asked; exit 0" TERM; echo ready; while :; do sleep 0.02; done'
IGNORE_TERM = 'trap "" TERM; echo ready; while :; do sleep 0.02; done'


def log(folder: Path) -> str:
    path = folder / "out.log"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(
    ("script", "code", "by"),
    [("exit 0", 0, None), ("exit 3", 3, None), ("kill -9 $$", 137, 9), ("kill -11 $$", 139, 11)],
)
def test_exit_code_and_signal_are_recorded(replicas: Replicas, script: str, code: int, by: int | None) -> None:
    found = replicas.run(replicas.folder(), script)
    assert found.exit is not None
    assert (found.exit.code, found.exit.signal, found.exit.was_asked) == (code, by, False)
    assert found.is_over


def test_output_goes_to_the_log_and_input_is_empty(replicas: Replicas) -> None:
    folder = replicas.folder()
    replicas.run(folder, "echo out; echo err >&2; cat; echo end")
    assert log(folder) == "out\nerr\nend\n"


def test_process_has_exactly_the_environment_and_folder_of_its_launch_spec(replicas: Replicas, tmp_path: Path) -> None:
    folder = replicas.folder()
    replicas.start(folder, ["env"], env={"PATH": os.environ["PATH"], "ONE": "1"}, cwd=str(tmp_path))
    replicas.until(folder, ReplicaPhase.ENDED)
    assert {line.split("=")[0] for line in log(folder).splitlines()} == {"PATH", "ONE", "STERNA_DIR"}
    there = replicas.folder("there")
    replicas.start(there, ["pwd"], cwd=str(tmp_path))
    replicas.until(there, ReplicaPhase.ENDED)
    assert log(there).strip() == str(tmp_path)


def test_running_replica_has_a_pid_and_its_own_session(replicas: Replicas) -> None:
    folder = replicas.folder()
    replicas.shell(folder, WAIT_FOR_TERM)
    found = replicas.until(folder, ReplicaPhase.RUNNING)
    assert found.pid == os.getsid(found.pid) == found.session
    assert os.getsid(found.shim_pid) == found.shim_pid
    assert found.is_locked
    assert not found.is_over


def test_only_the_main_process_gets_sigterm(replicas: Replicas) -> None:
    folder = replicas.folder()
    child = 'sh -c \'trap "echo child asked" TERM; echo $$ > "$STERNA_DIR/child"; while :; do sleep 0.02; done\' & '
    replicas.shell(folder, child + 'while [ ! -s "$STERNA_DIR/child" ]; do sleep 0.01; done; ' + WAIT_FOR_TERM)
    until(lambda: "ready" in log(folder))
    replicas.launcher.stop(folder, 5.0, "test")
    found = replicas.until(folder, ReplicaPhase.ENDED)
    assert found.exit is not None
    assert (found.exit.code, found.exit.was_asked, found.exit.has_saved) == (0, True, False)
    assert "child asked" not in log(folder)
    assert not any(is_running(pid) for pid in numbers(folder / "child"))


def test_process_that_ignores_sigterm_is_killed_after_its_grace_period(replicas: Replicas) -> None:
    folder = replicas.folder()
    replicas.shell(folder, IGNORE_TERM)
    until(lambda: "ready" in log(folder))
    replicas.launcher.stop(folder, 0.1, "test")
    found = replicas.until(folder, ReplicaPhase.ENDED)
    assert found.exit is not None
    assert (found.exit.code, found.exit.signal, found.exit.was_asked) == (137, 9, True)


def test_second_stop_request_can_shorten_the_grace_period(replicas: Replicas) -> None:
    folder = replicas.folder()
    replicas.shell(folder, IGNORE_TERM)
    until(lambda: "ready" in log(folder))
    replicas.launcher.stop(folder, 3600.0, "test")
    replicas.launcher.stop(folder, 0.0, "now")
    assert replicas.until(folder, ReplicaPhase.ENDED).is_over


@pytest.mark.parametrize("is_before", [True, False])
def test_save_counts_only_after_the_stop_request(replicas: Replicas, is_before: bool) -> None:
    folder = replicas.folder()
    save = 'echo "{}" > "$STERNA_DIR/saved.json"; '
    asked = f"trap '{'' if is_before else save} exit 0' TERM; "
    replicas.shell(folder, (save if is_before else "") + asked + "echo ready; while :; do sleep 0.02; done")
    until(lambda: "ready" in log(folder))
    if is_before:
        os.utime(folder / "saved.json", (0, 0))
    replicas.launcher.stop(folder, 5.0, "test")
    found = replicas.until(folder, ReplicaPhase.ENDED)
    assert found.exit is not None
    assert found.exit.has_saved is not is_before


def test_stop_request_before_the_start_prevents_the_start(replicas: Replicas) -> None:
    folder = replicas.folder()
    folder.mkdir(parents=True)
    replicas.launcher.stop(folder, 1.0, "changed our mind")
    found = replicas.run(folder, "exit 0")
    assert found.exit is not None
    assert (found.exit.code, found.exit.was_asked) == (143, True)
    assert numbers(folder / "mains") == []


def test_terminated_shim_stops_its_replica_with_the_grace_of_the_launch_spec(replicas: Replicas) -> None:
    folder = replicas.folder()
    replicas.shell(folder, WAIT_FOR_TERM, grace_seconds=5.0)
    until(lambda: "ready" in log(folder))
    os.kill(replicas.launcher.inspect(folder).shim_pid, signal.SIGTERM)
    found = replicas.until(folder, ReplicaPhase.ENDED)
    assert found.exit is not None
    assert found.exit.was_asked


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["no-such-program"], 127, "'no-such-program' was not started on PATH"),
        (["/etc"], 126, "Permission denied"),
        (["/no/such/program"], 127, "it is not there"),
    ],
)
def test_command_that_cannot_run_records_the_error(
    replicas: Replicas, command: list[str], code: int, words: str
) -> None:
    folder = replicas.folder()
    replicas.start(folder, command)
    found = replicas.until(folder, ReplicaPhase.ENDED)
    assert found.exit is not None
    assert found.exit.code == code
    assert words in found.exit.error
    assert words in log(folder)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"cwd": "/no/such/folder"}, "/no/such/folder"),
        ({"groups": ["/no/such/group"]}, "/no/such/group"),
        ({"cpus": [4095]}, "cores 4095"),
    ],
)
def test_failed_preparation_records_the_error(replicas: Replicas, facts: dict[str, object], words: str) -> None:
    folder = replicas.folder()
    replicas.start(folder, ["true"], **facts)
    found = replicas.until(folder, ReplicaPhase.ENDED)
    assert found.exit is not None
    assert found.exit.code == 125
    assert words in found.exit.error


def test_children_end_with_the_main_process(replicas: Replicas) -> None:
    folder = replicas.folder()
    replicas.run(folder, 'sleep 1000 & echo $! > "$STERNA_DIR/child"; exit 0')
    (child,) = numbers(folder / "child")
    assert not is_running(child)


def test_start_is_idempotent(replicas: Replicas) -> None:
    folder = replicas.folder()
    for _ in range(3):
        replicas.shell(folder, WAIT_FOR_TERM)
    replicas.until(folder, ReplicaPhase.RUNNING)
    replicas.shell(folder, WAIT_FOR_TERM)
    until(lambda: len(numbers(folder / "mains")) == 1)
    replicas.launcher.stop(folder, 5.0, "test")
    replicas.until(folder, ReplicaPhase.ENDED)
    assert len(numbers(folder / "mains")) == 1


def test_void_replica_never_starts(replicas: Replicas) -> None:
    folder = replicas.folder()
    folder.mkdir(parents=True)
    assert replicas.launcher.void(folder)
    assert replicas.launcher.void(folder)
    replicas.shell(folder, "exit 0")
    assert replicas.launcher.inspect(folder).phase is ReplicaPhase.VOID
    assert numbers(folder / "mains") == []


def test_locked_replica_cannot_be_voided(replicas: Replicas) -> None:
    folder = replicas.folder()
    replicas.shell(folder, WAIT_FOR_TERM)
    replicas.until(folder, ReplicaPhase.RUNNING)
    assert not replicas.launcher.void(folder)


def test_lock_of_an_earlier_boot_is_lost(replicas: Replicas) -> None:
    folder = replicas.folder()
    folder.mkdir(parents=True)
    assert acquire(str(folder))
    assert replicas.launcher.inspect(folder).phase is ReplicaPhase.STARTING
    (folder / "lock").write_text(f"{os.getpid()} 1 another-boot\n")
    assert replicas.launcher.inspect(folder).phase is ReplicaPhase.LOST
    assert replicas.launcher.kill(folder)


def test_watch_reports_the_exit_of_a_shim_above_descriptor_1023(replicas: Replicas) -> None:
    folder = replicas.folder()
    replicas.shell(folder, WAIT_FOR_TERM)
    replicas.until(folder, ReplicaPhase.RUNNING)
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        descriptor = replicas.launcher.watch(folder)
        assert descriptor is not None
        assert descriptor > 1023
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        assert not poll.poll(0)
        replicas.launcher.stop(folder, 5.0, "test")  # its own descriptors are above 1023 too
        assert poll.poll(10_000)
        os.close(descriptor)
    finally:
        for each in held:
            os.close(each)
    assert replicas.launcher.inspect(folder).phase is ReplicaPhase.ENDED
    assert replicas.launcher.watch(folder) is None


def test_log_is_rotated(replicas: Replicas) -> None:
    folder = replicas.folder()
    replicas.shell(
        folder, "while :; do echo 0123456789012345678901234567890123456789; sleep 0.002; done", log_bytes=4000
    )
    until(lambda: (folder / "out.log.1").exists())
    until(lambda: (folder / "out.log").stat().st_size > 0)
    assert set((folder / "out.log.1").read_text().splitlines()[1:]) == {"0123456789" * 4}


def test_cpu_time_is_counted_during_and_after_the_run(replicas: Replicas) -> None:
    folder = replicas.folder()
    replicas.shell(folder, "(while :; do :; done) & wait")
    until(lambda: replicas.launcher.cpu_seconds(folder) > 0.05)
    assert replicas.launcher.kill(folder)
    assert replicas.launcher.cpu_seconds(folder) > 0.05


def test_state_folder_can_have_a_long_name(replicas: Replicas) -> None:
    state = replicas.state / ("long" * 40)
    state.mkdir()
    inner = Replicas(state)
    try:
        assert inner.run(inner.folder(), "exit 0").is_over
    finally:
        inner.close()


def test_folder_outside_the_state_folder_is_rejected(replicas: Replicas, tmp_path: Path) -> None:
    with pytest.raises(Retry, match="is not in the state folder"):
        replicas.launcher.start(tmp_path / "elsewhere" / "1" / "worker-0", a_launch_spec(["true"]))


def test_missing_state_folder_is_rejected(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path / "missing")
    with pytest.raises((UserError, Retry)):
        launcher.start(tmp_path / "elsewhere" / "1" / "worker-0", a_launch_spec(["true"]))


def test_records_are_whole_json_files(replicas: Replicas) -> None:
    folder = replicas.folder()
    replicas.run(folder, "exit 0")
    noted = json.loads((folder / "shim.json").read_text())
    assert set(noted) == {"boot_id", "shim_pid", "shim_ticks", "pid", "ticks", "session", "started_at"}
    ended = json.loads((folder / "exit.json").read_text())
    assert set(ended) == {"code", "signal", "at", "asked", "saved", "cpu_seconds"}
    assert sorted(path.name for path in folder.iterdir()) == [
        "exit.json", "launch.json", "lock", "mains", "out.log", "shim.json",
    ]  # fmt: skip


def test_replica_runs_as_the_user_of_its_launch_spec_and_dies_with_its_shim(replicas: Replicas) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start processes as another user")
    folder = replicas.folder()
    replicas.start(folder, ["sh", "-c", "id -u; id -g; id -G; exec sleep 1000"], uid=65534, gid=65533)
    until(lambda: len(log(folder).splitlines()) == 3)
    assert log(folder).split() == ["65534", "65533", "65533"]
    assert (folder.stat().st_uid, folder.stat().st_gid) == (65534, 65533)
    found = replicas.until(folder, ReplicaPhase.RUNNING)
    os.kill(found.shim_pid, signal.SIGKILL)
    until(lambda: not is_running(found.pid))
