"""A moved plain pod is created from a record that was written before its deletion (DRAGON-89)."""

from __future__ import annotations

from typing import Any

import pytest

from sterna.backends.kubernetes.pods.move_record import (
    move_record,
    pod_on_node,
    read_record,
    record_name,
    redirect_patch,
)
from sterna.errors import UserError

TOKEN = {"name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
DATA = {"name": "data", "mountPath": "/data"}
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "job1",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": "9",
        "creationTimestamp": "2024-05-01T12:00:00Z",
        "managedFields": [{"manager": "kubectl"}],
        "labels": {"sterna.dev/job": "job1", "app": "rnn"},
        "annotations": {"sterna.dev/csv": "/data/job1.csv"},
    },
    "spec": {
        "nodeName": "a",
        "serviceAccountName": "default",
        "containers": [{"name": "x", "image": "i", "volumeMounts": [DATA, TOKEN], "future": 1}],
        "initContainers": [{"name": "y", "image": "i"}],
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "kube-api-access-x7k2p", "projected": {}}],
    },
    "status": {"phase": "Running"},
}


def test_a_moved_pod_is_what_its_user_wrote_on_another_node() -> None:
    moved = pod_on_node(POD, "b", attempt=2)
    assert set(moved["metadata"]) == {"name", "namespace", "labels", "annotations"}
    assert moved["metadata"]["name"] == "job1"
    assert moved["metadata"]["labels"] == {"sterna.dev/job": "job1", "app": "rnn", "sterna.dev/attempt": "2"}
    assert moved["spec"]["nodeName"] == "b"
    assert moved["spec"]["volumes"] == [{"name": "data", "emptyDir": {}}]
    assert moved["spec"]["containers"] == [{"name": "x", "image": "i", "volumeMounts": [DATA], "future": 1}]
    assert "status" not in moved


def test_a_wish_to_be_moved_is_not_made_again_by_the_next_life() -> None:
    asked = {**POD, "metadata": {**POD["metadata"], "annotations": {"a": "b", "sterna.dev/migrate-to": "b"}}}
    assert pod_on_node(asked, "b", attempt=2)["metadata"]["annotations"] == {"a": "b"}


def test_a_record_holds_the_whole_move() -> None:
    record = move_record(POD, "b", attempt=2)
    assert record["metadata"] == {
        "name": record_name("job1"),
        "namespace": "team",
        "labels": {"sterna.dev/move": "true"},
    }
    move = read_record(record)
    assert (move.namespace, move.name, move.source, move.node, move.attempt) == ("team", "job1", "a", "b", 2)
    assert move.pod == pod_on_node(POD, "b", 2)


@pytest.mark.parametrize(
    "data", [{}, {"pod.json": "{}"}, {"pod.json": "no"}, {"pod.json": '{"metadata": {}}', "node": "b", "attempt": "x"}]
)
def test_a_modified_record_is_rejected_in_one_sentence(data: dict[str, str]) -> None:
    with pytest.raises(UserError, match="record of a move"):
        read_record({"metadata": {"name": "r"}, "data": data})


def test_names_of_records_fit() -> None:
    assert len(record_name("a" * 253)) == 253


def test_a_record_holds_the_uid_of_its_pod_and_older_records_hold_none() -> None:
    record = move_record(POD, "b", attempt=2)
    assert read_record(record).uid == "u"
    del record["data"]["uid"]
    assert read_record(record).uid == ""


def test_a_redirection_changes_where_a_pod_goes_and_which_life_of_it() -> None:
    record = move_record(POD, "b", attempt=2)
    record["data"] |= redirect_patch(read_record(record), "c", "later")["data"]
    move = read_record(record)
    assert (move.node, move.uid, move.source, move.attempt) == ("c", "later", "a", 2)
    assert move.pod == pod_on_node(POD, "c", 2)
