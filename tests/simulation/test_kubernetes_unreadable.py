"""Invalid objects: the error is in their status where the kind allows it, and they are left alone."""

from __future__ import annotations

from typing import Any

import pytest

from sterna.backends.kubernetes.api.resources import EVENTS
from sterna.kinds.mpi_job import MPI_JOBS
from sterna.kinds.resource import PODS, Resource
from tests.fakes.kube_store import Object
from tests.simulation.kubernetes_mpi import an_mpi_job
from tests.simulation.kubernetes_runs import Cluster


def a_cluster() -> Cluster:
    cluster = Cluster()
    cluster.nodes.add("node-0", gpus=4)
    cluster.start()
    return cluster


def an_odd_mpi_job() -> Object:
    job = an_mpi_job("odd", 2)
    job["metadata"].setdefault("annotations", {})["sterna.dev/priority"] = "very"
    return job


def an_odd_pod() -> Object:
    meta = {"name": "odd", "labels": {"sterna.dev/job": "odd"}, "annotations": {"sterna.dev/priority": "very"}}
    return {"metadata": meta, "spec": {"nodeName": "node-0", "containers": [{"name": "train", "image": "train"}]}}


ODD = [pytest.param(MPI_JOBS, an_odd_mpi_job(), id="MPIJob"), pytest.param(PODS, an_odd_pod(), id="Pod")]


@pytest.mark.parametrize(("resource", "odd"), ODD)
def test_an_invalid_object_of_a_foreign_kind_gets_annotations_and_its_status_is_not_touched(
    resource: Resource, odd: dict[str, Any]
) -> None:
    cluster = a_cluster()
    cluster.kube.create(resource, odd)
    cluster.run(5.0)
    assert cluster.operator is not None
    writes = [write for write in cluster.operator.client.sent if write.resource == resource]
    assert [write.subresource for write in writes] == [""]
    annotations = cluster.kube.get(resource, "odd")["metadata"]["annotations"]
    assert annotations["sterna.dev/phase"] == "Invalid"
    assert "sterna.dev/priority is 'very'" in annotations["sterna.dev/reason"]
    notes = [event["note"] for event in cluster.kube.items(EVENTS) if event["regarding"]["name"] == "odd"]
    assert len(notes) == 1
    assert "sterna.dev/priority is 'very'" in notes[0]


@pytest.mark.parametrize(("resource", "odd"), ODD)
def test_an_invalid_object_runs_once_corrected_and_is_dropped_once_deleted(
    resource: Resource, odd: dict[str, Any]
) -> None:
    cluster = a_cluster()
    cluster.kube.create(resource, odd)
    cluster.run(5.0)
    assert cluster.operator is not None
    state = cluster.operator.backend.state
    assert not any(entry.wants_to_run for entry in state.entries.values())
    cluster.kube.patch(resource, "odd", {"metadata": {"annotations": {"sterna.dev/priority": "1"}}})
    cluster.run(5.0)
    assert [entry.wants_to_run for entry in state.entries.values()] == [True]
    cluster.kube.patch(resource, "odd", {"metadata": {"annotations": {"sterna.dev/priority": "high"}}})
    cluster.kube.delete(resource, "odd")
    cluster.run(60.0)
    assert state.entries == {}


def test_a_pod_that_cannot_be_understood_and_is_deleted_leaves_nothing_behind() -> None:
    cluster = a_cluster()
    cluster.kube.create(PODS, an_odd_pod())
    cluster.run(5.0)
    cluster.kube.delete(PODS, "odd")
    cluster.run(5.0)
    assert cluster.operator is not None
    assert cluster.operator.backend.state.entries == {}
