"""`Kind`: everything that Sterna knows about one kind of job. The rest of the package derives its tables from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sterna.errors import UserError
from sterna.kinds.context import ParseContext
from sterna.kinds.environment.gang import Gang, GangMember
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.parsed_job import ParsedJob, PodOwnership
from sterna.kinds.resource import Resource
from sterna.model.job import JobSpec

READ = ("list", "watch")
INSTALL_HINT = "install Sterna first: kubectl apply -f deploy/sterna.yaml"

Parser = Callable[[Any, ParseContext], ParsedJob]
"""Parses a `JobObject` (for Pod also a decoded `Pod`) or raises `UserError` with a sentence for its user."""
Environment = Callable[[JobSpec, GangMember, Gang], dict[str, str]]
Filter = Callable[[Any, ParseContext], bool]


class Permission(NamedTuple):
    """Verbs that the operator needs on the kind's resource or one of its subresources, and the reason."""

    verbs: tuple[str, ...]
    why: str
    subresource: str = ""


class Port(NamedTuple):
    """The container port on which replicas reach each other."""

    name: str
    number: int
    is_declared: bool = False
    """Added to the container that trains if the template does not list it."""


DEFAULT_PORT = Port("training", 23456)


class AttemptFile(NamedTuple):
    """A file that the local backend writes into the folder of an attempt before its replicas start."""

    name: str
    content: str
    mode: int = 0o644


@dataclass(frozen=True)
class ReplicaName:
    """One replica as its framework counts it, for labels."""

    type: str
    index: int
    is_first: bool
    """It is the replica that the others call: the chief or master, else worker 0."""
    start_id: str
    """Five letters that identify this start of the replica."""


def no_variables(spec: JobSpec, member: GangMember, gang: Gang) -> dict[str, str]:
    return {}


def no_labels(job: ParsedJob, replica: ReplicaName) -> dict[str, str]:
    return {}


def no_files(workers: int) -> tuple[AttemptFile, ...]:
    return ()


def every_object(job: JobObject | Pod, context: ParseContext) -> bool:
    return True


def refuse_scaling(job: ParsedJob, fields: Mapping[str, Any], low: int, high: int) -> dict[str, Any]:
    raise UserError(f"'{job.ref.name}' is a {job.ref.resource.kind}, which is one worker and stays one.")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of job that a user can submit."""

    resource: Resource
    """In the version that the operator watches."""
    summary: str
    """One phrase for the table of kinds in the documentation."""
    parse: Parser | None
    """None: objects of this kind are watched, because they use capacity, but are no jobs."""
    other_versions: tuple[str, ...] = ()
    """Further values of `apiVersion` that are accepted in a manifest."""
    ownership: PodOwnership = PodOwnership.OPERATOR
    """Which controller creates the pods; a parsed job may say otherwise."""
    container: str = ""
    """Name of the container that trains; empty: the first one."""
    port: Port = DEFAULT_PORT
    has_service_per_replica: bool = False
    """Every replica knows all others by name. Otherwise only worker 0 and replicas that are no workers are called."""
    has_foreign_definition: bool = False
    """Its CRD is another project's and drops the status fields that Sterna adds."""
    takes_kubeshare_mark: bool = False
    """Objects may carry DRAGON's annotation that makes their replicas SharePods."""
    counts_absent_cpus: bool = False
    """A replica that requests no CPUs counts as one core on one machine, also beside devices."""
    install_hint: str = INSTALL_HINT
    """What to do if the server does not know the resource."""
    permissions: tuple[Permission, ...] = ()
    is_managed: Filter = every_object
    """True for objects that Sterna manages; another controller may claim an object by its fields."""
    is_managed_if_invalid: bool = True
    """Sterna reports why an object is invalid; False if the kind's own controller does."""
    invalid_reason: str = ""
    """Reason of the condition of an invalid object; empty: `Invalid<Kind>Spec`."""
    environment: Environment = no_variables
    """Variables that the framework of this kind looks for."""
    attempt_files: Callable[[int], tuple[AttemptFile, ...]] = no_files
    """Files for an attempt with this number of workers."""
    pod_labels: Callable[[ParsedJob, ReplicaName], dict[str, str]] = no_labels
    """Labels of pods beside Sterna's own."""
    selector_labels: Callable[[ParsedJob, ReplicaName], dict[str, str]] = no_labels
    """Labels by which a service selects its pod; none: Sterna's own."""
    scale_patch: Callable[[ParsedJob, Mapping[str, Any], int, int], dict[str, Any]] = refuse_scaling
    """Build a merge patch of the object for new bounds, given its `spec` as plain values; workers as it counts them."""

    @property
    def name(self) -> str:
        return self.resource.kind

    @property
    def api_versions(self) -> tuple[str, ...]:
        return (self.resource.api_version, *self.other_versions)

    @property
    def condition_of_invalid(self) -> str:
        return self.invalid_reason or f"Invalid{self.name}Spec"
