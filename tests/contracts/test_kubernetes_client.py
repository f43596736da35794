"""What the operator relies on in its client, tried on servers in memory and on a real one: news, answers, order."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from sterna.backends.kubernetes.api.resources import DEFINITIONS, LEASES, DeltaKind, Followed, Verb, Write, WriteResult
from sterna.backends.kubernetes.leader import Leadership
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.resource import PODS, Resource
from tests.contracts.kubernetes_grounds import (
    VARIABLE,
    WIDGETS,
    Ground,
    a_pod,
    define,
    direct,
    http,
    real,
    shown,
)

GROUNDS = {"direct": direct, "http": http, "real": real}


@pytest.fixture(params=list(GROUNDS))
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    if request.param == "real" and not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} names no kubeconfig of a real cluster")
    with GROUNDS[request.param]() as made:
        yield made


def creation(ground: Ground, name: str, **more: Any) -> Write:
    document = {"kind": "Pod", "apiVersion": "v1", **a_pod(name, **more)}
    return Write(Verb.CREATE, PODS, ground.namespace, name, json.dumps(document).encode())


def follow_pods(ground: Ground, **more: Any) -> None:
    ground.follow(Followed(PODS, Pod, namespace=ground.namespace, **more))
    ground.until(lambda: bool(ground.deltas(DeltaKind.SYNCED)))


def test_changes_of_other_clients_are_delivered(ground: Ground) -> None:
    ground.made(PODS, a_pod("old", node="n"))
    follow_pods(ground)
    assert ground.deltas(DeltaKind.SEEN, "old")
    uid = ground.made(PODS, a_pod("new"))["metadata"]["uid"]
    ground.until(lambda: bool(ground.deltas(DeltaKind.SEEN, "new")))
    ground.delete(PODS, "new")
    ground.until(lambda: bool(ground.deltas(DeltaKind.GONE, "new")))
    assert ground.deltas(DeltaKind.GONE)[0].object.metadata.uid == uid


def test_every_verb_has_its_effect(ground: Ground) -> None:
    follow_pods(ground)
    [made] = ground.send(creation(ground, "p", schedulerName="sterna"))
    assert made.status == 201
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"},
    }
    patches = [
        Write(Verb.CREATE, PODS, ground.namespace, "p", json.dumps(binding).encode(), "binding"),
        Write(Verb.MERGE, PODS, ground.namespace, "p", b'{"metadata":{"labels":{"a":"1"}}}'),
        Write(
            Verb.JSON_PATCH,
            PODS,
            ground.namespace,
            "p",
            b'[{"op":"add","path":"/metadata/annotations","value":{"b":"2"}}]',
        ),
        Write(Verb.MERGE, PODS, ground.namespace, "p", b'{"status":{"phase":"Running"}}', "status"),
    ]
    for write in patches:
        assert ground.send(write)[0].is_done
    pod = shown(ground.get(PODS, "p"))
    assert (pod["spec"]["nodeName"], pod["status"]["phase"]) == ("n", "Running")
    assert (pod["metadata"]["labels"], pod["metadata"]["annotations"]) == ({"a": "1"}, {"b": "2"})
    [deleted] = ground.send(Write(Verb.DELETE, PODS, ground.namespace, "p", b'{"gracePeriodSeconds":0}'))
    assert deleted.is_done
    ground.until(lambda: bool(ground.deltas(DeltaKind.GONE, "p")))


def test_a_replacement_goes_by_its_version(ground: Ground) -> None:
    ground.follow(Followed(LEASES, JobObject, namespace=ground.namespace))
    lease = ground.made(LEASES, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}})
    write = Write(Verb.REPLACE, LEASES, ground.namespace, "l", json.dumps(lease | {"spec": {}}).encode())
    assert [answer.status for answer in ground.send(write) + ground.send(write)] == [200, 409]


def test_written_object_is_delivered_before_the_write_result(ground: Ground) -> None:
    follow_pods(ground)
    writes = [creation(ground, f"p-{index}") for index in range(20)]
    ground.send(*writes)
    told: set[str] = set()
    for each in ground.came:
        if isinstance(each, WriteResult):
            assert each.write.name in told
        elif each.change is DeltaKind.SEEN:
            told.add(each.object.metadata.name)


def test_delivered_versions_only_increase(ground: Ground) -> None:
    follow_pods(ground)
    ground.send(*(creation(ground, f"p-{index}") for index in range(10)))
    for index in range(10):
        patch = f'{{"metadata":{{"labels":{{"v":"{index}"}}}}}}'.encode()
        ground.send(*(Write(Verb.MERGE, PODS, ground.namespace, f"p-{number}", patch) for number in range(10)))
    ground.made(PODS, a_pod("last"))
    ground.until(lambda: bool(ground.deltas(DeltaKind.SEEN, "last")))
    for name in (f"p-{index}" for index in range(10)):
        versions = [each.object.metadata.version for each in ground.deltas(DeltaKind.SEEN, name)]
        assert versions == sorted(set(versions))
        assert len(versions) == 11


def test_object_that_leaves_the_selection_is_gone(ground: Ground) -> None:
    ground.made(PODS, a_pod("p", metadata={"labels": {"sterna.dev/job": "j"}}))
    follow_pods(ground, labels="sterna.dev/job")
    ground.made(PODS, a_pod("other"))
    ground.patch(PODS, "p", {"metadata": {"labels": {"sterna.dev/job": None}}})
    ground.until(lambda: bool(ground.deltas(DeltaKind.GONE, "p")))
    assert ground.deltas(DeltaKind.SEEN, "other") == []


def test_refusals_carry_the_server_s_words(ground: Ground) -> None:
    follow_pods(ground)
    ground.made(PODS, a_pod("p", node="n"))
    taken, absent, invalid = ground.send(
        creation(ground, "p"),
        Write(Verb.DELETE, PODS, ground.namespace, "absent"),
        Write(Verb.CREATE, PODS, ground.namespace, "q", b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"q"}}'),
    )
    assert (taken.status, taken.reason) == (409, "AlreadyExists")
    assert (absent.status, absent.reason) == (404, "NotFound")
    assert (invalid.status, invalid.reason) == (422, "Invalid")
    assert "spec.containers" in invalid.message


def test_a_kind_is_absent_until_it_is_defined(ground: Ground) -> None:
    gadgets = Resource("contract.sterna.dev", "v1", "gadgets", "Gadget")
    ground.delete(DEFINITIONS, "gadgets.contract.sterna.dev")
    ground.follow(Followed(gadgets, JobObject, namespace=ground.namespace, is_optional=True))
    ground.until(lambda: bool(ground.deltas(DeltaKind.ABSENT)))
    assert "does not know gadgets.contract.sterna.dev" in ground.deltas(DeltaKind.ABSENT)[0].why
    define(ground, gadgets)
    ground.until(lambda: bool(ground.deltas(DeltaKind.SYNCED)))
    ground.made(gadgets, {"metadata": {"name": "g"}, "spec": {"size": 1}})
    ground.until(lambda: bool(ground.deltas(DeltaKind.SEEN, "g")))
    assert json.loads(bytes(ground.deltas(DeltaKind.SEEN, "g")[0].object.spec)) == {"size": 1}
    ground.delete(DEFINITIONS, "gadgets.contract.sterna.dev")
    ground.until(lambda: bool(ground.deltas(DeltaKind.GONE, "g")))


def test_many_pages_are_one_list(ground: Ground) -> None:
    define(ground, WIDGETS)
    names = {f"w-{index:04d}" for index in range(30)}
    for name in sorted(names):
        ground.made(WIDGETS, {"metadata": {"name": name}, "spec": {}})
    ground.follow(Followed(WIDGETS, JobObject, namespace=ground.namespace))
    ground.until(lambda: bool(ground.deltas(DeltaKind.SYNCED)))
    assert {each.object.metadata.name for each in ground.deltas(DeltaKind.SEEN)} == names


def test_a_lease_is_held_by_one_and_given_up(ground: Ground) -> None:
    first = Leadership(ground.server, ground.namespace, "sterna", "first", "10.0.0.1:8769")
    second = Leadership(ground.server, ground.namespace, "sterna", "second")
    first.step()
    second.step()
    assert (first.may_write(), second.may_write(), second.holder) == (True, False, "first")
    first.step()
    first.resign()
    second.step()
    assert (first.may_write(), second.may_write()) == (False, True)
    assert (first.last_error, second.last_error) == ("", "")
