"""The parent process of one replica: locks its folder, starts it, stops it, kills its tree, records its exit.

Forked by the zygote, one per replica; neither needs the daemon. All results are files in the replica's folder. It
sleeps until a signal arrives: SIGCHLD when a descendant exited, SIGTERM when the replica is to stop (`stop.json` has
the grace period). It does not restart, schedule or read progress.
"""

from __future__ import annotations

import os
import signal
import time

from sterna.backends.local.cgroups.leaf import groups_to_enter, leaves, remove_leaves
from sterna.backends.local.kernel.crash_points import crash_point
from sterna.backends.local.kernel.prctl import become_subreaper
from sterna.backends.local.kernel.proc_table import boot_id, process
from sterna.backends.local.kernel.record_files import (
    EXIT,
    SAVED,
    SHIM,
    STOP,
    JsonRecord,
    modified_at,
    read_record,
    write_record,
)
from sterna.backends.local.supervisor.exec import CANNOT_PREPARE, StartError, start
from sterna.backends.local.supervisor.kill_tree import end_children, reap
from sterna.backends.local.supervisor.launch_spec import LaunchSpec, read_launch_spec
from sterna.backends.local.supervisor.lock_file import acquire
from sterna.backends.local.supervisor.log_rotation import Log

SIGNALS = frozenset({signal.SIGCHLD, signal.SIGTERM})
"""Blocked before the fork, so that none is lost while the shim starts."""

_CLOCK_STEP_SECONDS = 0.05
"""Resolution of file times: a checkpoint in the same tick as the stop request counts."""

_RETRY_SECONDS = 5.0
_LONGEST_GRACE_SECONDS = 1e8


def run(folder: str, oom_score: int) -> None:
    """Run a shim in a process that was just forked; never returns."""
    status = 1
    try:
        crash_point("shim.forked")
        os.setsid()
        become_subreaper()
        if acquire(folder):
            crash_point("shim.locked")
            Shim(folder, oom_score).live()
        status = 0
    except BaseException:
        import traceback  # imported here, because shims import little to stay small

        traceback.print_exc()  # into the zygote's log; without an exit record the daemon takes the attempt for lost
    finally:
        os._exit(status)


class Shim:
    def __init__(self, folder: str, oom_score: int) -> None:
        self._folder = folder
        self._oom_score = oom_score
        self._groups: tuple[str, ...] = ()
        self._grace_seconds = 0.0
        self._main = 0
        self._status: int | None = None
        self._asked_at: float | None = None
        self._kill_at: float | None = None
        self._is_noted = False

    def live(self) -> None:
        """Run a replica from lock to exit record."""
        try:
            log = self._start()
        except StartError as error:
            self._end(error.code, None, error.sentence)
            return
        if log is not None:
            self._watch(log)
        crash_point("shim.killing")
        end_children(self._folder, self._groups, self._note_reaped)
        crash_point("shim.emptied")
        self._end(*_meaning(self._status), None)

    def _start(self) -> Log | None:
        """Start the main process; return None if a stop request came first."""
        launch_spec = read_launch_spec(self._folder)
        if launch_spec is None:
            raise StartError(CANNOT_PREPARE, "the intent cannot be read; start the replica again.")
        self._groups, self._grace_seconds = launch_spec.groups, launch_spec.grace_seconds
        if read_record(self._folder, STOP) is not None:
            self._asked_at = time.time()
            return None
        log = self._open_log(launch_spec)
        crash_point("shim.opened")
        try:
            groups = groups_to_enter(launch_spec.groups, self._folder)
            self._main = start(self._folder, launch_spec, groups, log.descriptor, self._oom_score)
        except StartError as error:
            log.say(error.sentence)
            raise
        except OSError as error:
            raise StartError(CANNOT_PREPARE, f"the replica could not be prepared: {error}.") from error
        crash_point("shim.started")
        self._note_start()
        return log

    def _open_log(self, launch_spec: LaunchSpec) -> Log:
        try:
            log = Log(self._folder, launch_spec.log_bytes)
            if launch_spec.uid is not None:
                os.chown(self._folder, launch_spec.uid, -1 if launch_spec.gid is None else launch_spec.gid)
        except OSError as error:
            raise StartError(CANNOT_PREPARE, f"the log cannot be written: {error}.") from error
        return log

    def _note_start(self) -> None:
        """Record the pids for the daemon. On a full disk, retry later: training goes first."""
        found, me = process(self._main), process(os.getpid())
        record: JsonRecord = {
            "boot_id": boot_id(),
            "shim_pid": os.getpid(),
            "shim_ticks": me.ticks if me else 0,
            "pid": self._main,
            "ticks": found.ticks if found else 0,
            "session": self._main,
            "started_at": time.time(),
        }
        try:
            write_record(self._folder, SHIM, record, durable=False)
        except OSError:
            return
        self._is_noted = True
        crash_point("shim.recorded")

    def _watch(self, log: Log) -> None:
        """Sleep until the main process has exited or its grace period is over."""
        while reap(self._note_reaped) and self._status is None:
            if not self._is_noted:
                self._note_start()
            signalled = self._sleep(log)
            if signalled == signal.SIGTERM:
                self._ask()
            elif signalled is None and self._kill_at is None:
                self._look_at(log)
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                return

    def _sleep(self, log: Log) -> int | None:
        """Return the signal that arrived; None at a timeout."""
        pause_seconds = log.pause_seconds if self._is_noted else _RETRY_SECONDS
        if self._kill_at is not None:
            pause_seconds = self._kill_at - time.monotonic()
        if pause_seconds is None:
            return signal.sigwaitinfo(SIGNALS).si_signo
        found = signal.sigtimedwait(SIGNALS, max(pause_seconds, 0.0))
        return None if found is None else found.si_signo

    def _look_at(self, log: Log) -> None:
        try:
            log.look()
        except OSError:
            return  # no room for a copy: retry at the next inspection

    def _ask(self) -> None:
        """Send SIGTERM to the main process only: it ends its children itself. With several requests the shortest grace
        counts."""
        stop = read_record(self._folder, STOP) or {}
        grace = stop.get("grace_seconds")
        seconds = grace if isinstance(grace, int | float) else self._grace_seconds
        kill_at = time.monotonic() + min(max(seconds, 0.0), _LONGEST_GRACE_SECONDS)
        if self._kill_at is None:
            self._asked_at = time.time()
            os.kill(self._main, signal.SIGTERM)  # not reaped yet, so the pid is still its own
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)
        crash_point("shim.asked")

    def _note_reaped(self, pid: int, status: int) -> None:
        if pid == self._main:
            self._status = status

    def _end(self, code: int, by_signal: int | None, error: str | None) -> None:
        used = os.times()
        record: JsonRecord = {
            "code": code,
            "signal": by_signal,
            "at": time.time(),
            "asked": self._asked_at is not None,
            "saved": self._has_saved(),
            "cpu_seconds": round(used.children_user + used.children_system, 3),
        }
        if error is not None:
            record["error"] = error
        remove_leaves(leaves(self._groups, self._folder))
        self._write_exit(record)
        crash_point("shim.ended")

    def _has_saved(self) -> bool:
        last_saved_at = modified_at(self._folder, SAVED)
        if last_saved_at is None or self._asked_at is None:
            return False
        return last_saved_at >= self._asked_at - _CLOCK_STEP_SECONDS

    def _write_exit(self, record: JsonRecord) -> None:
        """Write the exit record; on a full disk, retry: until then the replica does not count as ended."""
        while True:
            try:
                write_record(self._folder, EXIT, record, durable=True, crash="shim.recording-exit")
                return
            except FileNotFoundError:
                return  # the folder was removed: the job was deleted
            except OSError:
                signal.sigtimedwait({signal.SIGTERM}, _RETRY_SECONDS)


def _meaning(status: int | None) -> tuple[int, int | None]:
    """Return exit code as in a shell, and signal; a replica that never started was ended by the stop request."""
    if status is None:
        return 128 + signal.SIGTERM, int(signal.SIGTERM)
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status), os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None
