"""Prometheus metrics of an operator."""

from __future__ import annotations

import pytest

from sterna.backends.kubernetes.api.resources import Verb, Write, WriteResult
from sterna.backends.kubernetes.cache.job_entry import JobEvent
from sterna.backends.kubernetes.server.metrics import OperatorMetrics
from sterna.kinds.resource import PODS
from sterna.service.views import JobView, NodeView


def job_view(name: str, state: str, **more: object) -> JobView:
    view = JobView(name, "TFJob", state, "", 0, 1, 1, 1, 0, "", "", 0.0)
    for field, value in more.items():
        setattr(view, field, value)
    return view


def node_view(name: str, devices: float = 8.0, free: float = 8.0, state: str = "ready") -> NodeView:
    return NodeView(name, state, 4.0, 4.0, devices, free, 1, 1, False, "")


def telemetry(*jobs: JobView, nodes: tuple[NodeView, ...] = (), leads: bool = True) -> OperatorMetrics:
    return OperatorMetrics(lambda: jobs, lambda: nodes, lambda: leads)


def value(text: bytes, name: str) -> float:
    lines = [line.split() for line in text.decode().splitlines() if not line.startswith("#")]
    return next(float(number) for key, number in lines if key == name)


@pytest.mark.parametrize(
    ("happened", "names"),
    [
        (JobEvent.CREATED, ["tf_operator_jobs_created_total", "voda_scheduler_jobs_created_total"]),
        (JobEvent.DELETED, ["tf_operator_jobs_deleted_total", "voda_scheduler_jobs_deleted_total"]),
        (JobEvent.COMPLETED, ["tf_operator_jobs_successful_total", "voda_scheduler_jobs_completed_total"]),
        (JobEvent.FAILED, ["tf_operator_jobs_failed_total", "voda_scheduler_jobs_failed_total"]),
    ],
    ids=lambda each: each.name.lower() if isinstance(each, JobEvent) else "",
)
def test_each_job_is_counted_once_by_every_name(happened: JobEvent, names: list[str]) -> None:
    """DRAGON-52, VODA-99."""
    metrics = telemetry()
    assert value(metrics.render(), names[0]) == 0
    metrics.count_event(happened, "uid-1")
    if happened is not JobEvent.DELETED:
        metrics.count_event(happened, "uid-1")
    metrics.count_event(happened, "uid-2")
    for name in names:
        assert value(metrics.render(), name) == 2
    kind = happened.name.lower()
    assert value(metrics.render(), f'sterna_job_events_total{{kind="{kind}"}}') == 2


def test_every_restart_counts() -> None:
    """DRAGON-52."""
    metrics = telemetry()
    metrics.count_event(JobEvent.RESTARTED, "uid-1")
    metrics.count_event(JobEvent.RESTARTED, "uid-1")
    assert value(metrics.render(), "tf_operator_jobs_restarted_total") == 2


@pytest.mark.parametrize("leads", [True, False])
def test_leadership_is_a_metric(leads: bool) -> None:
    """DRAGON-52."""
    metrics = telemetry(leads=leads).render()
    assert value(metrics, "tf_operator_is_leader") == value(metrics, "sterna_is_leader") == leads


def test_jobs_and_devices_are_counted_at_each_scrape() -> None:
    """VODA-100: ready is waiting and running."""
    jobs = [job_view("a", "waiting"), job_view("b", "running", workers=3), job_view("c", "completed")]
    metrics = telemetry(*jobs, nodes=(node_view("n", 8.0, 5.0), node_view("m"))).render()
    assert value(metrics, 'sterna_jobs{state="running"}') == 1
    assert value(metrics, "sterna_workers") == 3
    assert value(metrics, "voda_scheduler_jobs_ready") == 2
    assert value(metrics, "voda_scheduler_gpus") == 16
    assert value(metrics, "voda_scheduler_gpus_inuse") == 3
    assert value(metrics, 'sterna_node_ready{node="n"}') == 1


def test_jobs_that_are_over_have_no_lines_of_their_own() -> None:
    going = job_view("a", "running", step=5, total=10, value=0.5, metric="loss", eta_seconds=60.0)
    metrics = telemetry(going, job_view("b", "completed")).render()
    assert value(metrics, 'sterna_job_progress_ratio{job="a"}') == 0.5
    assert value(metrics, 'sterna_job_metric{job="a",metric="loss"}') == 0.5
    assert b'job="b"' not in metrics


def test_rounds_and_writes_are_counted() -> None:
    metrics = telemetry()
    metrics.count_round(0.25)
    metrics.count_write(WriteResult(Write(Verb.CREATE, PODS, "default", "p", subresource="binding"), 201))
    text = metrics.render()
    assert value(text, "sterna_round_seconds_sum") == 0.25
    assert value(text, "voda_scheduler_resched_total") == 1
    assert value(text, 'sterna_writes_total{resource="pods/binding",status="201",verb="create"}') == 1
