"""A job as the operator holds it: what was submitted, what is remembered of it, and which of its pods exist.

Values only. `kinds/` makes a `Submitted` of an object and pods of a `Submitted`; `world.py` keeps the rest current.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from sterna.control.job_state import JobState
from sterna.kinds.parsed_job import GpuFraction, NodeNeeds, ParsedJob
from sterna.model.cluster import Shape


class ReplicaAssignment(NamedTuple):
    """Where one replica shall sit."""

    type: str
    ordinal: int
    node: str
    gpu_id: str = ""
    """Which shared GPU of its node, as KubeShare names them."""


class PendingServingPod(NamedTuple):
    """A pod that goes before training and has no node yet."""

    name: str
    shape: Shape
    """What it needs of a node, as far as that does not follow from the rest and from the nodes that there are
    (`Accounts.fitted`)."""
    needs: NodeNeeds
    since: float
    gpu_fraction: GpuFraction | None = None


class PersistedState(JobState, omit_defaults=True, rename="camel"):
    """What must be known of a job after the operator died: `status.sterna` of kinds of ours, else an annotation."""

    attempt: int = 0
    enqueued_at: float | None = None
    started_at: float | None = None
    """The present attempt's."""
    counted_from: float | None = None
    """Until when `attained` and `executed` are booked, while it runs."""
    replica_moves: dict[str, int] = msgspec.field(default_factory=dict)
    """How often each replica was moved at somebody's request, by `{type}-{index}`."""
    asked_move: str = ""
    """The last request to move it that was looked at (`MIGRATE_TO`)."""
    moving: dict[str, str] = msgspec.field(default_factory=dict)
    """Pods under way: name -> node, written down before the old one is deleted."""
    saved_attempt: int = -1
    """The last attempt of which a replica saved when it was asked to go."""
    suspended_at: float | None = None
    """Since when its user has it suspended, after it had run."""
    suspended_seconds: float = 0.0
    """So long before."""
    asked_cpus: int = 0
    """Thousandths of a core that a plain pod asked for before its share changed; 0: as it says."""


class PodState(Enum):
    """How far a pod is, for whoever counts room and watches jobs."""

    PENDING = "pending"
    """Without a node, or its containers do not run yet."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class PodRow(msgspec.Struct, gc=False):
    """One pod, in as little memory as may be. Of pods that are not ours only the first fields mean anything."""

    key: str
    uid: str
    version: int
    node: str
    state: PodState
    is_terminated: bool
    """Its containers have ended, so that it uses nothing: succeeded, failed, or deleted and done."""
    is_deleting: bool
    devices: int
    cpus: int
    memory_bytes: int
    job: str = ""
    """Key of the job it belongs to, by owner (or by itself, for a plain pod); empty: not ours."""
    owner_uid: str = ""
    type: str = ""
    index: int = -1
    attempt: int = 0
    exit_code: int | None = None
    reason: str = ""
    """Why it failed or waits: `Evicted`, `OutOfcpu`, `NodeLost`, `ErrImagePull`, .."""
    message: str = ""
    """Its termination message: what the agent left there."""
    restarts: int = 0
    started_at: float | None = None
    is_serving: bool = False
    assignment: str = ""
    """The annotation `HOME`."""
    gpu_id: str = ""
    is_kubeshare: bool = False
    """KubeShare's: where SharePods are followed, what it uses is counted through one of them (DRAGON-38)."""
    limit_cpus: int = 0
    """What its containers may use at most, thousandths; 0: they do not say, and what they ask for stands for it."""
    limit_memory_bytes: int = 0
    deletes_at: float | None = None
    """With `is_deleting`: when its grace ends (`deletionTimestamp`)."""
    disruption: str = ""
    """Why the cluster takes it from its node: `DeletionByTaintManager`, `EvictionByEvictionAPI`, ..; empty: it does
    not."""
    withheld: tuple[float, int] | None = None
    """A resize for which its node has no room: since when, and the thousandths of a core that it has meanwhile."""


@dataclass(slots=True)
class KubeJob:
    """A job that wants to run, runs, or has ended, with everything known of it."""

    key: int
    parsed_job: ParsedJob
    persisted: PersistedState
    version: int
    """Resource version of the object that was last seen."""
    pods: dict[tuple[str, int], PodRow] = field(default_factory=dict)
    """By type and index."""
    status: Mapping[str, Any] = field(default_factory=dict)
    """As it was last seen or written."""
    is_deleting: bool = False

    @property
    def name(self) -> str:
        return self.parsed_job.ref.key
