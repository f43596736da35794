"""Process 1 of a real node: `python -m tests.kubernetes.nodes.node_init FILE`, in namespaces that `machines.py` made.

The node sees the host's root with private folders laid over it: its own cgroups, its own /run, its own state of
containerd and kubelet. Nothing of the machine itself is changed: global kernel settings that the kubelet insists on are
shown to it as it wants them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from tests.kubernetes.nodes.images import PAUSE

HIERARCHIES = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
ETC = Path("/etc/kubernetes")
SOCKET = "/run/containerd/containerd.sock"
_SHOWN = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
_PRIVATE = {
    "containerd": "/var/lib/containerd",
    "kubelet": "/var/lib/kubelet",
    "pods": "/var/log/pods",
    "cni": "/etc/cni/net.d",
    "kubernetes": str(ETC),
    "cni-state": "/var/lib/cni",
}
_CONTAINERD = f"""\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true  # root may lack CAP_SYS_RESOURCE, and then runc dies without a word
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"""


class Machine(msgspec.Struct, frozen=True):
    """Start parameters of a node."""

    name: str
    index: int
    folder: str
    programs: dict[str, str]
    images: list[str]
    files: dict[str, str]
    """Of `/etc/kubernetes`: keys and kubeconfigs, by name."""
    server: str
    """Address of the control plane, which is also the gateway and the name server."""

    @property
    def address(self) -> str:
        return address_of(self.index)


def address_of(index: int) -> str:
    return f"10.200.0.{10 + index}"


def main(file: str) -> None:
    machine = msgspec.json.decode(Path(file).read_bytes(), type=Machine)
    _mount(machine)
    _configure(machine)
    _connect(machine)
    environment = dict(os.environ, PATH="/usr/sbin:/usr/bin:/sbin:/bin")
    _start(machine, environment, "containerd", "containerd", "-c", str(ETC / "containerd.toml"))
    while subprocess.run(["ctr", "version"], capture_output=True, check=False).returncode:
        time.sleep(0.1)
    for image in machine.images:
        _run("ctr", "-n", "k8s.io", "images", "import", "--base-name", "x", image)
    kubelet = ["--config", str(ETC / "kubelet.json"), "--kubeconfig", str(ETC / "kubelet.conf")]
    who = [f"--hostname-override={machine.name}", f"--node-ip={machine.address}"]
    _start(machine, environment, "kubelet", machine.programs["kubelet"], *kubelet, *who)
    proxy = ["--kubeconfig", str(ETC / "proxy.conf"), who[0], "--proxy-mode=iptables", "--cluster-cidr=10.244.0.0/16"]
    limits = ["max-per-core", "tcp-timeout-established", "tcp-timeout-close-wait"]
    _start(
        machine,
        environment,
        "kube-proxy",
        machine.programs["kube-proxy"],
        *proxy,
        *(f"--conntrack-{x}=0" for x in limits),
    )
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # everything in this namespace dies with process 1
    while True:  # what has lost its parent becomes ours
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(1)


def _mount(machine: Machine) -> None:
    _run("hostname", machine.name)
    _run("mount", "-t", "proc", "proc", "/proc")
    _run("mount", "-t", "tmpfs", "cgroup", "/sys/fs/cgroup")
    for each in HIERARCHIES:
        _mount_cgroup(each, each)
    _mount_cgroup("systemd", "none,name=systemd")
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    for name, place in _PRIVATE.items():
        own = Path(machine.folder) / name
        own.mkdir(parents=True, exist_ok=True)
        Path(place).mkdir(parents=True, exist_ok=True)
        _run("mount", "--bind", str(own), place)
    for setting, value in _SHOWN.items():
        shown = Path("/run/shown") / setting.replace("/", "_")
        shown.parent.mkdir(exist_ok=True)
        shown.write_text(f"{value}\n", encoding="utf-8")
        _run("mount", "--bind", str(shown), f"/proc/sys/{setting}")
    _run("mount", "--make-rshared", "/")


def _mount_cgroup(name: str, options: str) -> None:
    place = Path("/sys/fs/cgroup") / name
    place.mkdir()
    _run("mount", "-t", "cgroup", "-o", options, "cgroup", str(place))


def _configure(machine: Machine) -> None:
    for name, text in machine.files.items():
        (ETC / name).write_text(text, encoding="utf-8")
    (ETC / "resolv.conf").write_text(f"nameserver {machine.server}\n", encoding="utf-8")
    (ETC / "containerd.toml").write_text(_CONTAINERD, encoding="utf-8")
    (ETC / "kubelet.json").write_text(json.dumps(_kubelet(machine)), encoding="utf-8")
    subnet = {
        "type": "host-local",
        "ranges": [[{"subnet": f"10.244.{machine.index}.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": subnet,
    }
    network = {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}],
    }
    Path("/etc/cni/net.d/10-bridge.conflist").write_text(json.dumps(network), encoding="utf-8")


def _kubelet(machine: Machine) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(ETC / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(ETC / "node.crt"),
        "tlsPrivateKeyFile": str(ETC / "node.key"),
        "clusterDNS": [machine.server],
        "clusterDomain": "cluster.local",
        "resolvConf": str(ETC / "resolv.conf"),
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
        "serializeImagePulls": False,
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 8,
    }


def _connect(machine: Machine) -> None:
    """The interface is put into this namespace from outside, a moment after it came to be."""
    while subprocess.run(["ip", "link", "show", "eth0"], capture_output=True, check=False).returncode:
        time.sleep(0.05)
    for words in (
        "link set lo up",
        f"addr add {machine.address}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {machine.server}",
    ):
        _run("ip", *words.split())
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="utf-8")


def _start(machine: Machine, environment: dict[str, str], name: str, *command: str) -> None:
    with (Path(machine.folder) / f"{name}.log").open("ab") as log:
        subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(sys.argv[1])
