"""`JobEntry`: one job with everything the operator knows about it, durable or not.

The desired assignment is held twice: as `replicas`, by node name, which controllers create pods from, and as
`assignment`, by rows of the node table, which rules read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from sterna.backends.kubernetes.api.assignment import gpu_number
from sterna.backends.kubernetes.api.job import KubeJob, PersistedState, PodRow, PodState, ReplicaAssignment
from sterna.backends.kubernetes.api.resources import Urgency, Write
from sterna.backends.kubernetes.cache.node_capacity import ResourceUsage
from sterna.backends.kubernetes.lifecycle.verdict import CONTINUE, VerdictKind
from sterna.backends.kubernetes.pods.move_record import MoveRecord
from sterna.kinds.parsed_job import ParsedJob
from sterna.model.cluster import NOWHERE, Assignment, Shape
from sterna.model.reason import Code, Reason
from sterna.model.snapshot import NEVER


class Stage(Enum):
    """Lifecycle stage of a job in the cache."""

    ACTIVE = "active"
    """Waiting or running."""
    ENDED = "ended"
    """Succeeded or failed; its pods may still exist."""
    INVALID = "invalid"
    """The object cannot be run as submitted; a later generation may be."""


class JobEvent(Enum):
    """Counted event of a job, as (DRAGON's metric name, Voda's metric name or empty)."""

    CREATED = ("created", "created")
    DELETED = ("deleted", "deleted")
    COMPLETED = ("successful", "completed")
    FAILED = ("failed", "failed")
    RESTARTED = ("restarted", "")


class MpiHosts(NamedTuple):
    """Workers that the launcher of an MPIJob can discover."""

    launcher: str
    """Uid of the launcher pod."""
    announced: str
    """Ordinals that ran when the launcher's hostfile was last refreshed: `0-3`."""
    running: str
    """Ordinals that run now."""
    since: float
    """When `running` last changed."""


class MoveProgress:
    """State of a plain pod that is being moved."""

    __slots__ = ("draft", "previous_pod", "record")

    def __init__(self) -> None:
        self.record: MoveRecord | None = None
        """The move record as stored in its ConfigMap; None if the pod is not being moved."""
        self.draft: Write | None = None
        """The write that creates the record, until the record is seen or no longer needed."""
        self.previous_pod: PodRow | None = None
        """The pod that ended last, until its termination has been processed."""


class KubeShareState:
    """SharePods of a job and the pods that KubeShare created from them, by replica."""

    __slots__ = ("pods", "share_pods")

    def __init__(self) -> None:
        self.share_pods: dict[tuple[str, int], PodRow] = {}
        self.pods: dict[tuple[str, int], PodRow] = {}


class RetryState:
    """Back-off after the API server rejected a write."""

    __slots__ = ("at", "count", "message")

    def __init__(self) -> None:
        self.at = 0.0
        """No object of the job is created or deleted before this time."""
        self.count = 0
        """Consecutive rejections."""
        self.message = ""
        """Sentence shown in the status instead of the decision's; cleared when a write succeeds."""


class SourceObject:
    """The job's object as last seen."""

    __slots__ = ("annotations", "fingerprint", "orphans_pods", "raw_spec")

    def __init__(self) -> None:
        self.annotations: Mapping[str, str] = {}
        self.fingerprint: object = None
        """Generation and annotations that `ParsedJob` was parsed from."""
        self.raw_spec = b"{}"
        """The spec of an object whose pods another controller creates."""
        self.orphans_pods = False
        """True if the object is deleted with `propagationPolicy: Orphan`, so that its pods stay."""


class StatusState:
    """Last written status of a job, and when the next write is due."""

    __slots__ = (
        "code",
        "due_at",
        "durable_fields",
        "is_end_written",
        "is_outdated",
        "next_phase",
        "next_since",
        "phase",
        "rejections",
        "seen",
        "sentence",
        "urgency",
        "writes_in_flight",
        "written_at",
    )

    def __init__(self) -> None:
        self.due_at = NEVER
        self.urgency = Urgency.EVENT
        self.written_at = -NEVER
        self.phase = ""
        self.next_phase, self.next_since = "", -NEVER
        """The phase to write next, and since when the job has been in it."""
        self.sentence = ""
        self.durable_fields: tuple[object, ...] = ()
        """`durable_fields` of the persisted state that was written with it."""
        self.code: Code | None = None
        """Code of the reason that was written."""
        self.writes_in_flight = 0
        self.rejections = 0
        """Consecutive rejections."""
        self.is_end_written = False
        """True once the API server accepted a status that reports the end of the job."""
        self.is_outdated = False
        """True if the job changed while a status write was in flight."""
        self.seen: Mapping[str, Any] = {}
        """The status as last received; `KubeJob.status` may be ahead of it."""


class JobEntry:
    """A job, its desired assignment, and the operator's state about it."""

    __slots__ = (
        "assigned_at",
        "assignment",
        "counted_workers",
        "ending_attempt",
        "hosts",
        "is_compacted",
        "job",
        "key",
        "kubeshare",
        "move",
        "next_reconcile_at",
        "outcome",
        "pending_pods",
        "reason",
        "reconciled_at",
        "replicas",
        "resized_cpus",
        "retry",
        "sentence",
        "services",
        "shape",
        "source",
        "stage",
        "status",
        "unsaved_attempt",
        "verdict",
        "writes_in_flight",
    )

    def __init__(self, job: KubeJob, shape: Shape) -> None:
        self.job, self.key, self.shape = job, job.key, shape
        self.stage = Stage.ACTIVE
        self.replicas: tuple[ReplicaAssignment, ...] = ()
        """Desired node of each replica; empty if the job is queued."""
        self.assignment: Assignment = NOWHERE
        """`replicas` by rows of the node table."""
        self.assigned_at = NEVER
        self.reason: Reason | None = None
        """Reason given by the last round that mentioned the job."""
        self.sentence = ""
        """`reason` as a sentence, with internal node labels replaced by their meaning."""
        self.outcome: tuple[str, str] = ("", "")
        """Why the job ended or is invalid: condition reason and sentence."""
        self.verdict = CONTINUE
        """The last verdict on its pods that still matters."""
        self.ending_attempt = -1
        """The attempt that is being deleted as a whole after a failure; -1 if none."""
        self.unsaved_attempt = -1
        """The attempt that was asked to stop and ended without the checkpoint that it had promised; -1 if none."""
        self.counted_workers = 0
        """Workers at which run time is currently accrued."""
        self.next_reconcile_at = NEVER
        """Earliest timer of the job."""
        self.reconciled_at = -NEVER
        self.services: dict[tuple[str, int], bool] = {}
        """Services by replica: True if it exists, False if its creation is in flight."""
        self.resized_cpus: dict[str, int] = {}
        """CPU request (millicores) last sent for each resized pod, by uid."""
        self.writes_in_flight = 0
        """Unanswered writes to the object itself or to its move record."""
        self.pending_pods: dict[tuple[str, int], tuple[ReplicaAssignment, bool]] = {}
        """Replicas whose pods are being created, and True once the server accepted them; reported in one event."""
        self.hosts: MpiHosts | None = None
        self.is_compacted = False
        """True after `ClusterState.compact` dropped what an ended job no longer needs."""
        self.retry, self.source, self.status = RetryState(), SourceObject(), StatusState()
        self.move, self.kubeshare = MoveProgress(), KubeShareState()

    @property
    def name(self) -> str:
        return self.job.parsed_job.ref.key

    @property
    def parsed_job(self) -> ParsedJob:
        return self.job.parsed_job

    @property
    def wants_to_run(self) -> bool:
        """True if rules may decide about the job. A plain pod belongs to its own scheduler until it is bound."""
        if self.stage is not Stage.ACTIVE or self.job.is_deleting or self.parsed_job.is_suspended:
            return False
        if not self.parsed_job.ownership.is_pod:
            return True
        return self.move.record is not None or any(pod.node for pod in self.job.pods.values())

    @property
    def live_pods(self) -> Iterator[PodRow]:
        """Pods that use node resources now or will."""
        return (pod for pod in self.job.pods.values() if not pod.is_terminated)

    @property
    def running_workers(self) -> int:
        worker = self.parsed_job.spec.worker.type
        pods = self.job.pods.values()
        return sum(pod.type == worker and pod.state is PodState.RUNNING and not pod.is_deleting for pod in pods)


def has_ended(entry: JobEntry) -> bool:
    """Return True if the job ended while this operator was leading."""
    return entry.verdict.kind in (VerdictKind.COMPLETED, VerdictKind.FAILED)


def clear_verdict(entry: JobEntry) -> None:
    """Drop a verdict that no longer applies; the verdict of an ended job stays."""
    if not has_ended(entry):
        entry.verdict, entry.ending_attempt = CONTINUE, -1


def durable_fields(persisted: PersistedState) -> tuple[object, ...]:
    """Return the persisted fields that cannot be recomputed and change rarely."""
    return (
        persisted.attempt,
        persisted.promotions,
        persisted.moves,
        persisted.restarts,
        persisted.cpu_share,
        persisted.moved_at,
        persisted.asked_move,
        persisted.started_at,
        persisted.saved_step,
        persisted.save,
        persisted.spent,
        persisted.failures,
        persisted.ran_well,
        persisted.not_before,
        persisted.resume_step,
        persisted.asked_cpus,
    )


def replica_usage(shape: Shape, is_worker: bool) -> ResourceUsage:
    """Return the resources that rules count for one replica."""
    if is_worker:
        return ResourceUsage(0 if shape.is_fraction else shape.devices, shape.cpus, shape.memory_bytes)
    return ResourceUsage(0, shape.ps_cpus, shape.ps_memory_bytes)


def planned_usage(entry: JobEntry) -> list[tuple[str, ResourceUsage]]:
    """Return node and usage of every assigned replica."""
    worker = entry.parsed_job.spec.worker.type
    own, other = replica_usage(entry.shape, True), replica_usage(entry.shape, False)
    return [(replica.node, own if replica.type == worker else other) for replica in entry.replicas]


def planned_gpus(entry: JobEntry) -> list[tuple[str, str]]:
    """Return node and GPU id of every assigned replica that uses a GPU fraction."""
    return [(replica.node, replica.gpu_id) for replica in entry.replicas if replica.gpu_id]


def assignment_by_row(
    parsed_job: ParsedJob, replicas: Sequence[ReplicaAssignment], row_of: Mapping[str, int]
) -> Assignment:
    """Convert replicas to an `Assignment` by node rows.

    Workers are grouped by node, nodes in the order of their lowest ordinal. Replicas on unknown nodes are left out.
    """
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
