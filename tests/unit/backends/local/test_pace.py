"""How much CPU a step takes is told rightly on shared nodes, though a report is heard of after it was made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sterna.agent.reporting import Reporter
from sterna.control.progress_tracker import ProgressReport
from sterna.control.round_loop import RoundLoop
from sterna.model.job import JobSpec, ProgressSpec, ReplicaSpec
from sterna.progress.reader import ProgressReader
from sterna.wiring import make_rules
from tests.fakes.machine import FakeCluster, FakeMachine, a_cluster, some_slices


@dataclass
class CountingMachine(FakeMachine):
    """Tells what a test says of CPU time."""

    used: dict[str, float] = field(default_factory=dict)

    def cpu_seconds(self, folder: Path | str) -> float:
        return self.used.get(self._name(Path(folder)).split("/")[0], 0.0)


class Shared:
    """One job on a shared node, and what it tells."""

    def __init__(self, folder: Path) -> None:
        self.machine = CountingMachine(folder)
        self.at: FakeCluster = a_cluster(folder, some_slices(1, is_shared=True), self.machine)
        controller = RoundLoop(self.at.backend, make_rules("fifo", "spread"))
        worker = ReplicaSpec("worker", 1, ("true",))
        self.at.cluster.create([JobSpec("job", "TrainingJob", (worker,), 1, 1, 1)])
        controller.round()
        self.at.backend.wait(self.machine.now + 0.1)

    def report(self, step: int, used: float, seconds_late: float = 0.0, own: float = 0.0) -> None:
        """A second later: a report of this step, made a moment ago, while the job has used so much."""
        self.machine.now += 1.0
        self.machine.used["job"] = used
        job = self.at.backend.store.find("job")
        told = ProgressReport(self.machine.now - seconds_late, step, 1000, {"loss": 1.0}, cpu_seconds=own)
        self.at.backend.watcher.add_reports(job, [told])

    def step_seconds(self) -> float:
        progress = self.at.backend.store.find("job").progress
        assert progress is not None
        return progress.step_work


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    world = Shared(tmp_path)
    yield world
    world.at.database.close()


def test_what_a_job_used_since_its_report_does_not_count(shared: Shared) -> None:
    shared.report(100, 1.0)
    shared.report(150, 2.0, seconds_late=0.5)
    assert shared.step_seconds() == pytest.approx(0.01)


def test_its_own_count_is_exact_however_unevenly_it_was_given_cpu(shared: Shared) -> None:
    shared.report(100, 1.0, seconds_late=0.25, own=0.9)
    shared.report(101, 1.05, seconds_late=0.25, own=0.91)
    assert shared.step_seconds() == pytest.approx(0.01)


def test_a_process_that_leaves_the_work_to_others_does_not_speak_for_the_job(shared: Shared) -> None:
    shared.report(100, 10.0, own=1.0)
    shared.report(200, 20.0, own=2.0)
    assert shared.step_seconds() == pytest.approx(0.1)


def test_the_agent_tells_what_the_process_has_used(tmp_path: Path) -> None:
    Reporter(str(tmp_path)).report(1, 10, {"loss": 0.5}, 0)
    line = json.loads((tmp_path / "progress.jsonl").read_text())
    assert 0 < line["cpu"] < 10_000
    reader = ProgressReader(tmp_path, ProgressSpec(), None, {})
    (report,) = reader.poll()
    reader.close()
    assert report.cpu_seconds == line["cpu"]
