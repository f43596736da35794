"""MPIJob `kubeflow.org/v2beta1`, and the merge patches by which Sterna steers Kubeflow's MPI operator.

The MPI operator creates the pods; Sterna suspends and resumes the job, sets the number of workers, and binds them.
It manages only jobs whose workers name Sterna as their scheduler, because another scheduler binds all others. Bounds
come from Voda's variables in the launcher's environment, which count processes, or from annotations, which count
workers. Manifests of version v1 are converted by `mpi_v1`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from sterna.errors import UserError
from sterna.kinds.context import ParseContext
from sterna.kinds.environment.mpi import mpi_environment, mpi_files, with_local_paths
from sterna.kinds.kind import READ, Kind, Permission
from sterna.kinds.labels import SCHEDULER
from sterna.kinds.objects import JobObject
from sterna.kinds.parsed_job import ParsedJob, PodOwnership
from sterna.kinds.parsing.annotations import MOST_WORKERS, JobAnnotations, parse_annotations
from sterna.kinds.parsing.fields import FieldReader, decode_fields
from sterna.kinds.parsing.job_builder import Bounds, JobParts, build_job, make_bounds
from sterna.kinds.parsing.kubeflow import bounds_in_annotations
from sterna.kinds.parsing.pod_template import ReplicaGroup, expand, parse_groups, require_command
from sterna.kinds.parsing.run_policy import (
    RunPolicy,
    RunPolicyFields,
    SpecFields,
    is_managed_by_others,
    parse_run_policy,
)
from sterna.kinds.registry import register
from sterna.kinds.resource import Resource
from sterna.model.job import ProgressSpec, Resizing, RestartPolicy

MPI_JOBS = Resource("kubeflow.org", "v2beta1", "mpijobs", "MPIJob")
ACCELERATOR = "vodascheduler/accelerator"
"""Node label by which Voda's users select a type of GPU."""
_TYPES = ("launcher", "worker")
_PROCESSES = ("NUM_PROC", "NP")
_FEWEST = ("MIN_NUM_PROC", "MIN_NP")
_MOST = ("MAX_NUM_PROC", "MAX_NP")
_METRICS_FOLDER = re.compile(r"--metrics-dir[= ]\s*(\S+)")
_DEFAULT_BACKOFF = 6
"""Of a launcher on one machine: on a cluster it is a Job of Kubernetes, which has this default."""


class MPIJobFields(SpecFields, rename="camel"):
    ignored: ClassVar[frozenset[str]] = RunPolicyFields.ignored | {
        "slotsPerWorker",
        "sshAuthMountPath",
        "mpiImplementation",
        "launcherCreationPolicy",
        "mainContainer",
        "runLauncherAsWorker",
        "processingResourceType",
    }

    mpi_replica_specs: dict[str, msgspec.Raw] | None = None
    slots_per_worker: int | None = None


def _is_managed(job: JobObject, context: ParseContext) -> bool:
    fields = decode_fields(job.spec, MPIJobFields, "spec")
    if is_managed_by_others(fields):
        return False
    groups = parse_groups(FieldReader(context.runs_images), fields.mpi_replica_specs, _TYPES, "mpiReplicaSpecs")
    return "worker" in groups and groups["worker"].spec.scheduler_name == SCHEDULER


def _parse(job: JobObject, context: ParseContext) -> ParsedJob:
    reader = FieldReader(context.runs_images)
    fields = reader.decode(job.spec, MPIJobFields, "spec")
    annotations = parse_annotations(job.metadata.annotations)
    groups = parse_groups(reader, fields.mpi_replica_specs, _TYPES, "mpiReplicaSpecs")
    for type_, what in (("launcher", "it runs the command"), ("worker", "it is what the launcher's command runs on")):
        if type_ not in groups:
            raise UserError(f"spec.mpiReplicaSpecs.{type_.title()} is missing; {what}.")
    launcher, worker = groups["launcher"], groups["worker"]
    given = {each.name: each.value for each in launcher.main.env}
    slots = fields.slots_per_worker if context.runs_images else 1
    bounds, is_elastic = _bounds(given, annotations, worker, slots)
    parts = JobParts(
        groups=(launcher, worker),
        scaled=worker,
        bounds=bounds,
        policy=parse_run_policy(fields),
        annotations=annotations,
        default_restart=RestartPolicy.NEVER,
        resizing=Resizing.IN_PLACE if is_elastic else Resizing.RESTART,
        ownership=PodOwnership.MPI_OPERATOR,
        category=job.metadata.name,
        priority=-(_number(given, ("JOB_PRIORITY",)) or 0),  # Voda: the lower number goes first
        progress=_progress(job.metadata.name, launcher, given),
    )
    parts = _on_cluster(parts, launcher) if context.runs_images else _on_one_machine(parts, launcher, job, reader)
    parsed = build_job(job.metadata, MPI_JOBS, parts, context)
    return parsed if context.runs_images else _with_local_launcher(parsed)


def _on_cluster(parts: JobParts, launcher: ReplicaGroup) -> JobParts:
    """Suspension is how Sterna holds the job back; users suspend it by annotation."""
    groups = parts.groups if launcher.spec.scheduler_name == SCHEDULER else (parts.scaled,)
    return replace(parts, groups=groups, policy=replace(parts.policy, is_suspended=False))


def _on_one_machine(parts: JobParts, launcher: ReplicaGroup, job: JobObject, reader: FieldReader) -> JobParts:
    """Only the launcher runs; it starts what runs on the workers."""
    require_command(launcher)
    if parts.scaled.main.command:
        reader.note("The commands of workers are not run: the launcher starts what runs on them.")
    limit = parts.policy.backoff_limit
    policy: RunPolicy = replace(parts.policy, backoff_limit=_DEFAULT_BACKOFF if limit is None else limit)
    name = job.metadata.name
    return replace(
        parts,
        decisive=launcher,
        policy=policy,
        resizing=Resizing.RESTART,
        fixed_env={"JOB_NAME": name},
        notices=reader.notices,
    )


def _with_local_launcher(job: ParsedJob) -> ParsedJob:
    """The launcher's command with the paths of this machine; workers without a command."""
    worker, launcher = job.spec.replicas
    launcher = replace(launcher, command=with_local_paths(launcher.command))
    env = tuple(each for each in worker.env if each[0] != "JOB_NAME")
    return msgspec.structs.replace(
        job, spec=replace(job.spec, replicas=(launcher, replace(worker, command=(), env=env)))
    )


def _bounds(
    given: Mapping[str, str], annotations: JobAnnotations, worker: ReplicaGroup, slots: int | None
) -> tuple[Bounds, bool]:
    """Bounds of workers, and whether the job is elastic."""
    if annotations.minimum is not None or annotations.maximum is not None:
        return make_bounds(worker.replicas, annotations.minimum, annotations.maximum), True
    each = max(1, slots or 1)
    asked, fewest, most = (_number(given, names) for names in (_PROCESSES, _FEWEST, _MOST))
    if not (asked or fewest or most):
        return make_bounds(worker.replicas, None, None), False
    low = _workers(fewest or min(asked or 1, most or asked or 1), each)
    high = max(1, most // each) if most else _workers(max(asked or 1, fewest or 1), each)
    wanted = _workers(asked or fewest or 1, each)
    if high > MOST_WORKERS or low > MOST_WORKERS:
        raise UserError(f"The launcher's variables ask for {max(low, high)} workers; ask for at most {MOST_WORKERS:,}.")
    if low > high:
        raise UserError(f"The launcher's MIN_NP {fewest or asked} is more than its MAX_NP {most}; make it smaller.")
    if not low <= wanted <= high:
        raise UserError(f"The launcher's NP {asked} is not between its MIN_NP and MAX_NP; write a number in between.")
    return Bounds(low, high, wanted), True


def _workers(processes: int, slots: int) -> int:
    return max(1, -(-processes // slots))


def _number(given: Mapping[str, str], names: Sequence[str]) -> int | None:
    """The first of these variables that is set, as a whole number."""
    for name in names:
        text = given.get(name, "").strip()
        if not text:
            continue
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise UserError(f"The launcher's {name} is '{text[:40]}'; write a whole number of at least 0.")
        return int(text)
    return None


def _progress(name: str, launcher: ReplicaGroup, given: Mapping[str, str]) -> ProgressSpec:
    """Voda's scripts write one row per epoch into `<metrics-dir>/<job>.csv`."""
    words = " ".join([*launcher.main.command, *launcher.main.args])
    folder = _METRICS_FOLDER.search(expand(words, given))
    return ProgressSpec({"csv": f"{folder[1]}/{name}.csv"} if folder else {}, total=_number(given, ("EPOCHS",)) or 0)


def mpi_scale(workers: int, version: str = "") -> dict[str, Any]:
    """A merge patch of the number of workers. `version`: fail if the object has another resource version."""
    return _patch({"mpiReplicaSpecs": {"Worker": {"replicas": workers}}}, version)


def mpi_suspend(is_suspended: bool, version: str = "") -> dict[str, Any]:
    """A merge patch that stops the pods and keeps the job, or resumes it."""
    return _patch({"runPolicy": {"suspend": is_suspended}}, version)


def mpi_start(workers: int, version: str = "") -> dict[str, Any]:
    """A merge patch that resumes the job with this number of workers."""
    replicas = {"mpiReplicaSpecs": {"Worker": {"replicas": workers}}}
    return _patch({**replicas, "runPolicy": {"suspend": False}}, version)


def _patch(spec: dict[str, Any], version: str) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version}, "spec": spec} if version else {"spec": spec}


def accelerator_in(job: JobObject) -> str:
    """Voda's type of GPU, from the workers' node selector; empty if there is none."""
    fields = decode_fields(job.spec, MPIJobFields, "spec")
    groups = parse_groups(FieldReader(False), fields.mpi_replica_specs, _TYPES, "mpiReplicaSpecs")
    return groups["worker"].spec.node_selector.get(ACCELERATOR, "") if "worker" in groups else ""


KIND = register(
    Kind(
        resource=MPI_JOBS,
        summary="Horovod and MPI, with pods of Kubeflow's MPI operator; elastic by Voda's `MIN_NP` and `MAX_NP`",
        other_versions=("kubeflow.org/v1", "kubeflow.org/v1alpha2"),
        parse=_parse,
        ownership=PodOwnership.MPI_OPERATOR,
        install_hint="install Kubeflow's MPI operator",
        is_managed=_is_managed,
        is_managed_if_invalid=False,
        permissions=(
            Permission(READ, "jobs that the MPI operator carries out"),
            Permission(("patch",), "they are suspended, resumed and scaled, and things are remembered"),
        ),
        environment=mpi_environment,
        attempt_files=mpi_files,
        scale_patch=bounds_in_annotations,
    )
)
