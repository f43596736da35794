"""Runs a command in namespaces of its own (network, processes, mounts): `python -m tests.kubernetes.nodes.apart ls`.

What the command starts dies with it, interfaces and mounts included, however it ends; what is outside is out of its
reach. Where this cannot be done the command runs all the same, and finds out from `what_is_missing`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "STERNA_TESTS_ARE_APART"
PACKAGES = {
    "ip": "iproute2",
    "unshare": "util-linux",
    "mount": "mount",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "containerd": "containerd",
    "runc": "runc",
    "debootstrap": "debootstrap",
    "busybox": "busybox-static",
    "openssl": "openssl",
}
"""Programs that real nodes take, and the Debian packages that bring them."""
CNI = Path("/usr/lib/cni")
CGROUPS = Path("/sys/fs/cgroup")


def what_is_missing(is_apart: bool | None = None) -> str:
    """Return the reason to skip these tests, as a sentence; empty if nothing is missing."""
    if os.geteuid() != 0:
        return "real nodes take root: run make test-nodes as root"
    packages = sorted(package for program, package in PACKAGES.items() if _program(program) is None)
    packages += [] if CNI.is_dir() else ["containernetworking-plugins"]
    if packages:
        return f"real nodes take programs that are not here: apt-get install {' '.join(packages)}"
    if not (CGROUPS / "cpuset").is_dir():
        return "real nodes are known to work with cgroups of version 1 only, and this machine has version 2"
    if not (VARIABLE in os.environ if is_apart is None else is_apart):
        return "real nodes live in namespaces of their own: run make test-nodes"
    return ""


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def main(command: Sequence[str]) -> int:
    if what_is_missing(is_apart=True):
        return subprocess.run(command, check=False).returncode
    namespaces = ["--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
    inside = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
    program = ["unshare", *namespaces, "--propagation", "private", *inside]
    return subprocess.run(program, env=dict(os.environ, **{VARIABLE: "1"}), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
