"""Requests that Sterna sends to an API server, and why: the table from which its roles and its fence are rendered.

A test compares it with the requests that are really sent: nothing outside this table is granted, and nothing in it goes
unused. The permissions of users on their own jobs are their administrator's choice and not here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from sterna.backends.kubernetes.api.resources import CONFIG_MAPS, EVENTS, LEASES, NODES, PRIORITY_CLASSES, SERVICES
from sterna.kinds.kind import READ
from sterna.kinds.registry import all_kinds
from sterna.kinds.resource import PODS, Resource

FENCE = "sterna-fence"
"""Name of the admission policy that refuses the writes of a replica which lost the Lease. A refusal by it is no verdict
on the object: retry."""

LEARNED_CURVES = "sterna-learned-curves"
"""Name of the ConfigMap that holds what jobs have taught."""

TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", is_namespaced=False)

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class Who(Enum):
    """Service account that needs a permission."""

    OPERATOR = "operator"
    MONITOR = "monitor"


class Scope(Enum):
    """Scope of a permission."""

    CLUSTER = "cluster"
    OWN_NAMESPACE = "own namespace"
    """The one that Sterna is installed in."""


class Use(NamedTuple):
    """Some verbs on one resource, or on a part of it, and what they are for."""

    who: Who
    resource: Resource
    subresource: str
    verbs: tuple[str, ...]
    why: str
    scope: Scope = Scope.CLUSTER
    only_name: str = ""
    """Nothing but the object of this name."""

    @property
    def target(self) -> str:
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural

    @property
    def is_fenced(self) -> bool:
        """True for writes that only the holder of the Lease may send."""
        return self.who is Who.OPERATOR and self.resource not in (LEASES, TOKEN_REVIEWS) and bool(self.written)

    @property
    def written(self) -> tuple[str, ...]:
        return tuple(verb for verb in self.verbs if verb in WRITES)


_OPERATOR, _MONITOR = Who.OPERATOR, Who.MONITOR

_USES: tuple[Use, ...] = (
    Use(_OPERATOR, NODES, "", READ, "capacity, labels, taints and health of nodes"),
    Use(_OPERATOR, PRIORITY_CLASSES, "", READ, "values of the PriorityClasses that pod templates name"),
    Use(_OPERATOR, PODS, "", READ, "pods of all owners, because all of them use capacity"),
    Use(_OPERATOR, PODS, "", ("create", "delete"), "replicas of jobs are started, stopped and moved"),
    Use(
        _OPERATOR, PODS, "", ("patch",), "what is remembered of a pod that is a job itself; which hosts launchers have"
    ),
    Use(_OPERATOR, PODS, "", ("get",), "the whole of a pod that is a job itself, to create it again on another node"),
    Use(_OPERATOR, CONFIG_MAPS, "", READ, "pods that were on their way when another replica ended"),
    Use(_OPERATOR, CONFIG_MAPS, "", ("create", "patch", "delete"), "such a pod, written down before it is deleted"),
    Use(
        _OPERATOR,
        CONFIG_MAPS,
        "",
        ("get", "patch"),
        "what jobs have taught, for the replica that acts next",
        Scope.OWN_NAMESPACE,
        only_name=LEARNED_CURVES,
    ),
    Use(_OPERATOR, CONFIG_MAPS, "", ("create",), "the same, where there is none yet", Scope.OWN_NAMESPACE),
    Use(_OPERATOR, PODS, "binding", ("create",), "pods that name Sterna as their scheduler get their node"),
    Use(_OPERATOR, PODS, "resize", ("patch",), "shares of a node's CPUs change without a restart"),
    Use(_OPERATOR, SERVICES, "", READ, "which replicas can be found by name"),
    Use(_OPERATOR, SERVICES, "", ("create", "delete"), "a name for every replica"),
    Use(_OPERATOR, EVENTS, "", ("create", "patch"), "events about jobs, repeated ones as a series"),
    Use(_OPERATOR, TOKEN_REVIEWS, "", ("create",), "who reports progress, and who calls the REST API"),
    Use(_OPERATOR, LEASES, "", ("create",), "the Lease, where there is none yet", Scope.OWN_NAMESPACE),
    Use(
        _OPERATOR,
        LEASES,
        "",
        ("get", "update"),
        "which replica acts",
        Scope.OWN_NAMESPACE,
        only_name="sterna-operator",
    ),
    Use(_MONITOR, PODS, "", READ, "which pods of its node report, and where their files are"),
    Use(
        _MONITOR,
        LEASES,
        "",
        ("get",),
        "where the acting replica of the operator answers",
        Scope.OWN_NAMESPACE,
        only_name="sterna-operator",
    ),
)


def all_uses() -> tuple[Use, ...]:
    """Permissions of Sterna itself and of its registered kinds."""
    kinds = (
        Use(_OPERATOR, kind.resource, each.subresource, each.verbs, each.why)
        for kind in all_kinds()
        for each in kind.permissions
    )
    return (*_USES, *kinds)


class RbacRule(NamedTuple):
    """A rule of a role: verbs on some resources of one group."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()


def rules(who: Who, scope: Scope, uses: Sequence[Use] | None = None) -> list[RbacRule]:
    """The rules of one role, merged into as few as are equal to the table."""
    mine = [use for use in (all_uses() if uses is None else uses) if use.who is who and use.scope is scope]
    verbs: dict[tuple[str, str, str], list[str]] = {}
    for use in mine:
        verbs.setdefault((use.resource.group, use.only_name, use.target), []).extend(use.verbs)
    alike: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (group, name, target), said in verbs.items():
        alike.setdefault((group, name, tuple(sorted(set(said)))), []).append(target)
    return [
        RbacRule(group, tuple(sorted(targets)), said, (name,) if name else ())
        for (group, name, said), targets in alike.items()
    ]


def fence_rules(uses: Iterable[Use] | None = None) -> list[RbacRule]:
    """Rules of the fence: every write of the operator but those for its Lease and its token reviews."""
    targets: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    writes: dict[tuple[str, str], set[str]] = {}
    for use in all_uses() if uses is None else uses:
        if use.is_fenced:
            said = {_OPERATIONS[verb] for verb in use.written}
            writes.setdefault((use.resource.group, use.target), set()).update(said)
    for (group, target), said in writes.items():
        targets.setdefault((group, tuple(sorted(said))), set()).add(target)
    return [RbacRule(group, tuple(sorted(found)), said) for (group, said), found in targets.items()]


_OPERATIONS = {
    "create": "CREATE",
    "update": "UPDATE",
    "patch": "UPDATE",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
"""Verbs as admission calls them."""
