"""From a forked copy of the shim to the replica's program.

Runs in the child between fork and exec: new session, control groups, cores, user, log. Errors reach the shim through a
pipe that closes on exec. The `LaunchSpec` determines everything.
"""

from __future__ import annotations

import os
import signal

from sterna.backends.local.cgroups.leaf import enter, pins_cores
from sterna.backends.local.kernel.crash_points import VARIABLE, crash_point
from sterna.backends.local.kernel.prctl import die_with_parent, set_oom_score
from sterna.backends.local.supervisor.kill_tree import FOLDER_VARIABLE
from sterna.backends.local.supervisor.launch_spec import LaunchSpec

CANNOT_PREPARE, CANNOT_EXECUTE, NOT_FOUND = 125, 126, 127
"""Exit codes as in a shell; 125 as container engines use it for errors before the program starts."""

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


class StartError(Exception):
    """The program could not be started: one sentence, and the exit code."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


def start(folder: str, launch_spec: LaunchSpec, groups: tuple[str, ...], log: int, oom_score: int) -> int:
    """Fork the main process; return its pid once its program runs. Raise StartError if it does not get there."""
    shim = os.getpid()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(folder, launch_spec, groups, log, oom_score, shim, writing)
    crash_point("shim.forked-main")
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        complaint = pipe.read()
    if complaint:
        os.waitpid(pid, 0)
        code, _, sentence = complaint.decode().partition(" ")
        raise StartError(int(code), sentence)
    return pid


def _become(
    folder: str, launch_spec: LaunchSpec, groups: tuple[str, ...], log: int, oom_score: int, shim: int, pipe: int
) -> None:
    """Become the program; never returns."""
    try:
        crash_point("child.forked")
        os.setsid()
        _take_place(launch_spec, groups, oom_score)
        crash_point("child.entered")
        _take_streams(log)
        _take_user(launch_spec)
        die_with_parent(signal.SIGKILL)
        if os.getppid() != shim:
            os._exit(CANNOT_PREPARE)  # the shim died before the death signal was set
        _take_folder(launch_spec.cwd)
        _restore_signals()
        _execute(launch_spec.command, _environment(folder, launch_spec))
    except StartError as error:
        os.write(pipe, f"{error.code} {error.sentence}".encode())
        os._exit(error.code)
    except BaseException as error:
        os.write(pipe, f"{CANNOT_PREPARE} the replica could not be prepared: {error}.".encode())
        os._exit(CANNOT_PREPARE)


def _take_place(launch_spec: LaunchSpec, groups: tuple[str, ...], oom_score: int) -> None:
    for group in groups:
        try:
            enter(group)
        except OSError as error:
            sentence = f"the control group {group} could not be entered ({error.strerror}); restart the daemon."
            raise StartError(CANNOT_PREPARE, sentence) from error
    if launch_spec.cpus and not pins_cores(launch_spec.groups):
        try:
            os.sched_setaffinity(0, launch_spec.cpus)
        except OSError as error:
            cores = ",".join(map(str, launch_spec.cpus))
            sentence = f"the cores {cores} are not at hand here ({error.strerror}); choose other nodes."
            raise StartError(CANNOT_PREPARE, sentence) from error
    if launch_spec.nice:
        _be_nice(launch_spec.nice)
    set_oom_score(oom_score)


def _be_nice(nice: int) -> None:
    """Set the nice value. It counts only within a session; between sessions the kernel weighs their autogroups."""
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    try:
        descriptor = os.open("/proc/self/autogroup", os.O_WRONLY)
    except OSError:
        return  # a kernel without autogroups: the plain nice value counts
    try:
        os.write(descriptor, str(nice).encode())
    finally:
        os.close(descriptor)


def _take_streams(log: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)


def _take_user(launch_spec: LaunchSpec) -> None:
    if launch_spec.gid is not None:
        os.setgroups([launch_spec.gid])
        os.setgid(launch_spec.gid)
    if launch_spec.uid is not None:
        os.setuid(launch_spec.uid)


def _take_folder(cwd: str) -> None:
    try:
        os.chdir(cwd)
    except OSError as error:
        sentence = f"the working folder {cwd} cannot be entered ({error.strerror}); create it or choose another."
        raise StartError(CANNOT_PREPARE, sentence) from error


def _restore_signals() -> None:
    """Reset signals that Python ignores: a program inherits ignored and blocked signals."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _environment(folder: str, launch_spec: LaunchSpec) -> dict[str, str]:
    """Return the environment, with the folder by which a stray process is recognised."""
    environment = {**launch_spec.env, FOLDER_VARIABLE: folder}
    environment.pop(VARIABLE, None)
    return environment


def _execute(command: tuple[str, ...], environment: dict[str, str]) -> None:
    program = command[0]
    path = environment.get("PATH", _DEFAULT_PATH)
    candidates = [program] if "/" in program else [f"{part or '.'}/{program}" for part in path.split(":")]
    code, why = NOT_FOUND, "it is not there"
    for candidate in candidates:
        try:
            os.execve(candidate, command, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            code, why = CANNOT_EXECUTE, error.strerror or "it cannot be executed"
    where = "" if "/" in program else f" on PATH ({path})"
    raise StartError(code, f"the command '{program}' was not started{where}: {why}; check its spelling and rights.")
