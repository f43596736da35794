"""`deploy/sterna.yaml` on a real server: it applies, its roles grant what the table lists, its fence holds."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sterna.backends.kubernetes.api.rbac import FENCE, Scope, Who, all_uses
from tests.deploy import chart
from tests.deploy.chart import NAMESPACE
from tests.deploy.permissions import Asked, granted
from tests.kubernetes.api import Api, Object, Refused, until
from tests.kubernetes.binaries import found
from tests.kubernetes.control_plane import ControlPlane

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/sterna-operator"
PODS = "/api/v1/namespaces/default/pods"
ACCOUNT = {who: f"system:serviceaccount:{NAMESPACE}:sterna-{who.value}" for who in Who}


@pytest.fixture(scope="module")
def installed(plane: ControlPlane) -> ControlPlane:
    _install(plane)
    return plane


def _install(plane: ControlPlane) -> None:
    with plane.api() as api:
        api.apply_all(chart.ONE_FILE.read_text(encoding="utf-8"))
        for path in ("sterna.dev/v1alpha1/trainingjobs", "kubeflow.org/v1/tfjobs"):
            until(functools.partial(_is_served, api, path), what=f"that {path} is served")


def _is_served(api: Api, path: str) -> bool:
    """A new kind is unknown at first, and then its storage is made."""
    try:
        return api.find(f"/apis/{path}") is not None
    except Refused as error:
        if error.status != 429:
            raise
        return False


def test_one_apply_is_enough_and_another_changes_nothing(installed: ControlPlane) -> None:
    text = chart.ONE_FILE.read_text(encoding="utf-8")
    with installed.api() as api:
        first, second = (
            [(each["kind"], each["metadata"]["resourceVersion"]) for each in api.apply_all(text)] for _ in range(2)
        )
    assert first == second


def test_kubectl_installs_it_and_the_controllers_make_its_pods(full_plane: ControlPlane) -> None:
    """Nothing in it, the fence above all, stands in the way of its own pods; the server finds its policies sound."""
    full_plane.kubectl("apply", "--server-side", "-f", str(chart.ONE_FILE))
    with full_plane.api() as api:
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io/component=operator"
        until(lambda: len(api.items(pods)) == 2, what="that two replicas of the operator are made")
        policy = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{FENCE}"
        checked = until(lambda: api.get(policy).get("status", {}).get("typeChecking") is not None and api.get(policy))
        assert checked["status"]["typeChecking"].get("expressionWarnings", []) == []


def test_helm_takes_over_objects_that_kubectl_applied(full_plane: ControlPlane) -> None:
    """An installation of the definitions alone is upgraded by the chart."""
    full_plane.kubectl("apply", "--server-side", "-f", str(chart.DEPLOY / "crds"))
    with pytest.raises(subprocess.CalledProcessError) as refused:
        _helm_install(full_plane)
    assert "cannot be imported" in refused.value.stderr
    assert "STATUS: deployed" in _helm_install(full_plane, "--take-ownership")


def _helm_install(plane: ControlPlane, *flags: str) -> str:
    where = ("--kubeconfig", str(plane.kubeconfig), "--namespace", NAMESPACE, "--create-namespace")
    program = found("helm")
    if program is None:
        pytest.skip("helm is not here; have it with: python -m tests.kubernetes.binaries helm")
    command = [str(program), "upgrade", "--install", "sterna", str(chart.CHART), *where, *flags]
    home = dict(os.environ, HELM_CACHE_HOME=str(plane.folder / "helm"), HELM_CONFIG_HOME=str(plane.folder / "helm"))
    return subprocess.run(command, capture_output=True, text=True, check=True, env=home).stdout


def test_the_definitions_are_served(installed: ControlPlane) -> None:
    with installed.api() as api:
        kinds = [each["kind"] for each in api.get("/apis/sterna.dev/v1alpha1")["resources"]]
        assert set(kinds) >= {"TrainingJob", "Scale"}


@pytest.mark.parametrize("file", sorted((chart.DEPLOY / "examples").glob("*.yaml")), ids=lambda file: file.name)
def test_the_server_would_take_every_example(installed: ControlPlane, file: Path) -> None:
    with installed.api() as api:
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            path = api._collection(document, "default")
            api.ask("POST", f"{path}?dryRun=All&fieldValidation=Strict", document)


# Roles.


def _may(api: Api, who: Who, asked: Asked, namespace: str, name: str = "") -> bool:
    resource, _, part = asked.target.partition("/")
    about = {"verb": asked.verb, "group": asked.group, "resource": resource, "subresource": part}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": ACCOUNT[who], "resourceAttributes": {**about, "namespace": namespace, "name": name}},
    }
    answer = api.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def _everything() -> set[Asked]:
    """Every verb on every resource that our accounts use, and on those they must never reach."""
    targets = {(use.resource.group, use.target) for use in all_uses()}
    targets |= {("", name) for name in ("secrets", "pods/exec", "pods/eviction", "pods/status", "nodes/status")}
    targets |= {("", "configmaps"), ("apps", "deployments"), ("rbac.authorization.k8s.io", "clusterroles")}
    return {Asked(verb, group, target) for group, target in targets for verb in VERBS}


@pytest.mark.parametrize("who", list(Who), ids=lambda who: who.value)
def test_account_has_exactly_the_permissions_of_the_table(installed: ControlPlane, who: Who) -> None:
    everywhere = granted(all_uses(), who, Scope.CLUSTER)
    own = [use for use in all_uses() if use.who is who and use.scope is Scope.OWN_NAMESPACE]
    with installed.api() as api:
        assert {asked for asked in _everything() if _may(api, who, asked, "default")} == everywhere
        for name in {use.only_name for use in own if use.only_name} | {"another"}:
            may = granted([use for use in own if use.only_name in ("", name)], who)
            assert {asked for asked in _everything() if _may(api, who, asked, NAMESPACE, name)} == everywhere | may


# The fence.


@pytest.fixture
def replica(installed: ControlPlane) -> Iterator[Callable[[str], Api]]:
    """The operator as it is on the network: its account, with a token that was made for one of its pods."""
    opened: list[Api] = []
    with installed.api() as admin:
        for name in ("replica-a", "replica-b"):
            if admin.find(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}") is None:
                admin.create(_pod(name, account="sterna-operator"), NAMESPACE)

    def connected(name: str) -> Api:
        opened.append(Api(installed.account(NAMESPACE, "sterna-operator", name)))
        return opened[-1]

    yield connected
    for api in opened:
        api.close()


@pytest.fixture
def holder(installed: ControlPlane) -> Iterator[Callable[[str], None]]:
    """Make an identity the holder of the Lease, and wait until the fence knows."""
    with installed.api() as admin:

        def hold(name: str) -> None:
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            spec = {"holderIdentity": name, "leaseDurationSeconds": 15}
            admin.apply({**lease, "metadata": {"name": "sterna-operator", "namespace": NAMESPACE}, "spec": spec})

        yield hold
        admin.remove(LEASE)


def _pod(name: str, account: str = "default") -> Object:
    containers = [{"name": "main", "image": "example.com/none:1"}]
    spec: Object = {"serviceAccountName": account, "containers": containers, "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _create(api: Api, name: str) -> bool:
    """True if a pod could be created (dry run); any rejection but the fence's is an error."""
    try:
        api.ask("POST", f"{PODS}?dryRun=All", _pod(name))
    except Refused as error:
        if FENCE not in error.message or error.status != 403:
            raise
        return False
    return True


def test_only_the_holder_of_the_lease_writes(replica: Callable[[str], Api], holder: Callable[[str], None]) -> None:
    a, b = replica("replica-a"), replica("replica-b")
    holder("replica-a")
    until(lambda: _create(a, "one"), what="that the holder may write")
    assert not _create(b, "two")
    holder("replica-b")
    until(lambda: _create(b, "two"), what="that the new holder may write")
    assert not _create(a, "one")


def test_any_replica_may_take_the_lease_and_none_may_write_while_it_is_free(
    replica: Callable[[str], Api], holder: Callable[[str], None]
) -> None:
    a = replica("replica-a")
    holder("")
    until(lambda: not _create(a, "one"), what="that nobody writes while the Lease is free")
    lease = a.get(LEASE)
    lease["spec"]["holderIdentity"] = "replica-a"
    a.ask("PUT", LEASE, lease)
    until(lambda: _create(a, "one"), what="that the new holder may write")


@pytest.mark.parametrize("what", ["bind", "status", "delete", "service", "event"])
def test_an_old_holder_can_do_no_other_write_either(
    what: str, replica: Callable[[str], Api], holder: Callable[[str], None], installed: ControlPlane
) -> None:
    a, b = replica("replica-a"), replica("replica-b")
    with installed.api() as admin:
        if admin.find(f"{PODS}/victim") is None:
            admin.create(_pod("victim"))
        if admin.find("/apis/sterna.dev/v1alpha1/namespaces/default/trainingjobs/victim") is None:
            admin.create(_job("victim"))
    holder("replica-b")
    until(lambda: _create(b, "two"))
    with pytest.raises(Refused, match=FENCE):
        a.ask(*_writes()[what])


def _job(name: str) -> Object:
    spec = {"image": "example.com/none:1", "command": ["train"], "workers": 1}
    return {"apiVersion": "sterna.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}


def _writes() -> dict[str, tuple[Any, ...]]:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "victim"},
        "target": {"kind": "Node", "name": "n"},
    }
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"clusterIP": "None"}}
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "action": "Test",
        "reason": "Test",
        "type": "Normal",
        "reportingController": "sterna.dev/operator",
        "reportingInstance": "a",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "victim"},
    }
    status = "/apis/sterna.dev/v1alpha1/namespaces/default/trainingjobs/victim/status"
    return {
        "bind": ("POST", f"{PODS}/victim/binding", binding),
        "status": ("PATCH", status, {"status": {"phase": "Running"}}, "application/merge-patch+json"),
        "delete": ("DELETE", f"{PODS}/victim"),
        "service": ("POST", "/api/v1/namespaces/default/services", service),
        "event": ("POST", "/apis/events.k8s.io/v1/namespaces/default/events", event),
    }


def test_a_token_that_belongs_to_no_pod_writes_nothing(
    installed: ControlPlane, holder: Callable[[str], None], replica: Callable[[str], Api]
) -> None:
    a = replica("replica-a")
    holder("replica-a")
    until(lambda: _create(a, "one"))
    with Api(installed.account(NAMESPACE, "sterna-operator")) as anybody:
        assert not _create(anybody, "three")


def test_fence_applies_to_the_operator_only(installed: ControlPlane, holder: Callable[[str], None]) -> None:
    """Else nothing could be created in the whole cluster before the operator runs, the operator itself included."""
    with installed.api() as admin:
        assert admin.find(LEASE) is None
        assert _create(admin, "of-an-administrator")
        holder("replica-a")
        assert _create(admin, "of-an-administrator")


def test_a_restart_of_the_server_leaves_the_fence_standing_and_others_alone(
    installed: ControlPlane, holder: Callable[[str], None], replica: Callable[[str], Api]
) -> None:
    a, b = replica("replica-a"), replica("replica-b")
    holder("replica-a")
    until(lambda: _create(a, "one"))
    installed.kill("kube-apiserver")
    installed.start_api_server()
    a.close()  # its connection is gone with the server
    with installed.api() as admin:
        assert _create(admin, "of-an-administrator")
    assert not _create(b, "two")
    assert _create(a, "one")
