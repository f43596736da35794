"""A plain pod labelled `sterna.dev/job`: how SpeCon's users train (DRAGON-80).

Its scheduler places it first (DRAGON-90) and its kubelet restarts it; we watch it, and move it when that helps.
"""

from __future__ import annotations

from sterna.errors import UserError
from sterna.kinds.labels import JOB_LABEL, SERVING
from sterna.kinds.objects import Pod
from sterna.kinds.parsed_job import CleanPods, JobRef, ParsedJob, PodOwnership
from sterna.kinds.parsing.annotations import is_true, wishes_of
from sterna.kinds.parsing.job_builder import seconds_of
from sterna.kinds.parsing.pod_template import DEFAULT_GRACE_SECONDS, node_needs
from sterna.kinds.parsing.resource_requests import demand_of
from sterna.kinds.resource import PODS
from sterna.model.cluster import Shape
from sterna.model.job import JobSpec, ReplicaSpec, RestartPolicy


def read(pod: Pod) -> ParsedJob:
    """One worker that stays one. Its template is not kept: whoever moves it asks the server for the whole pod."""
    meta, wishes = pod.metadata, wishes_of(pod.metadata.annotations)
    try:
        demand = demand_of(pod.spec)
    except ValueError as error:
        raise UserError(f"spec: {error}; write a quantity such as 2, 500m or 8Gi.") from None
    needs = node_needs(pod.spec)
    grace = pod.spec.termination_grace_period_seconds
    spec = JobSpec(
        name=meta.name,
        kind=PODS.kind,
        replicas=(
            ReplicaSpec("worker", 1, (), devices=demand.devices, cpus=demand.cpus, memory_bytes=demand.memory_bytes),
        ),
        minimum=1,
        maximum=1,
        request=1,
        priority=(pod.spec.priority or 0) if wishes.priority is None else wishes.priority,
        category=wishes.category,
        restart=RestartPolicy.NEVER,
        grace_seconds=float(DEFAULT_GRACE_SECONDS if grace is None else grace),
        progress=wishes.progress,
    )
    return ParsedJob(
        ref=JobRef(PODS, meta.namespace, meta.name, meta.uid),
        spec=spec,
        shape=Shape(demand.devices, demand.cpus, demand.memory_bytes, selector=needs.selector),
        needs=needs,
        templates={},
        ownership=PodOwnership.BARE_POD,
        submitted_at=seconds_of(meta.creation_timestamp),
        clean_pods=CleanPods.NONE,
        generation=meta.generation,
        node_preference=wishes.node_preference,
    )


def is_serving(pod: Pod) -> bool:
    """E-DRAGON's mark (DRAGON-54)."""
    return bool(pod.metadata.annotations) and is_true(pod.metadata.annotations, SERVING)


def is_plain_job(pod: Pod) -> bool:
    """A pod that nobody else looks after and whose user wants it looked after (DRAGON-80)."""
    return JOB_LABEL in pod.metadata.labels and not pod.metadata.owner_references and not is_serving(pod)
