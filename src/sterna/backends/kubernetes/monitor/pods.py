"""Pods as a monitor decodes them: mounts, volumes, arguments, and the declared progress sources."""

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
"""Label of pods of Kubeflow's MPI operator, whose launchers are owned by a Job."""
_OPERATOR = "training.kubeflow.org/operator-name"
_METRICS = "/metrics"
"""Folder of the CSV file of Voda's jobs, which is named after the job."""
_ENDED = frozenset({"Succeeded", "Failed"})


class Mount(msgspec.Struct, rename="camel"):
    name: str = ""
    mount_path: str = ""
    sub_path: str = ""


class MonitoredContainer(msgspec.Struct, rename="camel"):
    name: str = ""
    command: list[str] = []
    args: list[str] = []
    working_dir: str = ""
    volume_mounts: list[Mount] = []


class Volume(msgspec.Struct, rename="camel"):
    """A volume, with the sources that determine its folder on the node."""

    name: str = ""
    host_path: dict[str, Any] | None = None
    empty_dir: dict[str, Any] | None = None
    nfs: dict[str, Any] | None = None
    csi: dict[str, Any] | None = None
    persistent_volume_claim: dict[str, Any] | None = None


class Spec(msgspec.Struct, rename="camel"):
    containers: list[MonitoredContainer] = []
    volumes: list[Volume] = []
    node_name: str = ""
    host_network: bool = False


class MonitoredPodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    start_time: str | None = None
    container_statuses: list[ContainerStatus] = []


class NodePod(msgspec.Struct, rename="camel"):
    """A pod of the monitor's node."""

    metadata: Meta
    spec: Spec = msgspec.field(default_factory=Spec)
    status: MonitoredPodStatus = msgspec.field(default_factory=MonitoredPodStatus)

    @property
    def has_ended(self) -> bool:
        return self.status.phase in _ENDED

    @property
    def started_at(self) -> float:
        """0 if it has not started or the time is unknown."""
        try:
            return datetime.fromisoformat(self.status.start_time or "").timestamp()
        except (ValueError, OverflowError, OSError):
            return 0.0

    @property
    def job(self) -> str:
        """Name of its job; empty if it belongs to none."""
        labels = self.metadata.labels
        named = labels.get(JOB_LABEL) or labels.get(_KUBEFLOW_JOB, "")
        if named:
            return self.metadata.name if named == "true" else named
        return next((owner.name for owner in self.metadata.owner_references if find_kind(owner.kind)), "")

    @property
    def trainer(self) -> MonitoredContainer | None:
        """The container whose output is read: the first, as for `kubectl logs`."""
        return self.spec.containers[0] if self.spec.containers else None


def progress_of(pod: NodePod) -> ProgressSpec:
    """Declared progress sources, else a CSV file among the arguments or that of Voda's jobs."""
    declared = _parse_declared(pod.metadata.annotations)
    if declared.sources:
        return declared
    csv = _csv_in_arguments(pod) or _voda_csv(pod)
    return replace(declared, sources={"csv": csv} if csv else {})


def is_csv_guessed(pod: NodePod) -> bool:
    """True if the CSV file may be something else, such as training data. Voda's jobs, whose pods the MPI operator
    creates, always write one."""
    declared = _parse_declared(pod.metadata.annotations)
    is_vodas = pod.metadata.labels.get(_OPERATOR) == "mpi-operator" and not _csv_in_arguments(pod)
    return "csv" not in declared.sources and not is_vodas


def _parse_declared(annotations: Mapping[str, str]) -> ProgressSpec:
    """Progress sources of the operator's annotation, else of the user's. Malformed ones are ignored: the user got an
    error when the job was submitted."""
    try:
        if annotations.get(PROGRESS):
            return parse_progress(msgspec.json.decode(annotations[PROGRESS], type=dict[str, Any]))
        return parse_annotations(annotations).progress
    except (UserError, msgspec.DecodeError, ValueError, RecursionError):
        return ProgressSpec()


_CSV = re.compile(r"[\w./@%+-]+\.csv")


def _csv_in_arguments(pod: NodePod) -> str:
    """A CSV file among the arguments, as SpeCon's jobs have one, inside a mounted volume."""
    for container in pod.spec.containers:
        for word in (*container.command, *container.args):
            for path in _CSV.findall(word):
                whole = posixpath.normpath(posixpath.join(container.working_dir or "/", path))
                if any(is_below(whole, mount.mount_path) for mount in container.volume_mounts):
                    return whole
    return ""


def _voda_csv(pod: NodePod) -> str:
    mounts = (mount for container in pod.spec.containers for mount in container.volume_mounts)
    has_metrics = any(posixpath.normpath(mount.mount_path or "/") == _METRICS for mount in mounts)
    return f"{_METRICS}/{pod.job}.csv" if has_metrics and pod.job else ""


def is_below(path: str, folder: str) -> bool:
    """True for a path in the folder, and for the folder itself."""
    whole = posixpath.normpath(folder or "/")
    return whole == "/" or path == whole or path.startswith(whole + "/")
