"""TrainingJob `sterna.dev/v1alpha1`: Sterna's own manifest, ten lines for an elastic job.

Written for people: numbers need no quotes, a command may be one line of text, `workers: 1:4` gives the bounds. On a
cluster it also has an `image`, or a whole pod `template` whose first container the other fields override; `replicas`,
which `kubectl scale` writes; and `suspend`. Sterna restarts pods itself: the kubelet never does.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from sterna.errors import UserError, did_you_mean
from sterna.kinds.context import ParseContext
from sterna.kinds.environment.torch import gang_environment
from sterna.kinds.kind import READ, Kind, Permission
from sterna.kinds.labels import GROUP
from sterna.kinds.objects import JobObject, Meta
from sterna.kinds.parsed_job import CleanPods, GpuFraction, ParsedJob, PodOwnership
from sterna.kinds.parsing.annotations import MOST_WORKERS, WorkerCount, parse_annotations
from sterna.kinds.parsing.fields import FieldReader, Fields, decode_fields, expectation_error
from sterna.kinds.parsing.gpu_fraction import parse_gpu_fraction
from sterna.kinds.parsing.job_builder import Bounds, JobParts, build_job, rename_job
from sterna.kinds.parsing.pod_template import (
    DEFAULT_GRACE_SECONDS,
    ReplicaGroup,
    Template,
    parse_template,
    replica_spec,
)
from sterna.kinds.parsing.run_policy import RunPolicy
from sterna.kinds.parsing.units import Amount, parse_bytes, parse_seconds, parse_thousandths
from sterna.kinds.registry import register
from sterna.kinds.resource import Resource
from sterna.model.cluster import MILLI
from sterna.model.formatting import format_count
from sterna.model.job import LEAST_PRIORITY, MOST_PRIORITY, ProgressSpec, Resizing, RestartPolicy
from sterna.progress.spec import ProgressError, parse_progress, progress_fields

TRAINING_JOBS = Resource(GROUP, "v1alpha1", "trainingjobs", "TrainingJob")
NOT_IN_PLACE = "On a cluster this job is resized by checkpoint and restart: its workers cannot join in place there."
_CONTAINER = "training"
"""Name of the container of a job that has no template."""
_KEPT, _LONGEST_KEPT = 256, 16 * 1024
"""Parsed specifications to cache, and the size in bytes up to which one is cached."""
_UNNAMED = Meta(name="a")
_BOUNDS = re.compile(r"\s*(\d{1,9})\s*(?::\s*(\d{1,9})\s*)?", re.ASCII)


class WorkerBounds(Fields):
    """Fewest and most workers, and the number asked for."""

    min: WorkerCount = 1
    max: WorkerCount | None = None
    request: WorkerCount | None = None


class ReplicaNeeds(Fields):
    """Needs of one replica. The cluster chooses the default for CPUs: it knows whether nodes are shared."""

    cpu: Amount | None = None
    memory: Amount | None = None
    gpu: Amount | None = None


class ParameterServers(Fields):
    """Replicas of type `ps`, which stay while workers join and leave."""

    count: WorkerCount = 1
    command: str | list[Any] | None = None
    env: dict[str, Any] | list[Any] | None = None
    resources: ReplicaNeeds | None = None
    image: str = ""
    template: dict[str, Any] | None = None


class TrainingJobSpec(Fields, rename="camel"):
    """The specification of a TrainingJob."""

    ignored: ClassVar[frozenset[str]] = frozenset({"suspend", "cleanPodPolicy"})

    command: str | list[Any] | None = None
    workers: int | str | WorkerBounds | None = None
    resources: ReplicaNeeds | None = None
    env: dict[str, Any] | list[Any] | None = None
    working_dir: str = ""
    progress: dict[str, Any] | None = None
    category: str = ""
    priority: Annotated[int, msgspec.Meta(ge=LEAST_PRIORITY, le=MOST_PRIORITY)] = 0
    grace: Amount | None = None
    restart_policy: Literal["Never", "OnFailure", "ExitCode"] = "OnFailure"
    backoff_limit: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 6
    resizing: Literal["restart", "in-place", "torchrun", "none"] | None = None
    checkpoint: str = ""
    ttl: Amount | None = None
    deadline: Amount | None = None
    parameter_servers: ParameterServers | None = None
    image: str = ""
    template: dict[str, Any] | None = None
    replicas: Annotated[int, msgspec.Meta(ge=0, le=MOST_WORKERS)] = 0
    suspend: bool = False
    clean_pod_policy: Literal["All", "Running", "None"] = "Running"


def _parse(job: JobObject, context: ParseContext) -> ParsedJob:
    meta = job.metadata
    annotations = tuple(sorted(each for each in meta.annotations.items() if each[0].startswith(f"{GROUP}/")))
    written = bytes(job.spec)
    parse = _parse_cached if len(written) <= _LONGEST_KEPT else _parse_spec
    return rename_job(*parse(written, annotations, context), meta, context)


def _parse_spec(
    written: bytes, annotations: tuple[tuple[str, str], ...], context: ParseContext
) -> tuple[ParsedJob, JobParts]:
    """Parse a specification as that of a job without a name."""
    reader = FieldReader(context.runs_images)
    spec = reader.decode(msgspec.Raw(written), TrainingJobSpec, "spec", is_strict=True)
    bounds = _bounds(spec.workers).clamp(spec.replicas or None)
    worker, gpu_fraction = _group(reader, "worker", spec, spec, context)
    groups = [worker]
    if spec.parameter_servers is not None:
        servers, _ = _group(reader, "ps", spec, spec.parameter_servers, context)
        groups.insert(0, replace(servers, replicas=spec.parameter_servers.count))
    resizing = _resizing(spec, worker)
    notices = list(reader.notices)
    if resizing is Resizing.IN_PLACE and context.runs_images:
        resizing = Resizing.RESTART
        notices.append(NOT_IN_PLACE)
    if resizing is Resizing.NONE and bounds.low != bounds.high:
        notices.append(_describe_fixed_size(bounds))
        bounds = Bounds(bounds.asked, bounds.asked, bounds.asked)
    parts = JobParts(
        groups=groups,
        scaled=worker,
        bounds=bounds,
        policy=_run_policy(spec),
        annotations=parse_annotations(dict(annotations)),
        default_restart=RestartPolicy.NEVER,
        restart=RestartPolicy(spec.restart_policy),
        resizing=resizing,
        checkpoint=spec.checkpoint,
        ownership=PodOwnership.KUBESHARE if gpu_fraction else PodOwnership.OPERATOR,
        gpu_fraction=gpu_fraction,
        category=spec.category,
        progress=_progress(spec.progress),
        priority=spec.priority,
        grace_seconds=None if context.runs_images else _grace_seconds(spec),
        notices=notices,
    )
    return build_job(_UNNAMED, TRAINING_JOBS, parts, context), parts


_parse_cached = lru_cache(maxsize=_KEPT)(_parse_spec)
"""A sweep is a thousand jobs of one specification, which is parsed once."""


def _bounds(written: int | str | WorkerBounds | None) -> Bounds:
    """Parse `4`, `1:4` or `{min: 1, max: 4, request: 2}`."""
    workers: Any = WorkerBounds() if written is None else written
    if isinstance(workers, str):
        match = _BOUNDS.fullmatch(workers)
        if match is None:
            raise expectation_error(
                "spec.workers", "a number of workers, or the fewest and the most such as 1:4", written
            )
        workers = decode_fields({"min": int(match[1]), "max": int(match[2] or match[1])}, WorkerBounds, "spec.workers")
    elif isinstance(workers, int):
        workers = decode_fields({"min": workers, "max": workers}, WorkerBounds, "spec.workers")
    high = workers.min if workers.max is None else workers.max
    asked = workers.min if workers.request is None else workers.request
    if workers.min > high:
        raise UserError(f"spec.workers: min {workers.min} is more than max {high}; make it at most as large.")
    if not workers.min <= asked <= high:
        raise UserError(f"spec.workers: request {asked} is not between min {workers.min} and max {high}.")
    return Bounds(workers.min, high, asked)


def _resizing(spec: TrainingJobSpec, worker: ReplicaGroup) -> Resizing:
    """How the job resizes: as it says; else by torchrun if that is its command, by restart beside parameter servers,
    and otherwise not at all."""
    if spec.resizing is not None:
        return Resizing(spec.resizing)
    if spec.parameter_servers is not None:
        return Resizing.RESTART
    return Resizing.TORCHRUN if _is_elastic_torchrun(replica_spec(worker, 1, 0).command) else Resizing.NONE


def _is_elastic_torchrun(command: Sequence[str]) -> bool:
    """True for torchrun without an option that fixes its number of agents."""
    starts = [PurePosixPath(word).name == "torchrun" or word == "torch.distributed.run" for word in command]
    if True not in starts:
        return False
    options = [word.replace("_", "-") for word in command[starts.index(True) :]]
    return not any(word == "--standalone" or word.startswith("--nnodes") for word in options)


def _describe_fixed_size(bounds: Bounds) -> str:
    size = format_count(bounds.asked, "worker")
    return (
        f"It runs with {size}, not with {bounds.low} to {bounds.high}, because nothing says how it resizes; set "
        "resizing (--resizing) to restart if it resumes from a checkpoint, or to in-place if it uses "
        "sterna.agent.world()."
    )


def _run_policy(spec: TrainingJobSpec) -> RunPolicy:
    return RunPolicy(
        CleanPods(spec.clean_pod_policy),
        spec.backoff_limit,
        None if spec.ttl is None else parse_seconds(spec.ttl, "spec.ttl"),
        None if spec.deadline is None else parse_seconds(spec.deadline, "spec.deadline"),
        spec.suspend,
    )


def _grace_seconds(spec: TrainingJobSpec) -> float:
    return float(DEFAULT_GRACE_SECONDS) if spec.grace is None else parse_seconds(spec.grace, "spec.grace")


def _progress(fields: Mapping[str, Any] | None) -> ProgressSpec:
    for name in fields or {}:
        if name not in progress_fields():
            raise UserError(f"spec.progress has no field '{name}'; {did_you_mean(name, progress_fields())}")
    try:
        return parse_progress(fields or {})
    except ProgressError as error:
        raise expectation_error(f"spec.progress.{error.field}", error.wanted, error.value) from None


def _group(
    reader: FieldReader,
    type_: str,
    spec: TrainingJobSpec,
    own: TrainingJobSpec | ParameterServers,
    context: ParseContext,
) -> tuple[ReplicaGroup, GpuFraction | None]:
    """The template of one type, overridden by the fields of the specification."""
    place = "spec" if own is spec else "spec.parameterServers"
    given = own.template if own.template is not None else spec.template
    if given is not None:
        reader.decode(given, Template, f"{place}.template")  # what overrides it relies on its types
    template = dict(given or {})
    pod = dict(_mapping(template.get("spec")))
    containers = [each for each in pod.get("containers") or [] if isinstance(each, Mapping)]
    first = dict(containers[0]) if containers else {"name": _CONTAINER}
    image = own.image or spec.image or first.get("image") or context.default_image
    if image:
        first["image"] = image
    elif context.runs_images:
        raise UserError("spec.image is missing; name the image that holds the training script, or give a template.")
    _override(first, spec, own, place)
    if not context.runs_images and not first.get("command"):
        raise UserError(f"{place}.command is missing; add it.")
    gpu_fraction = _set_resources(first, own, given is not None, context, place)
    pod["containers"] = [first, *containers[1:]]
    if given is None or spec.grace is not None or "terminationGracePeriodSeconds" not in pod:
        pod["terminationGracePeriodSeconds"] = math.ceil(_grace_seconds(spec))
    group = parse_template(reader, type_, place, 1, "", {**template, "spec": pod})
    fraction = gpu_fraction or parse_gpu_fraction(group.annotations)
    return group, fraction


def _override(
    container: dict[str, Any], spec: TrainingJobSpec, own: TrainingJobSpec | ParameterServers, place: str
) -> None:
    if own.command is not None:
        container["command"] = _command(own.command, f"{place}.command")
        container.pop("args", None)
    if spec.working_dir:
        container["workingDir"] = spec.working_dir
    env = _variables(spec.env, "spec.env")
    if own is not spec:
        env |= _variables(own.env, f"{place}.env")
    if env:
        kept = [each for each in container.get("env") or [] if _mapping(each).get("name") not in env]
        container["env"] = [*kept, *({"name": name, "value": value} for name, value in env.items())]


def _command(value: str | list[Any], place: str) -> list[str]:
    """A list of words; a line of text is split as a shell would."""
    if isinstance(value, str):
        try:
            words: list[Any] = shlex.split(value)
        except ValueError:
            raise expectation_error(place, "a command whose quotes are closed", value) from None
    else:
        words = [_as_text(word) for word in value]
    if not words:
        raise expectation_error(place, "a list that is not empty", words)
    return decode_fields(words, list[str], place)


def _variables(value: dict[str, Any] | list[Any] | None, place: str) -> dict[str, str]:
    """A mapping, or Kubernetes' list of names and values."""
    if isinstance(value, list):
        pairs = [(each.get("name"), each.get("value", "")) for each in value if isinstance(each, dict)]
        if len(pairs) != len(value) or not all(isinstance(name, str) for name, _ in pairs):
            raise expectation_error(place, "variables such as {LR: 0.1}, or a list of {name: LR, value: '0.1'}", value)
        value = {str(name): each for name, each in pairs}
    texts = {name: _as_text(each) for name, each in (value or {}).items()}
    return decode_fields(texts, dict[str, str], place)


def _as_text(value: object) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


def _set_resources(
    container: dict[str, Any],
    own: TrainingJobSpec | ParameterServers,
    has_template: bool,
    context: ParseContext,
    place: str,
) -> GpuFraction | None:
    """Write what one replica needs: requests, memory also as limit, devices as limits or as a fraction of one."""
    if has_template and own.resources is None:
        return None
    needs = own.resources or ReplicaNeeds()
    cpus = parse_thousandths(needs.cpu, f"{place}.resources.cpu")
    memory = parse_bytes(needs.memory, f"{place}.resources.memory")
    devices = parse_thousandths(needs.gpu, f"{place}.resources.gpu")
    resources = dict(_mapping(container.get("resources")))
    requests, limits = dict(_mapping(resources.get("requests"))), dict(_mapping(resources.get("limits")))
    requests["cpu"] = f"{cpus}m"
    if memory:
        requests["memory"] = limits["memory"] = str(memory)
    gpu_fraction = None
    if devices % MILLI:
        if devices > MILLI:
            raise UserError(
                f"{place}.resources.gpu is {devices / MILLI:g}; ask for whole devices, or for a part of one such as "
                "0.5."
            )
        gpu_fraction = GpuFraction(devices, MILLI, 0)
    elif devices:
        limits[context.gpu_resource] = devices // MILLI
    container["resources"] = {**resources, "requests": requests, **({"limits": limits} if limits else {})}
    return gpu_fraction


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _scale_patch(job: ParsedJob, fields: Mapping[str, Any], low: int, high: int) -> dict[str, Any]:
    asked = min(max(job.spec.request - len(job.leading), low), high)
    return {"spec": {"workers": {"min": low, "max": high, "request": asked}}}


KIND = register(
    Kind(
        resource=TRAINING_JOBS,
        summary="any framework, in Sterna's own short form",
        parse=_parse,
        counts_absent_cpus=True,
        invalid_reason="Invalid",
        permissions=(
            Permission((*READ, "delete"), "jobs, and their end when their time to live is over"),
            Permission(("patch",), "phase, progress, conditions, and what must be remembered", "status"),
        ),
        environment=gang_environment,
        scale_patch=_scale_patch,
    )
)
