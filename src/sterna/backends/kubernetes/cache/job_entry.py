"""One job in the operator's book: what Kubernetes knows of it, and what only this operator knows while it lives.

The desired home is the heart of it. It is held twice: as seats, by the names of nodes, which is what pods are made
from, and as a `Home`, by rows of the node table, which is what rules see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from sterna.backends.kubernetes.api.assignment import gpu_number
from sterna.backends.kubernetes.api.job import KubeJob, PersistedState, PodRow, PodState, ReplicaAssignment
from sterna.backends.kubernetes.api.resources import Urgency, Write
from sterna.backends.kubernetes.cache.node_capacity import Charge
from sterna.backends.kubernetes.lifecycle.verdict import GOES_ON, Fate
from sterna.backends.kubernetes.pods.move_record import Move
from sterna.kinds.parsed_job import ParsedJob, PodOwnership
from sterna.model.cluster import NOWHERE, Assignment, Shape
from sterna.model.reason import Code, Reason
from sterna.model.snapshot import NEVER


class Stage(Enum):
    """How far a job is, for the book."""

    ACTIVE = "active"
    """It wants to run, or runs."""
    ENDED = "ended"
    """It has succeeded or failed; its pods may still be there."""
    INVALID = "invalid"
    """What was submitted cannot be run; another generation of it may."""


class Hosts(NamedTuple):
    """Workers of an MPI job that its launcher can find."""

    launcher: str
    """Its uid."""
    told: str
    """The numbers of those that ran when it last looked: `0-3`."""
    seen: str
    """Of those that run now."""
    since: float


class JobEntry:
    """A job and everything that is known of it."""

    __slots__ = (
        "annotations",
        "assignment",
        "counted_workers",
        "draft",
        "ending_attempt",
        "former",
        "hosts",
        "is_resting",
        "job",
        "key",
        "leaves_pods",
        "look_at",
        "looked_at",
        "made_pods",
        "newborn",
        "outcome",
        "raw_spec",
        "read_of",
        "reason",
        "record",
        "replicas",
        "resized",
        "retry_at",
        "seated_at",
        "seen_status",
        "services",
        "shape",
        "share_pods",
        "stage",
        "telling",
        "tries",
        "trouble",
        "under_way",
        "verdict",
        "words",
    )

    def __init__(self, job: KubeJob, shape: Shape) -> None:
        self.job, self.key, self.shape = job, job.key, shape
        self.stage = Stage.ACTIVE
        self.replicas: tuple[ReplicaAssignment, ...] = ()
        """Where its replicas shall sit; none: nowhere."""
        self.assignment: Assignment = NOWHERE
        self.seated_at = NEVER
        """When it was last given a home."""
        self.reason: Reason | None = None
        """Why it waits or changed, as the last round saw it."""
        self.words = ""
        """The same as a sentence for people."""
        self.trouble = ""
        """What the server said to the last write that it refused; until one is accepted."""
        self.tries = 0
        """Refusals in a row."""
        self.retry_at = 0.0
        """Nothing is created before."""
        self.look_at = NEVER
        """When to look at it again though nothing happens."""
        self.looked_at = -NEVER
        self.read_of: object = None
        """What of the object `submitted` was made from."""
        self.outcome: tuple[str, str] = ("", "")
        """Why it has ended or cannot be run: a word and a sentence."""
        self.ending_attempt = -1
        """The attempt that goes as a whole because something of it failed."""
        self.counted_workers = 0
        """For which its time is counted."""
        self.services: dict[tuple[str, int], bool] = {}
        """By replica, and whether it is there or only being made."""
        self.resized: dict[str, int] = {}
        """Thousandths of a core that pods were told to ask for, by uid, where it is not what they were made with."""
        self.under_way = 0
        """Writes to the object itself that are not answered yet."""
        self.raw_spec = b"{}"
        """Of an object that somebody else carries out, as last seen."""
        self.record: Move | None = None
        """Of a plain pod that is under way, as it is written down."""
        self.draft: Write | None = None
        """The same as it was sent, until it is seen or not needed any more."""
        self.former: PodRow | None = None
        """Its life that has just ended, until that was looked at."""
        self.share_pods: dict[tuple[str, int], PodRow] = {}
        """SharePods of the job, by replica."""
        self.made_pods: dict[tuple[str, int], PodRow] = {}
        """What KubeShare made of them."""
        self.newborn: dict[tuple[str, int], tuple[ReplicaAssignment, bool]] = {}
        """Seats whose pods are being made, and whether the server took them; told of together."""
        self.hosts: Hosts | None = None
        """What the launcher of an MPI job knows."""
        self.is_resting = False
        """It has ended, and that is told: only what must be known of it until it is deleted is left."""
        self.leaves_pods = False
        """Whoever deletes it wants its pods to stay."""
        self.annotations: Mapping[str, str] = {}
        """Of the object, as last seen."""
        self.seen_status: Mapping[str, Any] = {}
        """As the server last showed it; `job.status` may be ahead of it."""
        self.verdict = GOES_ON
        """The last thing its pods meant, as long as it matters."""
        self.telling = Telling()

    @property
    def name(self) -> str:
        return self.job.parsed_job.ref.key

    @property
    def parsed_job(self) -> ParsedJob:
        return self.job.parsed_job

    @property
    def wants_to_run(self) -> bool:
        """Whether rules may decide about it. A plain pod is its own scheduler's until it has a node."""
        if self.stage is not Stage.ACTIVE or self.job.is_deleting or self.parsed_job.is_suspended:
            return False
        if self.parsed_job.ownership is not PodOwnership.POD:
            return True
        return self.record is not None or any(pod.node for pod in self.job.pods.values())

    @property
    def live_pods(self) -> Iterator[PodRow]:
        """Those that use something of a node, or will."""
        return (pod for pod in self.job.pods.values() if not pod.is_terminated)

    @property
    def running_workers(self) -> int:
        """Workers that train now."""
        worker = self.parsed_job.spec.worker.type
        pods = self.job.pods.values()
        return sum(pod.type == worker and pod.state is PodState.RUNNING and not pod.is_deleting for pod in pods)


class Telling:
    """What was told of a job in its status, and when the next word is due."""

    __slots__ = (
        "code",
        "due_at",
        "is_end_told",
        "is_outdated",
        "marks",
        "next_phase",
        "next_since",
        "phase",
        "refusals",
        "said_at",
        "sentence",
        "under_way",
        "urgency",
    )

    def __init__(self) -> None:
        self.due_at = NEVER
        self.urgency = Urgency.EVENT
        self.said_at = -NEVER
        self.phase = ""
        self.next_phase, self.next_since = "", -NEVER
        """What is to be told next, and since when it is so."""
        self.sentence = ""
        self.marks: tuple[object, ...] = ()
        """What of its memory was written down with it."""
        self.code: Code | None = None
        """Of the reason."""
        self.under_way = 0
        """Writes that are not answered yet."""
        self.refusals = 0
        """In a row."""
        self.is_end_told = False
        """The server has taken a status that says that the job has ended."""
        self.is_outdated = False
        """Something changed while they were."""


def has_ended(entry: JobEntry) -> bool:
    """Whether it ended while we were there."""
    return entry.verdict.fate in (Fate.COMPLETED, Fate.FAILED)


def cleared(entry: JobEntry) -> None:
    """What its pods showed is over: it runs, or waits, like any other."""
    if not has_ended(entry):
        entry.verdict, entry.ending_attempt = GOES_ON, -1


def marks_of(memory: PersistedState) -> tuple[object, ...]:
    """What of a job's memory cannot be found out otherwise and seldom changes."""
    return (
        memory.attempt,
        memory.promotions,
        memory.moves,
        memory.restarts,
        memory.cpu_share,
        memory.moved_at,
        memory.asked_move,
        memory.started_at,
        memory.saved_step,
        memory.asked_cpus,
    )


def charge_of(shape: Shape, is_worker: bool) -> Charge:
    """What rules count for one replica."""
    if is_worker:
        return Charge(0 if shape.is_fraction else shape.devices, shape.cpus, shape.memory_bytes)
    return Charge(0, shape.ps_cpus, shape.ps_memory_bytes)


def planned_charges(entry: JobEntry) -> list[tuple[str, Charge]]:
    """Node and charge of every seat."""
    worker = entry.parsed_job.spec.worker.type
    own, other = charge_of(entry.shape, True), charge_of(entry.shape, False)
    return [(replica.node, own if replica.type == worker else other) for replica in entry.replicas]


def shared_places(entry: JobEntry) -> list[tuple[str, str]]:
    """Node and GPU of every worker that shares one."""
    return [(replica.node, replica.gpu_id) for replica in entry.replicas if replica.gpu_id]


def row_assignment(
    parsed_job: ParsedJob, replicas: Sequence[ReplicaAssignment], row_of: Mapping[str, int]
) -> Assignment:
    """The home that these seats are, by rows. Workers of one node stand together, in the order of their nodes' lowest
    indices; those on nodes that are not there are left out."""
    worker = parsed_job.spec.worker.type
    by_row: dict[int, list[ReplicaAssignment]] = {}
    others: dict[int, int] = {}
    for replica in sorted(replicas):
        row = row_of.get(replica.node)
        if row is None:
            continue
        if replica.type == worker:
            by_row.setdefault(row, []).append(replica)
        else:
            others[row] = others.get(row, 0) + 1
    slots = [gpu_number(replica.gpu_id) for run in by_row.values() for replica in run if replica.gpu_id]
    return Assignment(tuple((row, len(run)) for row, run in by_row.items()), tuple(others.items()), tuple(slots))
