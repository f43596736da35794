"""A daemon in its own process that tests can kill, controlled over its standard input.

`python -m tests.e2e.daemon_program STATE NODES` answers each line of JSON (a verb and its arguments) with one line of
JSON. It serves no REST API; the tests check that acknowledged jobs survive a crash.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from sterna.apps.daemon import Daemon, Options
from sterna.backends.local.jobs.exits import RestartBackoff
from sterna.backends.local.kernel.crash_points import VARIABLE
from sterna.errors import SternaError
from sterna.model.job import JobSpec, ReplicaSpec, Resizing, RestartPolicy

ROOT = Path(__file__).resolve().parents[2]

JOB = """
import fcntl, os, sys, time
here = os.environ["STERNA_CHECKPOINT_DIR"] + "/" + os.environ["STERNA_INDEX"] + "."
lock = open(here + "lock", "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    open(here + "double", "a").close()
    sys.exit(1)
try:
    step = int(open(here + "step").read())
except FileNotFoundError:
    step = 0
while step < int(sys.argv[1]):
    time.sleep(0.01)
    step += 1
    with open(here + "new", "w") as file:
        file.write(str(step))
    os.replace(here + "new", here + "step")
"""
"""Training script that saves after every step and creates a `.double` file if two copies run at once."""


def a_job(name: str, steps: int, workers: int = 1, resizing: str = "restart") -> JobSpec:
    command = (sys.executable, "-S", "-E", "-c", JOB, str(steps))
    replica = ReplicaSpec("worker", workers, command, working_dir="/")
    return JobSpec(
        name,
        "TrainingJob",
        (replica,),
        1,
        workers,
        workers,
        restart=RestartPolicy.ON_FAILURE,
        backoff_limit=1_000_000,
        grace_seconds=0.2,
        resizing=Resizing(resizing),
    )


def main(state: str, nodes: str) -> None:
    options = Options(Path(state), nodes, backoff=RestartBackoff(0.05, 0.2), has_api=False)
    with Daemon(options) as daemon:
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            print(json.dumps(_answer(daemon, json.loads(line))), flush=True)


def _answer(daemon: Daemon, asked: list[Any]) -> Any:
    verb, *words = asked
    cluster = daemon.cluster
    try:
        if verb == "create":
            return [view.name for view in cluster.create([a_job(*words)])]
        if verb == "delete":
            return [view.name for view in cluster.delete(words)]
        if verb == "scale":
            return cluster.scale(words[0], int(words[1]), int(words[1])).name
        if verb == "migrate":
            return cluster.migrate(words[0], words[1], bool(words[2])).name
        return [msgspec.to_builtins(view) for view in cluster.jobs()]
    except SternaError as error:
        return {"error": str(error)}


class DaemonProcess:
    """Controls a daemon process."""

    def __init__(self, state: Path, nodes: str = "2x1cpu", crash_at: str = "") -> None:
        environment = dict(os.environ, PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{ROOT}")
        environment.pop(VARIABLE, None)
        if crash_at:
            environment[VARIABLE] = crash_at
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.daemon_program", str(state), nodes],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            cwd=ROOT,
        )
        self.is_ready = self._answer() == "ready"

    def _answer(self) -> Any:
        """Read one answer; None if the process has exited."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line.endswith("\n") else None

    def ask(self, *words: object) -> Any:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(words) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        return self._answer()

    def kill(self) -> int:
        """Send SIGKILL and return the exit status."""
        self.process.send_signal(signal.SIGKILL)
        return self.close()

    def exits_within(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> int:
        """Close the pipes, wait for the exit and return its status."""
        for end in (self.process.stdin, self.process.stdout):
            assert end is not None
            try:
                end.close()
            except BrokenPipeError:
                continue
        return self.process.wait(30)

    def __enter__(self) -> DaemonProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
