"""TFJob, MPIJob and PyTorchJob as their users have them: Kubeflow's, with E-DRAGON's bounds and Voda's variables.

Bounds: `min-instances`/`max-instances` of a TFJob, `elasticPolicy` of a PyTorchJob, `MIN_NP`/`MAX_NP` in the
environment of an MPIJob's launcher; a job that has none keeps the number of workers that it asks for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from sterna.errors import did_you_mean
from sterna.manifests.fields import Fields, Metadata, expected, note, sentence
from sterna.manifests.kubernetes import PodTemplate, known_restart, replica_of, restart_of
from sterna.manifests.mpi_paths import with_local_paths
from sterna.model.job import JobSpec, ProgressSpec, ReplicaSpec, Resizing, RestartPolicy

_METRICS_FOLDER = re.compile(r"--metrics-dir[= ]\s*(\S+)")
Count = Annotated[int, Field(ge=0, le=100_000)]
Some = Annotated[int, Field(ge=1, le=100_000)]


class ReplicaGroup(Fields):
    """Replicas of one type."""

    replicas: Count = 1
    restart_policy: str = ""
    template: PodTemplate

    @field_validator("restart_policy")
    @classmethod
    def _known(cls, value: str) -> str:
        return known_restart(value)


class RunPolicy(Fields):
    """What Kubeflow's jobs share."""

    meaningless = frozenset({"schedulingPolicy", "managedBy", "suspend"})

    clean_pod_policy: Literal["All", "Running", "None"] = "Running"
    backoff_limit: Count | None = None
    ttl_seconds_after_finished: Annotated[float, Field(ge=0)] | None = None
    active_deadline_seconds: Annotated[float, Field(gt=0)] | None = None


class JobSpecFields(RunPolicy):
    """The specification of any of the three: older versions have the run policy's fields at this level."""

    types: ClassVar[tuple[str, ...]] = ()
    """Replica types in the order of their start; their case does not matter in a manifest."""

    run_policy: RunPolicy | None = None

    @property
    def policy(self) -> RunPolicy:
        return self.run_policy or self


def _groups_of(types: Sequence[str]) -> BeforeValidator:
    """Groups by type in small letters, as many have written them."""

    def lowered(value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        for key in value:
            if str(key).lower() not in types:
                raise expected(
                    f"replica types, not '{key}'; {did_you_mean(str(key), (each.title() for each in types))}"
                )
        return dict(value)

    return BeforeValidator(lowered)


def _by_type(groups: Mapping[str, ReplicaGroup]) -> dict[str, ReplicaGroup]:
    return {name.lower(): group for name, group in groups.items()}


class KubeflowJob(Fields):
    """What is the same in all three manifests."""

    meaningless = frozenset({"status"})
    container: ClassVar[str] = ""
    """The name that the container to be run must have; empty: the first is run."""
    default_restart: ClassVar[RestartPolicy] = RestartPolicy.NEVER
    default_backoff: ClassVar[int | None] = None
    """How often a job that does not say is tried again: as often as it takes, as Kubeflow's operator does."""

    metadata: Metadata

    def assembled(self, policy: RunPolicy, groups: Mapping[str, ReplicaGroup], scaled: str, **more: Any) -> JobSpec:
        """The job of these groups, whose type `scaled` says how failures and stops are met."""
        group = groups[scaled]
        policies = {each: restart_of(found.restart_policy, self.default_restart) for each, found in groups.items()}
        return JobSpec(
            name=self.metadata.name,
            restart=policies[scaled],
            restarts=tuple((each, found) for each, found in policies.items() if found is not policies[scaled]),
            backoff_limit=self.default_backoff if policy.backoff_limit is None else policy.backoff_limit,
            grace_seconds=group.template.spec.termination_grace_period_seconds,
            ttl_seconds=policy.ttl_seconds_after_finished,
            deadline_seconds=policy.active_deadline_seconds,
            **more,
        )

    def scaled(
        self, spec: JobSpecFields, groups: Mapping[str, ReplicaGroup], scaled: str, low: int, high: int, **more: Any
    ) -> JobSpec:
        """The job whose type `scaled` may have from `low` to `high` replicas; the others have what they ask for."""
        asked = min(max(groups[scaled].replicas, low), high)
        replicas = tuple(
            self.replica(each, groups[each], asked if each == scaled else groups[each].replicas)
            for each in spec.types
            if each in groups
        )
        return self.assembled(
            spec.policy, groups, scaled, replicas=replicas, minimum=low, maximum=high, request=asked, **more
        )

    def replica(
        self, type_: str, group: ReplicaGroup, count: int, fixed: Mapping[str, str] | None = None
    ) -> ReplicaSpec:
        return replica_of(type_, count, group.template, self.metadata.name, self.container, fixed)


def _must_run(groups: Mapping[str, ReplicaGroup], types: Sequence[str], field: str, container: str = "") -> None:
    """Refuse a group whose container says nothing to run, or that lacks the container's name."""
    for written, group in groups.items():
        if written.lower() not in types:
            continue
        containers = group.template.spec.containers
        at = (field, written, "template", "spec", "containers")
        if container and container not in [each.name for each in containers]:
            raise sentence(f"{written} has no container named '{container}'; name the one to be run so.", *at)
        if not group.template.container(container).command:
            raise sentence(f"{written} has no command; images are not run here, so write what to run.", *at)


class TFJobSpec(JobSpecFields):
    """TFJob: parameter servers and workers."""

    meaningless = frozenset({"enableDynamicWorker", "node-preference", "schedulingPolicy", "suspend"})
    types = ("ps", "chief", "master", "worker", "evaluator")

    most: Annotated[Some | None, Field(alias="max-instances")] = None
    fewest: Annotated[Some | None, Field(alias="min-instances")] = None
    success_policy: Literal["", "AllWorkers"] = ""
    groups: Annotated[dict[str, ReplicaGroup], _groups_of(types), Field(alias="tfReplicaSpecs", min_length=1)]

    @model_validator(mode="after")
    def _can_run(self) -> TFJobSpec:
        groups = _by_type(self.groups)
        _must_run(self.groups, self.types, "tfReplicaSpecs", "tensorflow")
        if (self.most is None) != (self.fewest is None):
            lacking = "max-instances" if self.most is None else "min-instances"
            raise sentence(f"{lacking} is missing; give both bounds or neither.")
        if self.most is not None and self.fewest is not None:
            if self.fewest > self.most:
                what = f"min-instances {self.fewest} is more than max-instances {self.most}; make it at most as large."
                raise sentence(what, "min-instances")
            if "ps" not in groups or "worker" not in groups:
                lacking = "Worker" if "ps" in groups else "PS"
                raise sentence(
                    f"{lacking} is missing; a TFJob with instances has both PS and Worker.", "tfReplicaSpecs"
                )
        for lone in ("chief", "master", "evaluator"):
            if lone in groups and groups[lone].replicas > 1:
                raise sentence(f"there can be only one {lone}; write replicas: 1.", "tfReplicaSpecs")
        return self


class TFJob(KubeflowJob):
    """The manifest."""

    container = "tensorflow"

    api_version: Literal["kubeflow.org/v1", "kubeflow.org/v1beta2"]
    kind: Literal["TFJob"]
    spec: TFJobSpec

    def job(self) -> JobSpec:
        spec, groups = self.spec, _by_type(self.spec.groups)
        scaled = next(each for each in ("worker", "chief", "master", "ps", "evaluator") if each in groups)
        asked = max(1, groups[scaled].replicas)
        low, high = spec.fewest or asked, spec.most or asked
        return self.scaled(
            spec, groups, scaled, low, high, kind="TFJob", is_done_by_all=spec.success_policy == "AllWorkers"
        )


class ElasticPolicy(Fields):
    """Bounds of an elastic PyTorchJob."""

    meaningless = frozenset(
        {
            "rdzvBackend",
            "rdzvHost",
            "rdzvPort",
            "rdzvId",
            "rdzvConf",
            "standalone",
            "nProcPerNode",
            "metrics",
            "maxRestarts",
        }
    )

    min_replicas: Some = 1
    max_replicas: Some | None = None

    @model_validator(mode="after")
    def _in_order(self) -> ElasticPolicy:
        if self.max_replicas is not None and self.min_replicas > self.max_replicas:
            low, high = self.min_replicas, self.max_replicas
            raise sentence(
                f"minReplicas {low} is more than maxReplicas {high}; make it at most as large.", "minReplicas"
            )
        return self


class PyTorchJobSpec(JobSpecFields):
    """PyTorchJob: a master and workers, or elastic workers alone."""

    meaningless = frozenset({"nprocPerNode", "schedulingPolicy", "suspend"})
    types = ("master", "worker")

    elastic_policy: ElasticPolicy | None = None
    groups: Annotated[dict[str, ReplicaGroup], _groups_of(types), Field(alias="pytorchReplicaSpecs", min_length=1)]

    @model_validator(mode="after")
    def _can_run(self) -> PyTorchJobSpec:
        groups = _by_type(self.groups)
        _must_run(self.groups, self.types, "pytorchReplicaSpecs", "pytorch")
        if "master" in groups and groups["master"].replicas > 1:
            raise sentence("there can be only one Master; write replicas: 1.", "pytorchReplicaSpecs")
        if self.elastic_policy and "worker" not in groups:
            raise sentence("Worker is missing; an elastic PyTorchJob scales its workers.", "pytorchReplicaSpecs")
        return self


class PyTorchJob(KubeflowJob):
    """The manifest."""

    container = "pytorch"
    default_restart = RestartPolicy.ON_FAILURE

    api_version: Literal["kubeflow.org/v1", "kubeflow.org/v1beta2"]
    kind: Literal["PyTorchJob"]
    spec: PyTorchJobSpec

    def job(self) -> JobSpec:
        spec, groups = self.spec, _by_type(self.spec.groups)
        scaled = "worker" if "worker" in groups else "master"
        asked = max(1, groups[scaled].replicas)
        elastic = spec.elastic_policy
        low = elastic.min_replicas if elastic else asked
        high = (elastic.max_replicas or max(asked, low)) if elastic else asked
        resizing = Resizing.TORCHRUN if elastic else Resizing.RESTART
        return self.scaled(spec, groups, scaled, low, high, kind="PyTorchJob", resizing=resizing)


_BOUND_NAMES = {
    "request": ("NUM_PROC", "NP"),
    "minimum": ("MIN_NUM_PROC", "MIN_NP"),
    "maximum": ("MAX_NUM_PROC", "MAX_NP"),
    "epochs": ("EPOCHS",),
    "priority": ("JOB_PRIORITY",),
}


class MPIJobSpec(JobSpecFields):
    """MPIJob: a launcher that runs the command, and workers that it reaches."""

    meaningless = frozenset(
        {"slotsPerWorker", "sshAuthMountPath", "mpiImplementation", "launcherCreationPolicy", "mainContainer"}
        | {"runLauncherAsWorker", "schedulingPolicy", "suspend", "processingResourceType"}
    )
    types = ("launcher", "worker")

    groups: Annotated[dict[str, ReplicaGroup], _groups_of(types), Field(alias="mpiReplicaSpecs", min_length=1)]

    @model_validator(mode="after")
    def _can_run(self, info: ValidationInfo) -> MPIJobSpec:
        groups = _by_type(self.groups)
        if "launcher" not in groups:
            raise sentence("Launcher is missing; it runs the command.", "mpiReplicaSpecs")
        _must_run(self.groups, ("launcher",), "mpiReplicaSpecs")
        numbers = self.numbers()
        low, high = numbers["minimum"], numbers["maximum"]
        if low > high:
            raise sentence(f"MIN_NP {low} is more than MAX_NP {high}; make it at most as large.", "mpiReplicaSpecs")
        if not low <= numbers["request"] <= high:
            what = f"NP {numbers['request']} is not between MIN_NP {low} and MAX_NP {high}."
            raise sentence(what, "mpiReplicaSpecs")
        if "worker" in groups and groups["worker"].template.container().command:
            note(info, "The commands of workers are not run: the launcher starts what runs on them.")
        return self

    def numbers(self) -> dict[str, int]:
        """What the launcher's environment says in numbers; bounds that it does not say follow from the others."""
        groups = _by_type(self.groups)
        given = {each.name: each.value for each in groups["launcher"].template.container().env}
        found = {key: _number(given, names) for key, names in _BOUND_NAMES.items()}
        replicas = max(1, groups["worker"].replicas) if "worker" in groups else 1
        asked = found["request"] or found["minimum"]
        is_elastic = bool(asked or found["maximum"])
        low = (found["minimum"] or min(asked or 1, found["maximum"] or asked or 1)) if is_elastic else replicas
        return {
            "minimum": low,
            "maximum": found["maximum"] or (max(asked or low, low) if is_elastic else replicas),
            "request": asked or low,
            "epochs": found["epochs"] or 0,
            "priority": -(found["priority"] or 0),  # Voda: the lower number goes first
        }


def _number(given: Mapping[str, str], names: Sequence[str]) -> int | None:
    """The first of these variables that is set, as a whole number; none: None."""
    for name in names:
        text = given.get(name, "").strip()
        if not text:
            continue
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise sentence(f"the launcher's {name} is '{text}'; write a whole number of at least 0.", "mpiReplicaSpecs")
        return int(text)
    return None


class MPIJob(KubeflowJob):
    """The manifest."""

    default_backoff = 6  # its launcher is a Job of Kubernetes, which has this default

    api_version: Literal["kubeflow.org/v1", "kubeflow.org/v1alpha2", "kubeflow.org/v2beta1"]
    kind: Literal["MPIJob"]
    spec: MPIJobSpec

    def job(self) -> JobSpec:
        spec, groups, name = self.spec, _by_type(self.spec.groups), self.metadata.name
        numbers = spec.numbers()
        launcher = self.replica("launcher", groups["launcher"], 1, {"JOB_NAME": name})
        launcher = replace(launcher, command=with_local_paths(launcher.command))
        replicas = [launcher]
        if "worker" in groups:
            replicas.append(self.replica("worker", groups["worker"], numbers["request"]))
        folder = _METRICS_FOLDER.search(" ".join(launcher.command))
        progress = ProgressSpec(csv=f"{folder[1]}/{name}.csv" if folder else "", total=numbers["epochs"])
        return self.assembled(
            spec.policy,
            groups,
            "launcher",
            kind="MPIJob",
            replicas=tuple(replicas),
            minimum=numbers["minimum"],
            maximum=numbers["maximum"],
            request=numbers["request"],
            priority=numbers["priority"],
            category=name,
            progress=progress,
        )

    @property
    def accelerator(self) -> str:
        """Voda's GPU type, from the workers' node selector."""
        worker = _by_type(self.spec.groups).get("worker")
        return worker.template.spec.node_selector.get("vodascheduler/accelerator", "") if worker else ""
