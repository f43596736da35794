"""Any pod as a row: node, resources, state and job.

Built for 100,000 pods: repeated texts are interned, and nothing of the pod itself is kept. A malformed amount counts as
0; one malformed pod must not affect the others.
"""

from __future__ import annotations

from functools import lru_cache
from sys import intern

import msgspec

from sterna.backends.kubernetes.api.job import PendingServingPod, PodRow, PodState
from sterna.kinds.labels import ASSIGNMENT, ATTEMPT_LABEL, INDEX_LABEL, JOB_LABEL, TYPE_LABEL
from sterna.kinds.objects import Condition, Container, ContainerStatus, Meta, Needs, Owner, Pod, PodSpec, Terminated
from sterna.kinds.parsed_job import PodOwnership
from sterna.kinds.parsing.gpu_fraction import GPU_ID
from sterna.kinds.parsing.job_builder import parse_timestamp
from sterna.kinds.parsing.pod_template import node_needs
from sterna.kinds.parsing.quantities import milli_of
from sterna.kinds.parsing.resource_requests import NOTHING, Demand, demand_of, limits_of
from sterna.kinds.pod import is_serving
from sterna.kinds.registry import find_kind, job_kinds
from sterna.model.cluster import Shape

_Amount = tuple[str, str | int | float]
KUBEFLOW = "kubeflow.org"
_MPI_JOB, _MPI_ROLE, _MPI_INDEX, _MPI_OPERATOR = (
    f"training.{KUBEFLOW}/{name}" for name in ("job-name", "job-role", "replica-index", "operator-name")
)
_SHARE_POD = ("SharePod", "kubeshare.nthu")
_DUMMY = "kubeshare-vgpu"
_DISRUPTION = "DisruptionTarget"
"""Condition that the cluster, not the user, terminates a pod."""
_CLOCKS_SECONDS = 2.0
_RESIZE_PENDING = "PodResizePending"
_STARTING = frozenset({"", "ContainerCreating", "PodInitializing"})
_PHASES = {
    "Pending": PodState.PENDING,
    "Running": PodState.RUNNING,
    "Succeeded": PodState.SUCCEEDED,
    "Failed": PodState.FAILED,
    "Unknown": PodState.RUNNING,
}


def pod_row(pod: Pod) -> PodRow:
    meta = pod.metadata
    demand, limit_cpus, limit_memory_bytes = _uses(pod.spec)
    state = _PHASES.get(pod.status.phase, PodState.PENDING)
    owner = next((each for each in meta.owner_references if each.controller), None)
    row = PodRow(
        key=meta.key,
        uid=meta.uid,
        version=meta.version,
        node=intern(pod.spec.node_name),
        state=state,
        is_terminated=_is_terminated(pod, state),
        is_deleting=meta.deletion_timestamp is not None,
        devices=demand.devices,
        cpus=demand.cpus,
        memory_bytes=demand.memory_bytes,
        is_serving=is_serving(pod),
        is_kubeshare=_DUMMY in meta.name or _names(owner, _SHARE_POD),
        limit_cpus=limit_cpus,
        limit_memory_bytes=limit_memory_bytes,
    )
    if row.is_deleting:
        row.deletes_at = parse_timestamp(meta.deletion_timestamp)
    if _set_job(row, meta, owner):
        _fill_job_fields(row, pod)
    return row


def pending_serving_pod(pod: Pod) -> PendingServingPod:
    """Demand of a pending serving pod."""
    shape = Shape(*_uses(pod.spec)[0])
    return PendingServingPod(
        pod.metadata.key, shape, node_needs(pod.spec), parse_timestamp(pod.metadata.creation_timestamp)
    )


def _uses(spec: PodSpec) -> tuple[Demand, int, int]:
    """Requests of a pod, and its CPU and memory limits."""
    if len(spec.containers) == 1 and not (spec.init_containers or spec.resources or spec.overhead):
        needs = spec.containers[0].resources
        return _single_container_uses(tuple(needs.requests.items()), tuple(needs.limits.items()))
    return _count_resources(spec)


@lru_cache(maxsize=4096)
def _single_container_uses(requests: tuple[_Amount, ...], limits: tuple[_Amount, ...]) -> tuple[Demand, int, int]:
    """Resources of a pod with one container, cached: most pods request what thousands of others request."""
    return _count_resources(PodSpec([Container(resources=Needs(dict(requests), dict(limits)))]))


def _count_resources(spec: PodSpec) -> tuple[Demand, int, int]:
    try:
        demand = demand_of(spec)
    except ValueError:
        demand = NOTHING
    try:
        return demand, *limits_of(spec)
    except ValueError:
        return demand, 0, 0


def _is_terminated(pod: Pod, state: PodState) -> bool:
    """Capacity is free when all containers have terminated, not when the object is gone."""
    if state in (PodState.SUCCEEDED, PodState.FAILED):
        return True
    statuses = pod.status.container_statuses
    if pod.metadata.deletion_timestamp is None or len(statuses) < max(1, len(pod.spec.containers)):
        return False
    return all(each.state.terminated is not None for each in statuses)


def _names(owner: Owner | None, kind: tuple[str, str]) -> bool:
    return owner is not None and (owner.kind, owner.api_version.partition("/")[0]) == kind


def _is_job(owner: Owner) -> bool:
    """True if Sterna creates the pods of the owner."""
    kind = find_kind(owner.kind)
    return (
        kind is not None and kind.ownership is PodOwnership.OPERATOR and _names(owner, (kind.name, kind.resource.group))
    )


def _set_job(row: PodRow, meta: Meta, owner: Owner | None) -> bool:
    """Set the job of a row; false if the pod belongs to no job of Sterna."""
    labels = meta.labels
    if owner is not None and _is_job(owner):
        row.job, row.owner_uid = f"{meta.namespace}/{owner.name}", owner.uid
        _place(row, labels.get(TYPE_LABEL, ""), labels.get(INDEX_LABEL, ""))
    elif labels.get(_MPI_OPERATOR) == "mpi-operator" and labels.get(_MPI_JOB):
        row.job = f"{meta.namespace}/{labels[_MPI_JOB]}"
        row.owner_uid = owner.uid if _names(owner, ("MPIJob", KUBEFLOW)) and owner else ""
        role = labels.get(_MPI_ROLE, "")
        _place(row, role, "0" if role == "launcher" else labels.get(_MPI_INDEX, ""))
    elif _names(owner, _SHARE_POD) and JOB_LABEL in labels:
        row.job = f"{meta.namespace}/{labels[JOB_LABEL]}"  # the uid is in its SharePod
        _place(row, labels.get(TYPE_LABEL, ""), labels.get(INDEX_LABEL, ""))
    elif JOB_LABEL in labels and not meta.owner_references and not row.is_serving:
        row.job, row.owner_uid = row.key, row.uid
        _place(row, "worker", "0")
    else:
        return False
    attempt = labels.get(ATTEMPT_LABEL, "")
    row.attempt = int(attempt) if _is_number(attempt) else 0
    return True


def _place(row: PodRow, type_: str, index: str) -> None:
    row.type = intern(type_)
    row.index = int(index) if _is_number(index) else -1


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _fill_job_fields(row: PodRow, pod: Pod) -> None:
    """Fill the fields that are set only for pods of jobs."""
    status, annotations = pod.status, pod.metadata.annotations
    row.assignment = annotations.get(ASSIGNMENT, "")
    row.gpu_id = annotations.get(GPU_ID, "")
    main = _main(pod)
    ended = main.state.terminated if main else None
    row.exit_code = ended.exit_code if ended else None
    before = main.last_state.terminated if main else None
    row.last_exit_code = before.exit_code if before else None
    row.disruption = intern(disruption_reason(pod)) if status.conditions else ""
    row.withheld = _pending_resize(pod) if status.conditions else None
    row.restarts = sum(each.restart_count for each in status.container_statuses)
    row.reason = intern(status.reason or _reason(pod, ended))
    row.message = _message(main, ended) or status.message
    running = main.state.running if main else None
    started = running.get("startedAt") if running else None
    row.started_at = parse_timestamp(started if isinstance(started, str) else status.start_time) or None


def disruption_reason(pod: Pod) -> str:
    """Reason for which the cluster terminates a pod; empty: it does not, or the user had deleted the pod before. The
    condition is set before the deletion, by another clock than the API server's."""
    found = _condition(pod, _DISRUPTION)
    if found is None:
        return ""
    meta = pod.metadata
    if meta.deletion_timestamp is not None:
        deleted_at = parse_timestamp(meta.deletion_timestamp) - (meta.deletion_grace_period_seconds or 0)
        if parse_timestamp(found.last_transition_time) > deleted_at + _CLOCKS_SECONDS:
            return ""
    return found.reason or _DISRUPTION


def _pending_resize(pod: Pod) -> tuple[float, int] | None:
    """A resize that is deferred or infeasible: since when, and the CPU that the pod has."""
    found = _condition(pod, _RESIZE_PENDING)
    if found is None:
        return None
    try:
        needs = [msgspec.json.decode(each.resources, type=Needs) for each in pod.status.container_statuses]
        granted = sum(milli_of(each.requests.get("cpu", 0)) for each in needs)
    except (msgspec.MsgspecError, ValueError):
        return None
    return (parse_timestamp(found.last_transition_time), granted) if granted > 0 else None


def _condition(pod: Pod, type_: str) -> Condition | None:
    return next((each for each in pod.status.conditions if each.type == type_ and each.status == "True"), None)


def _main(pod: Pod) -> ContainerStatus | None:
    """Status of the container that trains. The kubelet sorts statuses by name, so the order of the spec decides."""
    names = [each.name for each in pod.spec.containers]
    trainers = {kind.container for kind in job_kinds() if kind.container}
    name = next((each for each in names if each in trainers), names[0] if names else "")
    return next((each for each in pod.status.container_statuses if each.name == name), None)


def _reason(pod: Pod, ended: Terminated | None) -> str:
    if ended and ended.reason:
        return ended.reason
    for each in pod.status.container_statuses:
        waits_for = (each.state.waiting or {}).get("reason", "")
        if isinstance(waits_for, str) and waits_for not in _STARTING:
            return waits_for
    return ""


def _message(main: ContainerStatus | None, ended: Terminated | None) -> str:
    """Termination message of the last run, also while the container waits for a restart."""
    if ended:
        return ended.message
    before = main.last_state.terminated if main else None
    return before.message if before else ""
