"""Kubernetes objects that jobs are made of, decoded as far as Sterna reads them.

Only fields that decide something are named; msgspec skips the rest while decoding, so that 100,000 pods stay
affordable. Objects of custom kinds keep `spec` and `status` raw: the module of the kind decodes them.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Owner(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """A reference to the owner of an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class Meta(msgspec.Struct, rename="camel", gc=False):
    """Metadata of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[Owner] = []
    finalizers: list[str] = []

    @property
    def version(self) -> int:
        """Resource versions of one resource are ordered as numbers."""
        return int(self.resource_version) if self.resource_version.isdigit() else 0

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class JobObject(msgspec.Struct, rename="camel"):
    """A TFJob, PyTorchJob, MPIJob, TrainingJob or SharePod."""

    metadata: Meta
    api_version: str = ""
    kind: str = ""
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


class Needs(msgspec.Struct, gc=False):
    """Requests and limits of a container, as written."""

    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}


class Container(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    resources: Needs = msgspec.field(default_factory=Needs)
    restart_policy: str = ""
    """`Always` for a sidecar among the init containers."""


class Toleration(msgspec.Struct, rename="camel", gc=False, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PodSpec(msgspec.Struct, rename="camel"):
    containers: list[Container] = []
    init_containers: list[Container] = []
    node_name: str = ""
    scheduler_name: str = ""
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []
    affinity: dict[str, Any] = {}
    overhead: dict[str, str | int | float] = {}
    scheduling_gates: list[dict[str, str]] = []
    termination_grace_period_seconds: int | None = None
    priority: int | None = None
    """Value of `priority_class_name`, set by the API server."""
    priority_class_name: str = ""
    resources: Needs | None = None
    """What the pod asks for as a whole, where it does."""


class Terminated(msgspec.Struct, rename="camel"):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    """What the container left in its termination log."""
    finished_at: str | None = None


class State(msgspec.Struct, rename="camel"):
    waiting: dict[str, Any] | None = None
    running: dict[str, Any] | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, rename="camel"):
    name: str = ""
    restart_count: int = 0
    ready: bool = False
    state: State = msgspec.field(default_factory=State)
    last_state: State = msgspec.field(default_factory=State)
    resources: msgspec.Raw = msgspec.Raw(b"{}")
    """What the kubelet has granted; read only where it differs from what was asked for."""


class Condition(msgspec.Struct, rename="camel", gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    start_time: str | None = None
    pod_ip: str = msgspec.field(default="", name="podIP")
    resize: str = ""


class Pod(msgspec.Struct, rename="camel"):
    metadata: Meta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)
