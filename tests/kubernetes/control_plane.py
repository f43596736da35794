"""A real control plane on loopback for tests and measurements: etcd and kube-apiserver, others on request.

`with ControlPlane() as plane:` in Python; `python -m tests.kubernetes.control_plane up --controller-manager` prints the
path of an administrator's kubeconfig and stays until it is interrupted; `.. run pytest` lives as long as the command,
which finds that path in its environment. Everything is in a temporary folder, nothing is flushed to disk, and nothing
is left behind: if the process that started it is killed, its processes die with it. It has no nodes; `fake_nodes` and
`real_nodes` add those.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn

from tests.kubernetes.api import Api, Refused
from tests.kubernetes.binaries import NotAvailable, need
from tests.kubernetes.certificates import Certificates

READY_SECONDS = 180.0
MOST_STARTS = 3
VARIABLE = "STERNA_TEST_KUBECONFIG"
"""Names a kubeconfig to tests that run on any server they are given."""
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


class DidNotStart(NotAvailable):
    """All programs are here, and yet: no reason to leave a test out."""


@dataclass(frozen=True)
class Parts:
    """Programs beside etcd and the API server, and their options."""

    has_controllers: bool = False
    """With them come service accounts in every pod, garbage collection, node failure detection."""
    has_scheduler: bool = False
    is_audited: bool = False
    """Who asked for what is written down, a line of JSON a request: `ControlPlane.requests`."""
    api_flags: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    """Nodes in network namespaces need one that they can reach."""


class ControlPlane:
    """A running one, for as long as its block."""

    def __init__(self, parts: Parts | None = None, folder: Path | None = None) -> None:
        self.parts = parts or Parts()
        programs = ["etcd", "kube-apiserver"]
        programs += ["kube-controller-manager"] * self.parts.has_controllers + [
            "kube-scheduler"
        ] * self.parts.has_scheduler
        self._programs = {each: need(each) for each in programs}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._has_own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="sterna-kubernetes-"))
        self._choose_ports()
        self.kubeconfig = self.folder / "admin.conf"

    def __enter__(self) -> ControlPlane:
        self.start()
        return self

    def start(self) -> None:
        """Start; ready for requests when it returns. A free port may be taken a moment later, so a program that exits
        at once is restarted with other ports."""
        try:
            for number in range(MOST_STARTS):
                try:
                    self._start_all()
                    return
                except DidNotStart:
                    if number == MOST_STARTS - 1:
                        raise
                    self._kill_all()
                    for made in ("etcd", "keys"):
                        shutil.rmtree(self.folder / made, ignore_errors=True)
                    self._choose_ports()
        except BaseException:
            self.close()
            raise

    def _start_all(self) -> None:
        self.certificates = self._certificates()
        self._start("etcd", *self._etcd_flags())
        self.start_api_server()
        if self.parts.has_controllers:
            self._start("kube-controller-manager", *self._controller_flags())
            self._until(lambda: self.has("/api/v1/namespaces/default/serviceaccounts/default"), "service accounts")
        if self.parts.has_scheduler:
            self._start("kube-scheduler", *self._client_flags("scheduler"))

    def _choose_ports(self) -> None:
        self._etcd_port, self._peer_port, self._port = free_ports(3)
        self.etcd = f"http://127.0.0.1:{self._etcd_port}"
        self.server = f"https://{self.parts.address}:{self._port}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """At once: nothing in it is worth an orderly end."""
        self._kill_all()
        if self._has_own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _kill_all(self) -> None:
        for name in reversed(list(self._processes)):
            self.kill(name)

    def kill(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it has started
            process.wait()

    def start_api_server(self) -> None:
        """Also again after `kill("kube-apiserver")`: same port, same objects, an empty watch cache."""
        self._start("kube-apiserver", *self._api_flags())
        self._until(lambda: self.has("/readyz"), "the API server")

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def api(self) -> Api:
        """As the administrator."""
        return Api(self.kubeconfig)

    def has(self, path: str) -> bool:
        with self.api() as api:
            try:
                api.get(path)
            except (OSError, Refused):
                return False
        return True

    def kubectl(self, *words: str, text: str = "") -> str:
        """Run kubectl and return its output; raises `CalledProcessError` with `stderr` if it fails."""
        command = [str(need("kubectl")), "--kubeconfig", str(self.kubeconfig), *words]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout

    def user(self, name: str, groups: Sequence[str] = ()) -> Path:
        """Return a kubeconfig of a user without permissions."""
        self.certificates.sign(name, "".join(f"/O={group}" for group in groups) + f"/CN={name}")
        return self.certificates.kubeconfig(self.folder / f"{name}.conf", self.server, name)

    def account(self, namespace: str, name: str, pod: str = "", audiences: Sequence[str] = ()) -> Path:
        """A kubeconfig with a service account's token; with a pod, one as that pod would be given."""
        with self.api() as api:
            path = f"/api/v1/namespaces/{namespace}"
            spec: dict[str, Any] = {"expirationSeconds": 36000, "audiences": list(audiences)}
            if pod:
                uid = api.get(f"{path}/pods/{pod}")["metadata"]["uid"]
                spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
            request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
            token = api.ask("POST", f"{path}/serviceaccounts/{name}/token", request)["status"]["token"]
        file = self.folder / f"{namespace}-{name}-{pod or 'any'}.conf"
        return self.certificates.kubeconfig(file, self.server, token=token, namespace=namespace)

    def requests(self) -> list[dict[str, Any]]:
        """Return the requests of an audited server, in order."""
        with (self.folder / "audit.log").open(encoding="utf-8") as log:
            return [json.loads(line) for line in log if line.endswith("\n")]

    def etcd_ask(self, what: str, body: object) -> Any:
        """etcd's own interface (`kv/txn`, `kv/range`, `kv/compaction`), which no client of ours uses."""
        request = urllib.request.Request(f"{self.etcd}/v3/{what}", json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def compact(self) -> None:
        """Compact the history, as etcd does every five minutes: older watches get a 410."""
        now = self.etcd_ask("kv/range", {"key": base64.b64encode(b"/").decode(), "limit": 1})["header"]["revision"]
        self.etcd_ask("kv/compaction", {"revision": now, "physical": True})

    def _certificates(self) -> Certificates:
        made = Certificates(self.folder / "keys")
        names = ["IP:127.0.0.1", "IP:10.96.0.1", "DNS:localhost", "DNS:kubernetes.default.svc"]
        made.sign("apiserver", "/CN=kube-apiserver", [*names, f"IP:{self.parts.address}"])
        for name, subject in (
            ("admin", "/O=system:masters/CN=admin"),
            ("controllers", "/CN=system:kube-controller-manager"),
            ("scheduler", "/CN=system:kube-scheduler"),
            ("kubelet-client", "/O=system:masters/CN=kubelet-client"),
        ):
            made.sign(name, subject)
            made.kubeconfig(self.folder / f"{name}.conf", self.server, name)
        return made

    def _etcd_flags(self) -> list[str]:
        peer = f"http://127.0.0.1:{self._peer_port}"
        urls = [f"--listen-client-urls={self.etcd}", f"--advertise-client-urls={self.etcd}"]
        peers = [
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]
        limits = [
            "--unsafe-no-fsync",
            "--quota-backend-bytes=6442450944",
            "--max-txn-ops=1024",
            "--max-request-bytes=33554432",
        ]
        return [f"--data-dir={self.folder / 'etcd'}", *urls, *peers, *limits, "--log-level=error"]

    def _api_flags(self) -> list[str]:
        keys = self.certificates.file
        flags = {
            "etcd-servers": self.etcd,
            "bind-address": self.parts.address,
            "advertise-address": self.parts.address,
            "secure-port": self._port,
            "endpoint-reconciler-type": "none",
            "cert-dir": self.folder / "keys",
            "tls-cert-file": keys("apiserver.crt"),
            "tls-private-key-file": keys("apiserver.key"),
            "client-ca-file": keys("ca.crt"),
            "kubelet-client-certificate": keys("kubelet-client.crt"),
            "kubelet-client-key": keys("kubelet-client.key"),
            "kubelet-preferred-address-types": "InternalIP",
            "anonymous-auth": "false",
            "allow-privileged": "true",
            "service-account-key-file": keys("accounts.pub"),
            "service-account-signing-key-file": keys("accounts.key"),
            "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
            "authorization-mode": "Node,RBAC",
            "service-cluster-ip-range": "10.96.0.0/16",
            "default-not-ready-toleration-seconds": 3,
            "default-unreachable-toleration-seconds": 3,
        }
        if not self.parts.has_controllers:  # no controller makes service accounts or removes the first taint of a node
            flags["disable-admission-plugins"] = "ServiceAccount,TaintNodesByCondition"
        if self.parts.is_audited:
            (self.folder / "audit.json").write_text(json.dumps(_AUDIT), encoding="utf-8")
            flags |= {"audit-policy-file": self.folder / "audit.json", "audit-log-path": self.folder / "audit.log"}
        return [*(f"--{name}={value}" for name, value in flags.items()), *self.parts.api_flags]

    def _controller_flags(self) -> list[str]:
        keys = self.certificates.file
        accounts = [f"--service-account-private-key-file={keys('accounts.key')}", f"--root-ca-file={keys('ca.crt')}"]
        losses = ["--node-monitor-period=1s", "--node-monitor-grace-period=20s"]
        limits = ["--use-service-account-credentials=true", "--kube-api-qps=200", "--kube-api-burst=400"]
        return [*self._client_flags("controllers"), *accounts, *losses, *limits]

    def _client_flags(self, name: str) -> list[str]:
        config = self.folder / f"{name}.conf"
        logins = [f"--{prefix}kubeconfig={config}" for prefix in ("", "authentication-", "authorization-")]
        return [*logins, "--bind-address=127.0.0.1", f"--secure-port={free_ports(1)[0]}", "--leader-elect=false"]

    def _start(self, name: str, *flags: str) -> None:
        self.start_beside(name, [str(self._programs[name]), *flags])

    def start_beside(self, name: str, command: Sequence[str]) -> None:
        """A program that lives as long as the control plane does."""
        command = [*dying_with_us(), *command]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _until(self, fact: Any, what: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not fact():
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise DidNotStart(f"{name} ended at once: {self._last_words(name)}")
            if time.monotonic() > deadline:
                raise DidNotStart(f"{what} did not get ready within {READY_SECONDS:g} s; see {self.folder}")
            time.sleep(0.05)

    def _last_words(self, name: str) -> str:
        lines = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def dying_with_us() -> list[str]:
    """Before a command: it is killed when its parent is, however that ends."""
    return ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []


def free_ports(count: int) -> list[int]:
    """Return ports that are free at the moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    asked = options(sys.argv[1:])
    signal.signal(signal.SIGTERM, _leave)
    try:
        with ControlPlane(Parts(asked.controller_manager, asked.scheduler, asked.audit)) as plane:
            if asked.verb == "run":
                environment = dict(os.environ, **{VARIABLE: str(plane.kubeconfig)})
                return subprocess.run(asked.command, env=environment, check=False).returncode
            with suppress(KeyboardInterrupt):
                print(plane.kubeconfig, flush=True)
                signal.pause()
    except NotAvailable as error:
        print(error, file=sys.stderr)
        return subprocess.run(asked.command, check=False).returncode if asked.verb == "run" else 2
    except KeyboardInterrupt:
        return 130
    return 0


def options(words: Sequence[str]) -> argparse.Namespace:
    """Flags may stand before the verb or behind it; what follows them is the command, flags of its own included."""
    parser = argparse.ArgumentParser(description="A real control plane on loopback, for as long as it is wanted.")
    parser.add_argument(
        "verb", choices=("up", "run"), help=f"stay until told to end; run a command with {VARIABLE} set"
    )
    parser.add_argument("--controller-manager", action="store_true", help="garbage collection, lost nodes, accounts")
    parser.add_argument("--scheduler", action="store_true", help="also kube-scheduler")
    parser.add_argument("--audit", action="store_true", help="every request written down, in audit.log")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    behind = list(takewhile(lambda word: word.startswith("-"), words[1:]))
    return parser.parse_args([*behind, *words[:1], *words[1 + len(behind) :]])


if __name__ == "__main__":
    sys.exit(main())
