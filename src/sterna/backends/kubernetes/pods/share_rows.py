"""SharePods of any owner as rows: which fraction of which GPU each holds.

A SharePod with malformed annotations is charged for the fields that can be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from sterna.errors import UserError
from sterna.kinds.objects import JobObject, PodSpec
from sterna.kinds.parsed_job import GpuFraction, NodeNeeds
from sterna.kinds.parsing.fields import decode_fields
from sterna.kinds.parsing.gpu_fraction import GPU_ID, PRIORITY, parse_gpu_fraction
from sterna.kinds.parsing.job_builder import parse_timestamp
from sterna.kinds.parsing.pod_template import node_needs
from sterna.kinds.parsing.resource_requests import NOTHING, demand_of
from sterna.kinds.registry import job_kinds

_ENDED = ("Succeeded", "Failed")


class _PodStatus(msgspec.Struct):
    phase: str = ""


class _Status(msgspec.Struct, rename="pascal"):
    """Status in KubeShare's spelling."""

    pod_status: _PodStatus | None = None


@dataclass(frozen=True)
class ShareRow:
    """One SharePod."""

    key: str
    uid: str
    version: int
    node: str
    """Empty: not placed."""
    gpu_id: str
    gpu_fraction: GpuFraction | None
    """None: it requests no GPU, or its request is malformed."""
    devices: int
    """Whole devices that it requests beside the fraction."""
    cpus: int
    memory_bytes: int
    is_terminated: bool
    is_deleting: bool
    is_urgent: bool
    """It is placed before all jobs."""
    submitted_at: float
    needs: NodeNeeds
    owner_uid: str = ""
    """Uid of the job that it is a replica of; empty: of none."""


def share_row(pod: JobObject) -> ShareRow:
    meta = pod.metadata
    annotations = meta.annotations
    spec = _spec(pod)
    try:
        demand = demand_of(spec)
    except ValueError:
        demand = NOTHING
    owner = next((each for each in meta.owner_references if each.controller), None)
    is_ours = owner is not None and owner.api_version.partition("/")[0] in {kind.resource.group for kind in job_kinds()}
    return ShareRow(
        key=meta.key,
        uid=meta.uid,
        version=meta.version,
        node=spec.node_name,
        gpu_id=annotations.get(GPU_ID, ""),
        gpu_fraction=_gpu_fraction(annotations),
        devices=demand.devices,
        cpus=demand.cpus,
        memory_bytes=demand.memory_bytes,
        is_terminated=_phase(pod) in _ENDED,
        is_deleting=meta.deletion_timestamp is not None,
        is_urgent=annotations.get(PRIORITY, "").lower() == "high",
        submitted_at=parse_timestamp(meta.creation_timestamp),
        needs=node_needs(spec),
        owner_uid=owner.uid if owner and is_ours else "",
    )


def placing_patch(node: str, gpu_id: str, version: str) -> dict[str, Any]:
    """A merge patch that places a SharePod, and fails if it has changed since."""
    annotations = {GPU_ID: gpu_id} if gpu_id else {}
    return {"metadata": {"resourceVersion": version, "annotations": annotations}, "spec": {"nodeName": node}}


def _spec(pod: JobObject) -> PodSpec:
    try:
        return decode_fields(pod.spec, PodSpec, "spec")
    except UserError:
        return PodSpec()


def _phase(pod: JobObject) -> str:
    try:
        status = decode_fields(pod.status, _Status, "status").pod_status
    except UserError:
        return ""
    return status.phase if status else ""


def _gpu_fraction(annotations: dict[str, str]) -> GpuFraction | None:
    try:
        return parse_gpu_fraction(annotations)
    except UserError:
        return None
