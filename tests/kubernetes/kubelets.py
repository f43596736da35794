"""Behaviour of kubelets without I/O: watched pods go in, calls to the API server come out.

Kept: one status write takes a pod to Running; a node that has no room, or not the labels, refuses as the real one does;
deletion waits for the container's end within its grace; exit codes, termination messages and restarts in place follow
the restart policy; a resize takes place if there is room and waits as Deferred if not. A lost node does nothing at all.
Left out: images, volumes, probes, several containers that end at different times, priorities.

Annotations of a pod control its behaviour: `fake/run-seconds` (else it runs until it is stopped), `fake/exit-code`,
`fake/message` (its termination message when it ends by itself), `fake/stop-seconds` and `fake/stop-message` (when it is
deleted), `fake/log`.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from tests.kubernetes.api import MERGE

RUN_SECONDS, EXIT_CODE, MESSAGE = "fake/run-seconds", "fake/exit-code", "fake/message"
STOP_SECONDS, STOP_MESSAGE, LOG = "fake/stop-seconds", "fake/stop-message", "fake/log"

Amounts = dict[str, str | int | float]

_SUFFIXES = {"m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12} | {
    f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTP", 1)
}


class Resources(msgspec.Struct):
    requests: Amounts = {}
    limits: Amounts = {}


class Container(msgspec.Struct):
    name: str
    image: str = ""
    resources: Resources = msgspec.field(default_factory=Resources)


class Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: float | None = None
    annotations: dict[str, str] = {}


class Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []
    restart_policy: str = "Always"
    node_selector: dict[str, str] = {}


class Status(msgspec.Struct):
    phase: str = ""


class Pod(msgspec.Struct):
    metadata: Metadata
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"

    def wish(self, name: str, otherwise: float) -> float:
        return float(self.metadata.annotations.get(name, otherwise))


class Call(NamedTuple):
    """A request to make; whether it succeeds is seen in what comes back through the watch."""

    method: str
    path: str
    body: bytes
    content_type: str = "application/json"


@dataclass(frozen=True)
class FakeNode:
    """A node as it registers."""

    name: str
    allocatable: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Held:
    """A pod that a node has taken in."""

    pod: Pod
    needs: dict[str, float]
    started_at: float
    restarts: int = 0
    is_ended: bool = False
    is_stopping: bool = False
    last: dict[str, Any] | None = None
    is_deferred: bool = False


@dataclass
class _Room:
    labels: Mapping[str, str]
    allocatable: dict[str, float]
    used: dict[str, float]
    is_lost: bool = False

    def lacks(self, needs: Mapping[str, float]) -> str:
        """The first resource that does not suffice; one that the node does not have is not looked at."""
        for name, amount in needs.items():
            if (
                amount
                and name in self.allocatable
                and self.used.get(name, 0.0) + amount > self.allocatable[name] + 1e-9
            ):
                return name
        return ""

    def charge(self, needs: Mapping[str, float], sign: int) -> None:
        for name, amount in needs.items():
            self.used[name] = self.used.get(name, 0.0) + sign * amount


class Kubelets:
    """The kubelets of all nodes. Time is an argument."""

    def __init__(self, nodes: Mapping[str, FakeNode]) -> None:
        self._rooms = {
            name: _Room({"kubernetes.io/hostname": name, **node.labels}, amounts(node.allocatable), {})
            for name, node in nodes.items()
        }
        self._held: dict[str, _Held] = {}
        self._due: list[tuple[float, int, str, str, str]] = []
        self._missed: dict[str, Pod] = {}
        self._count = 0

    def see(self, pod: Pod, now: float) -> Iterator[Call]:
        """A pod as it is at present."""
        room = self._rooms.get(pod.spec.node_name)
        if room is None:
            return
        if room.is_lost:
            self._missed[pod.key] = pod
            return
        held = self._held.get(pod.key)
        if held is not None and held.pod.metadata.uid != pod.metadata.uid:
            self._forget(pod.key)
            held = None
        if held is None:
            yield from self._drain_inbox(pod, room, now)
            held = self._held.get(pod.key)
        elif held.pod.spec.containers != pod.spec.containers:
            yield from self._resize(held, pod, room)
        if pod.metadata.deletion_timestamp is not None:
            yield from self._begin_to_stop(pod, held, now)

    def gone(self, pod: Pod) -> None:
        held = self._held.get(pod.key)
        if held is not None and held.pod.metadata.uid == pod.metadata.uid:
            self._forget(pod.key)
        self._missed.pop(pod.key, None)

    def relisted(self, keys: set[str]) -> None:
        """These pods exist; others are gone."""
        for key in [key for key in self._held if key not in keys]:
            self._forget(key)

    def end(self, key: str, exit_code: int, message: str, now: float) -> Iterator[Call]:
        """The container's process ends. What follows is the restart policy's."""
        held = self._held.get(key)
        if held is None or held.is_ended or self._rooms[held.pod.spec.node_name].is_lost:
            return
        held.last = _termination(exit_code, message, held.started_at, now)
        policy = held.pod.spec.restart_policy
        is_again = policy == "Always" or (policy == "OnFailure" and exit_code != 0)
        if is_again and not held.is_stopping:
            held.restarts += 1
            held.started_at = now
        else:
            held.is_ended = True
            self._rooms[held.pod.spec.node_name].charge(held.needs, -1)
        yield self._report(held)

    def tick(self, now: float) -> Iterator[Call]:
        """Return the calls that are due."""
        while self._due and self._due[0][0] <= now:
            _, _, what, key, uid = heapq.heappop(self._due)
            held = self._held.get(key)
            if held is None or held.pod.metadata.uid != uid:
                continue
            pod = held.pod
            if what == "end" and not held.is_stopping:
                code = int(pod.wish(EXIT_CODE, 0))
                yield from self.end(key, code, pod.metadata.annotations.get(MESSAGE, ""), now)
            elif what == "stop":
                message = pod.metadata.annotations.get(STOP_MESSAGE, "")
                yield from self.end(key, 0 if message else 143, message, now)
                yield _removal(pod)

    def next_due(self) -> float | None:
        return self._due[0][0] if self._due else None

    def lose(self, node: str) -> Sequence[Call]:
        """Power cut: the kubelet does nothing, and its containers are dead."""
        self._rooms[node].is_lost = True
        return ()

    def heal(self, node: str, now: float) -> Iterator[Call]:
        """It comes back without its containers: those pods failed; what was missed is seen now."""
        room = self._rooms[node]
        room.is_lost = False
        for key, held in list(self._held.items()):
            if held.pod.spec.node_name == node and not held.is_ended:
                held.is_stopping = True
                yield from self.end(key, 137, "", now)
        missed = [pod for pod in self._missed.values() if pod.spec.node_name == node]
        for pod in missed:
            del self._missed[pod.key]
            yield from self.see(pod, now)

    def log(self, key: str) -> str | None:
        held = self._held.get(key)
        return None if held is None else held.pod.metadata.annotations.get(LOG, "")

    def is_lost(self, node: str) -> bool:
        return self._rooms[node].is_lost

    def _drain_inbox(self, pod: Pod, room: _Room, now: float) -> Iterator[Call]:
        if pod.status.phase in ("Succeeded", "Failed"):
            return
        needs = needs_of(pod)
        if pod.status.phase != "Running" and (refusal := _refusal(pod, room, needs)):
            yield _patch(pod, {"phase": "Failed", **refusal})
            return
        held = self._held[pod.key] = _Held(pod, needs, now)
        room.charge(needs, 1)
        if pod.status.phase != "Running" and pod.metadata.deletion_timestamp is None:
            yield self._report(held)
        if RUN_SECONDS in pod.metadata.annotations:
            self._later(now + pod.wish(RUN_SECONDS, 0), "end", pod)

    def _begin_to_stop(self, pod: Pod, held: _Held | None, now: float) -> Iterator[Call]:
        if held is None or held.is_ended:  # refused or ended before
            yield _removal(pod)
        elif not held.is_stopping:
            held.is_stopping = True
            held.pod = pod
            grace = pod.metadata.deletion_grace_period_seconds or 0.0
            self._later(now + min(pod.wish(STOP_SECONDS, 0), grace), "stop", pod)

    def _resize(self, held: _Held, pod: Pod, room: _Room) -> Iterator[Call]:
        needs = needs_of(pod)
        room.charge(held.needs, -1)
        is_deferred = not held.is_ended and bool(room.lacks(needs))
        if not is_deferred and not held.is_ended:
            held.needs = needs
            held.pod = pod
        room.charge(held.needs, 0 if held.is_ended else 1)
        if is_deferred != held.is_deferred or not is_deferred:
            held.is_deferred = is_deferred
            yield self._report(held)

    def _report(self, held: _Held) -> Call:
        return _patch(held.pod, _ended_status(held) if held.is_ended else _running(held))

    def _later(self, when: float, what: str, pod: Pod) -> None:
        self._count += 1
        heapq.heappush(self._due, (when, self._count, what, pod.key, pod.metadata.uid))

    def _forget(self, key: str) -> None:
        held = self._held.pop(key)
        if not held.is_ended:
            self._rooms[held.pod.spec.node_name].charge(held.needs, -1)


def needs_of(pod: Pod) -> dict[str, float]:
    """Return the requests of a pod: all containers together, or the largest init container."""
    total: dict[str, float] = {"pods": 1.0}
    for container in pod.spec.containers:
        for name, amount in amounts(container.resources.requests).items():
            total[name] = total.get(name, 0.0) + amount
    for container in pod.spec.init_containers:
        for name, amount in amounts(container.resources.requests).items():
            total[name] = max(total.get(name, 0.0), amount)
    return total


def amounts(written: Mapping[str, str | int | float]) -> dict[str, float]:
    return {name: quantity(value) for name, value in written.items()}


def quantity(written: str | int | float) -> float:
    """`500m`, `2Gi`, `8`: as a number."""
    text = str(written)
    digits = text.rstrip("mkMGTPEKi")
    return float(digits) * _SUFFIXES[text[len(digits) :]]


def stamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _refusal(pod: Pod, room: _Room, needs: Mapping[str, float]) -> dict[str, str]:
    if any(room.labels.get(name) != value for name, value in pod.spec.node_selector.items()):
        return {"reason": "NodeAffinity", "message": "Pod was rejected: Predicate NodeAffinity failed"}
    if lacking := room.lacks(needs):
        scale = 1000 if lacking == "cpu" else 1
        numbers = [needs[lacking], room.used.get(lacking, 0.0), room.allocatable[lacking]]
        requested, used, capacity = (round(number * scale) for number in numbers)
        enough = f"requested: {requested}, used: {used}, capacity: {capacity}"
        message = f"Pod was rejected: Node didn't have enough resource: {lacking}, {enough}"
        return {"reason": f"OutOf{lacking}", "message": message}
    return {}


def _running(held: _Held) -> dict[str, Any]:
    since = stamp(held.started_at)
    states = [
        {
            "name": each.name,
            "image": each.image,
            "imageID": "",
            "ready": True,
            "started": True,
            "restartCount": held.restarts,
            "state": {"running": {"startedAt": since}},
            **({"lastState": {"terminated": held.last}} if held.last else {}),
            "resources": {"requests": each.resources.requests, "limits": each.resources.limits},
        }
        for each in held.pod.spec.containers
    ]
    conditions = _conditions(True, since)
    if held.is_deferred:
        why = "Node didn't have enough resource"
        conditions.append({"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": why})
    return {
        "phase": "Running",
        "hostIP": "127.0.0.1",
        "podIP": "10.0.0.1",
        "startTime": since,
        "conditions": conditions,
        "containerStatuses": states,
    }


def _ended_status(held: _Held) -> dict[str, Any]:
    last = held.last or {}
    states = [
        {
            "name": each.name,
            "image": each.image,
            "imageID": "",
            "ready": False,
            "started": False,
            "restartCount": held.restarts,
            "state": {"terminated": last},
        }
        for each in held.pod.spec.containers
    ]
    phase = "Failed" if last.get("exitCode") else "Succeeded"
    return {"phase": phase, "conditions": _conditions(False, str(last["finishedAt"])), "containerStatuses": states}


def _termination(exit_code: int, message: str, started_at: float, now: float) -> dict[str, Any]:
    return {
        "exitCode": exit_code,
        "reason": "Error" if exit_code else "Completed",
        "message": message,
        "startedAt": stamp(started_at),
        "finishedAt": stamp(now),
    }


def _conditions(is_ready: bool, since: str) -> list[dict[str, Any]]:
    ready = "True" if is_ready else "False"
    values = {"PodScheduled": "True", "Initialized": "True", "ContainersReady": ready, "Ready": ready}
    return [{"type": name, "status": status, "lastTransitionTime": since} for name, status in values.items()]


def _patch(pod: Pod, status: Mapping[str, Any]) -> Call:
    body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
    return Call("PATCH", f"{pod.path}/status", msgspec.json.encode(body), MERGE)


def _removal(pod: Pod) -> Call:
    options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
    return Call("DELETE", pod.path, json.dumps(options).encode())
