"""Real replicas in a state folder, for tests."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from sterna.backends.local.kernel.proc_table import Process, process, processes
from sterna.backends.local.supervisor.launch_spec import LaunchSpec
from sterna.backends.local.supervisor.launcher import Launcher, ReplicaPhase, ReplicaState

TIMEOUT_SECONDS = 30.0

NOTE_MAIN = 'echo "$$" >> "$STERNA_DIR/mains"; '
"""Shell command that records the pid of a main process."""


def until(fact: Callable[[], bool], within_seconds: float = TIMEOUT_SECONDS) -> None:
    """Wait until `fact` returns True; fail after `within_seconds`."""
    deadline = time.monotonic() + within_seconds
    while not fact():
        assert time.monotonic() < deadline, f"did not come true within {within_seconds} s"
        time.sleep(0.002)


class Replicas:
    """Replicas of one state folder."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.launcher = Launcher(state)
        self.folders: list[Path] = []

    def folder(self, job: str = "job", attempt: int = 1, replica: str = "worker-0") -> Path:
        folder = self.state.resolve() / "jobs" / job / str(attempt) / replica
        if folder not in self.folders:
            self.folders.append(folder)
        return folder

    def start(self, folder: Path, command: Sequence[str], **more: object) -> None:
        self.launcher.start(folder, a_launch_spec(command, **more))

    def shell(self, folder: Path, script: str, **more: object) -> None:
        self.start(folder, ["sh", "-c", NOTE_MAIN + script], **more)

    def python(self, folder: Path, script: str, **more: object) -> None:
        self.start(folder, [sys.executable, "-S", "-c", script], **more)

    def until(self, folder: Path, *phases: ReplicaPhase) -> ReplicaState:
        until(lambda: self.launcher.inspect(folder).phase in phases)
        return self.launcher.inspect(folder)

    def run(self, folder: Path, script: str, **more: object) -> ReplicaState:
        self.shell(folder, script, **more)
        return self.until(folder, ReplicaPhase.ENDED)

    def zygote(self) -> int:
        """Return the pid of the zygote; 0 if none runs."""
        found = [each.pid for each in living() if str(self.state.resolve()) in command_line(each.pid)[-2:]]
        shims = {self.launcher.inspect(folder).shim_pid for folder in self.folders}
        zygotes = [pid for pid in found if pid not in shims and process(pid) is not None]
        return min(zygotes, default=0)

    def close(self) -> None:
        for folder in self.folders:
            if folder.is_dir():
                self.launcher.void(folder)
                assert self.launcher.kill(folder), f"{folder} cannot be killed"
        until(self._is_clean)

    def _is_clean(self) -> bool:
        """Retire the zygote; called repeatedly, because one may be starting."""
        self.launcher.retire()
        return not self.leftovers()

    def leftovers(self) -> list[str]:
        """Return running processes that have the state folder in their command line or environment."""
        mark = str(self.state.resolve()).encode()
        return [
            f"{each.pid} {command_line(each.pid)}"
            for each in living()
            if each.pid != os.getpid() and mark in _facts(each.pid) and _is_ours(each.pid, mark)
        ]


def a_launch_spec(command: Sequence[str], **more: object) -> LaunchSpec:
    facts: dict[str, object] = {
        "token": "token",
        "command": list(command),
        "env": {"PATH": os.environ.get("PATH", os.defpath)},
        "cwd": "/",
        "grace_seconds": 5.0,
        "groups": [],
    }
    return LaunchSpec.from_record({**facts, **more})


def living() -> list[Process]:
    return [each for each in processes() if not each.is_gone]


def command_line(pid: int) -> list[str]:
    return _file(pid, "cmdline").decode(errors="replace").split("\0")[:-1]


def is_running(pid: int) -> bool:
    found = process(pid)
    return found is not None and not found.is_gone


def numbers(path: Path) -> list[int]:
    """Read the pids that a script wrote, one per line."""
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def _facts(pid: int) -> bytes:
    return _file(pid, "cmdline") + b"\0" + _file(pid, "environ")


def _is_ours(pid: int, mark: bytes) -> bool:
    """Exclude the test runner, which can have the state folder in its command line."""
    is_zygote = b"sterna.backends.local.supervisor.zygote" in _file(pid, "cmdline")
    return is_zygote or b"STERNA_DIR=" + mark in _file(pid, "environ")


def _file(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """Replicas of an empty state folder; a test that leaves a process behind fails."""
    replicas = Replicas(tmp_path / "state")
    replicas.state.mkdir()
    try:
        yield replicas
    finally:
        replicas.close()
