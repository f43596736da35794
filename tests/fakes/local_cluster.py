"""A local cluster and its round loop on a fake machine, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sterna.backends.local.jobs.exits import RestartBackoff
from sterna.backends.local.recovery import recover
from sterna.backends.local.store.node_slices import Slices
from sterna.control.job_state import SaveEvidence
from sterna.control.progress_tracker import category_of
from sterna.control.round_loop import RoundLoop
from sterna.model.job import JobSpec, ProgressSpec, ReplicaSpec
from sterna.wiring import make_rules
from tests.fakes.machine import FakeLocalCluster, a_cluster, some_slices

_STEPS = 1_000_000
"""Steps of a job, of one second each as far as the rules know."""


class LocalRun:
    """Runs a cluster and its round loop on a virtual clock."""

    def __init__(self, folder: Path, slices: Slices, policy: str = "elastic-fifo", **rules: Any) -> None:
        self.folder, self.slices, self._rules = folder, slices, make_rules(policy, "stay", **rules)
        self.at: FakeLocalCluster = a_cluster(folder, slices, backoff=RestartBackoff(1.0, 8.0))
        self._begin()

    def _begin(self) -> None:
        self.machine, self.cluster = self.at.machine, self.at.cluster
        self.controller = RoundLoop(self.at.backend, self._rules)
        self.until = self.controller.round().until

    def submit(self, name: str, seconds: float = 10.0, size: tuple[int, int] = (1, 1), **more: Any) -> None:
        """Create a job that takes one worker `seconds` seconds. Unless `more` says otherwise, it is known to save on
        request and expected to run for long, so that any change of it pays."""
        needs = {key: more.pop(key) for key in ("cpus", "devices") if key in more}
        replicas = (ReplicaSpec("worker", size[0], ("true",), **needs), *more.pop("others", ()))
        self.machine.work[name] = seconds
        kind = more.pop("kind", "TrainingJob")
        if "progress" not in more:
            more["progress"] = ProgressSpec(total=_STEPS)
            self.at.backend.store.tracker.learned_curves.add_steps(category_of(name), 1, 1000.0, 1000.0)
        self.cluster.create([JobSpec(name, kind, replicas, *size, size[0], **more)])
        if "checkpoint" not in more:
            self.at.backend.store.find(name).record.save = SaveEvidence.REGISTERED

    def run_for(self, seconds: float = 1000.0, until: Callable[[], bool] = lambda: False) -> None:
        """Advance the clock by `seconds`, or until `until` returns True."""
        end = self.machine.now + seconds
        while self.machine.now < end and not until():
            if not self.at.backend.wait(min(self.until, end)):
                return
            self.until = self.controller.round().until

    def settle(self) -> None:
        """Process everything that is due now."""
        self.run_for(0.01)

    def state(self, name: str) -> str:
        return self.cluster.job(name).state

    def kinds(self, name: str) -> list[str]:
        return [event.kind for event in self.cluster.events(name)]

    def crash(self) -> None:
        """Replace the daemon; processes keep running."""
        machine = self.machine
        self.at.database.close()
        self.at = a_cluster(self.folder, self.slices, machine, backoff=RestartBackoff(1.0, 8.0))
        recover(self.at.backend)
        self._begin()

    def close(self) -> None:
        self.at.database.close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., LocalRun]]:
    made: list[LocalRun] = []

    def build(*cores: int, devices: int = 0, is_shared: bool = False, **more: Any) -> LocalRun:
        made.append(LocalRun(tmp_path, some_slices(*(cores or (1, 1)), devices=devices, is_shared=is_shared), **more))
        return made[-1]

    yield build
    for local in made:
        local.close()
