"""`distribution.csv` in SpeCon's format."""

from __future__ import annotations

from sterna.control.specon_csv import HEADER, SpeconCsvBuffer
from sterna.model.cluster import Assignment
from sterna.model.growth import Growth
from sterna.model.plan import Action, ActionKind, Decision, Plan
from sterna.model.snapshot import JobKey
from tests.shared_nodes import SharedCluster, SharedJob


def test_granted_requests_have_a_row() -> None:
    """DRAGON-87: the header is SpeCon's, misspelling included."""
    csv = SpeconCsvBuffer()
    assert csv.text() == HEADER == "time,job,orginal_node,to_node\n"
    csv.note_move(1.5, "default/job1", "node-1", "node-2")
    assert csv.text() == HEADER + "1.5,job1,node-1,node-2\n"


def test_only_the_latest_rows_are_kept() -> None:
    csv = SpeconCsvBuffer()
    for number in range(10_100):
        csv.note_move(float(number), f"job{number}", "a", "b")
    assert csv.text().count("\n") == 10_001


def test_converged_jobs_have_a_row_when_they_move_and_once_a_round_when_they_stay() -> None:
    """DRAGON-86, 87."""
    converged = SharedJob("job1", growth=Growth.CONVERGED)
    other = SharedJob("job2", submit=1.0, growth=Growth.CONVERGED)
    jobs = (converged, other, SharedJob("job3", submit=2.0))
    move = Action(ActionKind.MIGRATE, JobKey(0), 0, Assignment(((0, 1),)), Assignment(((1, 1),)))
    csv = SpeconCsvBuffer()
    csv.record(SharedCluster(jobs, now=100.0).snapshot, Decision(Plan([move])))
    csv.record(SharedCluster(jobs, now=110.0).snapshot, Decision(Plan()))
    csv.record(SharedCluster(jobs, now=131.0).snapshot, Decision(Plan()))
    assert csv.text().splitlines()[1:] == [
        "100.0,job1,n0,n1",
        "100.0,job2,n0,",
        "131.0,job1,n0,",
        "131.0,job2,n0,",
    ]
