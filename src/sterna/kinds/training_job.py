"""TrainingJob `sterna.dev/v1alpha1`: the same manifest as on one machine, and the image that its pods run.

Read by the same fields (`manifests/training_job.py`), so that both worlds understand the same and refuse the same. What
is new here: `image`, or a whole pod `template` over whose first container the other fields are laid; `replicas`, which
`kubectl scale` writes; `suspend`. Pods are restarted by us and not by the kubelet: every start is an attempt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field, ValidationError

from sterna.errors import UserError
from sterna.kinds.context import ParseContext
from sterna.kinds.labels import GROUP
from sterna.kinds.objects import JobObject, Meta
from sterna.kinds.parsed_job import CleanPods, GpuFraction, ParsedJob, PodOwnership
from sterna.kinds.parsing.annotations import MOST_WORKERS, wishes_of
from sterna.kinds.parsing.decoding import decoded
from sterna.kinds.parsing.documents import Document
from sterna.kinds.parsing.gpu_fraction import gpu_fraction_of
from sterna.kinds.parsing.job_builder import Bounds, Parts, assembled, renamed
from sterna.kinds.parsing.pod_template import ReplicaGroup, Template, checked
from sterna.kinds.parsing.run_policy import RunPolicy
from sterna.kinds.resource import Resource
from sterna.manifests.fields import Fields
from sterna.manifests.refusals import refusal
from sterna.manifests.training_job import Command, Needs, ParameterServers, TrainingJobSpec
from sterna.model.cluster import MILLI
from sterna.model.job import Resizing, RestartPolicy

CONTAINER = "training"
"""The name of the container of a job that has no template."""
_WISHES = f"{GROUP}/"
_KEPT, _LONGEST_KEPT = 256, 16 * 1024
"""So many specifications are kept as they were read, of so many bytes each."""
_NOBODY = Meta(name="a")
NOT_IN_PLACE = "On a cluster this job is resized by checkpoint and restart: its workers cannot join in place there."


class _Servers(ParameterServers):
    command: Command | None = None  # type: ignore[assignment]  # an image has one of its own
    image: str = ""
    template: dict[str, Any] | None = None


class _Spec(TrainingJobSpec):
    """The specification, as a cluster understands it."""

    command: Command | None = None  # type: ignore[assignment]  # an image has one of its own
    image: str = ""
    template: dict[str, Any] | None = None
    replicas: Annotated[int, Field(ge=0, le=MOST_WORKERS)] = 0
    suspend: bool = False
    clean_pod_policy: Literal["All", "Running", "None"] = "Running"
    parameter_servers: _Servers | None = None


class _Manifest(Fields):
    """Only a place for `spec`, so that sentences begin with it."""

    spec: _Spec


def read(job: JobObject, resource: Resource, context: ParseContext) -> ParsedJob:
    meta = job.metadata
    wished = tuple(sorted(each for each in meta.annotations.items() if each[0].startswith(_WISHES)))
    written = bytes(job.spec)
    read_or_kept = _kept if len(written) <= _LONGEST_KEPT else _read
    return renamed(*read_or_kept(written, wished, resource, context), meta)


def _read(
    written: bytes, wished: tuple[tuple[str, str], ...], resource: Resource, context: ParseContext
) -> tuple[ParsedJob, Parts]:
    """As if it had no name."""
    spec = _spec_of(written)
    wishes = wishes_of(dict(wished))
    worker, gpu_fraction = _group("worker", spec, spec, context)
    groups = [worker]
    if spec.parameter_servers is not None:
        servers, _ = _group("ps", spec, spec.parameter_servers, context)
        groups.insert(0, replace(servers, replicas=spec.parameter_servers.count))
    workers = spec.workers
    bounds = Bounds(workers.min, workers.most, workers.asked).within(spec.replicas or None)
    parts = Parts(
        groups=groups,
        scaled=worker,
        bounds=bounds,
        policy=RunPolicy(CleanPods(spec.clean_pod_policy), spec.backoff_limit, spec.ttl, spec.deadline, spec.suspend),
        wishes=wishes,
        default_restart=RestartPolicy.NEVER,
        restart=RestartPolicy(spec.restart_policy),
        resizing=Resizing.TORCHRUN if spec.resizing == "torchrun" else Resizing.RESTART,
        ownership=PodOwnership.KUBESHARE if gpu_fraction else PodOwnership.OPERATOR,
        gpu_fraction=gpu_fraction,
        category=spec.category,
        progress=spec.progress.spec,
        priority=spec.priority,
        notices=(NOT_IN_PLACE,) if spec.resizing == "in-place" else (),
    )
    return assembled(_NOBODY, resource, parts), parts


_kept = lru_cache(maxsize=_KEPT)(_read)
"""A sweep is a thousand jobs of one specification, which is read once."""


def _spec_of(written: bytes) -> _Spec:
    values = {"spec": decoded(msgspec.Raw(written), dict[str, Any], "spec")}
    try:
        return _Manifest.model_validate(values).spec
    except ValidationError as error:
        raise UserError(str(refusal(error, Document(values, ""))).removeprefix(": ")) from None
    except RecursionError:
        raise UserError("spec is nested too deeply to be read; check what was submitted.") from None


def _group(
    type_: str, spec: _Spec, own: _Spec | _Servers, context: ParseContext
) -> tuple[ReplicaGroup, GpuFraction | None]:
    """The template of one type, with everything laid over it that the specification says."""
    place = "spec" if own is spec else "spec.parameterServers"
    given = own.template if own.template is not None else spec.template
    if given is not None:
        decoded(given, Template, f"{place}.template")  # so that what is laid over it finds what it expects
    template = dict(given or {})
    pod = dict(_mapping(template.get("spec")))
    containers = [each for each in pod.get("containers") or [] if isinstance(each, Mapping)]
    first = dict(containers[0]) if containers else {"name": CONTAINER}
    image = own.image or spec.image or first.get("image") or context.default_image
    if not image:
        raise UserError("spec.image is missing; name the image that holds the training script, or give a template.")
    first["image"] = image
    _lay_over(first, spec, own)
    gpu_fraction = _resources(first, own, given is not None, context)
    pod["containers"] = [first, *containers[1:]]
    if given is None or "grace" in spec.model_fields_set or "terminationGracePeriodSeconds" not in pod:
        pod["terminationGracePeriodSeconds"] = math.ceil(spec.grace)
    group = checked(type_, place, 1, "", {**template, "spec": pod})
    return group, gpu_fraction or gpu_fraction_of(group.annotations)


def _lay_over(container: dict[str, Any], spec: _Spec, own: _Spec | _Servers) -> None:
    if own.command:
        container["command"] = list(own.command)
        container.pop("args", None)
    if spec.working_dir:
        container["workingDir"] = spec.working_dir
    env = spec.env | own.env
    if env:
        kept = [each for each in container.get("env") or [] if _mapping(each).get("name") not in env]
        container["env"] = [*kept, *({"name": name, "value": value} for name, value in env.items())]


def _resources(
    container: dict[str, Any], own: _Spec | _Servers, has_template: bool, context: ParseContext
) -> GpuFraction | None:
    """What one replica needs: as requests, memory as its own limit too; devices as limits, or a part of one."""
    if has_template and "resources" not in own.model_fields_set:
        return None
    needs: Needs = own.resources
    resources = dict(_mapping(container.get("resources")))
    requests, limits = dict(_mapping(resources.get("requests"))), dict(_mapping(resources.get("limits")))
    requests["cpu"] = f"{needs.cpu}m"
    if needs.memory:
        requests["memory"] = limits["memory"] = str(needs.memory)
    gpu_fraction = None
    if needs.gpu % MILLI:
        if needs.gpu > MILLI:
            raise UserError(
                f"spec.resources.gpu is {needs.gpu / MILLI:g}; ask for whole devices, or for a part of one such as 0.5."
            )
        gpu_fraction = GpuFraction(needs.gpu, MILLI, 0)
    elif needs.gpu:
        limits[context.gpu_resource] = needs.gpu // MILLI
    container["resources"] = {**resources, "requests": requests, **({"limits": limits} if limits else {})}
    return gpu_fraction


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
