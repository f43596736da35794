"""Two cores and two users: a job that cannot save is not stopped, and a command that fails takes no job's place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sterna.apps.daemon import Daemon, Options
from sterna.backends.local.cluster import LocalCluster
from sterna.backends.local.jobs.exits import RestartBackoff
from sterna.model.job import JobSpec, ReplicaSpec
from tests.e2e.replicas import Replicas, until

TRAIN = str(Path(__file__).resolve().parents[2] / "examples" / "numpy_train.py")
LOOP = "import time\nwhile True: time.sleep(0.01)"
"""A training script that knows nothing of Sterna."""

Up = Callable[..., LocalCluster]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """Start a daemon on one node of two cores; end all processes after the test."""
    daemons: list[Daemon] = []

    def start(evict_unsaved: bool = False) -> LocalCluster:
        options = Options(tmp_path, "1x2cpu", rules=(("policy", "fifo"),), has_api=False)
        options = replace(options, evict_unsaved=evict_unsaved, backoff=RestartBackoff(0.1, 1.0))
        daemons.append(Daemon(options))
        daemons[0].start()
        return daemons[0].cluster

    yield start
    cluster = daemons[0].cluster
    cluster.delete([view.name for view in cluster.jobs()])
    until(lambda: not cluster.jobs())
    daemons[0].stop()
    replicas = Replicas(tmp_path)
    replicas.launcher.retire()
    until(lambda: not replicas.leftovers())


def a_job(name: str, *command: str, priority: int = 0) -> JobSpec:
    """Return a job that needs both cores."""
    replica = ReplicaSpec("worker", 1, (sys.executable, *command), working_dir="/", cpus=2000)
    return JobSpec(name, "TrainingJob", (replica,), 1, 1, 1, priority=priority, grace_seconds=10.0)


def test_job_that_cannot_save_is_not_stopped_for_a_job_of_higher_priority(up: Up) -> None:
    cluster = up()
    cluster.create([a_job("a", "-c", LOOP)])
    until(lambda: cluster.job("a").state == "running")
    cluster.create([a_job("b", "-c", LOOP, priority=1)])
    until(lambda: cluster.job("b").reason.startswith("waits: 2 more CPUs needed"))
    until(lambda: cluster.job("a").ran_seconds > 1.0)
    assert (cluster.job("a").state, cluster.job("a").attempt) == ("running", 1)
    assert cluster.job("b").attempt == 0
    explanation = cluster.explain("b")
    assert explanation.state == "waits"
    assert "waits since" in explanation.events[-1].sentence
    assert "2 more CPUs needed" in explanation.events[-1].sentence
    cluster.delete(["a"])
    until(lambda: cluster.job("b").state == "running")


def test_administrator_may_evict_a_job_that_cannot_save_and_the_loss_is_reported_before_and_after(up: Up) -> None:
    cluster = up(evict_unsaved=True)
    cluster.create([a_job("a", "-c", LOOP)])
    until(lambda: cluster.job("a").ran_seconds > 1.5)
    cluster.create([a_job("b", "-c", LOOP, priority=1)])
    until(lambda: cluster.job("b").state == "running")
    kinds = [event.kind for event in cluster.events("a")]
    assert kinds.index("stopping") < kinds.index("lost")
    assert cluster.job("a").lost_seconds > 1.0


def test_command_that_fails_evicts_no_training_job_at_any_retry(up: Up) -> None:
    cluster = up()
    cluster.create([a_job("train", TRAIN, "--steps", "1000000", "--pad-seconds", "0.002")])
    until(lambda: (cluster.job("train").step or 0) > 20)
    cluster.create([a_job("nosuch", "nosuch.py", priority=1)])
    until(lambda: cluster.job("nosuch").restarts == 1)  # its first attempt went before the training, by its priority
    until(lambda: cluster.job("train").state == "running")
    before = cluster.job("train")
    until(lambda: "starts on free capacity only" in cluster.job("nosuch").reason)
    until(lambda: (cluster.job("train").step or 0) > (before.step or 0) + 100)
    assert (cluster.job("train").attempt, cluster.job("train").lost_seconds) == (before.attempt, 0)
    assert cluster.job("nosuch").attempt == 1
    assert "exit code 2 (wrong usage, or a file that does not exist)" in cluster.job("nosuch").reason
    sentences = [event.sentence for event in cluster.explain("nosuch").events]
    assert any("ended with exit code 2" in sentence for sentence in sentences)
    assert any("back-off" in sentence for sentence in sentences)
    cluster.delete(["train"])
    until(lambda: cluster.job("nosuch").restarts > 3)
    assert "a crash loop" in " ".join(event.sentence for event in cluster.events("nosuch"))
