"""Decisions: actions in an order in which a backend can execute them.

A plan holds changes only. Each action carries the assignment it assumed (`before`), so a backend can reject it as
stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

from sterna.model.cached_attribute import cached_attribute
from sterna.model.cluster import Assignment
from sterna.model.reason import Reason
from sterna.model.snapshot import NEVER, JobKey


class ActionKind(IntEnum):
    """Effect of an action, in order of execution: capacity is freed before it is used."""

    STOP = 0
    SHRINK = 1
    SET_CPU_SHARE = 2
    MIGRATE = 3
    START = 4
    GROW = 5


class Mark(Enum):
    """State of a rule about a job; the backend stores it and returns it as a column."""

    NONE = "none"
    PROMOTED = "promoted"


NO_JOB = JobKey(-1)
"""Sentinel for 'no job'."""


class Action(NamedTuple):
    """One change to one job."""

    kind: ActionKind
    key: JobKey
    row: int
    """Row of the job in the snapshot that the decision was made on."""
    before: Assignment
    """Assignment that the decision assumed."""
    after: Assignment
    mark: Mark = Mark.NONE
    cpu_share: float | None = None
    """New weight of the job on the CPUs of a shared node: 1 is an equal share. None: unchanged."""
    evictor: JobKey = NO_JOB
    """Job that this one makes room for. Stored like a mark, so that the two do not swap again."""
    price: float = 0.0
    """Device-seconds that the change is expected to cost the job: devices x (unsaved work + restart time). Stored like
    a mark: the backend adds it to the `spent` column."""


class Outcome(Enum):
    """Result of an action."""

    APPLIED = "applied"
    STALE = "stale"
    """The job or its nodes changed after the decision: dropped."""


@dataclass(slots=True)
class Plan:
    """Ordered actions, at most one per job. Not modified after construction."""

    actions: Sequence[Action] = ()

    def __len__(self) -> int:
        return len(self.actions)

    def __iter__(self) -> Iterator[Action]:
        return iter(self.actions)


@dataclass
class Decision:
    """A plan, its reasons, and the time of the next decision if no event comes first. Not modified after
    construction."""

    plan: Plan
    until: float = NEVER
    """Time at which to decide again without an event; `NEVER` if only events matter."""
    explain: Callable[[], Sequence[Reason]] = field(default=tuple, repr=False)
    """Computes the reasons; valid only as long as the snapshot is."""

    @cached_attribute
    def reasons(self) -> Sequence[Reason]:
        """Reasons of every job that waits or changed."""
        return self.explain()


def kind_of(before: Assignment, after: Assignment) -> ActionKind:
    """Return the kind of action that leads from one assignment to another."""
    if not after.workers:
        return ActionKind.STOP
    if not before.workers:
        return ActionKind.START
    change = after.size - before.size
    if change == 0:
        return ActionKind.MIGRATE
    return ActionKind.GROW if change > 0 else ActionKind.SHRINK
