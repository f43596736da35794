"""What a stop costs a job of a cluster, what a failure costs its place, and what users read about both."""

from __future__ import annotations

import re

import pytest

from sterna.backends.kubernetes.api.monitor_protocol import Batch, PodReports
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.control.job_state import SaveEvidence
from sterna.kinds.labels import CHECKPOINT
from sterna.kinds.resource import PODS
from sterna.kinds.training_job import TRAINING_JOBS
from sterna.model.cluster import NOWHERE
from sterna.model.plan import Action, ActionKind, Decision, Plan
from sterna.model.reason import Code, Reason
from sterna.model.snapshot import JobKey
from sterna.progress.report import SourceReport
from tests.fakes.kube_nodes import GPU
from tests.fakes.kube_store import Object
from tests.simulation.kubernetes_runs import Cluster
from tests.unit.backends.kubernetes.backend.test_decisions import observe, operator_of
from tests.unit.backends.kubernetes.backend.test_failures import a_refusing_cluster, refuse_pods
from tests.unit.backends.kubernetes.backend.test_jobs import a_cluster, condition, events, status_of

SAVED = '{"saved": true, "step": 40}'


def entry_of(cluster: Cluster, name: str) -> JobEntry:
    return next(each for each in operator_of(cluster).backend.state.entries.values() if each.name == f"default/{name}")


def report(cluster: Cluster, name: str, *steps: int, saves_on_request: bool = False) -> None:
    """Reports of the first worker, a tenth of a second apart, that arrive now."""
    backend, now = operator_of(cluster).backend, cluster.kube.now
    uid = cluster.kube.get(PODS, f"{name}-worker-0")["metadata"]["uid"]
    reports = [SourceReport(now - 0.1 * (len(steps) - at), step, 1000, {}) for at, step in enumerate(steps)]
    pods = [PodReports(uid, "default", f"{name}-worker-0", reports, saves_on_request)]
    backend.take_reports([Batch("node-0", now, backend.state.progress.memory, pods)], now)


def stop(cluster: Cluster, name: str, price: float = 0.0) -> None:
    """Stop a job by decision, and let it be started again by the next round."""
    backend, snapshot = operator_of(cluster).backend, observe(cluster)
    entry = entry_of(cluster, name)
    row = snapshot.jobs.key.tolist().index(entry.key)
    action = Action(ActionKind.STOP, JobKey(entry.key), row, entry.assignment, NOWHERE, price=price)
    reason = Reason(row, f"default/{name}", Code.STOPPED_BY_RULE, n=1)
    backend.apply(Decision(Plan((action,)), explain=lambda: (reason,)))


def row_of(cluster: Cluster, name: str) -> dict[str, float]:
    jobs = observe(cluster).jobs
    row = [jobs.name_of(row) for row in range(len(jobs))].index(f"default/{name}")
    names = ("can_save", "unsaved", "may_preempt", "not_before", "minimum", "maximum", "spent")
    return {name: getattr(jobs, name).item(row) for name in names}


# Saving.


def test_a_job_that_shows_nothing_cannot_save_and_a_stop_loses_its_whole_run() -> None:
    cluster = a_cluster()
    cluster.submit("job", saves=False, seconds=1000.0)
    cluster.run(31.5)
    row = row_of(cluster, "job")
    assert row["can_save"] == 0
    assert row["unsaved"] == pytest.approx(30.0, abs=1.0)


@pytest.mark.parametrize("kind", ["TrainingJob", "Pod"])
def test_an_annotation_declares_a_checkpoint_of_any_kind(kind: str) -> None:
    cluster = a_cluster()
    annotations = {CHECKPOINT: "/checkpoints"}
    container: Object = {"name": "train", "image": "train"}
    if kind == "Pod":
        meta = {"name": "job", "labels": {"sterna.dev/job": "job"}, "annotations": annotations}
        cluster.kube.create(PODS, {"metadata": meta, "spec": {"containers": [container], "nodeName": "node-0"}})
    else:
        container |= {"resources": {"limits": {GPU: 1}}}
        spec = {"workers": 1, "template": {"spec": {"containers": [container]}}}
        cluster.kube.create(TRAINING_JOBS, {"metadata": {"name": "job", "annotations": annotations}, "spec": spec})
    cluster.run(5.0)
    assert row_of(cluster, "job")["can_save"] == 1
    assert entry_of(cluster, "job").job.persisted.save is SaveEvidence.DECLARED


def test_a_registered_save_survives_the_operator_and_costs_nothing_to_use() -> None:
    cluster = a_cluster()
    cluster.submit("job", saves=False, seconds=1000.0)
    cluster.run(20.0)
    report(cluster, "job", saves_on_request=True)
    cluster.run(20.0)
    cluster.crash()
    cluster.run(5.0)
    assert entry_of(cluster, "job").job.persisted.save is SaveEvidence.REGISTERED
    row = row_of(cluster, "job")
    assert (row["can_save"], row["unsaved"]) == (1, 0.0)


def test_the_event_of_a_stop_names_its_loss_before_and_after_it() -> None:
    cluster = a_cluster()
    cluster.submit("job", saves=False, seconds=1000.0)
    cluster.run(31.5)
    stop(cluster, "job", price=40.0)
    cluster.run(5.0)
    notes = [note for reason, note in events(cluster, "job") if reason == "Stopped"]
    assert any("It loses 30 s of work that is in no checkpoint; the change costs 40 dev" in note for note in notes), (
        notes
    )
    assert "stopped; 31 s of work are lost: it did not say that it saved before it ended." in notes
    assert row_of(cluster, "job")["spent"] == 40.0


def test_a_job_that_saves_on_request_and_does_not_is_broken_after_its_first_loss() -> None:
    cluster = a_cluster()
    cluster.submit("job", saves=False, seconds=1000.0)
    cluster.run(20.0)
    report(cluster, "job", 1, 40, saves_on_request=True)
    stop(cluster, "job")
    cluster.run(5.0)
    persisted = entry_of(cluster, "job").job.persisted
    assert persisted.save is SaveEvidence.BROKEN
    assert persisted.lost_seconds == pytest.approx(19.0, abs=1.0)
    assert any(reason == "CheckpointMissing" for reason, _ in events(cluster, "job"))
    assert row_of(cluster, "job")["can_save"] == 0


def test_a_job_that_says_that_it_saved_and_begins_again_from_nothing_is_broken() -> None:
    cluster = a_cluster()
    cluster.submit("job", saves=False, seconds=1000.0, annotations={"fake/stop-message": SAVED})
    cluster.run(20.0)
    report(cluster, "job", 1, 40)
    stop(cluster, "job")
    cluster.run(5.0)
    assert entry_of(cluster, "job").job.persisted.save is SaveEvidence.REGISTERED
    report(cluster, "job", 1)
    cluster.run(5.0)
    persisted = entry_of(cluster, "job").job.persisted
    assert persisted.save is SaveEvidence.BROKEN
    assert persisted.lost_seconds == pytest.approx(19.0, abs=1.0)
    assert any(reason == "CheckpointMissing" for reason, _ in events(cluster, "job"))


def test_a_job_that_resumes_where_it_saved_stays_one_that_can_save() -> None:
    cluster = a_cluster()
    cluster.submit("job", saves=False, seconds=1000.0, annotations={"fake/stop-message": SAVED})
    cluster.run(20.0)
    report(cluster, "job", 1, 40)
    stop(cluster, "job")
    cluster.run(5.0)
    report(cluster, "job", 41)
    persisted = entry_of(cluster, "job").job.persisted
    assert (persisted.save, persisted.lost_seconds) == (SaveEvidence.REGISTERED, 0.0)


# Failures.


def crashing(cluster: Cluster, seconds: float = 1.0, exit_code: int = 127) -> None:
    annotations = {"fake/exit-code": str(exit_code)}
    cluster.submit("job", saves=False, seconds=seconds, restartPolicy="OnFailure", annotations=annotations)


def test_a_job_that_crashes_at_once_keeps_nothing_in_its_back_off_and_then_does_not_preempt() -> None:
    cluster = a_cluster()
    crashing(cluster)
    cluster.run(6.0)
    held = row_of(cluster, "job")
    assert held["maximum"] < held["minimum"]
    assert (held["may_preempt"], held["not_before"] > cluster.kube.now) == (0, True)
    reason = status_of(cluster, "job")["reason"]
    assert re.fullmatch(
        r"waits: back-off until \S+Z \(restart 1 of 6\): worker-0 ended with exit code 127 \(command not found\)\.",
        reason,
    )
    assert condition(cluster, "job", "Scheduled")["message"] == reason


def test_the_back_off_and_its_cause_survive_the_operator() -> None:
    cluster = a_cluster()
    crashing(cluster)
    cluster.run(6.0)
    before = status_of(cluster, "job")["reason"]
    cluster.crash(0.3)
    cluster.run(3.0)
    assert status_of(cluster, "job")["reason"] == before
    assert row_of(cluster, "job")["may_preempt"] == 0


def test_a_crash_loop_is_named_in_status_and_events() -> None:
    cluster = a_cluster()
    crashing(cluster)
    cluster.run(55.0)
    assert "a crash loop of 3 failures in a row; look into its log" in status_of(cluster, "job")["reason"]
    assert any("It is in a crash loop, 3 failures in a row" in note for _, note in events(cluster, "job"))
    assert entry_of(cluster, "job").job.persisted.exit_code == 127


def test_a_job_that_ran_well_keeps_its_place_after_a_failure() -> None:
    cluster = a_cluster()
    crashing(cluster, seconds=200.0, exit_code=1)
    cluster.run(204.0)
    held = row_of(cluster, "job")
    assert (held["may_preempt"], held["maximum"]) == (1, 1)
    assert held["not_before"] > cluster.kube.now
    assert "it keeps its place in the queue" in status_of(cluster, "job")["reason"]


def test_progress_of_an_attempt_is_a_good_run_however_short() -> None:
    cluster = a_cluster()
    crashing(cluster, seconds=10.0, exit_code=1)
    cluster.run(8.0)
    report(cluster, "job", 1, 5)
    cluster.run(6.0)
    assert row_of(cluster, "job")["may_preempt"] == 1


def test_pods_that_the_server_refuses_do_not_preempt_at_the_next_try() -> None:
    cluster, _ = a_refusing_cluster(refuse_pods(403, "Forbidden", "exceeded quota: gpus"))
    cluster.submit("job", 4, seconds=5.0)
    cluster.run(5.0)
    assert row_of(cluster, "job")["may_preempt"] == 0
    assert "(exceeded quota: gpus); free a part of the quota or raise it." in status_of(cluster, "job")["reason"]
    assert entry_of(cluster, "job").job.persisted.failures == 1, "the pods of a gang are one refusal"


def test_a_kubelets_refusal_is_named_with_its_node() -> None:
    cluster = a_cluster(1, 4)
    cluster.submit("job", seconds=5.0)
    cluster.run(0.5)
    refusal = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
    cluster.kube.patch(PODS, "job-worker-0", {"status": refusal}, "status")
    cluster.run(3.0)
    reason = status_of(cluster, "job")["reason"]
    assert "worker-0 was refused by node-0 (UnexpectedAdmissionError)" in reason
    assert reason.startswith("waits: back-off until")


@pytest.mark.parametrize(
    ("waiting", "sentence"),
    [
        (
            "ImagePullBackOff",
            "waits: worker-0 cannot start on node-0: its image 'train' cannot be pulled (ImagePullBackOff); check the "
            "image's name and the pull secret.",
        ),
        (
            "InvalidImageName",
            "waits: worker-0 cannot start on node-0: the name of its image 'train' is invalid (InvalidImageName); "
            "correct it.",
        ),
    ],
)
def test_a_missing_image_is_in_the_status(waiting: str, sentence: str) -> None:
    cluster = a_cluster()
    cluster.nodes.start_seconds = 1000.0
    cluster.submit("job", seconds=5.0)
    cluster.run(1.0)
    state = {"name": "train", "state": {"waiting": {"reason": waiting}}}
    cluster.kube.patch(PODS, "job-worker-0", {"status": {"containerStatuses": [state]}}, "status")
    cluster.run(5.0)
    assert status_of(cluster, "job")["reason"] == sentence


def test_a_crash_loop_of_a_kubelet_is_in_the_status() -> None:
    cluster = a_cluster()
    cluster.submit("job", saves=False, seconds=1000.0)
    cluster.run(5.0)
    state = {
        "name": "train",
        "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
    }
    cluster.kube.patch(PODS, "job-worker-0", {"status": {"containerStatuses": [state]}}, "status")
    cluster.run(40.0)
    assert status_of(cluster, "job")["reason"].startswith(
        "crash loop: worker-0 fails again and again on node-0 (4 restarts, the last time with exit code 1"
    )
