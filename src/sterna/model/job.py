"""Specification of a job as its user submits it, independent of the kind of manifest.

Frozen values. Kinds and manifests are parsed elsewhere; backends turn a job into replicas. Nothing here depends on
Kubernetes, processes or files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sterna.model.cached_attribute import cached_attribute

LEAST_PRIORITY, MOST_PRIORITY = -1_000_000_000, 1_000_000_000
"""Bounds of a priority that a user writes; the upper one is that of Kubernetes' own PriorityClasses."""

SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""PriorityClasses that every Kubernetes cluster has."""


def priority_of_class(name: str, known: Mapping[str, int]) -> int | None:
    """Return the value of a PriorityClass, or None if neither `known` (name to value) nor Kubernetes defines it."""
    return known.get(name, SYSTEM_PRIORITIES.get(name))


class RestartPolicy(Enum):
    """Condition under which a job whose replica failed is restarted."""

    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    EXIT_CODE = "ExitCode"
    """Restart only after exit codes that blame the machine: 130, 137, 138, 143."""


class Resizing(Enum):
    """Mechanism by which a running job changes its number of workers."""

    RESTART = "restart"
    """Checkpoint and restart."""
    IN_PLACE = "in-place"
    """Workers join and leave a running process group (`sterna.agent.world`)."""
    TORCHRUN = "torchrun"
    """torchrun's elastic agents."""
    NONE = "none"
    """Not at all: the number of workers is fixed, and changes only at its owner's request, by a restart."""

    @property
    def is_by_restart(self) -> bool:
        """True if all processes end when the number of workers changes."""
        return self in (Resizing.RESTART, Resizing.NONE)


@dataclass(frozen=True)
class ReplicaSpec:
    """Replicas of one type: initial count, command and resource requests of each."""

    type: str
    """`worker`, `ps`, `chief`, `launcher`, `master`, `evaluator`: lower case."""
    count: int
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    working_dir: str = ""
    """Empty: that of the submitting process."""
    devices: int = 0
    """Thousandths of a device."""
    cpus: int = 0
    """Thousandths of a core; 0: no request."""
    memory_bytes: int = 0


@dataclass(frozen=True)
class ProgressSpec:
    """Progress sources of a job, besides the agent, which is always read."""

    sources: dict[str, Any] = field(default_factory=dict)
    """Parameters by name of a progress source, as that source parsed them: `{"csv": "run.csv"}`. JSON values."""
    metric: str = ""
    """Name of the metric; empty: the first that is reported, `loss` before others."""
    goal: str = ""
    """`min` or `max`; empty: inferred from the name of the metric."""
    total: int = 0
    """Total steps, for reports without a total; 0: unknown."""


@dataclass(frozen=True)
class JobSpec:
    """A job as submitted."""

    name: str
    kind: str
    """`TrainingJob`, `TFJob`, `MPIJob`, `PyTorchJob` or `Pod`."""
    replicas: tuple[ReplicaSpec, ...]
    minimum: int
    maximum: int
    request: int
    """Requested workers, between `minimum` and `maximum`."""
    priority: int = 0
    """Higher goes first."""
    priority_class: str = ""
    """PriorityClass of the pod template, whose value takes the place of `priority` where it is known; empty if the user
    gives a priority of the job itself."""
    category: str = ""
    """Jobs of one category are assumed to behave alike; empty: the name without trailing digits."""
    user: str = ""
    restart: RestartPolicy = RestartPolicy.ON_FAILURE
    restarts: tuple[tuple[str, RestartPolicy], ...] = ()
    """Restart policy by replica type, where it differs from `restart`."""
    backoff_limit: int | None = 6
    """Upper bound on restarts; None: unlimited."""
    is_done_by_first: bool = False
    """The job is complete when worker 0 has succeeded, not only when every worker has."""
    grace_seconds: float = 30.0
    resizing: Resizing = Resizing.RESTART
    checkpoint: str = ""
    """Where the manifest says that the job saves its checkpoints; empty: it does not say."""
    progress: ProgressSpec = ProgressSpec()
    ttl_seconds: float | None = None
    """Time after its end at which the job is deleted; None: never."""
    deadline_seconds: float | None = None
    """Longest time that the job may be active; None: unlimited."""
    notices: tuple[str, ...] = ()
    """Warnings about fields of the manifest that Sterna ignores."""

    def restart_of(self, type_: str) -> RestartPolicy:
        """Return the restart policy of a replica type."""
        return next((policy for each, policy in self.restarts if each == type_), self.restart)

    @cached_attribute
    def worker(self) -> ReplicaSpec:
        """Replica type that is scaled."""
        scaled = ("worker", "master", "launcher")
        return next((each for name in scaled for each in self.replicas if each.type == name), self.replicas[0])
