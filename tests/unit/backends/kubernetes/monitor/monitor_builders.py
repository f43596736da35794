"""Builders of pods, files and an operator for tests of the monitor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sterna.backends.kubernetes.api.monitor_protocol import Batch, PodMoveRequest, Receipt
from sterna.backends.kubernetes.api.resources import Delta, DeltaKind, Followed, Inbox, Verb, Write, WriteResult
from sterna.backends.kubernetes.lifecycle.overload import NodeInfo
from sterna.backends.kubernetes.monitor.host_paths import Roots
from sterna.backends.kubernetes.monitor.pods import NodePod
from sterna.errors import Retry
from sterna.kinds.labels import INDEX_LABEL, JOB_LABEL
from sterna.kinds.resource import PODS

NOW = 1_800_000_000.0
EMPTY_DIR = "kubernetes.io~empty-dir"


def node_pod(
    name: str = "mnist-worker-0",
    args: Sequence[str] = (),
    mounts: Mapping[str, str] | None = None,
    volumes: Sequence[Mapping[str, Any]] = (),
    **more: Any,
) -> NodePod:
    """A running pod of the job `mnist`; `mounts`: paths by the names of volumes."""
    labels = more.get("labels", {JOB_LABEL: "mnist", INDEX_LABEL: "0"})
    container = {
        "name": "main",
        "args": list(args),
        "workingDir": more.get("working_dir", ""),
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, path in (mounts or {}).items()],
    }
    document = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": more.get("uid", f"uid-{name}"),
            "labels": labels,
            "annotations": more.get("annotations", {}),
            "ownerReferences": more.get("owners", []),
        },
        "spec": {"containers": [container], "volumes": list(volumes), "nodeName": "node-1"},
        "status": {"phase": more.get("phase", "Running"), "podIP": more.get("ip", "")},
    }
    return msgspec.convert(document, NodePod)


def pod_deltas(*pods: NodePod) -> list[Delta]:
    return [Delta(DeltaKind.SEEN, PODS, pod) for pod in pods]


def roots_in(folder: Path) -> Roots:
    return Roots(folder / "kubelet", folder / "logs", folder / "host")


def volume_folder(roots: Roots, pod: NodePod, volume: str, kind: str = EMPTY_DIR) -> Path:
    """Create the folder in which the kubelet mounts a volume of a pod."""
    folder = roots.kubelet / "pods" / pod.metadata.uid / "volumes" / kind / volume
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def agent_line(step: int, at: float = NOW, **more: Any) -> str:
    line = {"t": at, "step": step, "total": 100, "metrics": {"loss": 1.0 / step}, "generation": 0} | more
    return msgspec.json.encode(line).decode() + "\n"


class FakeOperator:
    """Takes what a monitor sends; does not answer while `is_away`."""

    def __init__(self, memory: str = "first") -> None:
        self.memory = memory
        self.batches: list[Batch] = []
        self.requests: list[PodMoveRequest] = []
        self.infos: dict[str, NodeInfo] = {}
        self.asked = 0
        self.is_away = False

    def send(self, batch: Batch) -> Receipt | None:
        self._answer()
        if batch.memory != self.memory:
            return Receipt(self.memory)
        self.batches.append(batch)
        return None

    def ask_to_move(self, request: PodMoveRequest) -> None:
        self._answer()
        self.requests.append(request)

    def cluster_info(self) -> Mapping[str, NodeInfo]:
        self._answer()
        self.asked += 1
        return self.infos

    def _answer(self) -> None:
        if self.is_away:
            raise Retry("The operator cannot be reached.")

    @property
    def steps(self) -> list[int | None]:
        return [report.step for batch in self.batches for pod in batch.pods for report in pod.reports]


class FakeServer:
    """An API server with a Lease, token reviews and pods."""

    def __init__(self, pods: Sequence[NodePod] = ()) -> None:
        self.address = ""
        self.tokens: dict[str, dict[str, Any]] = {}
        """What it says of each token."""
        self.reviews: list[str] = []
        self.is_away = False
        self.inbox: Inbox | None = None
        self.followed: Sequence[Followed] = ()
        self.is_closed = threading.Event()
        self._pods = list(pods)

    def follow(self, followed: Sequence[Followed], inbox: Inbox) -> None:
        self.followed, self.inbox = followed, inbox
        inbox.put(*pod_deltas(*self._pods))

    def send(self, writes: Sequence[Write]) -> None:
        raise AssertionError("nothing here writes")

    def ask(
        self,
        verb: str,
        path: str,
        body: bytes = b"",
        query: str = "",
        content_type: str = "",
        timeout_seconds: float = 30.0,
    ) -> WriteResult:
        if self.is_away:
            raise Retry("The API server cannot be reached.")
        if path.endswith("/tokenreviews"):
            return _answer(201, {"status": self._judged(msgspec.json.decode(body)["spec"])})
        if "/leases/" in path:
            annotations = {"sterna.dev/address": self.address} if self.address else {}
            return _answer(200, {"metadata": {"name": "sterna-operator", "annotations": annotations}})
        return _answer(404, {"message": "there is no such thing"})

    def close(self) -> None:
        self.is_closed.set()

    def _judged(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        self.reviews.append(spec["token"])
        assert spec.get("audiences", ["sterna"]) == ["sterna"]
        return self.tokens.get(spec["token"], {"authenticated": False, "error": "unknown"})


def service_account(name: str, node: str = "", audiences: Sequence[str] = ("sterna",)) -> dict[str, Any]:
    """Return a token review of a service account."""
    extra = {"authentication.kubernetes.io/node-name": [node]} if node else {}
    user = {"username": f"system:serviceaccount:{name.replace('/', ':')}", "extra": extra}
    return {"authenticated": True, "user": user, "audiences": list(audiences)}


def _answer(status: int, document: Mapping[str, Any]) -> WriteResult:
    write = Write(Verb.CREATE, PODS, "", "")
    return WriteResult(write, status, "", str(document.get("message", "")), msgspec.json.encode(document))


class Clock:
    """A clock that a test advances."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


Complain = Callable[[str], None]
