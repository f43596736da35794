"""Pod templates as users wrote them: what is read of them, and what is carried along.

`ReplicaGroup` holds both: the template as plain values, every field that anybody ever put there, and the few that
decide something as typed ones. What a template must have, so that pods can be made of it, is checked here (DRAGON-2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from sterna.errors import UserError, did_you_mean
from sterna.kinds.objects import Container, PodSpec, Toleration
from sterna.kinds.parsed_job import NodeNeeds
from sterna.kinds.parsing.decoding import decoded
from sterna.kinds.parsing.resource_requests import Demand, demand_of
from sterna.model.job import ReplicaSpec, RestartPolicy

_RESTARTS = ("Always", "OnFailure", "Never", "ExitCode")
_MOST_REPLICAS = 100_000
DEFAULT_GRACE_SECONDS = 30


class Variable(msgspec.Struct, gc=False):
    name: str = ""
    value: str = ""


class Port(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    container_port: int = 0


class TemplateContainer(Container, rename="camel"):
    image: str = ""
    command: list[str] = msgspec.field(default_factory=list)
    args: list[str] = msgspec.field(default_factory=list)
    env: list[Variable] = msgspec.field(default_factory=list)
    ports: list[Port] = msgspec.field(default_factory=list)
    working_dir: str = ""


class TemplateSpec(PodSpec, rename="camel"):
    containers: list[TemplateContainer] = msgspec.field(default_factory=list)  # type: ignore[assignment]  # only read
    restart_policy: str = ""
    active_deadline_seconds: float | None = None


class TemplateMeta(msgspec.Struct, gc=False):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Template(msgspec.Struct):
    metadata: TemplateMeta = msgspec.field(default_factory=TemplateMeta)
    spec: TemplateSpec = msgspec.field(default_factory=TemplateSpec)


class GroupFields(msgspec.Struct, rename="camel"):
    """Replicas of one type, as Kubeflow's kinds say it."""

    template: msgspec.Raw = msgspec.Raw(b"{}")
    replicas: int | None = None
    restart_policy: str | None = None


@dataclass(frozen=True)
class ReplicaGroup:
    """Replicas of one type, read and checked."""

    type: str
    place: str
    """Where they stand in the object, for sentences: `spec.tfReplicaSpecs.Worker`."""
    replicas: int
    restart: str
    """As written; empty: not said."""
    plain: Mapping[str, Any]
    """The template as it came."""
    template: Template
    main: TemplateContainer
    """The container that trains."""
    demand: Demand

    @property
    def spec(self) -> TemplateSpec:
        return self.template.spec

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.template.metadata.annotations

    @property
    def grace_seconds(self) -> float:
        grace = self.spec.termination_grace_period_seconds
        return float(DEFAULT_GRACE_SECONDS if grace is None else max(0, grace))


def group_of(type_: str, place: str, fields: GroupFields, container: str = "") -> ReplicaGroup:
    """`container`: the name that the container that trains must have; empty: the first trains."""
    replicas = 1 if fields.replicas is None else fields.replicas
    if not 0 <= replicas <= _MOST_REPLICAS:
        raise UserError(f"{place}.replicas is {replicas}; write a number from 1 to {_MOST_REPLICAS:,}.")
    restart = fields.restart_policy or ""
    if restart and restart not in _RESTARTS:
        raise UserError(f"{place}.restartPolicy is '{restart[:40]}'; write one of {', '.join(_RESTARTS)}.")
    return checked(type_, place, replicas, restart, fields.template, container)


def groups_of(
    specs: Mapping[str, msgspec.Raw] | None, types: Sequence[str], field: str, container: str = ""
) -> dict[str, ReplicaGroup]:
    """Groups by type in small letters, in the order of `types`; a type of which there shall be none is left out."""
    found: dict[str, ReplicaGroup] = {}
    for written, data in (specs or {}).items():
        type_, place = written.lower(), f"spec.{field}.{written}"
        if type_ not in types:
            raise UserError(f"spec.{field} has no replica type '{written[:40]}'; {did_you_mean(written, types)}")
        if type_ in found:
            raise UserError(f"{place} comes twice, in small and in capital letters; leave one of them out.")
        found[type_] = group_of(type_, place, decoded(data, GroupFields, place), container)
    kept = {type_: found[type_] for type_ in types if type_ in found and found[type_].replicas}
    if not kept:
        raise UserError(f"spec.{field} asks for no replicas at all; add {types[-1].title()} with at least one.")
    return kept


def checked(
    type_: str, place: str, replicas: int, restart: str, data: msgspec.Raw | Mapping[str, Any], container: str = ""
) -> ReplicaGroup:
    """A group whose template can be made into pods."""
    inside = f"{place}.template"
    plain = decoded(data, dict[str, Any], inside)
    template = decoded(data, Template, inside)
    containers = template.spec.containers
    if not containers:
        raise UserError(f"{inside}.spec has no containers; add one that says what to run.")
    for each in containers:
        if not each.image:
            raise UserError(f"{inside}: the container '{each.name}' has no image; name the one to run.")
    main = next((each for each in containers if not container or each.name == container), None)
    if main is None:
        raise UserError(f"{place} has no container named '{container}'; name the one that trains so.")
    try:
        demand = demand_of(template.spec)
    except ValueError as error:
        raise UserError(f"{inside}: {error}; write a quantity such as 2, 500m or 8Gi.") from None
    return ReplicaGroup(type_, place, replicas, restart, plain, template, main, demand)


def restart_of(written: str, default: RestartPolicy) -> RestartPolicy:
    """`Always` would run a job again that has completed: it means after failures."""
    return default if not written else RestartPolicy.ON_FAILURE if written == "Always" else RestartPolicy(written)


def pod_restart(policy: RestartPolicy) -> str:
    """What the kubelet is told: exit codes are ours to judge, so the container stays ended."""
    return "OnFailure" if policy is RestartPolicy.ON_FAILURE else "Never"


def parsed_job_template(group: ReplicaGroup, default: RestartPolicy, needs: NodeNeeds) -> dict[str, Any]:
    """The template with what its group says: how containers restart, and that its pods may sit where workers may."""
    spec = {**_mapping(group.plain.get("spec")), "restartPolicy": pod_restart(restart_of(group.restart, default))}
    lacking = [each for each in needs.tolerations if each not in group.spec.tolerations]
    if lacking:
        spec["tolerations"] = [*_listed(spec.get("tolerations")), *map(_plain_toleration, lacking)]
    return {**group.plain, "spec": spec}


def _plain_toleration(toleration: Toleration) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(toleration)
    return {key: value for key, value in plain.items() if value not in ("", None)}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def replica_of(group: ReplicaGroup, count: int, devices: int) -> ReplicaSpec:
    """What one replica runs and needs; a command that only the image knows stays empty."""
    main = group.main
    return ReplicaSpec(
        type=group.type,
        count=count,
        command=(*main.command, *main.args),
        env=tuple((each.name, each.value) for each in main.env if each.name),
        working_dir=main.working_dir,
        devices=devices,
        cpus=group.demand.cpus,
        memory_bytes=group.demand.memory_bytes,
    )


def port_of(template: Mapping[str, Any], name: str, default: int) -> int:
    """The number of the port of that name in any container."""
    for container in _listed(_mapping(template.get("spec")).get("containers")):
        for port in _listed(_mapping(container).get("ports")):
            number = _mapping(port).get("containerPort")
            if _mapping(port).get("name") == name and isinstance(number, int):
                return number
    return default


def node_needs(spec: PodSpec) -> NodeNeeds:
    """Which nodes a pod accepts."""
    required: Any = spec.affinity
    for key in ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        required = required.get(key) if isinstance(required, dict) else None
    text = msgspec.json.encode(required, order="deterministic") if isinstance(required, dict) else b""
    return NodeNeeds(tuple(sorted(spec.node_selector.items())), tuple(spec.tolerations), text)


def shared_needs(scaled: ReplicaGroup, others: Iterable[ReplicaGroup]) -> NodeNeeds:
    """Nodes that take every replica of a job: decisions know one kind of node for all of them."""
    needs = node_needs(scaled.spec)
    selector, required = dict(needs.selector), needs.required
    for other in others:
        theirs = node_needs(other.spec)
        for key, value in theirs.selector:
            if selector.setdefault(key, value) != value:
                raise UserError(
                    f"{scaled.place} and {other.place} want nodes with another {key}; all replicas of a job sit on "
                    "nodes of one kind, so give both the same nodeSelector."
                )
        if theirs.required and required and theirs.required != required:
            raise UserError(
                f"{scaled.place} and {other.place} have different required node affinities; give both the same."
            )
        required = required or theirs.required
    return NodeNeeds(tuple(sorted(selector.items())), needs.tolerations, required)
