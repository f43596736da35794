"""MPIJob `kubeflow.org/v2beta1`: how it is read, and the patches by which its operator is told what to do.

Kubeflow's MPI operator makes the pods; we suspend and resume the job, say how many workers it has, and bind them. So
only those are ours whose workers ask for our scheduler: another one would bind the workers of all others. Bounds come
from Voda's variables in the launcher's environment, which count processes, or from annotations, which count workers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from sterna.errors import UserError
from sterna.kinds.labels import SCHEDULER
from sterna.kinds.objects import JobObject
from sterna.kinds.parsed_job import ParsedJob, PodOwnership
from sterna.kinds.parsing.annotations import MOST_WORKERS, Wishes, wishes_of
from sterna.kinds.parsing.decoding import decoded
from sterna.kinds.parsing.job_builder import Bounds, Parts, assembled, bounds_of
from sterna.kinds.parsing.pod_template import ReplicaGroup, groups_of
from sterna.kinds.parsing.run_policy import SpecFields, is_managed_by_others, run_policy_of
from sterna.kinds.resource import Resource
from sterna.manifests.kubernetes import replaced
from sterna.model.job import ProgressSpec, Resizing, RestartPolicy

TYPES = ("launcher", "worker")
PROCESSES = ("NUM_PROC", "NP")
FEWEST = ("MIN_NUM_PROC", "MIN_NP")
MOST = ("MAX_NUM_PROC", "MAX_NP")
_METRICS_FOLDER = re.compile(r"--metrics-dir[= ]\s*(\S+)")


class _Fields(SpecFields, rename="camel"):
    mpi_replica_specs: dict[str, msgspec.Raw] | None = None
    slots_per_worker: int | None = None


def is_taken(job: JobObject) -> bool:
    fields = decoded(job.spec, _Fields, "spec")
    if is_managed_by_others(fields):
        return False
    groups = groups_of(fields.mpi_replica_specs, TYPES, "mpiReplicaSpecs")
    return "worker" in groups and groups["worker"].spec.scheduler_name == SCHEDULER


def read(job: JobObject, resource: Resource) -> ParsedJob:
    fields = decoded(job.spec, _Fields, "spec")
    wishes = wishes_of(job.metadata.annotations)
    groups = groups_of(fields.mpi_replica_specs, TYPES, "mpiReplicaSpecs")
    for type_, what in (("launcher", "it runs the command"), ("worker", "it is what the launcher's command runs on")):
        if type_ not in groups:
            raise UserError(f"spec.mpiReplicaSpecs.{type_.title()} is missing; {what}.")
    launcher, worker = groups["launcher"], groups["worker"]
    given = {each.name: each.value for each in launcher.main.env}
    bounds, is_elastic = _bounds(given, wishes, worker, fields.slots_per_worker)
    policy = replace(run_policy_of(fields), is_suspended=False)  # that is how we hold it back; users annotate
    return assembled(
        job.metadata,
        resource,
        Parts(
            groups=(worker,) if launcher.spec.scheduler_name != SCHEDULER else (launcher, worker),
            scaled=worker,
            bounds=bounds,
            policy=policy,
            wishes=wishes,
            default_restart=RestartPolicy.NEVER,
            resizing=Resizing.IN_PLACE if is_elastic else Resizing.RESTART,
            ownership=PodOwnership.MPI_OPERATOR,
            category=job.metadata.name,
            priority=-(_number(given, ("JOB_PRIORITY",)) or 0),  # Voda: the lower number goes first
            progress=_progress(job.metadata.name, launcher, given),
        ),
    )


def _bounds(given: Mapping[str, str], wishes: Wishes, worker: ReplicaGroup, slots: int | None) -> tuple[Bounds, bool]:
    """Workers, and whether there may be more or fewer of them."""
    if wishes.minimum is not None or wishes.maximum is not None:
        return bounds_of(worker.replicas, wishes.minimum, wishes.maximum), True
    each = max(1, slots or 1)
    asked, fewest, most = (_number(given, names) for names in (PROCESSES, FEWEST, MOST))
    if not (asked or fewest or most):
        return bounds_of(worker.replicas, None, None), False
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
    """The first of these variables that is set, as a whole number; none: None."""
    for name in names:
        text = given.get(name, "").strip()
        if not text:
            continue
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise UserError(f"The launcher's {name} is '{text[:40]}'; write a whole number of at least 0.")
        return int(text)
    return None


def _progress(name: str, launcher: ReplicaGroup, given: Mapping[str, str]) -> ProgressSpec:
    """Voda's scripts write one row an epoch into `<metrics-dir>/<job>.csv`."""
    words = " ".join([*launcher.main.command, *launcher.main.args])
    folder = _METRICS_FOLDER.search(replaced(words, given))
    return ProgressSpec(csv=f"{folder[1]}/{name}.csv" if folder else "", total=_number(given, ("EPOCHS",)) or 0)


def mpi_scale(workers: int, version: str = "") -> dict[str, Any]:
    """A merge patch: so many workers, and nothing else (VODA-67). `version` guards it against a world that moved."""
    return _patch({"mpiReplicaSpecs": {"Worker": {"replicas": workers}}}, version)


def mpi_suspend(is_suspended: bool, version: str = "") -> dict[str, Any]:
    """A merge patch: stop and keep the job under its name (VODA-65), or let it go on."""
    return _patch({"runPolicy": {"suspend": is_suspended}}, version)


def mpi_start(workers: int, version: str = "") -> dict[str, Any]:
    """A merge patch: go on with so many workers, in one write."""
    replicas = {"mpiReplicaSpecs": {"Worker": {"replicas": workers}}}
    return _patch({**replicas, "runPolicy": {"suspend": False}}, version)


def _patch(spec: dict[str, Any], version: str) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version}, "spec": spec} if version else {"spec": spec}
