"""The state of a job that must survive a restart of the daemon or the operator, and the effect of actions on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from sterna.model.cluster import Assignment
from sterna.model.plan import Action, ActionKind, Mark


class SaveEvidence(StrEnum):
    """What is known about a job's ability to save."""

    NONE = "none"
    """Nothing: the job is treated as one that cannot save."""
    DECLARED = "declared"
    """Its manifest names a checkpoint."""
    SAVED = "saved"
    """It has reported a checkpoint; a stop loses the work since."""
    REGISTERED = "registered"
    """It saves on request: its process answers stop requests, or has saved after one; a stop loses nothing."""
    BROKEN = "broken"
    """It said that it can save, was stopped, and began again from nothing: treated as one that cannot save."""


_STRENGTH = {SaveEvidence.NONE: 0, SaveEvidence.DECLARED: 1, SaveEvidence.SAVED: 2, SaveEvidence.REGISTERED: 3}
"""Evidence replaces weaker evidence. A job whose save is broken stays so."""


class JobState(msgspec.Struct, omit_defaults=True, rename="camel"):
    """Persistent fields common to all backends that run jobs. Times are seconds since 1970."""

    first_started_at: float | None = None
    waiting_since: float | None = None
    """Time from which the job has been queued; None: from its submission."""
    ended_at: float | None = None
    not_before: float = 0.0
    """Earliest time of the next attempt, set by the back-off after a failure."""
    restarts: int = 0
    """Attempts that count against the back-off limit."""
    attained: float = 0.0
    """Devices x seconds, since the last promotion."""
    executed: float = 0.0
    """Seconds that it ran."""
    executed_before: float = 0.0
    """`executed` at the last promotion."""
    promotions: int = 0
    cpu_share: float = 1.0
    """Weight on the CPUs of a shared node."""
    moves: int = 0
    moved_at: float | None = None
    moved_from: str = ""
    """Name of the node that the last move left."""
    evictor: str = ""
    """Name of the job for which the last move made room; empty: none."""
    saved_at: float = 0.0
    saved_step: int = -1
    """Step of the last checkpoint; -1: unknown."""
    lost_seconds: float = 0.0
    """Run time that was in no checkpoint when an attempt ended."""
    save: SaveEvidence = SaveEvidence.NONE
    spent: float = 0.0
    """Device-seconds that stops, resizes and moves have cost the job so far: the sum of `Action.price`."""
    failures: int = 0
    """Failures in a row; 0 after an attempt that ran well."""
    ran_well: bool = False
    """The last attempt made progress, or ran for a while, before it ended: the job keeps its place after a failure."""
    reached_step: int = -1
    """Highest step of the attempts that have ended; -1: unknown."""
    begin_step: int = -1
    """First step that the first attempt reported; -1: unknown."""
    resume_step: int = -1
    """Step from which the next attempt should go on, after the scheduler stopped a job that can save; -1: any."""
    exit_code: int | None = None
    """Exit code of the last attempt that failed."""
    step: int | None = None
    """Last reported progress, with `total`, `metric` and `value`."""
    total: int | None = None
    metric: str = ""
    value: float | None = None

    @property
    def can_save(self) -> bool:
        """True if the job has shown that it can save and has not failed to."""
        return self.save not in (SaveEvidence.NONE, SaveEvidence.BROKEN)

    @property
    def may_preempt(self) -> bool:
        """False if the last attempt failed before it ran well: the job starts only on free capacity."""
        return not self.failures or self.ran_well

    def note_evidence(self, evidence: SaveEvidence) -> None:
        """Record what the job has shown about its ability to save."""
        if self.save is not SaveEvidence.BROKEN and _STRENGTH[evidence] > _STRENGTH[self.save]:
            self.save = evidence

    def unsaved_seconds(self, started_at: float, now: float) -> float:
        """Seconds of work that a stop of an attempt, started at `started_at`, would lose at time `now`."""
        return 0.0 if self.save is SaveEvidence.REGISTERED else max(0.0, now - max(self.saved_at, started_at))

    def note_failure(self, is_good: bool, exit_code: int | None) -> None:
        """Record an attempt that failed; `is_good`: it ran well before."""
        self.failures, self.ran_well, self.exit_code = 1 if is_good else self.failures + 1, is_good, exit_code

    def note_good_run(self) -> None:
        """Record an attempt that ran well and did not fail."""
        self.failures, self.ran_well = 0, True

    def note_first_step(self, step: int) -> float | None:
        """Check the first step of an attempt against the checkpoint that it should resume from.

        Returns the seconds of work that were lost because the job, though it said that it can save, began again from
        nothing; its save is broken from then on. None: it resumed, or did not have to.
        """
        expected, self.resume_step = self.resume_step, -1
        if self.begin_step < 0:
            self.begin_step = step
        is_anew = step < expected and (step <= self.begin_step or 2 * step < self.saved_step)
        if not is_anew or not self.can_save:
            return None
        return self.break_save(max(0.0, self.executed - self.lost_seconds))

    def break_save(self, lost_seconds: float) -> float:
        """Count a loss of a job that said that it can save; from now on it counts as one that cannot. Returns the
        loss."""
        self.save, self.saved_step, self.resume_step = SaveEvidence.BROKEN, -1, -1
        self.lost_seconds += lost_seconds
        return lost_seconds

    def apply(self, action: Action, now: float, nodes: Sequence[str], evictor: str = "") -> None:
        """Update everything that an action changes besides the assignment. `nodes`: names by row of the snapshot;
        `evictor`: name of the job that `action.evictor` stands for."""
        self.spent += action.price
        if action.cpu_share is not None:
            self.cpu_share = action.cpu_share
        if action.kind is ActionKind.MIGRATE:
            self.note_move(action.before, action.after, now, nodes, evictor)
        elif action.kind is ActionKind.STOP:
            self.waiting_since = now
        elif action.kind is ActionKind.START and action.mark is Mark.PROMOTED:
            self.attained, self.executed_before = 0.0, self.executed
            self.promotions += 1

    def note_move(
        self, before: Assignment, after: Assignment, now: float, nodes: Sequence[str], evictor: str = ""
    ) -> None:
        """Record a move, with the first of the nodes that it leaves."""
        old, new = ({node for node, _ in assignment.workers} for assignment in (before, after))
        self.moves += 1
        self.moved_at, self.moved_from, self.evictor = now, nodes[min(old - new or old)], evictor


def is_stale(
    action: Action, state: JobState, assignment: Assignment, now: float, nodes: int, is_open: Callable[[int], bool]
) -> bool:
    """True if a job that wants to run is no longer as the action assumes: it has another assignment, is in back-off, or
    one of its new nodes is gone or closed. `is_open` takes the row of one of the `nodes` nodes."""
    if assignment != action.before or (action.kind is ActionKind.START and state.not_before > now):
        return True
    new = {node for node, _ in action.after.workers} - {node for node, _ in action.before.workers}
    return not all(0 <= node < nodes and is_open(node) for node in new)
