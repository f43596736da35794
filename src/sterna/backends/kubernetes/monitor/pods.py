"""Pods as a monitor sees them: where they keep their files, and how they tell of their progress.

Decoded straight from what the server sends, as in `objects`, but other fields count here: mounts, volumes, arguments.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from sterna.errors import UserError
from sterna.kinds.labels import JOB_LABEL, PROGRESS
from sterna.kinds.objects import ContainerStatus, Meta
from sterna.kinds.parsing.annotations import parse_annotations
from sterna.kinds.registry import find_kind
from sterna.model.job import ProgressSpec
from sterna.progress.spec import parse_progress

_KUBEFLOW_JOB = "training.kubeflow.org/job-name"
"""On the pods of Kubeflow's MPI operator, whose launchers belong to a Job."""
_OPERATOR = "training.kubeflow.org/operator-name"
_METRICS = "/metrics"
"""Where Voda's jobs keep their CSV file, named after the job."""
_ENDED = frozenset({"Succeeded", "Failed"})


class Mount(msgspec.Struct, rename="camel"):
    name: str = ""
    mount_path: str = ""
    sub_path: str = ""


class Container(msgspec.Struct, rename="camel"):
    name: str = ""
    command: list[str] = []
    args: list[str] = []
    working_dir: str = ""
    volume_mounts: list[Mount] = []


class Volume(msgspec.Struct, rename="camel"):
    """Of its source only what says where the kubelet keeps it."""

    name: str = ""
    host_path: dict[str, Any] | None = None
    empty_dir: dict[str, Any] | None = None
    nfs: dict[str, Any] | None = None
    csi: dict[str, Any] | None = None
    persistent_volume_claim: dict[str, Any] | None = None


class Spec(msgspec.Struct, rename="camel"):
    containers: list[Container] = []
    volumes: list[Volume] = []
    node_name: str = ""
    host_network: bool = False


class Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    start_time: str | None = None
    container_statuses: list[ContainerStatus] = []


class NodePod(msgspec.Struct, rename="camel"):
    """A pod of the monitor's node."""

    metadata: Meta
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)

    @property
    def has_ended(self) -> bool:
        return self.status.phase in _ENDED

    @property
    def started_at(self) -> float:
        """0: not yet, or nobody says when."""
        try:
            return datetime.fromisoformat(self.status.start_time or "").timestamp()
        except (ValueError, OverflowError, OSError):
            return 0.0

    @property
    def job(self) -> str:
        """The name that its job goes by; empty if it belongs to nobody we look after."""
        labels = self.metadata.labels
        named = labels.get(JOB_LABEL) or labels.get(_KUBEFLOW_JOB, "")
        if named:
            return self.metadata.name if named == "true" else named
        return next((owner.name for owner in self.metadata.owner_references if find_kind(owner.kind)), "")

    @property
    def trainer(self) -> Container | None:
        """The container whose output counts: the first, as Kubernetes takes it, too."""
        return self.spec.containers[0] if self.spec.containers else None


def progress_of(pod: NodePod) -> ProgressSpec:
    """How it tells of its progress: as declared, else by a CSV file that it names or that Voda's jobs keep."""
    declared = _declared(pod.metadata.annotations)
    if declared.sources:
        return declared
    csv = _named_csv(pod) or _vodas_csv(pod)
    return replace(declared, sources={"csv": csv} if csv else {})


def is_csv_guessed(pod: NodePod) -> bool:
    """Whether the file may as well be something else: data among the arguments, somebody else's `/metrics`. Voda's
    jobs, which the MPI operator carries out, always keep one."""
    declared = _declared(pod.metadata.annotations)
    is_vodas = pod.metadata.labels.get(_OPERATOR) == "mpi-operator" and not _named_csv(pod)
    return "csv" not in declared.sources and not is_vodas


def _declared(annotations: Mapping[str, str]) -> ProgressSpec:
    """What they say, in one as the operator writes it or in several as a person does; nothing where it is no such
    thing, for whoever wrote it was told when the job was submitted."""
    try:
        if annotations.get(PROGRESS):
            return parse_progress(msgspec.json.decode(annotations[PROGRESS], type=dict[str, Any]))
        return parse_annotations(annotations).progress
    except (UserError, msgspec.DecodeError, ValueError, RecursionError):
        return ProgressSpec()


_CSV = re.compile(r"[\w./@%+-]+\.csv")


def _named_csv(pod: NodePod) -> str:
    """A CSV file among the arguments, as SpeCon's jobs are given one, inside what is mounted."""
    for container in pod.spec.containers:
        for word in (*container.command, *container.args):
            for path in _CSV.findall(word):
                whole = posixpath.normpath(posixpath.join(container.working_dir or "/", path))
                if any(is_below(whole, mount.mount_path) for mount in container.volume_mounts):
                    return whole
    return ""


def _vodas_csv(pod: NodePod) -> str:
    mounts = (mount for container in pod.spec.containers for mount in container.volume_mounts)
    has_metrics = any(posixpath.normpath(mount.mount_path or "/") == _METRICS for mount in mounts)
    return f"{_METRICS}/{pod.job}.csv" if has_metrics and pod.job else ""


def is_below(path: str, folder: str) -> bool:
    """Is it in that folder, or the folder itself?"""
    whole = posixpath.normpath(folder or "/")
    return whole == "/" or path == whole or path.startswith(whole + "/")
