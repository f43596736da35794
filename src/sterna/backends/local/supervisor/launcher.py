"""Replicas as the daemon handles them: start, stop, look, void, kill. All that is known of one stands in its folder.

Nothing is remembered here, so that a daemon that comes back sees what its predecessor saw. An attempt is over when
`look` says `ended` or `void`, or when it says `lost` and `kill` has answered true: then, and only then, may the next
one begin. Stopping never waits; whoever wants to know when a replica ends watches `Launcher.watch` or looks again.
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
from sterna.backends.local.kernel.record_files import EXIT, INTENT, SHIM, STOP, Record, read_record, write_record
from sterna.backends.local.supervisor import lock_file
from sterna.backends.local.supervisor.kill_tree import end_replica
from sterna.backends.local.supervisor.launch_spec import LaunchSpec, groups_of
from sterna.backends.local.supervisor.lock_file import Claim, read_claim
from sterna.backends.local.supervisor.zygote_client import ZygoteClient
from sterna.errors import Retry

_SHIM_PATIENCE_SECONDS = 5.0


class Phase(Enum):
    """How far a replica has come."""

    ABSENT = "absent"
    """There is no intent."""
    ASKED = "asked"
    """Nobody has claimed it yet. After a restart of the daemon: void it."""
    VOID = "void"
    """It will never start."""
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    """Its main process is gone, the rest is being ended and the exit recorded."""
    ENDED = "ended"
    LOST = "lost"
    """Its shim is gone and left no exit record; processes of it may still run: kill it, then it is over."""


@dataclass(frozen=True)
class ExitRecord:
    """How a replica ended."""

    code: int
    """As a shell gives it: 128 + signal if it was killed; 125 to 127 if it could not be started."""
    signal: int | None
    at: float
    was_asked: bool
    """To stop, before it ended."""
    has_saved: bool
    """It said that it saved, after it was asked."""
    cpu_seconds: float
    error: str = ""
    """Why it could not be started; empty if it was."""


@dataclass(frozen=True)
class ReplicaState:
    """What is known of a replica now. A pid is that of a living main process, verified, else 0."""

    phase: Phase
    pid: int = 0
    session: int = 0
    shim_pid: int = 0
    started_at: float | None = None
    exit: ExitRecord | None = None

    @property
    def is_claimed(self) -> bool:
        return self.phase not in (Phase.ABSENT, Phase.ASKED, Phase.VOID)

    @property
    def is_over(self) -> bool:
        """Nothing of it runs or ever will; a lost one only when it has been killed."""
        return self.phase in (Phase.VOID, Phase.ENDED)


class Launcher:
    """For one state folder. Any thread may call."""

    def __init__(self, state: Path) -> None:
        self._state = state.resolve()
        self._zygote = ZygoteClient(self._state)

    def start(self, folder: str | Path, launch_spec: LaunchSpec) -> None:
        """Have a shim start it. Again without harm, also after a crash anywhere in between: one claim wins."""
        folder = Path(folder).resolve()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if read_claim(str(folder)) is not None:
                return
            write_record(str(folder), INTENT, launch_spec.to_record())
        except OSError as error:
            raise Retry(f"the intent of {folder} was not written: {error}") from None
        crash_point("launcher.intended")
        self._zygote.start_shim(folder)

    def stop(self, folder: str | Path, grace_seconds: float, why: str) -> None:
        """Ask it to end: SIGTERM to its main process, and the end of its whole tree when the grace is over.

        Before it has begun, this keeps it from beginning. Asked again, the shorter grace counts. What has ended or
        was lost is left as it is.
        """
        at = str(Path(folder).resolve())
        trouble: OSError | None = None
        try:
            write_record(at, STOP, {"grace_seconds": grace_seconds, "why": why}, durable=False)
        except FileNotFoundError:
            return
        except OSError as error:
            trouble = error  # a full disk: the shim is asked all the same and takes the grace of the intent
        crash_point("launcher.stopping")
        # In this order: a shim first claims and then looks for the request, so one of the two sees the other.
        claim = read_claim(at)
        if claim is not None:
            _signal(claim, signal.SIGTERM)
        elif trouble is not None:
            raise Retry(f"{folder} was not asked to stop: {trouble}")

    def look(self, folder: str | Path) -> ReplicaState:
        at = str(Path(folder).resolve())
        claim = read_claim(at)
        # First whether the shim lives, then the record: one that wrote it and ended in between is not taken for lost.
        lives = claim is not None and claim.holder_lives()
        ended = read_record(at, EXIT)
        if ended is not None:
            return ReplicaState(Phase.ENDED, exit=_exit_record(ended))
        if claim is None:
            return ReplicaState(Phase.ASKED if os.path.exists(os.path.join(at, INTENT)) else Phase.ABSENT)
        if claim.is_void:
            return ReplicaState(Phase.VOID)
        return _running(claim, lives, read_record(at, SHIM))

    def void(self, folder: str | Path) -> bool:
        """See to it that it never starts; false if a shim has claimed it already."""
        try:
            return lock_file.void(str(Path(folder).resolve()))
        except FileNotFoundError:
            return True  # without its folder no shim can claim it
        except OSError as error:
            raise Retry(f"{folder} was not voided: {error}") from None

    def kill(self, folder: str | Path) -> bool:
        """End whatever runs of it, now; true if nothing is left. Its shim records the exit if it still can."""
        at = str(Path(folder).resolve())
        claim = read_claim(at)
        if claim is not None and claim.holder_lives():
            self.stop(folder, 0.0, "killed")
            if not _wait_for_end(claim, _SHIM_PATIENCE_SECONDS):
                _signal(claim, signal.SIGKILL)
                _wait_for_end(claim, _SHIM_PATIENCE_SECONDS)
        return end_replica(at, groups_of(at)) and not (claim is not None and claim.holder_lives())

    def cpu_seconds(self, folder: str | Path) -> float:
        """Of the replica and all that it started, so far."""
        at = str(Path(folder).resolve())
        ended = read_record(at, EXIT)
        if ended is not None:
            return _exit_record(ended).cpu_seconds
        counted = leaf_cpu_seconds(leaves(groups_of(at), at))
        if counted is not None:
            return counted
        claim = read_claim(at)
        return _tree_cpu_seconds(claim.pid) if claim is not None and claim.holder_lives() else 0.0

    def watch(self, folder: str | Path) -> int | None:
        """A descriptor that becomes readable when its shim ends (the caller closes it); None if none runs."""
        claim = read_claim(str(Path(folder).resolve()))
        return None if claim is None else _open(claim)

    def warm(self) -> None:
        """Have a zygote, so that the first start need not wait for one."""
        self._zygote.warm()

    def retire(self) -> None:
        """End the zygote when its last replica has ended; a later start makes a new one."""
        self._zygote.retire()


def _running(claim: Claim, shim_lives: bool, record: Record | None) -> ReplicaState:
    pid, ticks = _whole(record, "pid"), _whole(record, "ticks")
    main_lives = is_alive(pid, ticks, claim.boot) if pid else False
    started_at = record.get("started_at") if record else None
    if not shim_lives:
        phase = Phase.LOST
    elif record is None:
        phase = Phase.STARTING
    else:
        phase = Phase.RUNNING if main_lives else Phase.ENDING
    return ReplicaState(
        phase,
        pid=pid if main_lives else 0,
        session=_whole(record, "session"),
        shim_pid=claim.pid if shim_lives else 0,
        started_at=started_at if isinstance(started_at, float) else None,
    )


def _open(claim: Claim) -> int | None:
    """A descriptor of the very process that claimed: opened first and verified then, so that no other can take its
    number."""
    if claim.is_void:
        return None
    try:
        descriptor = os.pidfd_open(claim.pid)
    except OSError:
        return None
    if claim.holder_lives():
        return descriptor
    os.close(descriptor)
    return None


def _signal(claim: Claim, number: int) -> None:
    descriptor = _open(claim)
    if descriptor is None:
        return
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)


def _wait_for_end(claim: Claim, within_seconds: float) -> bool:
    descriptor = _open(claim)
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


def _exit_record(record: Record) -> ExitRecord:
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


def _whole(record: Record | None, name: str) -> int:
    value = record.get(name) if record else None
    return value if isinstance(value, int) else 0
