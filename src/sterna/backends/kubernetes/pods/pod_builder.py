"""Build pods, services, SharePods and bindings for the API server.

A pod is the user's template with node, owner, labels, environment, and a volume for the agent's reports added. All
other fields of the template stay as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sterna.backends.kubernetes.api.job import ReplicaAssignment
from sterna.backends.kubernetes.pods.gang import ClusterDomain, GangRanks, framework_variables, gang_ranks, replica_port
from sterna.backends.kubernetes.pods.hosts import service_name
from sterna.backends.kubernetes.pods.variables import identity, with_mount, with_variables
from sterna.kinds.environment.gang import LEADERS
from sterna.kinds.kind import ReplicaName
from sterna.kinds.labels import ASSIGNMENT, ATTEMPT_LABEL, INDEX_LABEL, JOB_LABEL, KIND_LABEL, PROGRESS, TYPE_LABEL
from sterna.kinds.parsed_job import JobRef, ParsedJob
from sterna.kinds.parsing.annotations import NO_PROGRESS
from sterna.kinds.parsing.gpu_fraction import GPU_ID, gpu_fraction_annotations
from sterna.kinds.registry import kind_of
from sterna.kinds.share_pod import SHARE_PODS
from sterna.kinds.tf_job import CHIEF_PORT_NAME
from sterna.progress.spec import progress_as_fields

AGENT_VOLUME = "sterna-agent"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ALONE = ClusterDomain()


def pod_name(parsed_job: ParsedJob, type_: str, index: int) -> str:
    """Name of the pod and of the service of one replica."""
    return service_name(parsed_job.ref.name, *parsed_job.framework_name(type_, index))


def pod_of(
    parsed_job: ParsedJob,
    replica: ReplicaAssignment,
    gang: Sequence[ReplicaAssignment],
    attempt: int,
    domain: ClusterDomain = _ALONE,
    generation: int = 0,
) -> dict[str, Any]:
    """The pod of one replica; `gang` is the assignment of all, so that one surviving pod is enough to recover it."""
    metadata, spec = _parts(parsed_job, replica, gang_ranks(gang), attempt, domain, generation)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def share_pod_of(
    parsed_job: ParsedJob,
    replica: ReplicaAssignment,
    gang: Sequence[ReplicaAssignment],
    attempt: int,
    domain: ClusterDomain = _ALONE,
    generation: int = 0,
    gpu_memory_bytes: int = 0,
) -> dict[str, Any]:
    """The SharePod of one replica, from which KubeShare creates the pod; bound, so that its scheduler ignores it.
    `gpu_memory_bytes`: memory of the whole GPU, for a fraction that does not say how much it needs."""
    metadata, spec = _parts(parsed_job, replica, gang_ranks(gang), attempt, domain, generation)
    if replica.gpu_id:
        gpu_fraction = (
            gpu_fraction_annotations(parsed_job.gpu_fraction, gpu_memory_bytes) if parsed_job.gpu_fraction else {}
        )
        metadata["annotations"] = {**gpu_fraction, **metadata["annotations"], GPU_ID: replica.gpu_id}
    return {"apiVersion": SHARE_PODS.api_version, "kind": SHARE_PODS.kind, "metadata": metadata, "spec": spec}


def service_of(parsed_job: ParsedJob, type_: str, index: int) -> dict[str, Any]:
    """The headless service that gives a replica its host name on any node."""
    who = parsed_job.framework_name(type_, index)
    labels = _selecting(parsed_job, type_, index, who)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service_name(parsed_job.ref.name, *who),
            "namespace": parsed_job.ref.namespace,
            "labels": {**_own_labels(parsed_job, type_, index), **labels},
            "ownerReferences": [owner_of(parsed_job.ref)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": labels,
            "ports": _ports(parsed_job, who[0]),
            "publishNotReadyAddresses": True,  # peers connect before any of them is ready
        },
    }


def binding_of(namespace: str, name: str, uid: str, node: str) -> dict[str, Any]:
    """Body that binds a pod to a node; the uid guards against another pod of the same name."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def owner_of(ref: JobRef) -> dict[str, Any]:
    """Owner reference: Kubernetes deletes the pod with its job, and Sterna recognises the pod by it."""
    return {
        "apiVersion": ref.resource.api_version,
        "kind": ref.resource.kind,
        "name": ref.name,
        "uid": ref.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _parts(
    parsed_job: ParsedJob,
    replica: ReplicaAssignment,
    gang: GangRanks,
    attempt: int,
    domain: ClusterDomain,
    generation: int,
) -> tuple[dict[str, Any], dict[str, Any]]:
    who = parsed_job.framework_name(replica.type, replica.ordinal)
    template = parsed_job.templates[who[0]]
    given = template.get("metadata")
    given = given if isinstance(given, dict) else {}
    labels = _labels(parsed_job, replica, who, attempt)
    annotations = {**(given.get("annotations") or {}), ASSIGNMENT: gang.assignment}
    if parsed_job.spec.progress != NO_PROGRESS:
        annotations[PROGRESS] = msgspec.json.encode(progress_as_fields(parsed_job.spec.progress)).decode()
    metadata = {
        "name": service_name(parsed_job.ref.name, *who),
        "namespace": parsed_job.ref.namespace,
        "labels": {**(given.get("labels") or {}), **labels},
        "annotations": annotations,
        "ownerReferences": [owner_of(parsed_job.ref)],
    }
    framework_ = framework_variables(parsed_job, replica, gang, attempt, domain.cluster_domain)
    ours = {**framework_, **identity(parsed_job, replica, gang, attempt, generation)}
    return metadata, _pod_spec(parsed_job, template, replica.node, ours, framework_)


def _pod_spec(
    parsed_job: ParsedJob,
    template: Mapping[str, Any],
    node: str,
    ours: Mapping[str, str],
    framework_: Mapping[str, str],
) -> dict[str, Any]:
    """Every container gets the framework's variables; the one that trains also gets the agent's folder."""
    spec = template["spec"]
    written = spec.get("volumes")
    volumes = [each for each in written if isinstance(each, dict)] if isinstance(written, list) else []
    if all(each.get("name") != AGENT_VOLUME for each in volumes):
        volumes.append({"name": AGENT_VOLUME, "emptyDir": {}})
    containers = spec["containers"]
    main = _main(parsed_job, containers)
    built = [
        with_mount(_with_port(parsed_job, with_variables(each, ours, has_agent=True)), AGENT_VOLUME)
        if each is main
        else with_variables(each, framework_, has_agent=False)
        for each in containers
    ]
    return {**spec, "nodeName": node, "containers": built, "volumes": volumes}


def _main(parsed_job: ParsedJob, containers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    name = kind_of(parsed_job.ref.resource).container
    return next((each for each in containers if each.get("name") == name), containers[0])


def _with_port(parsed_job: ParsedJob, container: dict[str, Any]) -> dict[str, Any]:
    """The container with the port of its kind, if the kind declares one and the template does not."""
    port = kind_of(parsed_job.ref.resource).port
    if not port.is_declared:
        return container
    written = container.get("ports")
    ports = [each for each in written if isinstance(each, dict)] if isinstance(written, list) else []
    if any(each.get("name") == port.name for each in ports):
        return container
    return {**container, "ports": [*ports, {"name": port.name, "containerPort": port.number}]}


def _ports(parsed_job: ParsedJob, type_: str) -> list[dict[str, Any]]:
    kind = kind_of(parsed_job.ref.resource)
    called = type_ if kind.has_service_per_replica else _leader_type(parsed_job)
    number = replica_port(parsed_job, called)
    ports = [{"name": kind.port.name, "port": number}]
    if type_ == "ps" and parsed_job.chiefs:
        ports.append({"name": CHIEF_PORT_NAME, "port": number + 1})
    return ports


def _leader_type(parsed_job: ParsedJob) -> str:
    return next((each for each in LEADERS if each in parsed_job.templates), parsed_job.spec.worker.type)


def _own_labels(parsed_job: ParsedJob, type_: str, index: int) -> dict[str, str]:
    return {
        JOB_LABEL: parsed_job.ref.name,
        KIND_LABEL: parsed_job.ref.resource.kind,
        TYPE_LABEL: type_,
        INDEX_LABEL: str(index),
    }


def _selecting(parsed_job: ParsedJob, type_: str, index: int, who: tuple[str, int]) -> dict[str, str]:
    """Labels that select the pod of one replica."""
    name = ReplicaName(*who, is_first=False, start_id="")
    own = _own_labels(parsed_job, type_, index)
    return kind_of(parsed_job.ref.resource).selector_labels(parsed_job, name) or own


def _labels(parsed_job: ParsedJob, replica: ReplicaAssignment, who: tuple[str, int], attempt: int) -> dict[str, str]:
    name = ReplicaName(*who, _is_first(parsed_job, *who), _start_id(parsed_job, replica, attempt))
    return {
        **_own_labels(parsed_job, replica.type, replica.ordinal),
        ATTEMPT_LABEL: str(attempt),
        **kind_of(parsed_job.ref.resource).pod_labels(parsed_job, name),
    }


def _is_first(parsed_job: ParsedJob, type_: str, index: int) -> bool:
    """True for the chief or master; without one, for worker 0."""
    firsts = [each for each in LEADERS if each in parsed_job.templates]
    return type_ in firsts if firsts else (type_, index) == ("worker", 0)


def _start_id(parsed_job: ParsedJob, replica: ReplicaAssignment, attempt: int) -> str:
    """Five letters that identify this start of a replica, always the same ones."""
    start = f"{parsed_job.ref.uid}/{replica.type}/{replica.ordinal}/{replica.node}/{attempt}"
    digest = hashlib.sha256(start.encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:5])
