"""The real controller and the real backend on a cluster in memory, on virtual time.

An `Incarnation` is one life of the operator; `Cluster` lets it live, die and come back, submits jobs, and looks after
every single change whether something is there that must never be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sterna.backends.kubernetes.api.resources import NODES
from sterna.backends.kubernetes.backend import BackendConfig, BackendHooks, KubernetesBackend
from sterna.backends.kubernetes.cache.job_entry import JobEvent
from sterna.control.round_loop import RoundLoop
from sterna.engine.decide import Rules
from sterna.kinds.labels import ATTEMPT_LABEL, CHECKPOINT
from sterna.kinds.resource import PODS, Resource
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from sterna.model.snapshot import NEVER
from sterna.wiring import make_rules
from tests.fakes.kube import FakeKube
from tests.fakes.kube_client import Faults
from tests.fakes.kube_nodes import GPU, FakeNodes
from tests.fakes.kube_rules import quantity, stamp
from tests.fakes.kube_store import Event, Object

WHOLE_KINDS = frozenset({"TrainingJob"})
"""Kinds of these tests whose gangs restart as a whole: two attempts must never exist at once."""


@dataclass(frozen=True)
class Chosen:
    """Rules that an operator decides by."""

    policy: str = "elastic-fifo"
    placement: str = "stay"
    migration: str = "none"
    cpu_share: str = "equal"
    reservation: str = "serving"

    def made(self) -> Rules:
        return make_rules(self.policy, self.placement, self.migration, self.cpu_share, self.reservation)


USUAL = Chosen()


class Incarnation:
    """One life of the operator."""

    def __init__(
        self,
        kube: FakeKube,
        rules: Chosen = USUAL,
        may_write: Callable[[], bool] = lambda: True,
        about: BackendConfig | None = None,
    ) -> None:
        self.kube = kube
        self.client = kube.client(may_write)
        self.inbox = kube.inbox()
        self.before_reconcile: list[Callable[[float], None]] = []
        self.on_job_event: Callable[[JobEvent, str], None] = lambda event, uid: None
        self.on_error: Callable[[Exception], None] | None = None
        hooks = BackendHooks(self._before_reconcile, on_job_event=self._on_job_event, on_error=self._on_error)
        self.backend = KubernetesBackend(self.client, self.inbox, kube.clock, about, hooks=hooks)
        self.controller = RoundLoop(self.backend, rules.made())
        self.until = -NEVER
        self.backend.start()

    def _before_reconcile(self, now: float) -> None:
        for process in self.before_reconcile:
            process(now)

    def _on_job_event(self, event: JobEvent, uid: str) -> None:
        self.on_job_event(event, uid)

    def _on_error(self, error: Exception) -> None:
        if self.on_error is None:
            raise error
        self.on_error(error)

    def run_until(self, at: float) -> None:
        if not self.backend.is_ready:
            if not self.backend.prepare(at - self.kube.now):
                return
            self.backend.become_leader()
        while self.kube.now < at:
            if self.until <= self.kube.now or self.backend.state.work_queue.needs_round:
                self.until = self.controller.round().until
            self.backend.wait(min(self.until, at))

    def die(self) -> None:
        """At once: what was sent may still arrive."""
        self.client.close()


class Cluster:
    """Nodes, jobs, faults, and an operator that comes and goes."""

    def __init__(
        self, seed: int = 0, faults: Faults | None = None, rules: Chosen = USUAL, kube: FakeKube | None = None
    ) -> None:
        self.kube = kube or FakeKube(seed, faults)
        self.nodes = FakeNodes(self.kube)
        self.rules = rules
        self.operator: Incarnation | None = None
        self.kube.store.listeners.append(self._watch)
        self.violations: list[str] = []

    # Time.

    def start(self) -> Incarnation:
        self.operator = Incarnation(self.kube, self.rules)
        return self.operator

    def run(self, seconds: float) -> None:
        end = self.kube.now + seconds
        if self.operator is not None:
            self.operator.run_until(end)
        self.kube.advance(max(0.0, end - self.kube.now))
        assert self.violations == []

    def crash(self, pause_seconds: float = 0.5) -> Incarnation:
        """The operator dies, and another one comes up a little later."""
        if self.operator is not None:
            self.operator.die()
        self.operator = None
        self.run(pause_seconds)
        return self.start()

    # What people do.

    def submit(self, name: str, workers: int = 1, *, most: int = 0, seconds: float = 20.0, **more: Any) -> Object:
        """A TrainingJob that trains for `seconds`. With `saves` its manifest names a checkpoint."""
        meta = {"name": name, "annotations": {CHECKPOINT: "/checkpoints"} if more.pop("saves", True) else {}}
        steering = {"fake/run-seconds": str(seconds), **more.pop("annotations", {})}
        container = {"name": "train", "image": "train", "resources": {"limits": {GPU: more.pop("gpus", 1)}}}
        template = {"metadata": {"annotations": steering}, "spec": {"containers": [container], **more.pop("pod", {})}}
        bounds = {"min": workers, "max": most} if most > workers else workers
        spec = {"workers": bounds, "template": template, "resizing": "restart", **more}
        return self.kube.create(TRAINING_JOBS, {"metadata": meta, "spec": spec})

    def submit_tf(self, name: str, least: int = 1, most: int = 2, *, seconds: float = 20.0, **more: Any) -> Object:
        """A TFJob with one parameter server, whose workers come and go while it trains."""

        def replicas(count: int, steering: dict[str, str], gpus: int) -> Object:
            limits = {"cpu": "500m", "memory": "256Mi"} | ({GPU: gpus} if gpus else {})
            container = {"name": "tensorflow", "image": "train", "resources": {"limits": limits}}
            template = {"metadata": {"annotations": steering}, "spec": {"containers": [container]}}
            return {"replicas": count, "restartPolicy": "OnFailure", "template": template}

        spec = {
            "min-instances": least,
            "max-instances": most,
            "cleanPodPolicy": "All",
            "tfReplicaSpecs": {
                "PS": replicas(1, {}, 0),
                "Worker": replicas(least, {"fake/run-seconds": str(seconds)}, 1),
            },
            **more,
        }
        meta = {"name": name, "annotations": {CHECKPOINT: "/checkpoints"}}
        return self.kube.create(TF_JOBS, {"metadata": meta, "spec": spec})

    # What nodes do.

    def lose(self, node: str, evicts: bool = False) -> None:
        """It is cut off; with `evicts` its pods are put off it, as the cluster does after a while."""
        self.nodes.lose(node)
        for pod in self.pods() if evicts else ():
            if pod["spec"].get("nodeName") == node:
                self.evict(pod["metadata"]["name"])

    def evict(self, pod: str, reason: str = "DeletionByTaintManager") -> None:
        """Evict a pod, with a DisruptionTarget condition first."""
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
        since = {"lastTransitionTime": stamp(self.kube.now)}
        conditions = self.kube.get(PODS, pod)["status"].get("conditions") or []
        self.kube.patch(PODS, pod, {"status": {"conditions": [*conditions, {**condition, **since}]}}, "status")
        self.kube.delete(PODS, pod)

    def heal(self, node: str) -> None:
        """It is back. What ran on it unseen goes on to its end."""
        self.nodes.heal(node)
        for pod in self.pods():
            if pod["spec"].get("nodeName") == node and pod["status"]["phase"] == "Running":
                seconds = (pod["metadata"].get("annotations") or {}).get("fake/run-seconds")
                if seconds is not None:
                    self.kube.call_in(float(seconds), partial(self._end, pod))

    def _end(self, pod: Object) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        found = self.kube.find(PODS, name)
        if found is not None and found["metadata"]["uid"] == uid and found["status"]["phase"] == "Running":
            self.nodes.end(name)

    # What is there.

    def pods(self, job: str = "") -> list[Object]:
        return [pod for pod in self.kube.items(PODS) if not job or pod["metadata"]["name"].startswith(f"{job}-")]

    def phases(self, *resources: Resource) -> dict[str, str]:
        """Phases of all jobs, from their statuses."""
        found = [each for resource in resources or (TRAINING_JOBS, TF_JOBS) for each in self.kube.items(resource)]
        return {each["metadata"]["name"]: (each.get("status") or {}).get("phase", "") for each in found}

    # What must never be.

    def _watch(self, resource: Resource, event: Event) -> None:
        if resource == PODS and event.after is not None:
            self._check_devices()
            self._check_attempts()

    def _check_devices(self) -> None:
        used: dict[str, float] = defaultdict(float)
        for pod in self.kube.items(PODS):
            if pod["spec"].get("nodeName") and not is_over(pod):
                used[pod["spec"]["nodeName"]] += gpus_of(pod)
        for node in self.kube.items(NODES):
            name = node["metadata"]["name"]
            room = quantity(node["status"]["allocatable"].get(GPU, 0))
            if used[name] > room:
                self.violations.append(f"{name} has {room:g} devices, and {used[name]:g} are used")

    def _check_attempts(self) -> None:
        attempts: dict[str, set[str]] = defaultdict(set)
        for pod in self.kube.items(PODS):
            for owner in pod["metadata"].get("ownerReferences") or ():
                if owner["kind"] in WHOLE_KINDS and not is_over(pod):
                    attempts[owner["uid"]].add(pod["metadata"]["labels"][ATTEMPT_LABEL])
        for uid, found in attempts.items():
            if len(found) > 1:
                self.violations.append(f"{uid} runs attempts {sorted(found)} at once")


def is_over(pod: Object) -> bool:
    """Return True if its containers have terminated."""
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def gpus_of(pod: Object) -> float:
    containers = pod["spec"]["containers"]
    return sum(quantity(each.get("resources", {}).get("limits", {}).get(GPU, 0)) for each in containers)
