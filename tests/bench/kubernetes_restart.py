"""Restart of an operator on a large cluster: time to the first decision, and memory.

The cluster is copied from one job, one of its pods and one foreign pod, each created through the API and run by a fake
kubelet; see `kubernetes_bulk_objects.py`. The first decision is seen from outside: the pod of a job that waits.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.bench.kubernetes_bulk_objects import copy, id_of, stored, write_all
from tests.bench.kubernetes_cluster import Cluster, a_cluster, an_operator
from tests.bench.kubernetes_load import JOBS, PODS, Sightings, burst, job_body, job_name, load_on
from tests.bench.measurement import Measurement, Say
from tests.kubernetes.api import until
from tests.kubernetes.operator_process import OperatorProcess

FIRST_NODE, NEWCOMER = "node-0000", "newcomer"
NODE, JOB, OWN_POD, OTHER_POD = range(4)
GPUS = 8
PATIENCE_SECONDS = 180.0


@dataclass(frozen=True)
class OperatorRestartCase:
    nodes: int
    pods: int
    """All of them, those of jobs included."""
    jobs: int
    """Of one device each, all running."""


def measure_restart(case: OperatorRestartCase, say: Say) -> Iterator[Measurement]:
    with a_cluster(1, GPUS) as cluster:
        with an_operator(cluster) as (operator, _):
            burst(cluster.kubeconfig, [job_body(job_name(0))], [], 1, PATIENCE_SECONDS)
            _run_another_pod(cluster)
            operator.stop()
        if cluster.nodes is not None:
            cluster.nodes.kill()  # nothing more happens on nodes
            cluster.nodes.wait()
        began = time.perf_counter()
        made = write_all(cluster.plane, _copies(cluster, case))
        say(f"{made:,} objects copied into etcd in {time.perf_counter() - began:.0f} s")
        with cluster.plane.api() as api:
            api.ask("POST", JOBS, json.loads(job_body(NEWCOMER)))
            api.get(f"{PODS}?labelSelector=no%3Dsuch")  # answered when the server itself has taken all of them in
            pods = 1 + int(api.get(f"{PODS}?limit=1")["metadata"]["remainingItemCount"])
        say(f"an operator comes back to {case.nodes:,} nodes and {pods:,} pods")
        seconds, cpu, memory = _first_decision_seconds(cluster)
    size = f"{case.nodes} nodes, {case.pods} pods"
    yield Measurement(f"restart, {size}, first decision", seconds, "s", 30.0, note=f"{cpu:.1f} s of CPU")
    yield Measurement(f"restart, {size}, peak memory", memory, "MB", 500.0)


def _first_decision_seconds(cluster: Cluster) -> tuple[float, float, float]:
    """From the operator's start to the newcomer's pod; what that took of CPU seconds and, at most, of megabytes."""

    async def whole() -> tuple[float, float, float]:
        async with load_on(cluster.kubeconfig) as load:
            newcomer = Sightings(lambda seen: True, 1)
            await load.watch(f"{PODS}?fieldSelector=metadata.name%3D{NEWCOMER}-worker-0", newcomer)
            began = time.perf_counter()
            with OperatorProcess(cluster.kubeconfig) as operator:
                await load.all_seen(newcomer, PATIENCE_SECONDS)
                return newcomer.last - began, operator.cpu_seconds, operator.peak_memory_bytes / 2**20

    return asyncio.run(whole())


def _run_another_pod(cluster: Cluster) -> None:
    """Return a foreign pod, which uses a little of its node."""
    container = {"name": "main", "image": "web:1", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    spec = {"containers": [container], "nodeName": FIRST_NODE}
    metadata = {"name": _other_name(0), "labels": {"app": "web", "pod-template-hash": "6d4b75cb6d"}}
    with cluster.plane.api() as api:
        api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        until(lambda: api.get(f"{PODS}/{_other_name(0)}")["status"].get("phase") == "Running")


def _copies(cluster: Cluster, case: OperatorRestartCase) -> Iterator[tuple[str, bytes]]:
    with cluster.plane.api() as api:
        job_uid = api.get(f"{JOBS}/{job_name(0)}")["metadata"]["uid"]
        own_uid = api.get(f"{PODS}/{job_name(0)}-worker-0")["metadata"]["uid"]
        other_uid = api.get(f"{PODS}/{_other_name(0)}")["metadata"]["uid"]
        node_uid = api.get(f"/api/v1/nodes/{FIRST_NODE}")["metadata"]["uid"]
    nodes, pods = "/registry/minions/", "/registry/pods/default/"
    jobs = "/registry/sterna.dev/trainingjobs/default/"
    node, job = stored(cluster.plane, nodes + FIRST_NODE), stored(cluster.plane, jobs + job_name(0))
    own, other = stored(cluster.plane, f"{pods}{job_name(0)}-worker-0"), stored(cluster.plane, pods + _other_name(0))
    for number in range(1, case.nodes):
        name = _node_name(number)
        yield nodes + name, copy(node, {FIRST_NODE: name, node_uid: id_of(NODE, number)})
    for number in range(1, case.jobs):
        name, place = job_name(number), _node_name(number // GPUS)
        ids = {job_uid: id_of(JOB, number), own_uid: id_of(OWN_POD, number)}
        changes = {job_name(0): name, FIRST_NODE: place, **ids}
        yield jobs + name, copy(job, changes)
        yield f"{pods}{name}-worker-0", copy(own, changes)
    for number in range(1, case.pods - case.jobs):
        name, place = _other_name(number), _node_name(number % case.nodes)
        changes = {_other_name(0): name, FIRST_NODE: place, other_uid: id_of(OTHER_POD, number)}
        yield pods + name, copy(other, changes)


def _node_name(number: int) -> str:
    return f"node-{number:04}"


def _other_name(number: int) -> str:
    return f"other-{number:06}"
