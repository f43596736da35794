"""What Prometheus reads of an operator, and the file that SpeCon's tools read."""

from __future__ import annotations

import pytest

from sterna.backends.kubernetes.api.resources import Verb, Write, WriteResult
from sterna.backends.kubernetes.server.metrics import Happened, Telemetry
from sterna.backends.kubernetes.server.specon_csv import HEADER, Distribution
from sterna.kinds.resource import PODS
from sterna.model.cluster import Assignment
from sterna.model.growth import Growth
from sterna.model.plan import Action, ActionKind, Decision, Plan
from sterna.model.snapshot import JobKey, Snapshot
from sterna.service.views import JobView, NodeView
from tests.crowds import Instant, Member


def job_view(name: str, state: str, **more: object) -> JobView:
    view = JobView(name, "TFJob", state, "", 0, 1, 1, 1, 0, "", "", 0.0)
    for field, value in more.items():
        setattr(view, field, value)
    return view


def node_view(name: str, devices: float = 8.0, free: float = 8.0, state: str = "ready") -> NodeView:
    return NodeView(name, state, 4.0, 4.0, devices, free, 1, 1, False, "")


def telemetry(*jobs: JobView, nodes: tuple[NodeView, ...] = (), leads: bool = True) -> Telemetry:
    return Telemetry(lambda: jobs, lambda: nodes, lambda: leads)


def value(text: bytes, name: str) -> float:
    lines = [line.split() for line in text.decode().splitlines() if not line.startswith("#")]
    return next(float(number) for key, number in lines if key == name)


@pytest.mark.parametrize(
    ("happened", "names"),
    [
        (Happened.CREATED, ["tf_operator_jobs_created_total", "voda_scheduler_jobs_created_total"]),
        (Happened.DELETED, ["tf_operator_jobs_deleted_total", "voda_scheduler_jobs_deleted_total"]),
        (Happened.COMPLETED, ["tf_operator_jobs_successful_total", "voda_scheduler_jobs_completed_total"]),
        (Happened.FAILED, ["tf_operator_jobs_failed_total", "voda_scheduler_jobs_failed_total"]),
    ],
    ids=lambda each: each.name.lower() if isinstance(each, Happened) else "",
)
def test_each_job_is_counted_once_by_every_name(happened: Happened, names: list[str]) -> None:
    """DRAGON-52, VODA-99."""
    told = telemetry()
    assert value(told.text(), names[0]) == 0
    told.count(happened, "uid-1")
    if happened is not Happened.DELETED:
        told.count(happened, "uid-1")
    told.count(happened, "uid-2")
    for name in names:
        assert value(told.text(), name) == 2
    kind = happened.name.lower()
    assert value(told.text(), f'sterna_job_events_total{{kind="{kind}"}}') == 2


def test_every_restart_counts() -> None:
    """DRAGON-52."""
    told = telemetry()
    told.count(Happened.RESTARTED, "uid-1")
    told.count(Happened.RESTARTED, "uid-1")
    assert value(told.text(), "tf_operator_jobs_restarted_total") == 2


@pytest.mark.parametrize("leads", [True, False])
def test_whether_a_replica_leads_is_told(leads: bool) -> None:
    """DRAGON-52."""
    told = telemetry(leads=leads).text()
    assert value(told, "tf_operator_is_leader") == value(told, "sterna_is_leader") == leads


def test_jobs_and_devices_are_counted_when_somebody_asks() -> None:
    """VODA-100: ready is waiting and running."""
    jobs = [job_view("a", "waiting"), job_view("b", "running", workers=3), job_view("c", "completed")]
    told = telemetry(*jobs, nodes=(node_view("n", 8.0, 5.0), node_view("m"))).text()
    assert value(told, 'sterna_jobs{state="running"}') == 1
    assert value(told, "sterna_workers") == 3
    assert value(told, "voda_scheduler_jobs_ready") == 2
    assert value(told, "voda_scheduler_gpus") == 16
    assert value(told, "voda_scheduler_gpus_inuse") == 3
    assert value(told, 'sterna_node_ready{node="n"}') == 1


def test_jobs_that_are_over_have_no_lines_of_their_own() -> None:
    going = job_view("a", "running", step=5, total=10, value=0.5, metric="loss", eta_seconds=60.0)
    told = telemetry(going, job_view("b", "completed")).text()
    assert value(told, 'sterna_job_progress_ratio{job="a"}') == 0.5
    assert value(told, 'sterna_job_metric{job="a",metric="loss"}') == 0.5
    assert b'job="b"' not in told


def test_rounds_and_writes_are_counted() -> None:
    told = telemetry()
    told.count_round(0.25)
    told.count_answer(WriteResult(Write(Verb.CREATE, PODS, "default", "p", subresource="binding"), 201))
    text = told.text()
    assert value(text, "sterna_round_seconds_sum") == 0.25
    assert value(text, "voda_scheduler_resched_total") == 1
    assert value(text, 'sterna_writes_total{resource="pods/binding",status="201",verb="create"}') == 1


# distribution.csv


def test_requests_that_were_met_have_a_row() -> None:
    """DRAGON-87: the header is SpeCon's, misspelling included."""
    distribution = Distribution()
    assert distribution.text() == HEADER == "time,job,orginal_node,to_node\n"
    distribution.note(1.5, "default/job1", "node-1", "node-2")
    assert distribution.text() == HEADER + "1.5,job1,node-1,node-2\n"


def test_only_the_latest_rows_are_kept() -> None:
    distribution = Distribution()
    for number in range(10_100):
        distribution.note(float(number), f"job{number}", "a", "b")
    assert distribution.text().count("\n") == 10_001


class Kept:
    """A journal that remembers when it was written to."""

    def __init__(self) -> None:
        self.rounds: list[float] = []

    def record(self, snapshot: Snapshot, decision: Decision) -> None:
        self.rounds.append(snapshot.now)


def test_converged_jobs_have_a_row_when_they_move_and_once_a_round_when_they_stay() -> None:
    """DRAGON-86, 87."""
    converged = Member("job1", growth=Growth.CONVERGED)
    other = Member("job2", submit=1.0, growth=Growth.CONVERGED)
    crowd = (converged, other, Member("job3", submit=2.0))
    move = Action(ActionKind.MIGRATE, JobKey(0), 0, Assignment(((0, 1),)), Assignment(((1, 1),)))
    journal = Kept()
    distribution = Distribution(journal)
    distribution.record(Instant(crowd, now=100.0).snapshot, Decision(Plan([move])))
    distribution.record(Instant(crowd, now=110.0).snapshot, Decision(Plan()))
    distribution.record(Instant(crowd, now=131.0).snapshot, Decision(Plan()))
    assert distribution.text().splitlines()[1:] == [
        "100.0,job1,n0,n1",
        "100.0,job2,n0,",
        "131.0,job1,n0,",
        "131.0,job2,n0,",
    ]
    assert journal.rounds == [100.0, 110.0, 131.0]
