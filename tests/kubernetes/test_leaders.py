"""Two replicas with client, Lease and fence on a real server: a paused replica with an expired lease writes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from sterna.backends.kubernetes.api.objects import Plain
from sterna.backends.kubernetes.api.rbac import FENCE
from sterna.backends.kubernetes.api.resources import SERVICES, Followed, Inbox, Verb, Write, WriteResult
from sterna.backends.kubernetes.leader import Leadership
from sterna.backends.kubernetes.transport.client import Client
from sterna.backends.kubernetes.transport.kubeconfig import access_of
from tests.kubernetes.api import PATIENCE_SECONDS, until
from tests.kubernetes.control_plane import ControlPlane

NAMESPACE, LEASE, ACCOUNT = "sterna-system", "sterna-operator", "sterna-operator"
INSTALLED = Path(__file__).resolve().parents[2] / "deploy" / "sterna.yaml"


class Replica:
    """An operator's pod as far as leading and writing go, with a clock of its own that a test turns."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self.seconds = 1000.0
        self.inbox = Inbox()
        self.client = Client(access_of(str(plane.account(NAMESPACE, ACCOUNT, name))), may_write=self._may_write)
        self.leadership = Leadership(self.client, NAMESPACE, LEASE, name, steady=lambda: self.seconds)
        self.client.follow([Followed(SERVICES, Plain, namespace="default")], self.inbox)

    def _may_write(self) -> bool:
        return self.leadership.may_write()

    def create(self, name: str) -> WriteResult:
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"clusterIP": "None"}}
        self.client.send([Write(Verb.CREATE, SERVICES, "default", name, json.dumps(service).encode())])
        while True:
            assert self.inbox.wait(PATIENCE_SECONDS)
            for each in self.inbox.take():
                if isinstance(each, WriteResult):
                    return each

    def until_answered(self, status: int, prefix: str) -> WriteResult:
        """The fence hears of a new holder a moment after the Lease has changed."""
        numbers = count()

        def tried() -> WriteResult | None:
            answer = self.create(f"{prefix}-{next(numbers)}")
            return answer if answer.status == status else None

        found: WriteResult = until(tried, what=f"an answer {status}")
        return found


@pytest.fixture(scope="module")
def installed(plane: ControlPlane) -> ControlPlane:
    with plane.api() as admin:
        admin.apply_all(INSTALLED.read_text(encoding="utf-8"))
        for name in ("replica-a", "replica-b"):
            containers = [{"name": "main", "image": "example.com/none:1"}]
            spec = {"serviceAccountName": ACCOUNT, "containers": containers, "automountServiceAccountToken": False}
            admin.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}, NAMESPACE)
    return plane


@pytest.fixture
def replicas(installed: ControlPlane) -> Iterator[tuple[Replica, Replica]]:
    made = Replica(installed, "replica-a"), Replica(installed, "replica-b")
    yield made
    for each in made:
        each.leadership.resign()
        each.client.close()


def test_a_replica_that_slept_through_its_lead_is_refused_by_the_server(replicas: tuple[Replica, Replica]) -> None:
    """DRAGON-51, and more: the lead is fenced, not only agreed upon."""
    a, b = replicas
    a.leadership.step()
    assert a.leadership.may_write(), a.leadership.last_error
    assert a.until_answered(201, "first").is_done
    assert b.create("early").reason == "NotLeader"

    b.leadership.step()
    b.seconds += 15.1
    b.leadership.step()
    assert b.leadership.may_write(), b.leadership.last_error
    assert b.until_answered(201, "second").is_done

    assert a.leadership.may_write(), "its clock stands: it does not know yet"
    refused = a.until_answered(403, "straggler")
    assert FENCE in refused.message
    a.leadership.step()
    assert a.leadership.is_lost
    assert a.create("late").reason == "NotLeader"


def test_the_next_in_line_begins_at_once_when_the_leader_resigns(replicas: tuple[Replica, Replica]) -> None:
    a, b = replicas
    a.leadership.step()
    assert a.leadership.may_write(), a.leadership.last_error
    a.leadership.resign()
    b.leadership.step()
    assert b.leadership.may_write()
    assert b.until_answered(201, "third").is_done
    assert a.create("resigned").reason == "NotLeader"
