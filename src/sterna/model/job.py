"""A job as its user submits it, whatever manifest it came in: what to run, how many, what it needs, how it is watched.

Plain frozen values. Manifests are read elsewhere (`manifests/`); backends turn a job into replicas. Nothing here knows
Kubernetes, processes or files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from sterna.model.cached_attribute import cached_attribute

LEAST_PRIORITY, MOST_PRIORITY = -1_000_000_000, 1_000_000_000
"""Bounds of a priority that a user writes; the upper one is that of Kubernetes' own PriorityClasses."""

SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""PriorityClasses that every Kubernetes cluster has."""


def priority_of_class(name: str, known: Mapping[str, int]) -> int | None:
    """Return the value of a PriorityClass, or None if neither `known` (name to value) nor Kubernetes defines it."""
    return known.get(name, SYSTEM_PRIORITIES.get(name))


class RestartPolicy(Enum):
    """What becomes of a job whose replica ended with an error."""

    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    EXIT_CODE = "ExitCode"
    """Again only after codes that mean the machine was at fault: 130, 137, 138, 143."""


class Resizing(Enum):
    """How a job takes another number of workers."""

    RESTART = "restart"
    """By checkpoint and restart."""
    IN_PLACE = "in-place"
    """Workers join and leave a training that goes on (`sterna.agent.world`)."""
    TORCHRUN = "torchrun"
    """As torchrun's elastic agents do."""


@dataclass(frozen=True)
class ReplicaSpec:
    """Replicas of one type: how many at first, and what each runs and needs."""

    type: str
    """`worker`, `ps`, `chief`, `launcher`, `master`, `evaluator`: lower case."""
    count: int
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    working_dir: str = ""
    """Empty: that of whoever submitted it."""
    devices: int = 0
    """Thousandths."""
    cpus: int = 0
    """Thousandths of a core; 0: none were asked for."""
    memory_bytes: int = 0


@dataclass(frozen=True)
class ProgressSpec:
    """How a job tells of its progress, beside the agent, which always may."""

    stdout: tuple[str, ...] = ()
    """Regular expressions with named groups (`step`, `total`, and metrics); empty: the built-in ones."""
    csv: str = ""
    """A file with SpeCon's or Voda's columns, relative to the working folder."""
    tensorboard: str = ""
    """A folder with event files."""
    metric: str = ""
    """The metric that counts; empty: the first that is reported, `loss` before others."""
    goal: str = ""
    """`min` or `max`; empty: told from the name of the metric."""
    total: int = 0
    """Steps in all, if the reports do not say; 0: unknown."""


@dataclass(frozen=True)
class JobSpec:
    """What a user submits."""

    name: str
    kind: str
    """`TrainingJob`, `TFJob`, `MPIJob`, `PyTorchJob` or `Pod`."""
    replicas: tuple[ReplicaSpec, ...]
    minimum: int
    maximum: int
    request: int
    """Workers asked for, between the two."""
    priority: int = 0
    """Higher goes first."""
    priority_class: str = ""
    """PriorityClass of the pod template, whose value takes the place of `priority` where it is known; empty if the user
    gives a priority of the job itself."""
    category: str = ""
    """Jobs assumed alike; empty: the name without trailing digits."""
    user: str = ""
    restart: RestartPolicy = RestartPolicy.ON_FAILURE
    restarts: tuple[tuple[str, RestartPolicy], ...] = ()
    """By replica type, where it is not the job's."""
    backoff_limit: int | None = 6
    """How often it is tried again; None: as often as it takes."""
    is_done_by_all: bool = False
    """Of a TFJob: by all of its workers, not by the first of them (`successPolicy: AllWorkers`)."""
    grace_seconds: float = 30.0
    resizing: Resizing = Resizing.RESTART
    progress: ProgressSpec = ProgressSpec()
    ttl_seconds: float | None = None
    """How long after its end it is forgotten; None: never."""
    deadline_seconds: float | None = None
    """How long it may be active; None: for ever."""
    notices: tuple[str, ...] = ()
    """What of the manifest has no meaning here."""

    def restart_of(self, type_: str) -> RestartPolicy:
        """What becomes of the job when a replica of this type has failed."""
        return next((policy for each, policy in self.restarts if each == type_), self.restart)

    @cached_attribute
    def worker(self) -> ReplicaSpec:
        """The type that is scaled."""
        scaled = ("worker", "master", "launcher")
        return next((each for name in scaled for each in self.replicas if each.type == name), self.replicas[0])
