"""Replicas as the daemon handles them: start, stop, inspect, void, kill. All state is in the replica's folder.

The launcher keeps no state, so a restarted daemon sees what its predecessor saw. An attempt is over when `inspect`
returns `ended` or `void`, or `lost` and `kill` has returned True; only then may the next one start. `stop` does not
wait: use `watch`, or inspect it again.
"""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from sterna.backends.local.cgroups.leaf import leaf_cpu_seconds, leaves
from sterna.backends.local.kernel.crash_points import crash_point
from sterna.backends.local.kernel.proc_table import descendants, is_alive, process, processes
from sterna.backends.local.kernel.record_files import (
    EXIT,
    LAUNCH_FILE,
    SHIM,
    STOP,
    JsonRecord,
    read_record,
    write_record,
)
from sterna.backends.local.supervisor import lock_file
from sterna.backends.local.supervisor.kill_tree import end_replica
from sterna.backends.local.supervisor.launch_spec import LaunchSpec, groups_of
from sterna.backends.local.supervisor.lock_file import ReplicaLock, read_lock
from sterna.backends.local.supervisor.zygote_client import ZygoteClient
from sterna.errors import Retry

_SHIM_PATIENCE_SECONDS = 5.0


class ReplicaPhase(Enum):
    """Life cycle of a replica."""

    ABSENT = "absent"
    """There is no launch specification."""
    ASKED = "asked"
    """No shim has locked it yet. After a restart of the daemon: void it."""
    VOID = "void"
    """It will never start."""
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    """Its main process has exited; the rest is being killed and the exit recorded."""
    ENDED = "ended"
    LOST = "lost"
    """Its shim is gone and left no exit record. Processes may still run: kill it."""


@dataclass(frozen=True)
class ExitRecord:
    """The exit of a replica."""

    code: int
    """As in a shell: 128 + signal if it was killed; 125 to 127 if it could not be started."""
    signal: int | None
    at: float
    was_asked: bool
    """It had been asked to stop."""
    has_saved: bool
    """It reported a checkpoint after the stop request."""
    cpu_seconds: float
    error: str = ""
    """Why it could not be started; empty: it was."""


@dataclass(frozen=True)
class ReplicaState:
    """State of a replica. `pid` is that of a living main process, verified, else 0."""

    phase: ReplicaPhase
    pid: int = 0
    session: int = 0
    shim_pid: int = 0
    started_at: float | None = None
    exit: ExitRecord | None = None

    @property
    def is_locked(self) -> bool:
        return self.phase not in (ReplicaPhase.ABSENT, ReplicaPhase.ASKED, ReplicaPhase.VOID)

    @property
    def is_over(self) -> bool:
        """True if nothing of it runs or will run; a lost one must be killed first."""
        return self.phase in (ReplicaPhase.VOID, ReplicaPhase.ENDED)


class Launcher:
    """Handles the replicas of one state folder. Any thread may call."""

    def __init__(self, state: Path) -> None:
        self._state = state.resolve()
        self._zygote = ZygoteClient(self._state)

    def start(self, folder: str | Path, launch_spec: LaunchSpec) -> None:
        """Have a shim start the replica. Idempotent, also after a crash: one lock file wins."""
        folder = Path(folder).resolve()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if read_lock(str(folder)) is not None:
                return
            write_record(str(folder), LAUNCH_FILE, launch_spec.to_record())
        except OSError as error:
            raise Retry(f"the intent of {folder} was not written: {error}") from None
        crash_point("launcher.intended")
        self._zygote.start_shim(folder)

    def stop(self, folder: str | Path, grace_seconds: float, why: str) -> None:
        """Ask it to stop: SIGTERM to its main process, SIGKILL to the whole tree after the grace period.

        Before it has started, this prevents the start. With several requests the shortest grace period counts. A
        replica that has ended or is lost is left alone.
        """
        at = str(Path(folder).resolve())
        failure: OSError | None = None
        try:
            write_record(at, STOP, {"grace_seconds": grace_seconds, "why": why}, durable=False)
        except FileNotFoundError:
            return
        except OSError as error:
            failure = error  # full disk: the shim is signalled all the same, with the grace period of the launch spec
        crash_point("launcher.stopping")
        # In this order: a shim first takes the lock and then looks for the request, so one of the two sees the other.
        lock = read_lock(at)
        if lock is not None:
            _signal(lock, signal.SIGTERM)
        elif failure is not None:
            raise Retry(f"{folder} was not asked to stop: {failure}")

    def inspect(self, folder: str | Path) -> ReplicaState:
        at = str(Path(folder).resolve())
        lock = read_lock(at)
        # First the shim, then the record: a shim that wrote it and exited in between is not taken for lost.
        lives = lock is not None and lock.holder_lives()
        ended = read_record(at, EXIT)
        if ended is not None:
            return ReplicaState(ReplicaPhase.ENDED, exit=_exit_record(ended))
        if lock is None:
            return ReplicaState(
                ReplicaPhase.ASKED if os.path.exists(os.path.join(at, LAUNCH_FILE)) else ReplicaPhase.ABSENT
            )
        if lock.is_void:
            return ReplicaState(ReplicaPhase.VOID)
        return _running(lock, lives, read_record(at, SHIM))

    def void(self, folder: str | Path) -> bool:
        """Make sure that it never starts; return False if a shim has locked it already."""
        try:
            return lock_file.void(str(Path(folder).resolve()))
        except FileNotFoundError:
            return True  # without its folder no shim can lock it
        except OSError as error:
            raise Retry(f"{folder} was not voided: {error}") from None

    def kill(self, folder: str | Path) -> bool:
        """Kill everything of it now; return True if nothing is left. Its shim records the exit if it still can."""
        at = str(Path(folder).resolve())
        lock = read_lock(at)
        if lock is not None and lock.holder_lives():
            self.stop(folder, 0.0, "killed")
            if not _wait_for_end(lock, _SHIM_PATIENCE_SECONDS):
                _signal(lock, signal.SIGKILL)
                _wait_for_end(lock, _SHIM_PATIENCE_SECONDS)
        return end_replica(at, groups_of(at)) and not (lock is not None and lock.holder_lives())

    def cpu_seconds(self, folder: str | Path) -> float:
        """Return the CPU time of the replica and all its descendants so far."""
        at = str(Path(folder).resolve())
        ended = read_record(at, EXIT)
        if ended is not None:
            return _exit_record(ended).cpu_seconds
        counted = leaf_cpu_seconds(leaves(groups_of(at), at))
        if counted is not None:
            return counted
        lock = read_lock(at)
        return _tree_cpu_seconds(lock.pid) if lock is not None and lock.holder_lives() else 0.0

    def watch(self, folder: str | Path) -> int | None:
        """Return a descriptor that becomes readable when its shim exits (the caller closes it); None if none runs."""
        lock = read_lock(str(Path(folder).resolve()))
        return None if lock is None else _open(lock)

    def warm(self) -> None:
        """Start a zygote, so that the first replica does not wait for one."""
        self._zygote.warm()

    def retire(self) -> None:
        """Have the zygote exit after its last replica; a later start creates a new one."""
        self._zygote.retire()


def _running(lock: ReplicaLock, shim_lives: bool, record: JsonRecord | None) -> ReplicaState:
    pid, ticks = _whole(record, "pid"), _whole(record, "ticks")
    main_lives = is_alive(pid, ticks, lock.boot) if pid else False
    started_at = record.get("started_at") if record else None
    if not shim_lives:
        phase = ReplicaPhase.LOST
    elif record is None:
        phase = ReplicaPhase.STARTING
    else:
        phase = ReplicaPhase.RUNNING if main_lives else ReplicaPhase.ENDING
    return ReplicaState(
        phase,
        pid=pid if main_lives else 0,
        session=_whole(record, "session"),
        shim_pid=lock.pid if shim_lives else 0,
        started_at=started_at if isinstance(started_at, float) else None,
    )


def _open(lock: ReplicaLock) -> int | None:
    """Return a descriptor of the process that holds the lock: opened first and verified then, because pids are
    reused."""
    if lock.is_void:
        return None
    try:
        descriptor = os.pidfd_open(lock.pid)
    except OSError:
        return None
    if lock.holder_lives():
        return descriptor
    os.close(descriptor)
    return None


def _signal(lock: ReplicaLock, number: int) -> None:
    descriptor = _open(lock)
    if descriptor is None:
        return
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)


def _wait_for_end(lock: ReplicaLock, within_seconds: float) -> bool:
    descriptor = _open(lock)
    if descriptor is None:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        deadline = time.monotonic() + within_seconds
        while (left_seconds := deadline - time.monotonic()) > 0:
            if poll.poll(left_seconds * 1000):
                return True
        return False
    finally:
        os.close(descriptor)


def _tree_cpu_seconds(shim: int) -> float:
    found = process(shim)
    waited = found.waited_cpu_seconds if found is not None else 0.0
    below = descendants(processes(), {shim})
    return waited + sum(each.cpu_seconds + each.waited_cpu_seconds for each in below)


def _exit_record(record: JsonRecord) -> ExitRecord:
    by_signal, at, used = record.get("signal"), record.get("at"), record.get("cpu_seconds")
    return ExitRecord(
        code=_whole(record, "code"),
        signal=by_signal if isinstance(by_signal, int) else None,
        at=float(at) if isinstance(at, int | float) else 0.0,
        was_asked=record.get("asked") is True,
        has_saved=record.get("saved") is True,
        cpu_seconds=float(used) if isinstance(used, int | float) else 0.0,
        error=str(record.get("error", "")),
    )


def _whole(record: JsonRecord | None, name: str) -> int:
    value = record.get(name) if record else None
    return value if isinstance(value, int) else 0
