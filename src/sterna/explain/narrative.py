"""`explain`: the history of one job from a journal, as sentences in order of time.

Rounds that affected the job become sentences; consecutive waits for the same kind of reason become one.
`counterfactual` finds what would start a waiting job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sterna.control.failures import clock_time
from sterna.control.journal import Round, read_opening, read_round, read_rounds
from sterna.errors import UserError, did_you_mean
from sterna.explain.counterfactual import changes_that_start
from sterna.explain.formatting import by_node, duration, node_list, workers_on
from sterna.explain.rounds import ReadProgress, rounds_of
from sterna.model.formatting import format_count
from sterna.model.json_object import JsonObject
from sterna.model.plan import Action, ActionKind
from sterna.model.snapshot import JobKey, Snapshot
from sterna.wiring import make_rules

_MOST_NAMES = 20
"""Most job names that an error lists."""
_ROUNDING = 1e-6
_LEAST_WAIT = 0.05
"""Shortest wait, in seconds, that is part of a history."""
_LEAST_CLOCK = 1e9
"""Least time since 1970, in seconds, that is taken for that of a clock; simulations begin near 0."""
_EVENTS = {
    ActionKind.START: "started",
    ActionKind.GROW: "grew",
    ActionKind.SHRINK: "shrank",
    ActionKind.STOP: "stopped",
    ActionKind.MIGRATE: "moved",
    ActionKind.SET_CPU_SHARE: "shared",
}
_NUMBERED = re.compile(r"[\d.]+|s\b|\b(?:is|are)\b")
"""Parts of a reason that vary with its numbers: digits, plural endings and verbs."""


def explain(
    journal: str | Path,
    job: str,
    *,
    at_seconds: float | None = None,
    number: int | None = None,
    progress: ReadProgress | None = None,
) -> JsonObject:
    """Return the history of a job up to a time, a round or the end, and what would start it then if it waits."""
    if at_seconds is not None and number is not None:
        raise UserError("--at and --round both choose the last round to explain: give one of them.")
    if at_seconds is not None and not at_seconds >= 0:
        raise UserError(f"--at {at_seconds:g}: give seconds since the journal's start, a number of at least 0.")
    opening = read_opening(journal)
    narrative = _Narrative(job)
    notices: list[str] = []
    last = _read_up_to(journal, narrative, at_seconds, number, rounds_of(journal, progress, notices.append))
    narrative.close(last)
    changes: list[JsonObject] = []
    if narrative.state == "waits":
        rules = make_rules(opening.policy, opening.placement, *opening.others)
        row = _row_of(last.snapshot, narrative.key)
        assert row is not None, "a job that waits is in the last round"
        changes = [change.document for change in changes_that_start(last.snapshot, row, rules)]
    return {
        "job": job,
        "policy": opening.policy,
        "placement_rule": opening.placement,
        "round": last.number,
        "at_s": last.snapshot.now - narrative.start,
        "state": narrative.state,
        "events": narrative.events,
        "changes": changes,
        "started_at": narrative.start if narrative.has_clock else None,
    } | ({"notices": notices} if notices else {})


def _read_up_to(
    journal: str | Path, narrative: _Narrative, at_seconds: float | None, number: int | None, rounds: Iterator[Round]
) -> Round:
    """Add every round up to the chosen one to the narrative and return that one."""
    last: Round | None = None
    for recorded in rounds:
        if last and at_seconds is not None and recorded.snapshot.now - narrative.start > at_seconds + _ROUNDING:
            break
        narrative.add(recorded)
        last = recorded
        if recorded.number == number:
            break
    if last is None:
        raise UserError(f"'{journal}' has no rounds; run longer, or choose another journal.")
    if number is not None and last.number != number:
        read_round(journal, number)  # raises an error that lists the rounds
    if not narrative.events:
        raise _no_events_error(journal, narrative)
    return last


def _no_events_error(journal: str | Path, narrative: _Narrative) -> UserError:
    """Return the error for a job without events: it appears later, or never."""
    names: set[str] = set()
    for recorded in read_rounds(journal):
        jobs = recorded.snapshot.jobs
        names.update(jobs.name_of(row) for row in range(len(jobs)))
        if narrative.job in names:
            at = recorded.snapshot.now - narrative.start
            return UserError(
                f"'{journal}' first tells of job '{narrative.job}' in round {recorded.number}, at {at:g} s; choose a "
                "later --at or --round."
            )
    hint = did_you_mean(narrative.job, names)
    if len(names) > _MOST_NAMES and not hint.startswith("did"):
        hint = f"it tells of {format_count(len(names), 'job')}, such as {', '.join(sorted(names)[:3])}."
    return UserError(f"'{journal}' tells of no job '{narrative.job}': {hint}")


class _Narrative:
    """Events of one job, collected round by round."""

    def __init__(self, job: str) -> None:
        self.job = job
        self.key: JobKey | None = None
        self.start = 0.0
        self.state = "unknown"
        self.events: list[JsonObject] = []
        self._has_rounds = False
        self._assignment: dict[str, int] = {}
        self._submit = self._waited = self._runs_since = 0.0
        self._wait: _Wait | None = None

    @property
    def has_clock(self) -> bool:
        """True if times are those of a clock, not of a simulation."""
        return self.start >= _LEAST_CLOCK

    def add(self, recorded: Round) -> None:
        snapshot = recorded.snapshot
        if not self._has_rounds:
            self._has_rounds, self.start = True, snapshot.now
        row = _row_of(snapshot, self.key)
        if self.key is not None and row is None:
            self._end(recorded)
        if self.key is None:
            row = next((row for row in range(len(snapshot.jobs)) if snapshot.jobs.name_of(row) == self.job), None)
            if row is None:
                return
            self._begin(recorded, row)
        assert row is not None
        self._record_unplanned_change(recorded, row)
        action = next((action for action in recorded.actions if action.row == row), None)
        if action is not None:
            self._change(recorded, action)
        elif not self._assignment:
            self._keep_waiting(recorded, row)

    def close(self, last: Round) -> None:
        """Add the state of the job in the last round."""
        if self.key is None:
            self.state = "ended"
        elif self._assignment:
            self.state = "runs"
            since = f" since {clock_time(self._runs_since, last.snapshot.now)}" if self.has_clock else ""
            self._add_event(last, "runs", f"runs{since} with {workers_on(self._assignment)}.")
        elif self._wait is None:
            self.state = "stopped"  # in this round: it does not wait yet
        else:
            self.state = "waits"
            self._close_wait(last, is_over=False)

    def _add_event(self, recorded: Round, event: str, sentence: str, at: float | None = None, **more: object) -> None:
        when = (recorded.snapshot.now if at is None else at) - self.start
        self.events.append({"at_s": when, "round": recorded.number, "event": event, "sentence": sentence, **more})

    def _begin(self, recorded: Round, row: int) -> None:
        jobs = recorded.snapshot.jobs
        self.key = JobKey(jobs.key.item(row))
        self._submit, self._waited = jobs.submit.item(row), 0.0
        low, high, asked = jobs.minimum.item(row), jobs.maximum.item(row), jobs.request.item(row)
        sizes = "" if low == high else f" ({low} to {high} possible)"
        rank = f", priority {jobs.priority.item(row)}" if jobs.priority.item(row) else ""
        sentence = f"submitted: asks for {format_count(asked, 'worker')}{sizes}{rank}."
        self._add_event(recorded, "submitted", sentence, self._submit)
        self._assignment = by_node(recorded.snapshot, recorded.snapshot.assignment_of(row))
        if self._assignment:
            self._runs_since = recorded.snapshot.now
            self._add_event(recorded, "found", f"ran already with {workers_on(self._assignment)} when first seen.")

    def _record_unplanned_change(self, recorded: Round, row: int) -> None:
        """Record workers that were lost or gained without a decision."""
        snapshot = recorded.snapshot
        assignment = by_node(snapshot, snapshot.assignment_of(row))
        had, has = sum(self._assignment.values()), sum(assignment.values())
        if had and not has:
            up = {name for name, is_open in zip(snapshot.nodes.name, snapshot.nodes.is_open, strict=True) if is_open}
            gone = [name for name in self._assignment if name and name not in up]
            why = f"{', '.join(gone)} went away" if gone else "no round decided it"
            self._add_event(recorded, "lost", f"lost its {format_count(had, 'worker')}: {why}.")
        elif had != has:
            self._close_wait(recorded)
            self._add_event(recorded, "found", f"has {workers_on(assignment)} instead of {had} without a decision.")
        self._assignment = assignment

    def _change(self, recorded: Round, action: Action) -> None:
        if action.kind is ActionKind.START and self._wait is None:  # stopped or lost in the previous round
            since = recorded.snapshot.jobs.waiting_since.item(action.row)
            self._wait = _Wait(recorded, since, "", "")
        self._close_wait(recorded)
        if action.kind is ActionKind.START:
            self._runs_since = recorded.snapshot.now
        self._assignment = by_node(recorded.snapshot, action.after)
        reason = dict(recorded.reasons).get(self.job, f"{action.kind.name.lower()}.").removesuffix(".")
        where = "" if action.kind is ActionKind.SET_CPU_SHARE else node_list(self._assignment)
        joint = " on " if action.kind is ActionKind.START else "; now on "
        self._add_event(recorded, _EVENTS[action.kind], reason + (joint + where if where else "") + ".")

    def _keep_waiting(self, recorded: Round, row: int) -> None:
        because = _because(recorded, self.job, row)
        if self._wait is not None and self._wait.is_like(because):
            self._wait.last = because
            return
        now = recorded.snapshot.now
        since = now if self._wait else min(now, recorded.snapshot.jobs.waiting_since.item(row))
        self._close_wait(recorded)
        self._wait = _Wait(recorded, since, because, because)

    def _close_wait(self, recorded: Round, is_over: bool = True) -> None:
        wait, self._wait = self._wait, None
        if wait is None:
            return
        seconds = recorded.snapshot.now - wait.since
        self._waited += seconds
        verb, event = ("waited", "waited") if is_over else ("has waited", "waits")
        if seconds >= _LEAST_WAIT or not is_over:
            sentence = f"{verb} {duration(seconds)}{wait.why}."
            if self.has_clock and not is_over:
                sentence = f"waits since {clock_time(wait.since, recorded.snapshot.now)}{wait.why}."
            self._add_event(wait.began, event, sentence, wait.since, wait_s=seconds)

    def _end(self, recorded: Round) -> None:
        self._close_wait(recorded)
        whole = duration(recorded.snapshot.now - self._submit)
        waited = f", of which it waited {duration(self._waited)}" if self._waited else ""
        self._add_event(recorded, "ended", f"ended {whole} after it was submitted{waited}.")
        self.key, self._assignment = None, {}


@dataclass
class _Wait:
    """Consecutive rounds in which a job waits for the same kind of reason."""

    began: Round
    since: float
    first: str
    last: str

    def is_like(self, because: str) -> bool:
        """Return True if the reasons differ in numbers only."""
        return _kind_of(because) == _kind_of(self.last)

    @property
    def why(self) -> str:
        reasons = self.first if self.first == self.last else f"{self.first}; at last {self.last}"
        return f": {reasons}" if reasons else ""


def _kind_of(because: str) -> str:
    """Return a reason without its numbers and without its part about single nodes, which change from round to round."""
    return _NUMBERED.sub("", because.removeprefix("cannot run: ").partition(": ")[0])


def _because(recorded: Round, job: str, row: int) -> str:
    """Return the recorded reason of a wait; of a job in back-off, that it is."""
    jobs = recorded.snapshot.jobs
    if jobs.not_before.item(row) > recorded.snapshot.now:
        return "back-off after a failure"
    sentence = dict(recorded.reasons).get(job, "no reason was recorded.")
    return re.sub(r" \([\d.]+ free\)", "", sentence).removeprefix("waits: ").removesuffix(".")


def _row_of(snapshot: Snapshot, key: JobKey | None) -> int | None:
    if key is None:
        return None
    found = np.flatnonzero(snapshot.jobs.key == key)
    return int(found[0]) if len(found) else None
