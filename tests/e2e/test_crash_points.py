"""After a crash at any crash point: at most one main process, no orphan, and a folder that can be recovered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import sterna
from sterna.backends.local.kernel.crash_points import CRASH_STATUS, POINTS, VARIABLE
from sterna.backends.local.kernel.proc_table import boot_id, is_alive, process
from sterna.backends.local.supervisor.launcher import ReplicaPhase
from tests.e2e.replicas import NOTE_MAIN, Replicas, a_launch_spec, is_running, numbers, until

LASTING = 'sleep 1000 & (setsid sleep 1000 &); trap "exit 0" TERM; while :; do sleep 0.02; done'


def call(point: str, what: str, replicas: Replicas, folder: Path) -> int:
    """Start, stop or void in a child process that crashes at `point`; return its exit status."""
    caller = os.fork()
    if caller == 0:
        status = 1
        try:
            os.environ[VARIABLE] = point
            launcher = replicas.launcher
            if what == "start":
                launcher.start(folder, a_launch_spec(["sh", "-c", NOTE_MAIN + LASTING]))
            elif what == "stop":
                launcher.stop(folder, 0.2, "test")
            else:
                launcher.void(folder)
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(caller, 0)[1])


def recover(replicas: Replicas, folder: Path) -> ReplicaPhase:
    """Recover the folder as a restarted daemon does; return the final phase."""
    launcher = replicas.launcher
    if launcher.inspect(folder).phase is ReplicaPhase.ABSENT or launcher.void(folder):
        return ReplicaPhase.VOID
    launcher.stop(folder, 0.2, "recovery")
    found = replicas.until(folder, ReplicaPhase.ENDED, ReplicaPhase.LOST)
    if found.phase is ReplicaPhase.LOST:
        assert launcher.kill(folder)
    return found.phase


@pytest.mark.parametrize("point", POINTS)
def test_crash_leaves_a_recoverable_folder(replicas: Replicas, point: str) -> None:
    folder = replicas.folder()
    status = call(point, "start", replicas, folder)
    if point == "launcher.stopping":
        status = call(point, "stop", replicas, folder)
    elif point == "launcher.voiding":
        status = call(point, "void", replicas, folder)
    assert status == (CRASH_STATUS if point.startswith("launcher") else 0)
    recover(replicas, folder)
    assert len(numbers(folder / "mains")) <= 1
    until(lambda: not any(str(folder) in line for line in replicas.leftovers()))
    # The next attempt has another folder and starts in any case.
    following = replicas.folder(attempt=2)
    assert replicas.run(following, "exit 0").is_over
    assert len(numbers(following / "mains")) == 1


@pytest.mark.parametrize("point", ["zygote.received", "zygote.forked"])
def test_crashed_zygote_is_replaced_and_the_replica_runs_once(replicas: Replicas, point: str) -> None:
    folder = replicas.folder()
    assert call(point, "start", replicas, folder) == 0
    replicas.until(folder, ReplicaPhase.RUNNING)
    replicas.launcher.stop(folder, 5.0, "test")
    replicas.until(folder, ReplicaPhase.ENDED)
    assert len(numbers(folder / "mains")) == 1


@pytest.mark.parametrize(
    "point", ["shim.started", "shim.recorded", "shim.asked", "shim.killing", "shim.recording-exit"]
)
def test_attempt_without_an_exit_record_is_lost(replicas: Replicas, point: str) -> None:
    folder = replicas.folder()
    call(point, "start", replicas, folder)
    until(lambda: replicas.launcher.inspect(folder).is_locked)
    assert recover(replicas, folder) is ReplicaPhase.LOST


def test_replicas_outlive_the_zygote_and_are_recorded(replicas: Replicas) -> None:
    folder, later = replicas.folder(), replicas.folder("later")
    replicas.shell(folder, LASTING)
    replicas.until(folder, ReplicaPhase.RUNNING)
    os.kill(replicas.zygote(), signal.SIGKILL)
    assert replicas.run(later, "exit 0").is_over, "a new zygote is started when it is needed"
    replicas.launcher.stop(folder, 5.0, "test")
    found = replicas.until(folder, ReplicaPhase.ENDED)
    assert found.exit is not None
    assert found.exit.was_asked


def test_zygote_without_replicas_exits_when_no_daemon_runs(replicas: Replicas) -> None:
    lonely = "import sys; from sterna.backends.local.supervisor.zygote import main; main(sys.argv[1], 0.05)"
    environment = os.environ | {"PYTHONPATH": str(Path(sterna.__file__).parents[1])}
    folder = replicas.folder()
    me = process(os.getpid())
    assert me is not None
    about = {"pid": os.getpid(), "start_ticks": me.ticks, "boot_id": boot_id()}
    (replicas.state / "daemon.json").write_text(json.dumps(about))
    subprocess.run([sys.executable, "-c", lonely, str(replicas.state)], env=environment, check=True)
    zygote = replicas.zygote()
    replicas.run(folder, "exit 0")
    assert zygote == replicas.zygote() != 0
    (replicas.state / "daemon.json").unlink()
    until(lambda: not is_running(zygote))
    assert replicas.run(replicas.folder("later"), "exit 0").is_over


def test_zombie_shim_counts_as_lost(replicas: Replicas) -> None:
    """A stopped zygote cannot wait for its shim: the shim stays a zombie with pid and start time."""
    folder = replicas.folder()
    replicas.shell(folder, LASTING)
    shim = replicas.until(folder, ReplicaPhase.RUNNING).shim_pid
    zygote = replicas.zygote()
    os.kill(zygote, signal.SIGSTOP)
    try:
        os.kill(shim, signal.SIGKILL)
        until(lambda: Path(f"/proc/{shim}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        assert replicas.launcher.inspect(folder).phase is ReplicaPhase.LOST
        assert replicas.launcher.kill(folder)
    finally:
        os.kill(zygote, signal.SIGCONT)


def test_process_is_identified_by_pid_start_time_and_boot() -> None:
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert is_alive(os.getpid(), int(stat[19]), boot)
    assert not is_alive(os.getpid(), int(stat[19]) + 1, boot)
    assert not is_alive(os.getpid(), int(stat[19]), "another-boot")
