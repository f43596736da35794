"""Resolve paths inside a container to paths below the kubelet's folder on the node.

A pod may create links to any file, and the monitor has more rights than the pod. So every path comes with the folder
that the opened file must be in; `progress/tail.py` checks it.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sterna.backends.kubernetes.monitor.pods import MonitoredContainer, Mount, NodePod, Volume, is_below

AGENT_VOLUME = "sterna-agent"
"""Name of the emptyDir volume to which the agent writes."""

_KINDS = {"empty_dir": "kubernetes.io~empty-dir", "nfs": "kubernetes.io~nfs", "csi": "kubernetes.io~csi"}


@dataclass(frozen=True)
class Roots:
    """Folders of the node, as mounted into the monitor."""

    kubelet: Path = Path("/var/lib/kubelet")
    logs: Path = Path("/var/log/pods")
    host: Path | None = None
    """The node's root folder; None: files in hostPath volumes are not read."""


class HostPath(NamedTuple):
    """A file or folder, and the folder it may not lead out of."""

    path: Path
    inside: Path


def agent_place(pod: NodePod, roots: Roots) -> HostPath:
    folder = _volumes(pod, roots) / _KINDS["empty_dir"] / AGENT_VOLUME
    return HostPath(folder, folder)


def log_folder(pod: NodePod, container: MonitoredContainer, roots: Roots) -> Path:
    meta = pod.metadata
    return roots.logs / f"{meta.namespace}_{meta.name}_{meta.uid}" / container.name


def place_of(pod: NodePod, path: str, roots: Roots) -> HostPath | None:
    """Resolve a path as the pod's containers see it; None if no readable volume is mounted there, or not yet."""
    if not path:
        return None
    for container in pod.spec.containers:
        whole = posixpath.normpath(posixpath.join(container.working_dir or "/", path))
        mounts = [mount for mount in container.volume_mounts if is_below(whole, mount.mount_path)]
        for mount in sorted(mounts, key=lambda each: -len(each.mount_path))[:1]:
            rest = posixpath.relpath(whole, posixpath.normpath(mount.mount_path or "/"))
            found = _resolve_mount(pod, mount, rest, roots)
            if found is not None:
                return found
    return None


def _resolve_mount(pod: NodePod, mount: Mount, rest: str, roots: Roots) -> HostPath | None:
    volume = next((each for each in pod.spec.volumes if each.name == mount.name), None)
    if volume is None or ".." in mount.sub_path.split("/"):
        return None
    below = "." if os.path.isabs(mount.sub_path) else mount.sub_path or "."
    folders = list(_folders(pod, volume, roots))
    places = [HostPath(folder / below / rest, folder) for folder in folders]
    # The folder of a claim has the name of its volume, which the pod does not contain: of several, take the one that
    # has the file.
    if len(places) > 1:
        places = [place for place in places if place.path.exists()]
    return places[0] if places else None


def _folders(pod: NodePod, volume: Volume, roots: Roots) -> Iterator[Path]:
    if volume.host_path is not None:
        path = str(volume.host_path.get("path", ""))
        if roots.host is not None and path.startswith("/"):
            yield roots.host / path.lstrip("/")
        return
    volumes = _volumes(pod, roots)
    for kind, folder in _KINDS.items():
        if getattr(volume, kind) is not None:
            yield volumes / folder / volume.name / ("mount" if kind == "csi" else "")
            return
    if volume.persistent_volume_claim is not None:
        named = {each.name for each in pod.spec.volumes}
        yield from _claim_folders(volumes, named)


def _claim_folders(volumes: Path, named: set[str]) -> Iterator[Path]:
    """Folders of volumes that the pod does not name: those of its claims."""
    try:
        folders = sorted(folder for plugin in volumes.iterdir() for folder in plugin.iterdir())
    except OSError:
        return  # the pod is not set up yet, or gone
    for folder in folders:
        if folder.name not in named:
            yield folder / "mount" if folder.parent.name == _KINDS["csi"] else folder


def _volumes(pod: NodePod, roots: Roots) -> Path:
    return roots.kubelet / "pods" / pod.metadata.uid / "volumes"
