"""What has been decided: actions, in the order in which they may be carried out.

A plan holds changes only. Each action carries what it assumed (`before`), so a backend can answer that the world has
moved.
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
    """What an action does, in the order of carrying out: room is freed before it is used."""

    STOP = 0
    SHRINK = 1
    SET_CPU_SHARE = 2
    MIGRATE = 3
    START = 4
    GROW = 5


class Mark(Enum):
    """What a rule wants remembered about a job; the backend keeps it and returns it as a column."""

    NONE = "none"
    PROMOTED = "promoted"


NO_JOB = JobKey(-1)
"""Where a job is named, but there is none."""


class Action(NamedTuple):
    """One change to one job."""

    kind: ActionKind
    key: JobKey
    row: int
    """Its row in the snapshot that was decided on."""
    before: Assignment
    """Where it was assumed to sit."""
    after: Assignment
    mark: Mark = Mark.NONE
    cpu_share: float | None = None
    """Its weight on the CPUs of a shared node from now on: 1 is an equal share. None: as it is."""
    evictor: JobKey = NO_JOB
    """Whom it makes room for. Kept, like a mark, so that the two do not change places again."""


class Outcome(Enum):
    """What became of an action."""

    APPLIED = "applied"
    STALE = "stale"
    """The world had moved: drop it, look again."""


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
    """An instant, not a span; `NEVER` if only events matter."""
    explain: Callable[[], Sequence[Reason]] = field(default=tuple, repr=False)
    """Makes the reasons; only valid while the snapshot is."""

    @cached_attribute
    def reasons(self) -> Sequence[Reason]:
        """For every job that waits or changed."""
        return self.explain()


def kind_of(before: Assignment, after: Assignment) -> ActionKind:
    """The action that leads from one home to another."""
    if not after.workers:
        return ActionKind.STOP
    if not before.workers:
        return ActionKind.START
    change = after.size - before.size
    if change == 0:
        return ActionKind.MIGRATE
    return ActionKind.GROW if change > 0 else ActionKind.SHRINK
