"""What a stop would cost a local job: its ability to save, unsaved work, restart time; jobs whose save is broken."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sterna.control.job_state import SaveEvidence
from sterna.control.progress_tracker import ProgressReport
from sterna.model.job import Resizing
from tests.fakes.local_cluster import LocalRun
from tests.fakes.local_cluster import make as make

Make = Callable[..., LocalRun]


def column(local: LocalRun, name: str) -> float:
    """Return the value of a column of the only active job. Read as stored: optional columns may be newer than rules."""
    return float(local.at.backend.observe().jobs.source.column(name)[0])


def report(local: LocalRun, step: int, saved: bool = False) -> None:
    (job,) = local.at.backend.store.jobs.values()
    local.at.backend.watcher.add_reports(job, [ProgressReport(local.machine.now, step, 100, {}, saved)])


def evidence(local: LocalRun) -> SaveEvidence:
    (job,) = local.at.backend.store.jobs.values()
    return job.record.save


def register(local: LocalRun, folder: Path, attempt: int = 1) -> None:
    (folder / "jobs" / "a" / str(attempt) / "worker-0" / "registered").touch()
    local.run_for(0.5)


def stop_and_resume(local: LocalRun) -> None:
    """Have the administrator empty the only node, and open it again."""
    local.cluster.drain("node0")
    local.settle()
    assert local.state("a") == "waiting"
    local.cluster.uncordon("node0")
    local.settle()
    assert local.state("a") == "running"


def lost_sentences(local: LocalRun) -> list[str]:
    return [event.sentence for event in local.cluster.events("a") if event.kind == "lost"]


def test_job_without_evidence_cannot_save_and_would_lose_its_whole_attempt(make: Make) -> None:
    local = make(1)
    local.submit("a", 100, checkpoint="")
    local.run_for(20)
    assert column(local, "can_save") == 0
    assert column(local, "unsaved") == pytest.approx(20, abs=0.5)


def test_job_whose_manifest_names_a_checkpoint_can_save(make: Make) -> None:
    local = make(1)
    local.submit("a", 100, checkpoint="model.npz")
    local.run_for(20)
    assert column(local, "can_save") == 1
    assert column(local, "unsaved") == pytest.approx(20, abs=0.5)


@pytest.mark.parametrize("is_folder", [False, True])
def test_declared_checkpoint_is_found_by_its_time(make: Make, tmp_path: Path, is_folder: bool) -> None:
    local = make(1)
    path = tmp_path / "model"
    local.submit("a", 100, checkpoint=str(path))
    local.run_for(20)
    if is_folder:
        path.mkdir()
    file = path / "step-7" if is_folder else path
    file.touch()
    os.utime(file, (local.machine.now - 4, local.machine.now - 4))
    local.run_for(6)
    assert evidence(local) is SaveEvidence.SAVED
    assert column(local, "unsaved") == pytest.approx(10, abs=0.5)


def test_process_that_answers_stop_requests_loses_nothing(make: Make, tmp_path: Path) -> None:
    local = make(1)
    local.submit("a", 100, checkpoint="")
    local.run_for(20)
    register(local, tmp_path)
    assert (column(local, "can_save"), column(local, "unsaved")) == (1, 0)


def test_periodic_checkpoint_limits_the_loss_to_the_work_since(make: Make) -> None:
    local = make(1)
    local.submit("a", 100, checkpoint="")
    local.run_for(20)
    report(local, 10, saved=True)
    local.run_for(5)
    assert column(local, "can_save") == 1
    assert column(local, "unsaved") == pytest.approx(5, abs=0.5)


def test_evidence_survives_a_restart_of_the_daemon(make: Make, tmp_path: Path) -> None:
    local = make(1)
    local.submit("a", 100, checkpoint="")
    local.settle()
    register(local, tmp_path)
    local.crash()
    assert evidence(local) is SaveEvidence.REGISTERED


def test_waiting_job_has_nothing_to_lose(make: Make) -> None:
    local = make(1)
    local.submit("a", 100, checkpoint="")
    local.run_for(5)
    local.cluster.drain("node0")
    local.settle()
    assert column(local, "unsaved") == 0


def test_restart_time_is_learned_by_category(make: Make) -> None:
    local = make(1)
    local.submit("a", 100)
    local.settle()
    learned = local.at.backend.store.tracker.learned_curves
    before = column(local, "restart_seconds")
    for _ in range(50):
        learned.add_restart("other", 30.0)
    assert before < column(local, "restart_seconds") < 30
    for _ in range(50):
        learned.add_restart("a", 3.0)
    assert column(local, "restart_seconds") == pytest.approx(3, abs=0.6)


@pytest.mark.parametrize(
    ("resizing", "is_in_place"), [(Resizing.RESTART, False), (Resizing.IN_PLACE, True), (Resizing.TORCHRUN, False)]
)
def test_only_a_group_of_the_agent_is_resized_without_a_restart(
    make: Make, resizing: Resizing, is_in_place: bool
) -> None:
    local = make(1)
    local.submit("a", 100, resizing=resizing)
    local.settle()
    assert math.isnan(column(local, "resize_seconds")) is not is_in_place


@pytest.mark.parametrize(("devices", "seconds"), [(0, 0.0), (1000, math.nan)])
def test_move_without_devices_is_free(make: Make, devices: int, seconds: float) -> None:
    local = make(1, devices=1)
    local.submit("a", 100, devices=devices)
    local.settle()
    assert column(local, "move_seconds") == pytest.approx(seconds, nan_ok=True)


def test_loss_is_announced_before_the_stop_and_counted_after_it(make: Make) -> None:
    local = make(1)
    local.machine.saves = False
    local.submit("a", 100, checkpoint="")
    local.run_for(20)
    local.cluster.drain("node0")
    local.settle()
    kinds = local.kinds("a")
    assert kinds.index("stopping") < kinds.index("lost") < kinds.index("stopped")
    (before,) = [event.sentence for event in local.cluster.events("a") if event.kind == "stopping"]
    assert before.startswith("is asked to stop and loses 20 s of work that it has not saved")
    assert local.cluster.job("a").lost_seconds == pytest.approx(20, abs=0.5)
    assert evidence(local) is SaveEvidence.NONE


def test_job_that_registered_a_save_and_does_not_save_counts_as_one_that_cannot(make: Make, tmp_path: Path) -> None:
    local = make(1)
    local.machine.saves = False
    local.submit("a", 100, checkpoint="")
    local.run_for(20)
    register(local, tmp_path)
    stop_and_resume(local)
    assert evidence(local) is SaveEvidence.BROKEN
    (sentence,) = lost_sentences(local)
    assert "said that it saves when it is asked to stop, and did not; from now on" in sentence
    assert local.cluster.job("a").lost_seconds == pytest.approx(20.5, abs=0.6)
    register(local, tmp_path, attempt=2)
    assert column(local, "can_save") == 0
    local.crash()
    assert evidence(local) is SaveEvidence.BROKEN


def test_job_that_says_it_saved_and_begins_again_counts_as_one_that_cannot(make: Make) -> None:
    local = make(1)
    local.submit("a", 100)
    local.settle()
    report(local, 1)
    local.run_for(20)
    report(local, 40)
    stop_and_resume(local)
    assert (evidence(local), local.cluster.job("a").lost_seconds) == (SaveEvidence.REGISTERED, 0)
    report(local, 1)
    assert evidence(local) is SaveEvidence.BROKEN
    (sentence,) = lost_sentences(local)
    assert "said that it can save, was stopped, and began again at step 1; from now on" in sentence
    assert local.cluster.job("a").lost_seconds == pytest.approx(20, abs=0.5)


def test_job_that_resumes_from_its_checkpoint_keeps_its_evidence(make: Make) -> None:
    local = make(1)
    local.submit("a", 100)
    local.settle()
    report(local, 1)
    local.run_for(20)
    report(local, 40)
    for _ in range(3):
        stop_and_resume(local)
        report(local, 41)
    assert evidence(local) is SaveEvidence.REGISTERED
    assert lost_sentences(local) == []


def test_job_stopped_before_its_first_report_is_not_blamed(make: Make, tmp_path: Path) -> None:
    local = make(1)
    local.submit("a", 100)
    local.settle()
    report(local, 1)
    report(local, 40)
    stop_and_resume(local)
    local.machine.saves = False
    local.run_for(3)
    stop_and_resume(local)  # it was still starting
    report(local, 41)
    assert evidence(local) is SaveEvidence.REGISTERED


def test_price_of_changes_is_kept_with_the_job(make: Make) -> None:
    local = make(1)
    local.submit("a", 100)
    local.settle()
    (job,) = local.at.backend.store.jobs.values()
    job.record.spent = 12.5
    assert column(local, "spent") == 12.5
