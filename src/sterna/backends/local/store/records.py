"""What the state folder remembers of a job: the specification, where it shall sit, and the attempt that is under way.

Plain values that become JSON and back. Nodes are told by name, because a daemon may come back with others. What is
derived from progress reports is not kept here: it is worked out again from the reports themselves.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from sterna.control.job_state import JobState
from sterna.model.job import JobSpec

ACTIVE, COMPLETED, FAILED = "active", "completed", "failed"

INTENDED, RUNNING, ENDED = "intended", "running", "ended"
"""States of a replica: committed but not known to run; seen to run; gone, with or without a record of its exit."""

NodeCounts = list[tuple[str, int]]
"""Pairs of node name and number of replicas there."""


class ReplicaRecord(msgspec.Struct):
    """One process of an attempt, from the intention to start it on."""

    type: str
    index: int
    rank: int
    node: str
    token: str
    """Tells this start from every other one."""
    port: int = 0
    cores: list[int] = []
    devices: list[int] = []
    """Numbers of the machine's devices that it sees."""
    slot: int = -1
    """For a part of a device: the number under which its node counts that device."""
    group: str = ""
    """The name of its control group; empty: it has none of its own."""
    state: str = INTENDED
    pid: int = 0
    leaving: bool = False
    """Asked to stop, while the rest of the attempt may go on."""
    intended_at: float = 0.0
    """When it was to join an attempt that ran already; 0: it began with it."""
    asked_at: float = 0.0
    """When it was asked to stop; 0: it was not."""
    exit_code: int | None = None
    saved: bool = False

    @property
    def name(self) -> str:
        return f"{self.type}-{self.index}"


class AttemptRecord(msgspec.Struct):
    """One start of a job and all replicas it ever had."""

    number: int
    started_at: float
    replicas: list[ReplicaRecord]
    workers: NodeCounts
    """Where its workers sit."""
    servers: NodeCounts = []
    generation: int = 0
    stopping: str = ""
    """Why all of it was asked to stop; empty: it was not."""
    counted_from: float = 0.0
    """Since when its present size has not been booked."""
    done: list[str] = []
    """Replicas that did all they had to do."""
    failed: bool = False
    lost: bool = False
    """It failed because nobody saw how a process ended."""
    exit_code: int | None = None
    failed_type: str = ""
    """Of the replica that had it."""
    first_report_at: float = 0.0
    ended_at: float = 0.0

    @property
    def live(self) -> list[ReplicaRecord]:
        return [replica for replica in self.replicas if replica.state != ENDED]

    @property
    def members(self) -> list[ReplicaRecord]:
        """Those that are to go on."""
        return [replica for replica in self.live if not replica.leaving]

    @property
    def first(self) -> ReplicaRecord:
        """The one of the lowest number, where torchrun's agents meet."""
        return min(self.replicas, key=lambda replica: replica.index)


class JobRecord(JobState, omit_defaults=True, rename="camel", kw_only=True):
    """A job as the state folder keeps it."""

    key: int
    spec: JobSpec
    submitted_at: float
    minimum: int
    maximum: int
    phase: str = ACTIVE
    deleting: bool = False
    workers: NodeCounts = msgspec.field(default_factory=list)
    """Where its workers shall sit; empty: it shall wait."""
    servers: NodeCounts = msgspec.field(default_factory=list)
    slots: list[int] = msgspec.field(default_factory=list)
    attempts: int = 0
    attempt: AttemptRecord | None = None
    """The latest one, which may have ended."""
    by_checkpoint: bool = False
    """Its next move is made by checkpoint though it could be made in place."""
    waited_seconds: float = 0.0
    service: float = 0.0
    """Units x seconds in all its life; `attained` starts anew when it is promoted."""
    cpu_seconds: float = 0.0
    """Of replicas that are gone."""
    exit_code: int | None = None
    reason: str = ""
    doomed: str = ""
    """Why it has failed though it still runs; empty: it has not."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def queued_since(self) -> float:
        return self.submitted_at if self.waiting_since is None else self.waiting_since

    @property
    def is_live(self) -> bool:
        """Some process of it may be there."""
        return self.attempt is not None and any(replica.state != ENDED for replica in self.attempt.replicas)


encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(JobRecord)


def decode_record(line: bytes) -> JobRecord:
    return _decoder.decode(line)


class StatePaths:
    """Where things lie in a state folder."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.jobs = state / "jobs"

    def job(self, name: str) -> Path:
        return self.jobs / name

    def checkpoint(self, name: str) -> Path:
        return self.jobs / name / "checkpoint"

    def world(self, name: str) -> Path:
        return self.jobs / name / "world.json"

    def replica(self, name: str, attempt: int, replica: str) -> Path:
        return self.jobs / name / str(attempt) / replica
