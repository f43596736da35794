"""The parts of Kubernetes' manifests that say what to run: pod templates, containers, variables, resources.

The container's command is run as it is; its image is not, and a notice says so. `$(NAME)` is replaced as Kubernetes
would. What only a cluster can give (volumes, probes, secrets) is left out with a notice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from sterna.manifests.fields import Fields, byte_count, expected, note, sentence, thousandths
from sterna.model.job import ReplicaSpec, RestartPolicy

_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915")
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")
_KUBESHARE = "kubeshare/gpu_request"


class FieldReference(Fields):
    """Something that Kubernetes knows of a pod."""

    meaningless = frozenset({"apiVersion"})

    field_path: str


class ValueSource(Fields):
    """Where else a variable's value may come from."""

    meaningless = frozenset({"secretKeyRef", "configMapKeyRef", "resourceFieldRef", "fileKeyRef"})

    field_ref: FieldReference | None = None


class Variable(Fields):
    """One variable of a container."""

    name: Annotated[str, Field(min_length=1)]
    value: str = ""
    value_from: ValueSource | None = None

    def text(self, job: str) -> str:
        """Its value; of what Kubernetes knows of a pod, its name and address have a meaning here."""
        path = self.value_from.field_ref.field_path if self.value_from and self.value_from.field_ref else ""
        known = {"metadata.name": job, "status.hostIP": "127.0.0.1", "status.podIP": "127.0.0.1"}
        return known.get(path, self.value)


class Requirements(Fields):
    """Requests and limits by resource."""

    meaningless = frozenset({"claims"})

    limits: dict[str, Any] = Field(default_factory=dict)
    requests: dict[str, Any] = Field(default_factory=dict)

    @field_validator("limits", "requests")
    @classmethod
    def _readable(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        for name, amount in value.items():
            if name == "memory":
                byte_count(amount)
            elif name == "cpu":
                thousandths(amount)
            elif name in _GPUS:
                if thousandths(amount) % 1000:
                    raise expected(f"a whole number of {name}")
            else:
                note(info, f"The resource '{name}' has no meaning here and is left out.")
        return value

    @property
    def cpus(self) -> int:
        """Thousandths requested; a limit alone is a request too."""
        return thousandths(self.requests.get("cpu", self.limits.get("cpu", 0)))

    @property
    def memory_bytes(self) -> int:
        return byte_count(self.requests.get("memory", self.limits.get("memory", 0)))

    @property
    def devices(self) -> int:
        """Thousandths; devices are never requested beyond their limit."""
        return sum(thousandths(self.limits.get(name, self.requests.get(name, 0))) for name in _GPUS)


class Container(Fields):
    """What one process of a pod runs."""

    meaningless = frozenset(
        {"ports", "volumeMounts", "volumeDevices", "imagePullPolicy", "livenessProbe", "readinessProbe", "startupProbe"}
        | {"lifecycle", "securityContext", "stdin", "stdinOnce", "tty", "terminationMessagePath", "resizePolicy"}
        | {"terminationMessagePolicy", "envFrom", "restartPolicy", "restartPolicyRules"}
    )

    name: str = ""
    image: str | None = None
    command: list[str] = Field(default_factory=list)
    args: list[str] = Field(default_factory=list)
    env: list[Variable] = Field(default_factory=list)
    working_dir: str = ""
    resources: Requirements = Requirements()

    @field_validator("image")
    @classmethod
    def _is_ignored(cls, image: str | None, info: ValidationInfo) -> str | None:
        if image == "":
            raise expected("the name of an image, or no image at all")
        note(info, f"The image {image} is not used: the command runs on this machine as it is.")
        return image

    def variables(self, job: str, fixed: Mapping[str, str]) -> dict[str, str]:
        """Names and values, earlier ones put into later ones; those that are fixed are not the manifest's to say."""
        found = dict(fixed)
        for each in self.env:
            if each.name not in fixed:
                found[each.name] = replaced(each.text(job), found)
        return found


class PodSpec(Fields):
    """A pod, as far as it can be run without Kubernetes."""

    meaningless = frozenset(
        {"volumes", "initContainers", "ephemeralContainers", "affinity", "tolerations", "nodeName"}
        | {"serviceAccount", "serviceAccountName", "automountServiceAccountToken", "imagePullSecrets", "hostNetwork"}
        | {"hostPID", "hostIPC", "hostUsers", "hostname", "subdomain", "dnsPolicy", "dnsConfig", "schedulerName"}
        | {"priorityClassName", "priority", "preemptionPolicy", "runtimeClassName", "securityContext", "overhead"}
        | {"shareProcessNamespace", "topologySpreadConstraints", "enableServiceLinks", "hostAliases", "os"}
        | {"readinessGates", "setHostnameAsFQDN", "schedulingGates", "resourceClaims", "resources"}
    )

    containers: Annotated[list[Container], Field(min_length=1)]
    restart_policy: str = ""
    termination_grace_period_seconds: Annotated[float, Field(ge=0)] = 30.0
    active_deadline_seconds: Annotated[float, Field(gt=0)] | None = None
    node_selector: dict[str, str] = Field(default_factory=dict)

    @field_validator("restart_policy")
    @classmethod
    def _known(cls, value: str) -> str:
        return known_restart(value)


class TemplateMetadata(Fields):
    """Labels and annotations of a template's pods."""

    meaningless = frozenset({"name", "namespace", "creationTimestamp", "generateName", "finalizers"})

    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class PodTemplate(Fields):
    """What the pods of one replica type look like."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: PodSpec

    def container(self, named: str = "") -> Container:
        """The container that is run: the one of that name, else the first."""
        return next((each for each in self.spec.containers if named and each.name == named), self.spec.containers[0])

    @model_validator(mode="after")
    def _shares_are_readable(self) -> PodTemplate:
        text = self.metadata.annotations.get(_KUBESHARE, "0")
        try:
            share = float(text)
        except ValueError:
            share = math.nan
        if not 0 <= share <= 1:
            where = ("metadata", "annotations", _KUBESHARE)
            raise sentence(f"{_KUBESHARE} is '{text}'; write a share of one GPU from 0 to 1.", *where)
        return self

    def devices(self, container: Container) -> int:
        """Thousandths for the container that is run; KubeShare's annotation goes before whole devices."""
        share = self.metadata.annotations.get(_KUBESHARE)
        return container.resources.devices if share is None else math.ceil(round(float(share) * 1000, 6))


def known_restart(value: str) -> str:
    known = ("", "Always", *(policy.value for policy in RestartPolicy))
    if value not in known:
        raise expected(f"one of {', '.join(known[1:])}")
    return value


def restart_of(value: str, default: RestartPolicy) -> RestartPolicy:
    """`Always` would run a job again that has completed: here it means after failures."""
    return default if not value else RestartPolicy.ON_FAILURE if value == "Always" else RestartPolicy(value)


def replica_of(
    type_: str, count: int, template: PodTemplate, job: str, named: str = "", fixed: Mapping[str, str] | None = None
) -> ReplicaSpec:
    """Replicas of one type; the command is empty where the container has none."""
    container = template.container(named)
    env = container.variables(job, fixed or {})
    words = [*container.command, *container.args] if container.command else []
    return ReplicaSpec(
        type=type_,
        count=count,
        command=tuple(replaced(word, env) for word in words),
        env=tuple(env.items()),
        working_dir=container.working_dir,
        devices=template.devices(container),
        cpus=container.resources.cpus,
        memory_bytes=container.resources.memory_bytes,
    )


def replaced(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` by its value, `$$` by one dollar; unknown names stay as they are."""
    return _REFERENCE.sub(lambda match: "$" if match[0] == "$$" else variables.get(match[1], match[0]), text)
