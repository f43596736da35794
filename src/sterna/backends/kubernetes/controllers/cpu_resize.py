"""In-place CPU resize: applies CPU shares by changing the CPU request of running pods (`pods/resize`).

Pods without devices share the cores of their node in proportion to their requests, unless they have limits. A CPU share
of one half requests half of what the user wrote. A pod without a CPU request, or with a request equal to its limit,
keeps an equal share, because Kubernetes does not let it change its QoS class. A rejected resize is not retried until
the share changes; a resize that its node cannot admit is withdrawn after a while, because other pods would be counted
against CPU that the pod does not have.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sterna.backends.kubernetes.api.job import PodRow, PodState
from sterna.backends.kubernetes.api.resources import Urgency, Verb, Write
from sterna.backends.kubernetes.api.write_purpose import ResizedPod
from sterna.backends.kubernetes.cache.job_entry import JobEntry, durable_fields
from sterna.backends.kubernetes.cache.timers import Timers
from sterna.backends.kubernetes.lifecycle.replicas import need_of
from sterna.kinds.registry import kind_of
from sterna.kinds.resource import PODS

_DEFERRED_SECONDS = 10.0
"""Time to wait for a deferred resize, because another pod may shrink at the same time."""
_MIN_MILLICORES = 2
"""Smallest CPU weight of the kernel."""


def resizes(entry: JobEntry, now: float, timers: Timers) -> list[Write]:
    """Return the writes that apply the job's CPU share to its pods."""
    persisted, cpu_share = entry.job.persisted, entry.job.persisted.cpu_share
    if entry.shape.devices or not entry.parsed_job.ownership.resizes_cpu:
        return []
    if entry.parsed_job.ownership.is_pod and not _is_base_kept(entry):
        return []
    if cpu_share == 1.0 and not entry.resized_cpus and not persisted.asked_cpus:
        return []
    worker = entry.parsed_job.spec.worker.type
    found = []
    for pod in entry.job.pods.values():
        is_up = pod.state is PodState.RUNNING and not pod.is_deleting and bool(pod.uid)
        if is_up and pod.type == worker:
            if pod.withheld is not None and pod.withheld[0] + _DEFERRED_SECONDS > now:
                timers.set(pod.withheld[0] + _DEFERRED_SECONDS, entry)
            if (write := _resize(entry, pod, cpu_share, now)) is not None:
                found.append(write)
    return found


def _resize(entry: JobEntry, pod: PodRow, cpu_share: float, now: float) -> Write | None:
    asked = entry.job.persisted.asked_cpus or need_of(entry.parsed_job, pod.type).cpus
    index = _container_index(entry, pod)
    if not asked or index is None:
        return None
    wanted = max(_MIN_MILLICORES, round(asked * cpu_share))
    if pod.limit_cpus:
        wanted = min(wanted, pod.limit_cpus)
    if entry.resized_cpus.get(pod.uid, pod.cpus) != wanted:
        entry.resized_cpus[pod.uid] = wanted
        return _patch(entry, pod, index, wanted)
    if pod.withheld is not None and pod.withheld[0] + _DEFERRED_SECONDS <= now and pod.cpus != pod.withheld[1]:
        entry.resized_cpus[pod.uid] = wanted
        return _patch(entry, pod, index, pod.withheld[1])
    return None


def _patch(entry: JobEntry, pod: PodRow, index: int, cpus: int) -> Write:
    namespace, _, name = pod.key.partition("/")
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": pod.uid},
        {"op": "replace", "path": f"/spec/containers/{index}/resources/requests/cpu", "value": f"{cpus}m"},
    ]
    return Write(
        Verb.JSON_PATCH,
        PODS,
        namespace,
        name,
        msgspec.json.encode(operations),
        "resize",
        Urgency.RUN,
        f"resize/{pod.uid}",
        ResizedPod(entry.key, pod.uid),
    )


def _is_base_kept(entry: JobEntry) -> bool:
    """Return True once the original CPU request of a plain pod is persisted: the pod is its only other record."""
    persisted, state = entry.job.persisted, entry.status
    if not persisted.asked_cpus and persisted.cpu_share != 1.0:
        persisted.asked_cpus = next((pod.cpus for pod in entry.job.pods.values()), 0)
        return False
    return not state.writes_in_flight and state.durable_fields == durable_fields(persisted)


def _container_index(entry: JobEntry, pod: PodRow) -> int | None:
    """Return the index of the container to resize; None if there is none."""
    if entry.parsed_job.ownership.is_pod:
        return 0
    containers = _containers(entry.parsed_job.templates.get(pod.type, {}))
    name = kind_of(entry.parsed_job.ref.resource).container
    for index, container in enumerate(containers):
        if not name or container.get("name") == name:
            resources = container.get("resources") or {}
            requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
            is_alone = sum("cpu" in ((each.get("resources") or {}).get("requests") or {}) for each in containers) == 1
            can_change = "cpu" in requests and requests["cpu"] != limits.get("cpu")
            return index if is_alone and can_change else None
    return None


def _containers(template: Any) -> list[dict[str, Any]]:
    spec = template.get("spec") if hasattr(template, "get") else None
    found = spec.get("containers") if isinstance(spec, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
