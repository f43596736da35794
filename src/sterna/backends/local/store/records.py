"""Job records as JSON: specification, desired assignment and current attempt.

Nodes are stored by name, because a restarted daemon may have others. State derived from progress reports is not stored:
it is recomputed from the reports.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from sterna.control.job_state import JobState
from sterna.model.job import JobSpec

ACTIVE, COMPLETED, FAILED = "active", "completed", "failed"

INTENDED, RUNNING, ENDED = "intended", "running", "ended"
"""States of a replica: committed but not seen running; seen running; exited, with or without a record of it."""

NodeWorkers = list[tuple[str, int]]
"""Pairs of node name and number of replicas on it."""


class ReplicaRecord(msgspec.Struct):
    """One process of an attempt, from the decision to start it."""

    type: str
    index: int
    rank: int
    node: str
    token: str
    """Unique for every start."""
    port: int = 0
    cores: list[int] = []
    devices: list[int] = []
    """Indices of the machine's devices that it sees."""
    slot: int = -1
    """For a GPU fraction: the slot of the device on its node."""
    group: str = ""
    """Name of its control group; empty: none of its own."""
    state: str = INTENDED
    pid: int = 0
    leaving: bool = False
    """It was asked to stop while the rest of the attempt goes on."""
    intended_at: float = 0.0
    """Time at which it joined a running attempt; 0: it started with the attempt."""
    asked_at: float = 0.0
    """Time of the stop request; 0: none."""
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
    workers: NodeWorkers
    """Nodes of its workers."""
    servers: NodeWorkers = []
    generation: int = 0
    stopping: str = ""
    """Why all of it was asked to stop; empty: it was not."""
    counted_from: float = 0.0
    """Time up to which run time and service have been counted."""
    done: list[str] = []
    """Replicas that finished their work."""
    failed: bool = False
    lost: bool = False
    """It failed because the exit of a process was not recorded."""
    exit_code: int | None = None
    failed_type: str = ""
    """Type of the replica that failed."""
    first_report_at: float = 0.0
    top_step: int = -1
    """Highest step that it reported; -1: none."""
    registered: bool = False
    """One of its processes answers stop requests."""
    ended_at: float = 0.0

    @property
    def live(self) -> list[ReplicaRecord]:
        return [replica for replica in self.replicas if replica.state != ENDED]

    @property
    def members(self) -> list[ReplicaRecord]:
        """Return live replicas that are not leaving."""
        return [replica for replica in self.live if not replica.leaving]

    @property
    def first(self) -> ReplicaRecord:
        """Return the replica with the lowest index, the rendezvous host of torchrun."""
        return min(self.replicas, key=lambda replica: replica.index)


class JobRecord(JobState, omit_defaults=True, rename="camel", kw_only=True):
    """Everything about a job that must survive a restart of the daemon."""

    key: int
    spec: JobSpec
    submitted_at: float
    minimum: int
    maximum: int
    phase: str = ACTIVE
    deleting: bool = False
    workers: NodeWorkers = msgspec.field(default_factory=list)
    """Desired nodes of its workers; empty: the job is queued."""
    servers: NodeWorkers = msgspec.field(default_factory=list)
    slots: list[int] = msgspec.field(default_factory=list)
    attempts: int = 0
    attempt: AttemptRecord | None = None
    """The last attempt, which may have ended."""
    by_checkpoint: bool = False
    """Its next move restarts it from a checkpoint, even if it could move in place."""
    waited_seconds: float = 0.0
    service: float = 0.0
    """Devices x seconds over all its life; `attained` is reset by promotions."""
    cpu_seconds: float = 0.0
    """CPU time of replicas that have exited."""
    reason: str = ""
    doomed: str = ""
    """Why it fails as soon as its processes have stopped; empty: it does not."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def queued_since(self) -> float:
        return self.submitted_at if self.waiting_since is None else self.waiting_since

    @property
    def is_live(self) -> bool:
        """True if some of its processes may exist."""
        return self.attempt is not None and any(replica.state != ENDED for replica in self.attempt.replicas)


encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(JobRecord)


def decode_record(line: bytes) -> JobRecord:
    return _decoder.decode(line)


class StatePaths:
    """Paths in a state folder."""

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
