"""Kill launchers, zygotes, shims and replicas at random moments and at named points, and check the invariants.

The long form is `python -m tests.e2e.kill_stress --kills 1000 --seed 7`. The driver acts as a daemon: it voids a launch
spec without a lock, and kills a lost attempt before it starts the next one. After every kill, a job has at most one
main process. At the end no process runs, and every folder has a final phase.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sterna.backends.local.cgroups.select import Control, find_control
from sterna.backends.local.kernel.crash_points import POINTS, VARIABLE
from sterna.backends.local.kernel.proc_table import Process, process
from sterna.backends.local.supervisor.launcher import ReplicaPhase
from sterna.backends.local.supervisor.lock_file import read_lock
from tests.e2e.replicas import Replicas, a_launch_spec, command_line, living, numbers, until

_JOBS = 3
_NOT_AT_START = ("launcher.stopping", "launcher.voiding")
_SCRIPTS = (
    "sleep 1000 & exec sleep 1000",
    'trap "exit 0" TERM; (setsid sleep 1000 &) ; while :; do sleep 0.02; done',
    'trap "" TERM; sh -c "sleep 1000 & sleep 1000" & while :; do sleep 0.02; done',
    "sleep 0.03; exit 3",
)


class InvariantError(AssertionError):
    """An invariant of the supervisor is broken."""


@dataclass
class Job:
    name: str
    attempt: int = 0
    folder: Path | None = None
    caller: int = 0
    """Pid of the process that requests a start or a stop; 0 if none."""
    shim_may_die: bool = False
    """True if the shim was killed or has a crash point; only then can the attempt be lost."""


@dataclass
class KillStress:
    """One run; the seed determines all choices."""

    replicas: Replicas
    seed: int
    control: Control | None = None
    """Control groups for every second attempt; None to run without."""
    kills: Counter[str] = field(default_factory=Counter)
    """SIGKILLs sent, by kind of process."""
    armed: Counter[str] = field(default_factory=Counter)
    """Crash points set; some are not reached before a kill."""
    ends: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.jobs = [Job(f"job-{number}") for number in range(_JOBS)]
        if self.control is not None:
            self.control.make_node("node-0", sorted(os.sched_getaffinity(0)))

    def run(self, kills: int) -> None:
        while self.kills.total() < kills:
            self._step(self.random.choice(POINTS) if self.random.random() < 0.3 else "")
            self._check()
        self._finish()

    def _step(self, point: str) -> None:
        """Advance one job by one stage, possibly with a crash point and a kill."""
        job = self.random.choice(self.jobs)
        self._process_attempt(job)
        if job.folder is None:
            self._begin(job, "" if point in _NOT_AT_START else point)
        elif self.random.random() < 0.4:
            point = point if point in _NOT_AT_START else ""
            self._call(job, self._void if point == "launcher.voiding" else self._stop, point)
        time.sleep(self.random.random() * 0.02)
        if self.random.random() < 0.7:
            self._kill_random_process()

    def _begin(self, job: Job, point: str) -> None:
        job.attempt += 1
        job.folder = self.replicas.folder(job.name, job.attempt)
        job.shim_may_die = point.startswith("shim")
        script = 'echo "$$" >> "$STERNA_DIR/mains"; ' + self.random.choice(_SCRIPTS)
        path = os.environ.get("PATH", os.defpath)
        environment = {"PATH": path, "STRESS_JOB": job.name}
        groups = list(self.control.make_job("node-0", job.name)) if self.control and job.attempt % 2 else []
        launch_spec = a_launch_spec(["sh", "-c", script], env=environment, groups=groups, grace_seconds=0.2)
        self._call(job, lambda job: self.replicas.launcher.start(_folder_of(job), launch_spec), point)

    def _stop(self, job: Job) -> None:
        self.replicas.launcher.stop(_folder_of(job), self.random.choice((0.0, 0.05, 0.2)), "stress")

    def _void(self, job: Job) -> None:
        self.replicas.launcher.void(_folder_of(job))

    def _call(self, job: Job, what: Callable[[Job], None], point: str) -> None:
        """Call `what` in a child process that can crash at `point`."""
        if job.caller:
            return
        if point:
            self.armed[point] += 1
        job.caller = os.fork()
        if job.caller:
            return
        try:
            if point:
                os.environ[VARIABLE] = point
            what(job)
        finally:
            os._exit(0)

    def _kill_random_process(self) -> None:
        ours = self._own_processes()
        callers = [found for job in self.jobs if job.caller and (found := process(job.caller)) is not None]
        candidates = [each for each in (*ours, *callers) if not each.is_gone]
        if not candidates:
            return
        chosen = self.random.choice(sorted(candidates, key=lambda each: each.pid))
        for job in self.jobs:
            lock = read_lock(str(job.folder)) if job.folder else None
            if lock.pid == chosen.pid if lock is not None else _is_supervisor(chosen.pid):
                job.shim_may_die = True  # or the process that is about to take the lock
        self.kills[self._kind(chosen)] += 1
        try:
            os.kill(chosen.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _own_processes(self) -> list[Process]:
        mark = str(self.replicas.state.resolve()).encode()
        return [each for each in living() if each.pid != os.getpid() and _belongs_to_state(each.pid, mark)]

    def _kind(self, chosen: Process) -> str:
        if any(job.caller == chosen.pid for job in self.jobs):
            return "caller"
        if not _is_supervisor(chosen.pid):
            return "main" if chosen.session == chosen.pid else "child"
        parent = process(chosen.parent)
        return "shim" if parent is not None and _is_supervisor(parent.pid) else "zygote or its orphans"

    def _process_attempt(self, job: Job) -> None:
        """Decide as a daemon does whether an attempt has ended."""
        if job.caller and os.waitpid(job.caller, os.WNOHANG)[0]:
            job.caller = 0
        if job.folder is None or job.caller:
            return
        launcher, folder = self.replicas.launcher, job.folder
        found = launcher.inspect(folder)
        if found.phase is ReplicaPhase.ABSENT:
            self._end_attempt(job, "never asked for")
        elif (found.phase is ReplicaPhase.ASKED and launcher.void(folder)) or found.phase is ReplicaPhase.VOID:
            self._end_attempt(job, "void")
        elif found.phase is ReplicaPhase.ENDED:
            self._end_attempt(job, "recorded")
        elif found.phase is ReplicaPhase.LOST:
            if not job.shim_may_die:
                raise InvariantError(f"{folder} is lost, but its shim was not killed")
            if not launcher.kill(folder):
                raise InvariantError(f"{folder} cannot be killed")
            self._end_attempt(job, "lost")

    def _end_attempt(self, job: Job, how: str) -> None:
        self.ends[how] += 1
        alive = self._mains(job)
        if alive:
            raise InvariantError(f"{job.folder} is over ({how}), but {[each.pid for each in alive]} still run")
        if len(numbers(_folder_of(job) / "mains")) > 1:
            raise InvariantError(f"{job.folder} had two main processes")
        job.folder = None

    def _check(self) -> None:
        for job in self.jobs:
            alive = [each for each in self._mains(job) if each.session == each.pid and _is_shell(each.pid)]
            if len(alive) > 1:
                raise InvariantError(f"{job.name} has {len(alive)} main processes")

    def _mains(self, job: Job) -> list[Process]:
        mark = f"STRESS_JOB={job.name}".encode()
        state = str(self.replicas.state.resolve()).encode()
        return [each for each in living() if mark in _environment(each.pid) and state in _environment(each.pid)]

    def _finish(self) -> None:
        """End all attempts without further kills and check that no process is left."""
        for job in self.jobs:
            if job.caller:
                os.waitpid(job.caller, 0)
                job.caller = 0
            deadline = time.monotonic() + 30
            while job.folder is not None:
                self._stop(job)
                self._process_attempt(job)
                if time.monotonic() > deadline:
                    raise InvariantError(
                        f"{job.folder} does not come to an end: {self.replicas.launcher.inspect(job.folder)}"
                    )
                time.sleep(0.005)
        self.replicas.launcher.retire()
        until(lambda: not self._own_processes(), 30)
        if self.control is not None:
            for job in self.jobs:
                self.control.remove("node-0", job.name)
            self.control.close()


def _folder_of(job: Job) -> Path:
    assert job.folder is not None
    return job.folder


def _belongs_to_state(pid: int, mark: bytes) -> bool:
    return (_is_supervisor(pid) and mark.decode() in command_line(pid)) or b"STERNA_DIR=" + mark in _environment(pid)


def _is_supervisor(pid: int) -> bool:
    """True for the zygote, a shim, or a child before its `exec`."""
    return any("sterna.backends.local.supervisor.zygote" in word for word in command_line(pid))


def _is_shell(pid: int) -> bool:
    return command_line(pid)[:1] == ["sh"]


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Kill launchers, zygotes, shims and replicas, and check the invariants."
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    state = Path(tempfile.mkdtemp(prefix="sterna-stress-"))
    control = find_control(state)
    print(f"control: {control.words}")
    stress = KillStress(Replicas(state), options.seed, control)
    began = time.monotonic()
    try:
        stress.run(options.kills)
    except InvariantError as error:
        print(f"seed {options.seed}, after {stress.kills.total()} kills: {error}; see {state}", file=sys.stderr)
        stress.replicas.close()
        return 1
    print(f"{stress.kills.total()} kills in {time.monotonic() - began:.0f} s, seed {options.seed}")
    print("kills:", dict(stress.kills.most_common()))
    print("crash points set:", dict(stress.armed.most_common()))
    print("attempts ended:", dict(stress.ends.most_common()))
    shutil.rmtree(state)
    return 0


if __name__ == "__main__":
    sys.exit(main())
