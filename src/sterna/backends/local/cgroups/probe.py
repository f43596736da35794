"""Which control group hierarchies there are and where in each we are, from /proc.

In version 1 every controller may have a hierarchy of its own; version 2 is one for all; many machines have both.
Groups are made below our own, never beside it, so that limits somebody put on us hold for our jobs too. Reads only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

LEGACY = ("cpu", "cpuset", "cpuacct", "memory", "freezer")


@dataclass(frozen=True)
class CgroupMounts:
    legacy: dict[str, str]
    """Our own group's folder by version 1 controller; two controllers may share one."""
    unified: str | None = None
    """Our own group's folder in version 2."""
    unified_top: str = ""
    """Where version 2 is mounted."""


def survey(proc: Path = Path("/proc")) -> CgroupMounts:
    try:
        mounts = (proc / "self" / "mountinfo").read_text(encoding="utf-8")
        groups = (proc / "self" / "cgroup").read_text(encoding="utf-8")
    except OSError:
        return CgroupMounts({})
    return survey_of(mounts, groups)


def survey_of(mountinfo: str, own_groups: str) -> CgroupMounts:
    """From the two files' text: `36 25 0:31 ROOT MOUNTPOINT OPTIONS ... - TYPE SOURCE OPTIONS` and
    `N:controllers:PATH`."""
    own = {}
    for line in own_groups.splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    legacy: dict[str, str] = {}
    unified, top = None, ""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, mount = before.split(" ")[3:5]
        if kind == "cgroup2" and "" in own and unified is None:
            unified, top = _folder(mount, root, own[""]), mount
        elif kind == "cgroup":
            for name in LEGACY:
                if name in options.split(",") and name in own:
                    legacy.setdefault(name, _folder(mount, root, own[name]))
    return CgroupMounts(legacy, unified, top)


def _folder(mount: str, root: str, path: str) -> str:
    """A container may see a part of the tree only, mounted from `root` on."""
    below = os.path.relpath(path, root) if path.startswith(root) else path.lstrip("/")
    folder = os.path.normpath(os.path.join(mount, below))
    return folder if os.path.isdir(folder) else mount
