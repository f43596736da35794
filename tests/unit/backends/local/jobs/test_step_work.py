"""CPU seconds per step on shared nodes, with reports that arrive late."""

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
from tests.fakes.machine import FakeLocalCluster, FakeMachine, a_cluster, some_slices


@dataclass
class CountingMachine(FakeMachine):
    """Returns the CPU seconds that a test sets in `used`."""

    used: dict[str, float] = field(default_factory=dict)

    def cpu_seconds(self, folder: Path | str) -> float:
        return self.used.get(self._name(Path(folder)).split("/")[0], 0.0)


class JobOnSharedNode:
    """One running job on a shared node."""

    def __init__(self, folder: Path) -> None:
        self.machine = CountingMachine(folder)
        self.at: FakeLocalCluster = a_cluster(folder, some_slices(1, is_shared=True), self.machine)
        controller = RoundLoop(self.at.backend, make_rules("fifo", "spread"))
        worker = ReplicaSpec("worker", 1, ("true",))
        self.at.cluster.create([JobSpec("job", "TrainingJob", (worker,), 1, 1, 1)])
        controller.round()
        self.at.backend.wait(self.machine.now + 0.1)

    def report(self, step: int, used: float, seconds_late: float = 0.0, own: float = 0.0) -> None:
        """Advance the clock by 1 second and add a report made `seconds_late` ago.

        `used` is the CPU time of the job now, `own` the CPU time in the report.
        """
        self.machine.now += 1.0
        self.machine.used["job"] = used
        job = self.at.backend.store.find("job")
        report = ProgressReport(self.machine.now - seconds_late, step, 1000, {"loss": 1.0}, cpu_seconds=own)
        self.at.backend.watcher.add_reports(job, [report])

    def step_seconds(self) -> float:
        progress = self.at.backend.store.find("job").progress
        assert progress is not None
        return progress.step_work


@pytest.fixture
def job_on_shared_node(tmp_path: Path) -> Iterator[JobOnSharedNode]:
    local = JobOnSharedNode(tmp_path)
    yield local
    local.at.database.close()


def test_cpu_time_after_a_report_does_not_count(job_on_shared_node: JobOnSharedNode) -> None:
    job_on_shared_node.report(100, 1.0)
    job_on_shared_node.report(150, 2.0, seconds_late=0.5)
    assert job_on_shared_node.step_seconds() == pytest.approx(0.01)


def test_cpu_time_in_a_report_is_exact(job_on_shared_node: JobOnSharedNode) -> None:
    job_on_shared_node.report(100, 1.0, seconds_late=0.25, own=0.9)
    job_on_shared_node.report(101, 1.05, seconds_late=0.25, own=0.91)
    assert job_on_shared_node.step_seconds() == pytest.approx(0.01)


def test_cpu_time_of_an_idle_process_is_not_used_for_the_job(job_on_shared_node: JobOnSharedNode) -> None:
    job_on_shared_node.report(100, 10.0, own=1.0)
    job_on_shared_node.report(200, 20.0, own=2.0)
    assert job_on_shared_node.step_seconds() == pytest.approx(0.1)


def test_agent_reports_the_cpu_time_of_its_process(tmp_path: Path) -> None:
    Reporter(str(tmp_path)).report(1, 10, {"loss": 0.5}, 0)
    line = json.loads((tmp_path / "progress.jsonl").read_text())
    assert 0 < line["cpu"] < 10_000
    reader = ProgressReader(tmp_path, ProgressSpec(), None, {})
    (report,) = reader.poll()
    reader.close()
    assert report.cpu_seconds == line["cpu"]
