"""Pod templates: the fields that decide something as typed values, and all others carried along.

`ReplicaGroup` holds both. A template must have what pods, or processes on one machine, need to be started from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import msgspec

from sterna.errors import UserError, did_you_mean
from sterna.kinds.objects import Container, PodSpec, Toleration
from sterna.kinds.parsed_job import NodeNeeds
from sterna.kinds.parsing.fields import FieldReader, Fields, expectation_error, join_path
from sterna.kinds.parsing.gpu_fraction import parse_gpu_fraction
from sterna.kinds.parsing.resource_requests import GPUS, Demand, demand_of
from sterna.model.job import ReplicaSpec, RestartPolicy

DEFAULT_GRACE_SECONDS = 30
RESTART_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
_MOST_REPLICAS = 100_000
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")


class FieldReference(Fields, rename="camel"):
    ignored: ClassVar[frozenset[str]] = frozenset({"apiVersion"})

    field_path: str = ""


class ValueSource(Fields, rename="camel"):
    ignored: ClassVar[frozenset[str]] = frozenset({"secretKeyRef", "configMapKeyRef", "resourceFieldRef", "fileKeyRef"})

    field_ref: FieldReference | None = None


class EnvVar(Fields, rename="camel"):
    name: str = ""
    value: str = ""
    value_from: ValueSource | None = None

    def local_value(self, job: str) -> str:
        """Its value on one machine, where a pod's name and addresses are the only references that can be resolved."""
        path = self.value_from.field_ref.field_path if self.value_from and self.value_from.field_ref else ""
        known = {"metadata.name": job, "status.hostIP": "127.0.0.1", "status.podIP": "127.0.0.1"}
        return known.get(path, self.value)


class ContainerPort(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    container_port: int = 0


class TemplateContainer(Container, rename="camel"):
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"ports", "volumeMounts", "volumeDevices", "imagePullPolicy", "livenessProbe", "readinessProbe", "startupProbe"}
        | {"lifecycle", "securityContext", "stdin", "stdinOnce", "tty", "terminationMessagePath", "resizePolicy"}
        | {"terminationMessagePolicy", "envFrom", "restartPolicy", "restartPolicyRules"}
    )

    image: str | None = None
    command: list[str] = msgspec.field(default_factory=list)
    args: list[str] = msgspec.field(default_factory=list)
    env: list[EnvVar] = msgspec.field(default_factory=list)
    ports: list[ContainerPort] = msgspec.field(default_factory=list)
    working_dir: str = ""


class TemplateSpec(PodSpec, rename="camel"):
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"volumes", "initContainers", "ephemeralContainers", "affinity", "tolerations", "nodeName"}
        | {"serviceAccount", "serviceAccountName", "automountServiceAccountToken", "imagePullSecrets", "hostNetwork"}
        | {"hostPID", "hostIPC", "hostUsers", "hostname", "subdomain", "dnsPolicy", "dnsConfig", "schedulerName"}
        | {"preemptionPolicy", "runtimeClassName", "securityContext", "overhead", "setHostnameAsFQDN", "resources"}
        | {"shareProcessNamespace", "topologySpreadConstraints", "enableServiceLinks", "hostAliases", "os"}
        | {"readinessGates", "schedulingGates", "resourceClaims"}
    )

    containers: list[TemplateContainer] = msgspec.field(default_factory=list)  # type: ignore[assignment]  # only read
    restart_policy: str = ""
    active_deadline_seconds: float | None = None


class TemplateMeta(Fields, gc=False):
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"name", "namespace", "creationTimestamp", "generateName", "finalizers"}
    )

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class Template(Fields):
    metadata: TemplateMeta = msgspec.field(default_factory=TemplateMeta)
    spec: TemplateSpec = msgspec.field(default_factory=TemplateSpec)


class GroupFields(Fields, rename="camel"):
    """Replicas of one type, as Kubeflow's kinds describe them."""

    template: msgspec.Raw = msgspec.Raw(b"{}")
    replicas: int | None = None
    restart_policy: str | None = None


@dataclass(frozen=True)
class ReplicaGroup:
    """Replicas of one type, parsed and checked."""

    type: str
    place: str
    """Path in the object, for error sentences: `spec.tfReplicaSpecs.Worker`."""
    replicas: int
    restart: str
    """As written; empty: absent."""
    plain: Mapping[str, Any]
    """The whole template."""
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


def parse_groups(
    reader: FieldReader, specs: Mapping[str, msgspec.Raw] | None, types: Sequence[str], field: str, container: str = ""
) -> dict[str, ReplicaGroup]:
    """Groups by lower-case type, in the order of `types`; a type with no replicas is left out."""
    found: dict[str, ReplicaGroup] = {}
    for written, data in (specs or {}).items():
        type_, place = written.lower(), f"spec.{field}.{written}"
        if type_ not in types:
            raise UserError(f"spec.{field} has no replica type '{written[:40]}'; {did_you_mean(written, types)}")
        if type_ in found:
            raise UserError(f"{place} comes twice, in small and in capital letters; leave one of them out.")
        found[type_] = _parse_group(reader, type_, place, reader.decode(data, GroupFields, place), container)
    kept = {type_: found[type_] for type_ in types if type_ in found and found[type_].replicas}
    if not kept:
        raise UserError(f"spec.{field} asks for no replicas at all; add {types[-1].title()} with at least one.")
    return kept


def _parse_group(reader: FieldReader, type_: str, place: str, fields: GroupFields, container: str) -> ReplicaGroup:
    replicas = 1 if fields.replicas is None else fields.replicas
    if not 0 <= replicas <= _MOST_REPLICAS:
        raise UserError(f"{place}.replicas is {replicas}; write a number from 1 to {_MOST_REPLICAS:,}.")
    check_restart_policy(fields.restart_policy or "", place)
    return parse_template(reader, type_, place, replicas, fields.restart_policy or "", fields.template, container)


def check_restart_policy(written: str, place: str) -> None:
    if written and written not in RESTART_POLICIES:
        raise UserError(f"{place}.restartPolicy is '{written[:40]}'; write one of {', '.join(RESTART_POLICIES)}.")


def parse_template(
    reader: FieldReader,
    type_: str,
    place: str,
    replicas: int,
    restart: str,
    data: msgspec.Raw | Mapping[str, Any],
    container: str = "",
    is_pod: bool = False,
) -> ReplicaGroup:
    """A group whose template can be started. `container`: required name of the one that trains; empty: the first.
    `is_pod`: the template is the object itself."""
    inside = "" if is_pod else f"{place}.template"
    plain = reader.decode(data, dict[str, Any], inside)
    template = reader.decode(plain, Template, inside)
    containers = template.spec.containers
    if not containers:
        raise UserError(f"{join_path(inside, 'spec')} has no containers; add one that says what to run.")
    _check_images(reader, containers, inside or place)
    main = next((each for each in containers if not container or each.name == container), None)
    if main is None:
        raise UserError(f"{place} has no container named '{container}'; name the one that trains so.")
    demand = _demand(reader, template, main, inside or place)
    return ReplicaGroup(type_, place, replicas, restart, plain, template, main, demand)


def _check_images(reader: FieldReader, containers: Iterable[TemplateContainer], place: str) -> None:
    for index, each in enumerate(containers):
        if reader.runs_images and not each.image:
            raise UserError(f"{place}: the container '{each.name}' has no image; name the one to run.")
        if each.image == "":
            raise expectation_error(
                f"{place}: containers[{index}].image", "the name of an image, or no image at all", ""
            )
        if each.image is not None:
            reader.note(f"The image {each.image} is not used: the command runs on this machine as it is.")


def _demand(reader: FieldReader, template: Template, main: TemplateContainer, place: str) -> Demand:
    """Requests of one pod; on one machine, where only the main container runs, those of that container."""
    try:
        if reader.runs_images:
            return demand_of(template.spec)
        demand = demand_of(PodSpec([main]))
    except ValueError as error:
        raise UserError(f"{place}: {error}; write a quantity such as 2, 500m or 8Gi.") from None
    for name in {**main.resources.requests, **main.resources.limits}:
        if name not in ("cpu", "memory", *GPUS):
            reader.note(f"The resource '{name}' has no meaning here and is left out.")
    fraction = parse_gpu_fraction(template.metadata.annotations)
    return demand if fraction is None else demand._replace(devices=fraction.request)


def require_command(group: ReplicaGroup) -> None:
    """Refuse a group that could not be started on one machine."""
    if not group.main.command:
        raise UserError(f"{group.place} has no command; images are not run here, so write what to run.")


def parse_restart_policy(written: str, default: RestartPolicy) -> RestartPolicy:
    """`Always` would run a completed job again, so it means `OnFailure`."""
    return default if not written else RestartPolicy.ON_FAILURE if written == "Always" else RestartPolicy(written)


def pod_restart_policy(policy: RestartPolicy) -> str:
    """Restart policy for the kubelet: Sterna judges exit codes itself, so the container stays terminated."""
    return "OnFailure" if policy is RestartPolicy.ON_FAILURE else "Never"


def pod_template(group: ReplicaGroup, default: RestartPolicy, needs: NodeNeeds) -> dict[str, Any]:
    """The template with its group's restart policy, and tolerating what the workers tolerate."""
    restart = pod_restart_policy(parse_restart_policy(group.restart, default))
    spec = {**_mapping(group.plain.get("spec")), "restartPolicy": restart}
    lacking = [each for each in needs.tolerations if each not in group.spec.tolerations]
    if lacking:
        spec["tolerations"] = [*_list(spec.get("tolerations")), *map(_plain_toleration, lacking)]
    return {**group.plain, "spec": spec}


def replica_spec(group: ReplicaGroup, count: int, devices: int) -> ReplicaSpec:
    """Command and needs of one replica; a command that only the image knows stays empty."""
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


def expand_variables(spec: ReplicaSpec, group: ReplicaGroup, job: str, fixed: Mapping[str, str]) -> ReplicaSpec:
    """Resolve `$(NAME)` and references as a kubelet would; `fixed` variables go before those of the manifest."""
    env = dict(fixed)
    for each in group.main.env:
        if each.name and each.name not in fixed:
            env[each.name] = expand(each.local_value(job), env)
    words = spec.command if group.main.command else ()
    return replace(spec, command=tuple(expand(word, env) for word in words), env=tuple(env.items()))


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value and `$$` by one dollar; unknown names stay."""
    return _REFERENCE.sub(lambda match: "$" if match[0] == "$$" else variables.get(match[1], match[0]), text)


def port_in(template: Mapping[str, Any], name: str, default: int) -> int:
    """The number of the port of that name in any container."""
    for container in _list(_mapping(template.get("spec")).get("containers")):
        for port in _list(_mapping(container).get("ports")):
            number = _mapping(port).get("containerPort")
            if _mapping(port).get("name") == name and isinstance(number, int):
                return number
    return default


def node_needs(spec: PodSpec) -> NodeNeeds:
    """Constraints of a pod on nodes."""
    required: Any = spec.affinity
    for key in ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        required = required.get(key) if isinstance(required, dict) else None
    text = msgspec.json.encode(required, order="deterministic") if isinstance(required, dict) else b""
    return NodeNeeds(tuple(sorted(spec.node_selector.items())), tuple(spec.tolerations), text)


def common_needs(scaled: ReplicaGroup, others: Iterable[ReplicaGroup]) -> NodeNeeds:
    """Nodes that take every replica of a job: decisions know one set of nodes for all of them."""
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


def _plain_toleration(toleration: Toleration) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(toleration)
    return {key: value for key, value in plain.items() if value not in ("", None)}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
