"""The client on a real server that restarts, compacts, rejects or is no API server: one message, and it retries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from sterna.backends.kubernetes.api.resources import (
    UNREACHABLE,
    Delta,
    DeltaKind,
    Followed,
    Inbox,
    Verb,
    Write,
    WriteResult,
)
from sterna.backends.kubernetes.transport.client import Client
from sterna.backends.kubernetes.transport.kubeconfig import Access, access_of
from sterna.errors import Retry
from sterna.kinds.objects import Pod
from sterna.kinds.resource import PODS
from tests.kubernetes.api import PATIENCE_SECONDS, Api, Object
from tests.kubernetes.control_plane import ControlPlane


def a_pod(name: str) -> Object:
    spec = {"containers": [{"name": "c", "image": "example.com/none:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


class Operator:
    """A client that watches pods, and the deltas it received."""

    def __init__(self, access: Access) -> None:
        self.client, self.inbox = Client(access), Inbox()
        self.deltas: list[Delta] = []
        self.given_up: list[Write] = []
        self.client.follow([Followed(PODS, Pod, namespace="default")], self.inbox)

    def until(self, fact: Callable[[], bool]) -> None:
        while not fact():
            assert self.inbox.wait(PATIENCE_SECONDS), f"nothing more came after {self.deltas[-3:]}"
            news = self.inbox.take()
            self.deltas += [each for each in news if isinstance(each, Delta)]
            self.given_up += [
                each.write for each in news if isinstance(each, WriteResult) and each.reason == UNREACHABLE
            ]

    def saw(self, change: DeltaKind, name: str = "") -> Callable[[], bool]:
        return lambda: any(
            each.change is change and (not name or each.object.metadata.name == name) for each in self.deltas
        )


@pytest.fixture
def operator() -> Iterator[Callable[[Access], Operator]]:
    with ExitStack() as stack:

        def made(access: Access) -> Operator:
            it = Operator(access)
            stack.callback(it.client.close)
            return it

        yield made


def test_a_server_that_was_away_and_forgot_the_past_is_followed_on(
    plane: ControlPlane, operator: Callable[[Access], Operator]
) -> None:
    with plane.api() as admin:
        admin.create(a_pod("before"))
        it = operator(access_of(str(plane.kubeconfig)))
        it.until(it.saw(DeltaKind.SYNCED))
    plane.kill("kube-apiserver")
    it.until(lambda: "cannot be reached" in it.client.last_error)
    it.client.send([Write(Verb.DELETE, PODS, "default", "before")])
    plane.compact()
    plane.start_api_server()
    it.until(lambda: it.saw(DeltaKind.GONE, "before")() or bool(it.given_up))
    it.client.send(it.given_up)  # where the server took longer to start than a write waits for it
    it.until(it.saw(DeltaKind.GONE, "before"))
    assert it.client.last_error == ""
    with plane.api() as admin:
        admin.create(a_pod("after"))
    it.until(it.saw(DeltaKind.SEEN, "after"))


def test_missing_permission_is_named_and_pods_are_listed_once_granted(
    plane: ControlPlane, api: Api, operator: Callable[[Access], Operator]
) -> None:
    it = operator(access_of(str(plane.user("bob"))))
    it.until(it.saw(DeltaKind.ABSENT))
    assert "Sterna may not see pods" in it.deltas[0].why
    assert "grant it list and watch" in it.deltas[0].why
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "see-pods"}}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    api.create({**rbac, "kind": "ClusterRole", "rules": rules})
    subjects = [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}]
    role = {"kind": "ClusterRole", "name": "see-pods", "apiGroup": "rbac.authorization.k8s.io"}
    api.create({**rbac, "kind": "ClusterRoleBinding", "subjects": subjects, "roleRef": role})
    it.until(it.saw(DeltaKind.SYNCED))


def test_unknown_user_is_asked_to_log_in(plane: ControlPlane, operator: Callable[[Access], Operator]) -> None:
    access = access_of(str(plane.kubeconfig))
    it = operator(replace(access, certificate=b"", key=b"", token="of-nobody"))
    it.until(it.saw(DeltaKind.ABSENT))
    assert "does not accept our credentials" in it.deltas[0].why


@pytest.mark.parametrize("change", ["another authority", "another name"])
def test_untrusted_certificate_is_named_in_a_sentence(plane: ControlPlane, change: str) -> None:
    access = access_of(str(plane.kubeconfig))
    if change == "another name":
        access = replace(access, server_name="somebody-else.example.com")
    else:
        access = replace(access, authority=access.certificate)
    client = Client(access)
    try:
        with pytest.raises(Retry, match=r"is not to be trusted .*check certificate-authority"):
            client.ask("GET", "/version")
    finally:
        client.close()


def test_unverified_server_is_accepted(plane: ControlPlane) -> None:
    client = Client(replace(access_of(str(plane.kubeconfig)), authority=b"", is_checked=False))
    try:
        assert client.ask("GET", "/version").is_done
    finally:
        client.close()
