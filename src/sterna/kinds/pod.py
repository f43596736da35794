"""A plain pod labelled `sterna.dev/job`: how SpeCon's users train, one worker that stays one.

On a cluster its scheduler places it first and its kubelet restarts it; Sterna watches it, and moves it when that helps.
"""

from __future__ import annotations

from typing import Any

from sterna.errors import UserError
from sterna.kinds.context import ParseContext
from sterna.kinds.kind import Kind
from sterna.kinds.labels import JOB_LABEL, SERVING
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.parsed_job import CleanPods, JobRef, ParsedJob, PodOwnership
from sterna.kinds.parsing.annotations import is_true, parse_annotations
from sterna.kinds.parsing.fields import FieldReader
from sterna.kinds.parsing.job_builder import Bounds, JobParts, build_job, parse_timestamp
from sterna.kinds.parsing.pod_template import DEFAULT_GRACE_SECONDS, check_restart_policy, node_needs, parse_template
from sterna.kinds.parsing.resource_requests import demand_of
from sterna.kinds.parsing.run_policy import RunPolicy
from sterna.kinds.registry import register
from sterna.kinds.resource import PODS
from sterna.model.cluster import Shape
from sterna.model.job import JobSpec, ProgressSpec, ReplicaSpec, RestartPolicy


def is_serving(pod: Pod) -> bool:
    """True for pods that E-DRAGON's annotation marks: training makes room for them."""
    return bool(pod.metadata.annotations) and is_true(pod.metadata.annotations, SERVING)


def is_plain_job(pod: Pod) -> bool:
    """True for a pod that carries the job label and has no controller."""
    return JOB_LABEL in pod.metadata.labels and not pod.metadata.owner_references and not is_serving(pod)


def _is_managed(pod: Pod | JobObject, context: ParseContext) -> bool:
    return isinstance(pod, Pod) and is_plain_job(pod)


def _parse(pod: Pod | JobObject, context: ParseContext) -> ParsedJob:
    return _parse_pod(pod) if isinstance(pod, Pod) else _parse_manifest(pod, context)


def _parse_pod(pod: Pod) -> ParsedJob:
    """Parse a pod that a server returned. Its template is not kept: a move asks the server for the whole pod."""
    meta, annotations = pod.metadata, parse_annotations(pod.metadata.annotations)
    try:
        demand = demand_of(pod.spec)
    except ValueError as error:
        raise UserError(f"spec: {error}; write a quantity such as 2, 500m or 8Gi.") from None
    needs = node_needs(pod.spec)
    grace = pod.spec.termination_grace_period_seconds
    worker = ReplicaSpec("worker", 1, (), devices=demand.devices, cpus=demand.cpus, memory_bytes=demand.memory_bytes)
    spec = JobSpec(
        name=meta.name,
        kind=PODS.kind,
        replicas=(worker,),
        minimum=1,
        maximum=1,
        request=1,
        priority=(pod.spec.priority or 0) if annotations.priority is None else annotations.priority,
        category=annotations.category,
        restart=RestartPolicy.NEVER,
        grace_seconds=float(DEFAULT_GRACE_SECONDS if grace is None else grace),
        checkpoint=annotations.checkpoint,
        progress=annotations.progress,
    )
    return ParsedJob(
        ref=JobRef(PODS, meta.namespace, meta.name, meta.uid),
        spec=spec,
        shape=Shape(demand.devices, demand.cpus, demand.memory_bytes, selector=needs.selector),
        needs=needs,
        templates={},
        ownership=PodOwnership.BARE_POD,
        submitted_at=parse_timestamp(meta.creation_timestamp),
        clean_pods=CleanPods.NONE,
        generation=meta.generation,
        node_preference=annotations.node_preference,
    )


def _parse_manifest(pod: JobObject, context: ParseContext) -> ParsedJob:
    """Parse a manifest whose first container is to run as a process."""
    reader = FieldReader(context.runs_images)
    metadata = {"annotations": pod.metadata.annotations}
    spec = reader.decode(pod.spec, dict[str, Any], "spec")
    restart = spec.get("restartPolicy", "")
    check_restart_policy(restart if isinstance(restart, str) else "", "spec")
    group = parse_template(reader, "worker", "spec", 1, restart, {"metadata": metadata, "spec": spec}, is_pod=True)
    if not group.main.command:
        raise UserError("spec: the first container has no command; images are not run here, so write what to run.")
    for other in group.spec.containers[1:]:
        reader.note(f"Only the first container is run; '{other.name}' is left out.")
    parts = JobParts(
        groups=(group,),
        scaled=group,
        bounds=Bounds(1, 1, 1),
        policy=RunPolicy(backoff_limit=6, deadline_seconds=group.spec.active_deadline_seconds),
        annotations=parse_annotations(pod.metadata.annotations),
        default_restart=RestartPolicy.ON_FAILURE,
        ownership=PodOwnership.BARE_POD,
        progress=_progress([*group.main.command, *group.main.args]),
        notices=reader.notices,
    )
    return build_job(pod.metadata, PODS, parts, context)


def _progress(words: list[str]) -> ProgressSpec:
    """SpeCon's scripts get the file to which they report as an argument."""
    reports = [word for word in words[1:] if word.endswith(".csv")]
    return ProgressSpec({"csv": reports[0]} if reports else {})


KIND = register(
    Kind(
        resource=PODS,
        summary=f"a plain pod with the label `{JOB_LABEL}`: one worker, placed by its own scheduler, moved by Sterna",
        parse=_parse,
        ownership=PodOwnership.BARE_POD,
        invalid_reason="Invalid",
        is_managed=_is_managed,
    )
)
