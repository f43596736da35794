"""Nodes for a cluster in memory: kubelets on virtual time that run, refuse, end and lose pods.

    nodes = FakeNodes(kube)
    nodes.add("node-1", cpus=8, gpus=4)
    nodes.end("job-worker-0", exit_code=1)

Annotations of a pod steer it: `fake/run-seconds`, `fake/exit-code`, `fake/message` (how it ends by itself),
`fake/stop-seconds`, `fake/stop-message` (how it ends when it is deleted). Without them it runs until it is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping

from sterna.backends.kubernetes.api.resources import NODES
from sterna.kinds.resource import PODS, Resource
from tests.fakes.kube import FakeKube
from tests.fakes.kube_rules import needs, quantity, stamp
from tests.fakes.kube_store import Event, Object, Refused

GPU = "nvidia.com/gpu"
UNREACHABLE = "node.kubernetes.io/unreachable"


class FakeNodes:
    """All nodes of a cluster."""

    def __init__(self, kube: FakeKube, start_seconds: float = 1.0, stop_seconds: float = 0.5) -> None:
        self.kube = kube
        self.start_seconds, self.stop_seconds = start_seconds, stop_seconds
        self._lost: set[str] = set()
        self._running: set[str] = set()
        """Uids of pods that a kubelet has taken in."""
        kube.store.listeners.append(self._note)

    def add(
        self,
        name: str,
        cpus: int = 8,
        memory: str = "32Gi",
        gpus: int = 0,
        labels: Mapping[str, str] | None = None,
        pods: int = 110,
    ) -> None:
        room: Object = {"cpu": str(cpus), "memory": memory, "pods": str(pods)} | ({GPU: str(gpus)} if gpus else {})
        node = {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
            "spec": {},
            "status": {"allocatable": room, "capacity": room, "conditions": [self._ready("True")]},
        }
        self.kube.create(NODES, node)

    def end(self, pod: str, exit_code: int = 0, message: str = "", namespace: str = "default") -> None:
        """Its containers end now."""
        found = self.kube.get(PODS, pod, namespace)
        self._set_ended(found, exit_code, message)

    def lose(self, node: str) -> None:
        """It is cut off: its pods run on unseen, and the cluster takes note."""
        self._lost.add(node)
        taints = [{"key": UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        self.kube.patch(NODES, node, {"spec": {"taints": taints}})
        self.kube.patch(NODES, node, {"status": {"conditions": [self._ready("Unknown")]}}, "status")

    def heal(self, node: str) -> None:
        """It is back, and catches up with what was wanted of it."""
        self._lost.discard(node)
        self.kube.patch(NODES, node, {"spec": {"taints": None}})
        self.kube.patch(NODES, node, {"status": {"conditions": [self._ready("True")]}}, "status")
        for pod in self.kube.items(PODS):
            if pod["spec"].get("nodeName") == node:
                self._look_at(pod)

    # What a kubelet does.

    def _note(self, resource: Resource, event: Event) -> None:
        if resource == PODS and event.after is not None:
            self._look_at(event.after)
        elif resource == PODS and event.before is not None:
            self._running.discard(event.before["metadata"]["uid"])

    def _look_at(self, pod: Object) -> None:
        meta, node = pod["metadata"], pod["spec"].get("nodeName")
        if not node or node in self._lost or self.kube.find(NODES, node) is None:
            return
        uid, key = meta["uid"], (meta["namespace"], meta["name"])
        if meta.get("deletionTimestamp"):
            after = min(_annotation(pod, "stop-seconds", self.stop_seconds), meta["deletionGracePeriodSeconds"])
            self.kube.call_in(after, lambda: self._stop(key, uid))
        elif pod["status"]["phase"] == "Pending" and uid not in self._running:
            self.kube.call_in(self.start_seconds, lambda: self._start(key, uid))

    def _start(self, key: tuple[str, str], uid: str) -> None:
        pod = self._present(key, uid)
        if pod is None or uid in self._running or pod["metadata"].get("deletionTimestamp"):
            return
        lacking = self._lacking(pod)
        if lacking:
            reason = f"OutOf{lacking}"
            self._patch(pod, {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {reason}"})
            return
        self._running.add(uid)
        running = {"running": {"startedAt": stamp(self.kube.now)}}
        containers = [{"name": each["name"], "ready": True, "state": running} for each in pod["spec"]["containers"]]
        conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "Ready")]
        self._patch(
            pod,
            {
                "phase": "Running",
                "startTime": stamp(self.kube.now),
                "podIP": "10.0.0.1",
                "conditions": conditions,
                "containerStatuses": containers,
            },
        )
        if "fake/run-seconds" in _annotations(pod):
            self.kube.call_in(_annotation(pod, "run-seconds", 0.0), lambda: self._finish(key, uid))

    def _finish(self, key: tuple[str, str], uid: str) -> None:
        pod = self._present(key, uid)
        if pod is not None and pod["status"]["phase"] == "Running":
            self._set_ended(pod, int(_annotation(pod, "exit-code", 0)), _annotations(pod).get("fake/message", ""))

    def _stop(self, key: tuple[str, str], uid: str) -> None:
        pod = self._present(key, uid)
        if pod is None:
            return
        if pod["status"]["phase"] == "Running":
            message = _annotations(pod).get("fake/stop-message", "")
            self._set_ended(pod, 0 if message else 143, message)
        try:
            self.kube.delete(PODS, key[1], key[0], gracePeriodSeconds=0, preconditions={"uid": uid})
        except Refused as refused:
            if refused.status != 404:  # a finalizer may have been the last to hold it
                raise

    def _present(self, key: tuple[str, str], uid: str) -> Object | None:
        """The pod, if it is still that one and its kubelet can be reached."""
        pod = self.kube.find(PODS, key[1], key[0])
        if pod is None or pod["metadata"]["uid"] != uid or pod["spec"].get("nodeName") in self._lost:
            return None
        return pod

    def _lacking(self, pod: Object) -> str:
        """The first resource that the node does not have left; one that it does not advertise is not asked for."""
        node = self.kube.get(NODES, pod["spec"]["nodeName"])
        others = [
            each
            for each in self.kube.items(PODS)
            if each["spec"].get("nodeName") == pod["spec"]["nodeName"] and each["metadata"]["uid"] in self._running
        ]
        others = [each for each in others if each["status"]["phase"] not in ("Succeeded", "Failed")]
        for name, room in node["status"]["allocatable"].items():
            if name == "pods":
                used, needed = float(len(others)), 1.0
            else:
                used, needed = sum(needs(each, name) for each in others), needs(pod, name)
            if needed and used + needed > quantity(room) + 1e-9:
                return str(name)
        return ""

    def _set_ended(self, pod: Object, exit_code: int, message: str) -> None:
        reason = "Completed" if exit_code == 0 else "Error"
        terminated = {"exitCode": exit_code, "reason": reason, "finishedAt": stamp(self.kube.now)}
        if message:
            terminated["message"] = message
        statuses = [
            {"name": each["name"], "ready": False, "state": {"terminated": terminated}}
            for each in pod["spec"]["containers"]
        ]
        self._patch(pod, {"phase": "Failed" if exit_code else "Succeeded", "containerStatuses": statuses})

    def _patch(self, pod: Object, status: Object) -> None:
        self.kube.patch(PODS, pod["metadata"]["name"], {"status": status}, "status", pod["metadata"]["namespace"])

    def _ready(self, status: str) -> Object:
        return {"type": "Ready", "status": status, "lastTransitionTime": stamp(self.kube.now)}


def _annotations(pod: Object) -> Mapping[str, str]:
    found: Mapping[str, str] = pod["metadata"].get("annotations") or {}
    return found


def _annotation(pod: Object, name: str, usual: float) -> float:
    return float(_annotations(pod).get(f"fake/{name}", usual))
