"""Values about one job: its replicas, persisted state and pods.

`kinds` parses an object into a `ParsedJob`, `pods` builds pods from it, `cache` keeps the rest current.
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
    """Desired node of one replica."""

    type: str
    ordinal: int
    node: str
    gpu_id: str = ""
    """KubeShare's id of a shared GPU of the node; empty if it uses whole devices."""


class PendingServingPod(NamedTuple):
    """Unbound pod that precedes training."""

    name: str
    shape: Shape
    """Requests of the pod; `NodeCapacity.fit` resolves `needs` and `gpu_fraction`."""
    needs: NodeNeeds
    since: float
    gpu_fraction: GpuFraction | None = None


class PersistedState(JobState, omit_defaults=True, rename="camel"):
    """State of a job that survives the operator: in `status.sterna`, or in an annotation (`StatusStorage`)."""

    attempt: int = 0
    enqueued_at: float | None = None
    started_at: float | None = None
    """Start of the current attempt."""
    counted_from: float | None = None
    """Time up to which `attained` and `executed` are accrued, while it runs."""
    replica_moves: dict[str, int] = msgspec.field(default_factory=dict)
    """Requested moves of each replica, by `{type}-{index}`."""
    asked_move: str = ""
    """The last processed value of the `MIGRATE_TO` annotation."""
    moving: dict[str, str] = msgspec.field(default_factory=dict)
    """Target node by pod name, recorded before the old pod is deleted."""
    saved_attempt: int = -1
    """The last attempt that saved on termination."""
    failure_cause: str = ""
    """Why the job failed or was refused last, as the beginning of a sentence; empty once it has run well."""
    suspended_at: float | None = None
    """Start of the current suspension by the user, after the first start."""
    suspended_seconds: float = 0.0
    """Total duration of earlier suspensions."""
    asked_cpus: int = 0
    """Original CPU request of a resized plain pod in millicores; 0 if it was not resized."""


class PodState(Enum):
    """State of a pod, simplified from its phase."""

    PENDING = "pending"
    """Unbound, or its containers do not run yet."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class PodRow(msgspec.Struct, gc=False):
    """Compact row of one pod. For pods of other owners only the fields before `job` are set."""

    key: str
    uid: str
    version: int
    node: str
    state: PodState
    is_terminated: bool
    """True if its containers have terminated, so that it uses no resources."""
    is_deleting: bool
    devices: int
    cpus: int
    memory_bytes: int
    job: str = ""
    """`namespace/name` of its job; empty for a pod of another owner."""
    owner_uid: str = ""
    type: str = ""
    index: int = -1
    attempt: int = 0
    exit_code: int | None = None
    reason: str = ""
    """Why it failed or does not start: `Evicted`, `OutOfcpu`, `NodeLost`, `ErrImagePull`, .."""
    message: str = ""
    """Termination message, written by the agent."""
    restarts: int = 0
    last_exit_code: int | None = None
    """Exit code of the previous run of its container, which the kubelet restarted."""
    started_at: float | None = None
    is_serving: bool = False
    assignment: str = ""
    """Value of the `ASSIGNMENT` annotation."""
    gpu_id: str = ""
    is_kubeshare: bool = False
    """True for a pod that KubeShare created; its GPU fraction is counted through its SharePod."""
    limit_cpus: int = 0
    """CPU limit in millicores; 0 if unlimited, then the request counts."""
    limit_memory_bytes: int = 0
    deletes_at: float | None = None
    """End of its grace period (`deletionTimestamp`), if it is being deleted."""
    disruption: str = ""
    """Reason of its `DisruptionTarget` condition (`DeletionByTaintManager`, `EvictionByEvictionAPI`, ..); empty if it
    is not being evicted."""
    withheld: tuple[float, int] | None = None
    """Deferred CPU resize: since when, and the millicores still allocated."""


@dataclass(slots=True)
class KubeJob:
    """A job with its persisted state, pods and status."""

    key: int
    parsed_job: ParsedJob
    persisted: PersistedState
    version: int
    """Resource version of the object as last seen."""
    pods: dict[tuple[str, int], PodRow] = field(default_factory=dict)
    """Pods by type and index."""
    status: Mapping[str, Any] = field(default_factory=dict)
    """Status as last seen or written."""
    is_deleting: bool = False

    @property
    def name(self) -> str:
        return self.parsed_job.ref.key
