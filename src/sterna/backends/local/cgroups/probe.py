"""Find the control group hierarchies and our place in each, from /proc.

In version 1 every controller may have a hierarchy of its own; version 2 has one for all; many machines have both.
Groups are created below our own, so that limits on us apply to our jobs too. Read-only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

LEGACY = ("cpu", "cpuset", "cpuacct", "memory", "freezer")


@dataclass(frozen=True)
class CgroupMounts:
    legacy: dict[str, str]
    """Folder of our own group by version 1 controller; controllers may share one."""
    unified: str | None = None
    """Folder of our own group in version 2."""
    unified_top: str = ""
    """Mount point of version 2."""


def find_mounts(proc: Path = Path("/proc")) -> CgroupMounts:
    try:
        mounts = (proc / "self" / "mountinfo").read_text(encoding="utf-8")
        groups = (proc / "self" / "cgroup").read_text(encoding="utf-8")
    except OSError:
        return CgroupMounts({})
    return parse_mounts(mounts, groups)


def parse_mounts(mountinfo: str, own_groups: str) -> CgroupMounts:
    """Parse `mountinfo` (`36 25 0:31 ROOT MOUNTPOINT OPTIONS ... - TYPE SOURCE OPTIONS`) and `cgroup`
    (`N:controllers:PATH`)."""
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
    """Return the folder of a group; a container may see only the part of the tree that is mounted from `root`."""
    below = os.path.relpath(path, root) if path.startswith(root) else path.lstrip("/")
    folder = os.path.normpath(os.path.join(mount, below))
    return folder if os.path.isdir(folder) else mount
