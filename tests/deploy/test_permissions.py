"""Least privilege, both ways: every request is granted, and every grant is used.

Here with what the code can construct and what fakes observe; `tests/kubernetes/test_deploy.py` asks a real server.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from sterna.backends.kubernetes.api import resources
from sterna.backends.kubernetes.api.rbac import (
    TOKEN_REVIEWS,
    WRITES,
    RbacRule,
    Scope,
    Use,
    Who,
    all_uses,
    fence_rules,
    rules,
)
from sterna.backends.kubernetes.api.resources import LEASES, Verb, Write
from sterna.kinds.mpi_job import MPI_JOBS
from sterna.kinds.registry import all_kinds
from sterna.kinds.resource import PODS, Resource
from sterna.kinds.share_pod import SHARE_PODS
from tests.deploy import chart
from tests.deploy.chart import Name
from tests.deploy.permissions import Asked, granted, of_audit, of_request, of_write

PACKAGE = Path(resources.__file__).parents[1]


# Roles are the table.


@pytest.mark.parametrize("who", list(Who), ids=lambda who: who.value)
@pytest.mark.parametrize(
    ("scope", "kind", "namespace"), [(Scope.CLUSTER, "ClusterRole", ""), (Scope.OWN_NAMESPACE, "Role", chart.NAMESPACE)]
)
def test_a_role_grants_exactly_the_uses_in_the_table(who: Who, scope: Scope, kind: str, namespace: str) -> None:
    role = chart.objects_of_one_file()[Name(kind, namespace, f"sterna-{who.value}")]
    found = {
        Asked(verb, group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert found == granted(all_uses(), who, scope)
    assert "*" not in str(role["rules"])


def test_no_role_may_touch_secrets_or_grant_permissions() -> None:
    dangerous = {"secrets", "roles", "clusterroles", "rolebindings", "clusterrolebindings", "serviceaccounts/token"}
    assert not [
        use for use in all_uses() if use.target in dangerous or use.resource.group == "rbac.authorization.k8s.io"
    ]
    assert not [use for use in all_uses() if {"*", "impersonate", "escalate", "bind"} & set(use.verbs)]


def test_the_monitor_writes_nothing() -> None:
    assert not [use for use in all_uses() if use.who is Who.MONITOR and set(use.verbs) & WRITES]


def test_no_use_is_in_the_table_twice() -> None:
    said = [
        (use.who, use.resource, use.subresource, use.scope, use.only_name, verb)
        for use in all_uses()
        for verb in use.verbs
    ]
    assert len(said) == len(set(said))


# Requests in the code.


class Said(NamedTuple):
    """A request that stands in the code, as far as it can be read there."""

    where: str
    who: Who
    asked: Asked


def _requests_in_code() -> list[Said]:
    """Return every request whose verb and resource are literals in the code. Those with variables, such as a job's own
    kind, are covered by the test on a real server."""
    found = []
    for file, who in _files().items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                found += [Said(f"{file.name}:{node.lineno}", who, asked) for asked in _permissions_of(node)]
    return found


def _files() -> dict[Path, Who]:
    """Return the account of each file's requests: the operator's for all it imports, except the monitor's. Commands use
    the rights of their user."""
    monitors = dict.fromkeys(sorted((PACKAGE / "monitor").glob("*.py")), Who.MONITOR)
    found: dict[Path, Who] = {}
    waiting = [PACKAGE.parents[1] / "apps" / "operator.py"]
    while waiting:
        file = waiting.pop()
        if file not in found and file not in monitors:
            found[file] = Who.OPERATOR
            waiting += _imports(file)
    return found | monitors


def _imports(file: Path) -> list[Path]:
    """Modules of the backend that a file imports, or whose names it does."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    inside = (name.removeprefix("sterna.backends.kubernetes").strip(".") for name in names if "s.kubernetes" in name)
    places = (PACKAGE / name.replace(".", "/") for name in inside)
    return [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()]


def _permissions_of(call: ast.Call) -> list[Asked]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    texts = [ast.unparse(each) for each in call.args]
    if name == "Followed" and texts[0] in CONSTANTS:
        resource = CONSTANTS[texts[0]]
        return [Asked(verb, resource.group, resource.plural) for verb in ("list", "watch")]
    if name == "Write" and texts[0].startswith("Verb.") and texts[1] in CONSTANTS:
        part = {each.arg: each.value for each in call.keywords}.get("subresource", (call.args + [None] * 6)[5])
        said = part.value if isinstance(part, ast.Constant) else ""
        return [of_write(Write(Verb[texts[0][5:]], CONSTANTS[texts[1]], "", "", b"", str(said)))]
    if name in ("ask", "_ask") and texts[1:] and texts[1].partition(".path(")[0] in CONSTANTS:
        place, _, arguments = texts[1].partition(".path(")
        path = CONSTANTS[place].path("a", "b" if "," in arguments else "")
        asked = of_request(ast.literal_eval(texts[0]), path)
        return [asked] if asked else []
    return []


CONSTANTS = {name: value for name, value in vars(resources).items() if isinstance(value, Resource)}
CONSTANTS |= {"TOKEN_REVIEWS": TOKEN_REVIEWS, "PODS": PODS, "SHARE_PODS": SHARE_PODS}


def test_every_request_that_can_be_read_in_the_code_is_granted() -> None:
    said = _requests_in_code()
    assert [each for each in said if each.asked not in granted(all_uses(), each.who)] == []
    assert {Who.OPERATOR, Who.MONITOR} == {each.who for each in said}
    assert Asked("create", "", "pods") in {each.asked for each in said}


def test_nothing_is_granted_on_resources_that_no_code_names() -> None:
    files = [file for file in PACKAGE.rglob("*.py") if file.parent.name != "api"]
    words = set(re.findall(r"\b[A-Z_]+\b", "".join(file.read_text(encoding="utf-8") for file in files)))
    names = {value: name for name, value in CONSTANTS.items()}
    kinds = {kind.resource for kind in all_kinds()}
    assert {names[use.resource] for use in all_uses() if use.resource not in kinds} - words == set()


# The words of roles.


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/api/v1/pods", "watch=true&resourceVersion=5", Asked("watch", "", "pods")),
        ("GET", "/api/v1/pods", "limit=500", Asked("list", "", "pods")),
        ("GET", "/api/v1/nodes/a", "", Asked("get", "", "nodes")),
        ("GET", "/api/v1/namespaces/default", "", Asked("get", "", "namespaces")),
        ("GET", "/api/v1/namespaces/default/pods/a", "", Asked("get", "", "pods")),
        ("POST", "/api/v1/namespaces/default/pods/a/binding", "", Asked("create", "", "pods/binding")),
        ("DELETE", "/api/v1/namespaces/default/pods/a", "", Asked("delete", "", "pods")),
        ("DELETE", "/api/v1/namespaces/default/pods", "", Asked("deletecollection", "", "pods")),
        (
            "PATCH",
            "/apis/sterna.dev/v1alpha1/namespaces/a/trainingjobs/b/status",
            "",
            Asked("patch", "sterna.dev", "trainingjobs/status"),
        ),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", "", Asked("update", LEASES.group, "leases")),
        ("GET", "/readyz", "", None),
        ("GET", "/apis/sterna.dev/v1alpha1", "", None),
        ("GET", "/version", "", None),
    ],
)
def test_a_request_is_read_as_the_authorizer_reads_it(
    method: str, path: str, query: str, expected: Asked | None
) -> None:
    assert of_request(method, path, query) == expected


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (Write(Verb.CREATE, PODS, "a", "b", subresource="binding"), Asked("create", "", "pods/binding")),
        (Write(Verb.MERGE, MPI_JOBS, "a", "b"), Asked("patch", "kubeflow.org", "mpijobs")),
        (Write(Verb.JSON_PATCH, PODS, "a", "b"), Asked("patch", "", "pods")),
        (Write(Verb.REPLACE, LEASES, "a", "b"), Asked("update", LEASES.group, "leases")),
        (Write(Verb.DELETE, PODS, "a", "b"), Asked("delete", "", "pods")),
    ],
)
def test_a_write_asks_for_what_its_request_asks_for(write: Write, expected: Asked) -> None:
    assert of_write(write) == expected


def test_an_audit_log_yields_the_requests_of_one_user() -> None:
    us, them = {"username": "op"}, {"username": "other"}
    events = [
        {"verb": "create", "user": us, "objectRef": {"resource": "pods", "subresource": "binding"}},
        {"verb": "list", "user": us, "objectRef": {"resource": "tfjobs", "apiGroup": "kubeflow.org"}},
        {"verb": "delete", "user": them, "objectRef": {"resource": "pods"}},
        {"verb": "get", "user": us, "requestURI": "/readyz"},
    ]
    assert of_audit(events, "op") == {Asked("create", "", "pods/binding"), Asked("list", "kubeflow.org", "tfjobs")}


# From the table to rules.


def test_uses_alike_become_one_rule() -> None:
    uses = [
        Use(Who.OPERATOR, PODS, "", ("list", "watch"), "first"),
        Use(Who.OPERATOR, PODS, "", ("create",), "second"),
        Use(Who.OPERATOR, PODS, "binding", ("create",), "third"),
        Use(Who.MONITOR, PODS, "", ("list",), "of another"),
    ]
    assert rules(Who.OPERATOR, Scope.CLUSTER, uses) == [
        RbacRule("", ("pods",), ("create", "list", "watch")),
        RbacRule("", ("pods/binding",), ("create",)),
    ]


def test_the_fence_matches_writes_only_by_admission_operation() -> None:
    uses = [
        Use(Who.OPERATOR, PODS, "", ("list", "create", "delete"), "first"),
        Use(Who.OPERATOR, PODS, "", ("patch",), "second"),
        Use(Who.OPERATOR, LEASES, "", ("update",), "the Lease"),
        Use(Who.OPERATOR, TOKEN_REVIEWS, "", ("create",), "changes nothing"),
        Use(Who.MONITOR, PODS, "", ("delete",), "of another"),
    ]
    assert fence_rules(uses) == [RbacRule("", ("pods",), ("CREATE", "DELETE", "UPDATE"))]
