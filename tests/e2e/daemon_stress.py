"""Kill daemons, shims and replicas at random moments and at named points, and check that no job is lost.

`python -m tests.e2e.daemon_stress --kills 1000` is the long form of `test_daemon_crashes`. A seed repeats its sequence
of kills, except for the speed of the machine.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sterna.backends.local.kernel.crash_points import CRASH_STATUS
from sterna.backends.local.kernel.proc_table import process
from tests.e2e.daemon_program import DaemonProcess
from tests.e2e.replicas import Replicas, until

POINTS = (
    "daemon.acknowledging",
    "daemon.intended",
    "launcher.voiding",
    "daemon.stopping",
    "daemon.resizing",
    "daemon.hearing",
    "daemon.closing",
    "launcher.intended",
    "launcher.asked",
    "launcher.stopping",
)
"""Crash points of the daemon."""

_STEPS = 40


@dataclass
class DaemonStress:
    """Kills daemons on one state folder."""

    state: Path
    seed: int
    acknowledged: set[str] = field(default_factory=set)
    kills: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._submitted = 0

    def run_until_kill(self, crash_at: str = "") -> bool:
        """Run a daemon until it is killed; return True if it reached the crash point."""
        with DaemonProcess(self.state, crash_at=crash_at) as daemon:
            if daemon.is_ready:
                self._keep_busy(daemon)
                if crash_at:
                    if crash_at == "daemon.resizing":
                        self._resize(daemon)
                    else:
                        self._provoke(daemon)
                    daemon.exits_within(1.5)
                else:
                    time.sleep(self._random.uniform(0, 0.25))
                self._kill_random_replica()
            self.kills += 1
            return daemon.kill() == CRASH_STATUS

    def _keep_busy(self, daemon: DaemonProcess) -> None:
        running = daemon.ask("jobs")
        active = [view for view in running or () if view["state"] in ("waiting", "running", "stopping")]
        for _ in range(3 - len(active)):
            name = f"job{self._submitted}"
            self._submitted += 1
            workers = 1 + self._submitted % 2
            resizing = "restart" if self._submitted % 4 == 3 else "in-place"
            if daemon.ask("create", name, _STEPS, workers, resizing) == [name]:
                self.acknowledged.add(name)

    def _resize(self, daemon: DaemonProcess) -> None:
        """Give every running job the other of its two sizes; those that resize in place get there without a restart."""
        for view in daemon.ask("jobs") or ():
            if view["state"] == "running":
                daemon.ask("scale", view["name"], 3 - view["workers"])

    def _provoke(self, daemon: DaemonProcess) -> None:
        """Migrate all running jobs, which stops and starts processes."""
        for view in daemon.ask("jobs") or ():
            if view["state"] == "running":
                other = "node1" if view["nodes"] == ["node0"] else "node0"
                daemon.ask("migrate", view["name"], other, True)

    def _kill_random_replica(self) -> None:
        """Kill a random replica process or shim in half of the calls."""
        if self._random.random() < 0.5:
            return
        victims = [int(pid) for record in self.state.glob("jobs/*/*/*/shim.json") for pid in _pids(record)]
        alive = [pid for pid in victims if (found := process(pid)) is not None and not found.is_gone]
        if alive:
            self.kills += 1
            os.kill(self._random.choice(alive), signal.SIGKILL)

    def check_no_duplicate_run(self) -> None:
        doubles = [str(path) for path in self.state.glob("jobs/*/checkpoint/*.double")]
        assert doubles == []

    def finish(self) -> list[dict[str, Any]]:
        """Run a daemon without kills; check that all acknowledged jobs complete and no process is left."""
        with DaemonProcess(self.state) as daemon:
            views: list[dict[str, Any]] = []

            def all_done() -> bool:
                views[:] = daemon.ask("jobs")
                return all(view["state"] in ("completed", "failed") for view in views)

            until(all_done, 120.0)
            names = {view["name"] for view in views}
            assert self.acknowledged <= names, f"lost: {self.acknowledged - names}"
            assert [view for view in views if view["state"] != "completed"] == []
            self.check_no_duplicate_run()
        replicas = Replicas(self.state)
        replicas.launcher.retire()
        until(lambda: not replicas.leftovers())
        return views


def _pids(record: Path) -> list[int]:
    import json

    try:
        found = json.loads(record.read_text())
    except (OSError, ValueError):
        return []
    return [found["shim_pid"], found["pid"]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stress = DaemonStress(Path(folder), options.seed)
        began = time.monotonic()
        draw = random.Random(options.seed)
        while stress.kills < options.kills:
            stress.run_until_kill(draw.choice((*POINTS, *[""] * len(POINTS))))
            stress.check_no_duplicate_run()
        views = stress.finish()
        seconds = time.monotonic() - began
        attempts = sum(view["attempt"] for view in views)
        print(f"{stress.kills} kills, {len(views)} jobs, {attempts} attempts, none lost, none twice, {seconds:.0f} s")


if __name__ == "__main__":
    main()
