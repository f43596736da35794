"""The effect of actions on the persistent state of a job."""

from __future__ import annotations

import msgspec

from sterna.control.cluster_history import ClusterHistory
from sterna.control.job_state import JobState, is_stale
from sterna.model.cluster import NOWHERE, Assignment
from sterna.model.plan import Action, ActionKind, Mark
from sterna.model.snapshot import NEVER, JobKey

NODES = ("n0", "n1", "n2")
HERE, THERE = Assignment(((0, 2), (1, 1))), Assignment(((1, 1), (2, 2)))


def an_action(kind: ActionKind, before: Assignment, after: Assignment, mark: Mark = Mark.NONE) -> Action:
    return Action(kind, JobKey(7), 0, before, after, mark)


def test_a_promotion_resets_the_attained_service_and_remembers_the_run_time() -> None:
    state = JobState(attained=5.0, executed=3.0)
    state.apply(an_action(ActionKind.START, NOWHERE, HERE, Mark.PROMOTED), 10.0, NODES)
    assert (state.attained, state.executed_before, state.promotions) == (0.0, 3.0, 1)
    state.apply(an_action(ActionKind.START, NOWHERE, HERE), 11.0, NODES)
    assert state.promotions == 1


def test_a_stopped_job_queues_from_then_on() -> None:
    state = JobState(waiting_since=1.0)
    state.apply(an_action(ActionKind.STOP, HERE, NOWHERE), 10.0, NODES)
    assert state.waiting_since == 10.0


def test_a_move_remembers_the_node_it_left_and_the_evictor() -> None:
    state = JobState()
    state.apply(an_action(ActionKind.MIGRATE, HERE, THERE), 10.0, NODES, "other")
    assert (state.moves, state.moved_at, state.moved_from, state.evictor) == (1, 10.0, "n0", "other")
    state.apply(an_action(ActionKind.MIGRATE, THERE, THERE), 20.0, NODES)
    assert (state.moves, state.moved_at, state.moved_from, state.evictor) == (2, 20.0, "n1", "")


def test_a_cpu_share_is_kept_with_any_action() -> None:
    state = JobState()
    state.apply(an_action(ActionKind.SET_CPU_SHARE, HERE, HERE)._replace(cpu_share=2.0), 10.0, NODES)
    assert state == JobState(cpu_share=2.0)


def test_the_state_is_written_in_camel_case_without_defaults() -> None:
    assert msgspec.json.encode(JobState(moved_from="n0")) == b'{"movedFrom":"n0"}'


def test_an_action_is_stale_if_the_assignment_the_back_off_or_the_new_nodes_changed() -> None:
    start = an_action(ActionKind.START, NOWHERE, HERE)
    move = an_action(ActionKind.MIGRATE, HERE, THERE)

    def is_late(action: Action, assignment: Assignment, not_before: float = 0.0, closed: int = -1) -> bool:
        return is_stale(action, JobState(not_before=not_before), assignment, 10.0, 3, lambda row: row != closed)

    assert not is_late(start, NOWHERE)
    assert is_late(start, HERE)
    assert is_late(start, NOWHERE, not_before=11.0)
    assert is_late(start, NOWHERE, closed=1)
    assert not is_late(move, HERE, not_before=11.0)
    assert not is_late(move, HERE, closed=1), "a node that it keeps may be closed"
    assert is_late(move, HERE, closed=2)
    assert is_late(an_action(ActionKind.START, NOWHERE, Assignment(((3, 1),))), NOWHERE), "no such node"


def test_moves_and_cpu_shares_do_not_count_as_actions() -> None:
    history = ClusterHistory([3.0])
    history.note_action(ActionKind.MIGRATE, 1.0)
    history.note_action(ActionKind.SET_CPU_SHARE, 2.0)
    assert history.last_action == -NEVER
    history.note_action(ActionKind.STOP, 3.0)
    assert history.last_action == 3.0


def test_completed_jobs_leave_their_service_and_failed_jobs_do_not() -> None:
    history = ClusterHistory([3.0])
    history.note_end(5.0, 1.0)
    history.note_end(6.0, None)
    assert history.finished_service().tolist() == [1.0, 3.0]
    assert history.last_event == 6.0
    history.note_arrival(4.0)
    assert history.last_event == 6.0
