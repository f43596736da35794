"""Under seeded faults deltas never go back in time, and the cache converges.

The real queue of writes and the real reflectors, on a server in memory and on virtual time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sterna.backends.kubernetes.api.resources import Delta, DeltaKind, Followed, Verb, Write, WriteResult
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.resource import PODS, Resource
from sterna.kinds.training_job import TRAINING_JOBS
from tests.fakes.kube import FakeKube
from tests.fakes.kube_client import FakeClient, Faults
from tests.fakes.kube_nodes import FakeNodes
from tests.fakes.kube_store import Refused

FAULTS = Faults(
    lost_before=0.05,
    lost_after=0.05,
    conflict=0.1,
    too_many=0.1,
    expired=0.02,
    broken=0.05,
    duplicated=0.2,
    answer_seconds=(0.002, 0.4),
    event_seconds=(0.01, 1.0),
)


def a_pod(name: str, node: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}}


class Told:
    """The cache that results from all deltas so far; each delta is checked."""

    def __init__(self, kube: FakeKube) -> None:
        self.kube, self.client, self.inbox = kube, kube.client(), kube.inbox()
        self.believed: dict[tuple[Resource, str], tuple[str, int]] = {}
        self.newest: dict[tuple[Resource, str], int] = {}
        self.answers: list[WriteResult] = []
        self.story: list[str] = []
        self.client.follow([Followed(PODS, Pod), Followed(TRAINING_JOBS, JobObject)], self.inbox)

    def hear(self) -> None:
        for each in self.inbox.take():
            if isinstance(each, WriteResult):
                self.answers.append(each)
                self.story.append(f"{each.status} {each.write.name}")
            elif each.object is not None:
                self._hear(each)

    def _hear(self, delta: Delta) -> None:
        meta = delta.object.metadata
        key = (delta.resource, meta.key)
        self.story.append(f"{delta.change.value} {meta.name}@{meta.version}")
        if delta.change is DeltaKind.GONE:
            assert self.believed.pop(key)[0] == meta.uid, "what was told to be gone was not there"
            return
        assert meta.version > self.newest.get(key, 0), "back in time"
        assert self.believed.get(key, (meta.uid, 0))[0] == meta.uid, "it changed its uid without an end"
        self.newest[key] = meta.version
        self.believed[key] = (meta.uid, meta.version)

    def truth(self) -> dict[tuple[Resource, str], tuple[str, int]]:
        metas = [
            (resource, each["metadata"]) for resource in (PODS, TRAINING_JOBS) for each in self.kube.items(resource)
        ]
        return {
            (resource, f"{meta['namespace']}/{meta['name']}"): (meta["uid"], int(meta["resourceVersion"]))
            for resource, meta in metas
        }


def some_writes(kube: FakeKube) -> Iterator[Write]:
    """Ours, on a handful of names, so that they meet one another and those of others."""
    name = f"p-{kube.luck.randrange(6)}"
    match kube.luck.randrange(4):
        case 0:
            yield Write(Verb.CREATE, PODS, "default", name, json.dumps(a_pod(name, "n")).encode())
        case 1:
            yield Write(Verb.DELETE, PODS, "default", name)
        case 2:
            body = json.dumps({"metadata": {"labels": {"v": str(kube.luck.random())}}}).encode()
            yield Write(Verb.MERGE, PODS, "default", name, body, slot=name)
        case _:
            body = json.dumps({"status": {"v": kube.luck.random()}}).encode()
            yield Write(Verb.MERGE, TRAINING_JOBS, "default", "job", body, "status", slot="job")


def meddle(kube: FakeKube, client: FakeClient) -> None:
    """Changes by other clients, and failures of watches."""
    name = f"p-{kube.luck.randrange(6)}"
    try:
        match kube.luck.randrange(8):
            case 0 | 1:
                kube.create(PODS, a_pod(name))
            case 2 | 3:
                kube.delete(PODS, name, gracePeriodSeconds=0)
            case 4:
                kube.store.compact()
                client.break_watches()
            case 5:
                client.expire_watches()
            case 6:
                client.bookmark()
            case _:
                client.break_watches()
    except Refused:
        return  # it was there already, or not


def run(seed: int) -> Told:
    kube = FakeKube(seed, FAULTS)
    FakeNodes(kube).add("n")
    kube.create(TRAINING_JOBS, {"metadata": {"name": "job"}, "spec": {}})
    told = Told(kube)
    for _ in range(150):
        told.client.send(list(some_writes(kube)))
        if kube.luck.random() < 0.3:
            meddle(kube, told.client)
        told.inbox.wait(kube.luck.uniform(0.0, 0.5))
        told.hear()
    kube.heal()
    kube.advance(60.0)
    told.hear()
    return told


@pytest.mark.parametrize("seed", range(25))
def test_deltas_never_go_back_and_converge(seed: int) -> None:
    told = run(seed)
    assert told.believed == told.truth()
    assert len(told.answers) == 150


def test_seed_gives_the_same_sequence_twice() -> None:
    assert run(3).story == run(3).story


def test_successor_of_a_crashed_operator_lists_everything() -> None:
    kube = FakeKube(5, FAULTS)
    first = Told(kube)
    first.client.send(
        [Write(Verb.CREATE, PODS, "default", f"p-{i}", json.dumps(a_pod(f"p-{i}")).encode()) for i in range(9)]
    )
    kube.advance(0.1)
    first.client.close()
    kube.heal()
    second = Told(kube)
    kube.advance(60.0)
    second.hear()
    assert second.believed == second.truth()
    assert all(each.status != 0 for each in first.answers)


def test_objects_of_a_deleted_owner_are_collected() -> None:
    kube = FakeKube()
    owner = kube.create(TRAINING_JOBS, {"metadata": {"name": "job"}, "spec": {}})
    reference = {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": "TrainingJob",
        "name": "job",
        "uid": owner["metadata"]["uid"],
    }
    pod = a_pod("p")
    pod["metadata"]["ownerReferences"] = [reference]
    kube.create(PODS, pod)
    kube.delete(TRAINING_JOBS, "job", propagationPolicy="Foreground")
    assert kube.find(TRAINING_JOBS, "job") is not None
    kube.advance(2.0)
    assert (kube.find(PODS, "p"), kube.find(TRAINING_JOBS, "job")) == (None, None)


def test_pods_run_end_and_are_refused_as_on_a_node() -> None:
    kube = FakeKube()
    nodes = FakeNodes(kube)
    nodes.add("n", cpus=2)
    for name, cpus in (("fits", "2"), ("not", "1")):
        pod = a_pod(name, "n")
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpus}}
        kube.create(PODS, pod)
    kube.advance(3.0)
    assert kube.get(PODS, "fits")["status"]["phase"] == "Running"
    assert kube.get(PODS, "not")["status"] == {
        "phase": "Failed",
        "reason": "OutOfcpu",
        "message": "Pod was rejected: OutOfcpu",
    }
    nodes.end("fits", exit_code=3, message="saved")
    ended = kube.get(PODS, "fits")["status"]
    assert ended["phase"] == "Failed"
    assert ended["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
