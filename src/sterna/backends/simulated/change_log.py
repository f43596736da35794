"""Every change of a simulated job's workers, as columns in order of time; metrics are computed from it after a run."""

from __future__ import annotations

from array import array
from enum import IntEnum

from sterna.model.cluster import Assignment
from sterna.model.plan import ActionKind


class ChangeKind(IntEnum):
    """What changed the workers of a job."""

    START = 0
    RESIZE = 1
    MOVE = 2
    STOP = 3
    FAILURE = 4
    """A node of the job was lost."""
    END = 5


KIND_OF_ACTION = {
    ActionKind.START: ChangeKind.START,
    ActionKind.SHRINK: ChangeKind.RESIZE,
    ActionKind.GROW: ChangeKind.RESIZE,
    ActionKind.MIGRATE: ChangeKind.MOVE,
    ActionKind.STOP: ChangeKind.STOP,
}


class ChangeLog:
    """Columns with one entry per change. Arrays of numbers, because a long trace has hundreds of thousands."""

    def __init__(self, keeps_assignments: bool) -> None:
        """`keeps_assignments`: also keep the nodes of every change; only fragmentation needs them."""
        self.time, self.job, self.kind = array("d"), array("q"), array("q")
        self.workers, self.nodes = array("q"), array("q")
        """Workers after the change, and the nodes that they are on."""
        self.rate = array("d")
        """Work per second after the change."""
        self.lost_seconds = array("d")
        """Work lost in the run up to and including the change, in seconds at one worker."""
        self.assignments: list[Assignment] | None = [] if keeps_assignments else None

    def append(
        self, time: float, job: int, kind: ChangeKind, after: Assignment, rate: float, lost_seconds: float
    ) -> None:
        self.time.append(time)
        self.job.append(job)
        self.kind.append(kind)
        self.workers.append(after.size)
        self.nodes.append(len(after.workers))
        self.rate.append(rate)
        self.lost_seconds.append(lost_seconds)
        if self.assignments is not None:
            self.assignments.append(after)
