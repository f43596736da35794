"""A cluster of real nodes on one machine: a control plane, and for each node a kubelet and a containerd of its own.

Lives in the namespaces that `apart.py` made, so that its bridge, addresses and processes are isolated. A
node is a set of namespaces more and a subtree in each cgroup hierarchy; it can be cut off, healed, and killed with all
that runs on it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from tests.kubernetes.api import Api, until
from tests.kubernetes.binaries import Say, need
from tests.kubernetes.control_plane import ControlPlane, Parts
from tests.kubernetes.nodes.apart import CGROUPS
from tests.kubernetes.nodes.images import images
from tests.kubernetes.nodes.node_init import HIERARCHIES, Machine, address_of

ROOT = Path(__file__).resolve().parents[3]
SERVER = "10.200.0.1"
BRIDGE = "br0"
_COREDNS = """\
.:53 {{
  bind {server}
  errors
  kubernetes cluster.local {{
    kubeconfig {kubeconfig} tests
    pods insecure
  }}
}}
"""


class Machines:
    """The cluster, for as long as its block."""

    def __init__(self, count: int, say: Say) -> None:
        self.names = [f"node-{index}" for index in range(1, count + 1)]
        self._images = [str(file) for file in images(say)]
        self._programs = {name: str(need(name, say)) for name in ("kubelet", "kube-proxy", "coredns")}
        self._folder = Path(tempfile.mkdtemp(prefix="sterna-nodes-"))
        self.shared = self._folder / "shared"
        """A folder that all nodes see, as a network file system would be."""
        self.shared.mkdir()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        found_by_pods = ("--endpoint-reconciler-type=lease",)
        self.plane = ControlPlane(
            Parts(has_controllers=True, has_scheduler=True, address=SERVER, api_flags=found_by_pods)
        )

    def __enter__(self) -> Machines:
        self.start()
        return self

    def start(self) -> None:
        """All nodes are ready when it returns."""
        try:
            for words in (
                f"link add {BRIDGE} type bridge",
                f"addr add {SERVER}/24 dev {BRIDGE}",
                f"link set {BRIDGE} up",
            ):
                ip(words)
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="utf-8")
            self.plane.start()
            self._start_names()
            for name in self.names:
                self.boot(name)
            with self.plane.api() as api:
                until(lambda: all(is_ready(api, name) for name in self.names), what="the nodes' readiness")
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for name in list(self._processes):
            self.kill(name)
        self.plane.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def boot(self, name: str) -> None:
        """A node as new: no image, no pod, no memory."""
        index = int(name.rpartition("-")[2])
        folder = self._folder / name
        folder.mkdir()
        file = folder / "machine.json"
        file.write_bytes(msgspec.json.encode(self._machine(name, index, folder)))
        groups = [*HIERARCHIES, "systemd"]
        for each in groups:
            _make_cgroup(each, name)
        join = " ".join(str(CGROUPS / each / _group(name) / "cgroup.procs") for each in groups)
        namespaces = "--net --mount --pid --fork --kill-child --uts --ipc --cgroup --propagation private"
        script = f'for each in {join}; do echo $$ > "$each"; done; exec unshare {namespaces} "$@"'
        command = ["sh", "-c", script, "sh", sys.executable, "-m", "tests.kubernetes.nodes.node_init", str(file)]
        with (folder / "init.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._processes[name] = process
        until(lambda: _is_in_own_network(process.pid), what=f"the network of {name}")
        ip(f"link add veth-{index} type veth peer name eth0 netns {process.pid}")
        ip(f"link set veth-{index} master {BRIDGE} up")
        ip(f"route replace 10.244.{index}.0/24 via {address_of(index)}")

    def kill(self, name: str) -> None:
        """Power cut: process 1 of the node dies, and all of its containers with it."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()
        for each in [*HIERARCHIES, "systemd"]:
            _remove_cgroup(CGROUPS / each / _group(name))
        shutil.rmtree(self._folder / name, ignore_errors=True)

    def cut(self, name: str) -> None:
        """Its cable is pulled; what runs on it goes on."""
        ip(f"link set veth-{name.rpartition('-')[2]} down")

    def heal(self, name: str) -> None:
        ip(f"link set veth-{name.rpartition('-')[2]} up")

    def log(self, name: str, program: str) -> str:
        return (self._folder / name / f"{program}.log").read_text(encoding="utf-8", errors="replace")

    def _machine(self, name: str, index: int, folder: Path) -> Machine:
        keys = self.plane.certificates
        keys.sign(name, f"/O=system:nodes/CN=system:node:{name}", [f"IP:{address_of(index)}", f"DNS:{name}"])
        keys.sign("proxy", "/CN=system:kube-proxy")
        files = {
            "ca.crt": keys.text("ca.crt"),
            "node.crt": keys.text(f"{name}.crt"),
            "node.key": keys.text(f"{name}.key"),
        }
        for file, holder in (("kubelet.conf", name), ("proxy.conf", "proxy")):
            files[file] = keys.kubeconfig(folder / file, self.plane.server, holder).read_text(encoding="utf-8")
        return Machine(name, index, str(folder), self._programs, self._images, files, SERVER)

    def _start_names(self) -> None:
        file = self._folder / "Corefile"
        file.write_text(_COREDNS.format(server=SERVER, kubeconfig=self.plane.kubeconfig), encoding="utf-8")
        self.plane.start_beside("coredns", [self._programs["coredns"], "-conf", str(file), "-quiet"])


def is_ready(api: Api, name: str) -> bool:
    node = api.find(f"/api/v1/nodes/{name}")
    conditions = node["status"].get("conditions", []) if node else []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True, stdout=subprocess.DEVNULL)


def _group(name: str) -> str:
    return f"sterna-tests-{name}"


def _make_cgroup(hierarchy: str, name: str) -> None:
    group = CGROUPS / hierarchy / _group(name)
    group.mkdir(exist_ok=True)
    if hierarchy == "cpuset":
        for file in ("cpuset.cpus", "cpuset.mems"):
            (group / file).write_text((group.parent / file).read_text(encoding="utf-8"), encoding="utf-8")
        (group / "cgroup.clone_children").write_text("1", encoding="utf-8")


def _remove_cgroup(group: Path) -> None:
    """From the leaves up; the kernel takes a moment to let go of the dead."""
    for _ in range(50):
        for folder in sorted((each for each in group.rglob("*") if each.is_dir()), reverse=True):
            _rmdir(folder)
        if not group.exists() or _rmdir(group):
            return
        time.sleep(0.1)


def _rmdir(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def _is_in_own_network(pid: int) -> bool:
    spaces: Sequence[Path] = [Path(f"/proc/{each}/ns/net") for each in ("self", pid)]
    try:
        ours, theirs = (each.readlink() for each in spaces)
    except OSError:
        return False
    return ours != theirs
