"""The explanation of a job of a running cluster goes on to now, in clock times."""

from __future__ import annotations

import time

import msgspec
import pytest

from sterna.control.failures import backoff_sentence, clock_time, describe_exit
from sterna.control.job_state import JobState
from sterna.explain.current_state import continue_to_now
from sterna.service.views import EventView, ExplainedEvent, Explanation, JobView

START = time.mktime((2026, 3, 4, 12, 0, 0, 0, 0, -1))
SUBMITTED = ExplainedEvent(0.0, "submitted", "submitted: asks for 1 worker.", 0)
STARTED = ExplainedEvent(1.0, "started", "started with 1 worker on node0.", 1)


def a_view(state: str, reason: str = "") -> JobView:
    return JobView("a", "TrainingJob", state, reason, 1, 1, 1, 1, 0, "a", "", START, nodes=["node0"])


def an_explanation(state: str, *events: ExplainedEvent) -> Explanation:
    return Explanation("a", "fifo", "stay", 3, 2.0, state, [SUBMITTED, *events], [], started_at=START)


def test_running_job_runs_since_its_start() -> None:
    journal = an_explanation("runs", STARTED, ExplainedEvent(2.0, "runs", "runs with 1 worker on node0.", 2))
    story = continue_to_now(journal, a_view("running"), [], START + 100)
    assert [event.sentence for event in story.events[1:]] == [
        "started with 1 worker on node0.",
        "runs since 12:00:01 with 1 worker on node0.",
    ]
    assert (story.at_s, story.events[-1].at_s) == (100, 100)


def test_exit_and_back_off_take_the_place_of_what_the_journal_could_not_know() -> None:
    lost = ExplainedEvent(5.0, "lost", "lost its 1 worker: no round decided it.", 2)
    events = [
        EventView(1, START + 1, "a", "started", "started."),
        EventView(2, START + 4, "a", "ended", "worker-0 ended with exit code 2."),
        EventView(3, START + 4, "a", "restarting", "waits: back-off until 12:00:09 after exit code 2."),
    ]
    waits = ExplainedEvent(5.0, "waits", "waits since 12:00:05: 1 more CPU needed.", 3)
    view = a_view("waiting", "waits: back-off until 12:00:09 after exit code 2.")
    story = continue_to_now(an_explanation("waits", STARTED, lost, waits), view, events, START + 6)
    assert [event.sentence for event in story.events[2:]] == [
        "worker-0 ended with exit code 2.",
        "waits: back-off until 12:00:09 after exit code 2.",
        "waits since 12:00:05: back-off until 12:00:09 after exit code 2.",
    ]


def test_job_that_has_ended_ends_with_the_cluster_s_event() -> None:
    journal = an_explanation("ended", STARTED, ExplainedEvent(9.0, "ended", "ended 9 s after it was submitted.", 4))
    done = EventView(4, START + 9, "a", "completed", "completed.")
    story = continue_to_now(journal, a_view("completed"), [done], START + 50)
    assert (story.state, story.events[-1].sentence) == ("ended", "completed.")


def test_journal_of_a_simulation_is_left_alone() -> None:
    journal = msgspec.structs.replace(an_explanation("runs", STARTED), started_at=None)
    assert continue_to_now(journal, a_view("running"), [], START) is journal


def test_clock_time_has_a_date_unless_it_is_today() -> None:
    assert clock_time(START, START + 3600) == "12:00:00"
    assert clock_time(START, START + 86400) == "2026-03-04 12:00:00"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, "an exit that was not recorded"),
        (2, "exit code 2 (wrong usage, or a file that does not exist)"),
        (127, "exit code 127 (command not found)"),
        (137, "exit code 137 (killed, often because memory ran out)"),
        (138, "exit code 138 (ended by signal 10)"),
        (77, "exit code 77"),
    ],
)
def test_exit_code_is_shown_with_its_usual_meaning(code: int | None, words: str) -> None:
    assert describe_exit(code) == words


def test_crash_loop_is_named_as_such() -> None:
    state = JobState(failures=3, exit_code=77, not_before=START + 8)
    assert backoff_sentence(state, START) == (
        "waits: back-off until 12:00:08 after 3 failures in a row, the last one with exit code 77, a crash loop; look "
        "into its log."
    )
