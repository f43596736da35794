"""A user's object parsed into values: what to run, what it needs of nodes, and which object it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, NamedTuple

import msgspec

from sterna.kinds.objects import Toleration
from sterna.kinds.resource import Resource
from sterna.model.cluster import Shape
from sterna.model.job import JobSpec


class JobRef(NamedTuple):
    """Reference to the object of a job. Another uid under the same name is another job."""

    resource: Resource
    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, eq=False)
class PodOwnership:
    """Controller that creates the pods of a job, as a record of capabilities. Compared by identity."""

    OPERATOR: ClassVar[PodOwnership]
    """Sterna creates the pods, each bound to its node: TFJob, PyTorchJob, TrainingJob."""
    KUBESHARE: ClassVar[PodOwnership]
    """Sterna creates SharePods, from which KubeShare creates pods."""
    MPI_OPERATOR: ClassVar[PodOwnership]
    """The MPI operator creates the pods; Sterna suspends, resumes and scales the job and binds its workers."""
    BARE_POD: ClassVar[PodOwnership]
    """The object is the pod itself; a move deletes it and creates it again on another node."""

    name: str
    creates_pods: bool = False
    """Sterna creates one pod or SharePod per replica and one service, labels them with the attempt, writes the status
    of the object, and deletes what is left when the job has ended."""
    uses_kubeshare: bool = False
    """Replicas are SharePods."""
    is_delegated: bool = False
    """Another controller creates and numbers the pods and reports the end of the job in the object's status."""
    is_pod: bool = False
    """The object is the only pod of the job, and is bound by its own scheduler first."""
    resizes_cpu: bool = False
    """CPU requests of running pods may be changed in place."""


PodOwnership.OPERATOR = PodOwnership("operator", creates_pods=True, resizes_cpu=True)
PodOwnership.KUBESHARE = PodOwnership("kubeshare", creates_pods=True, uses_kubeshare=True)
PodOwnership.MPI_OPERATOR = PodOwnership("mpi-operator", is_delegated=True)
PodOwnership.BARE_POD = PodOwnership("bare-pod", is_pod=True, resizes_cpu=True)


class CleanPods(Enum):
    """Pods to delete when a job has ended."""

    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


class ParsedJob(msgspec.Struct, frozen=True):
    """A user's object, parsed."""

    ref: JobRef
    spec: JobSpec
    """Commands of replicas may be empty: an image has its own."""
    shape: Shape
    """Demand of one worker, and of the parameter servers; the selector is that of `needs`."""
    needs: NodeNeeds
    templates: Mapping[str, Mapping[str, Any]]
    """Pod templates by replica type, as submitted."""
    ownership: PodOwnership
    submitted_at: float
    clean_pods: CleanPods = CleanPods.RUNNING
    generation: int = 0
    is_suspended: bool = False
    node_preference: str = ""
    gpu_fraction: GpuFraction | None = None
    leading: tuple[str, ...] = ()
    """Other types that need devices as workers do (a Master, a Chief), one name for each replica: in all that is
    decided they are the first workers, seats `worker-0`, .., and are counted in the bounds and replicas of `spec`.
    Only their pods are theirs: template, name (`kinds.pod_name`) and environment."""
    variables: tuple[tuple[str, str], ...] = ()
    """What every replica finds in its environment, whatever its seat."""
    survives_replica_loss: bool = False
    """Single replicas may be replaced while the others train on, though the job is resized by restart."""
    chiefs: int = 0
    """Chiefs that run beside the parameter servers, one in each (DRAGON-77); 0: none."""

    def framework_name(self, type_: str, index: int) -> tuple[str, int]:
        """The type and index under which a seat's replica is known outside: a Master may be the first worker."""
        leading = self.leading
        if not leading or type_ != self.spec.worker.type:
            return type_, index
        if index < len(leading):
            return leading[index], leading[:index].count(leading[index])
        return type_, index - len(leading)


@dataclass(frozen=True)
class NodeNeeds:
    """Constraints of a job's pods on nodes, as Kubernetes expresses them."""

    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    required: bytes = b""
    """Required node affinity (`nodeSelectorTerms`) as canonical JSON; empty: none."""
    gpu_memory_bytes: int = 0
    """Memory that a GPU must have, on nodes whose GPU memory KubeShare publishes."""


@dataclass(frozen=True)
class GpuFraction:
    """A part of a GPU, as KubeShare counts it: thousandths, and bytes of its memory."""

    request: int
    limit: int
    memory_bytes: int
