"""Requests of the operator and of a monitor, each with its own account, from the audit log of a real server.

Nothing that is asked is refused, and nothing is granted that is not asked for. One cluster sees a job of every kind
from its submission to its end; fake nodes run the pods, Kubeflow's MPI operator carries out what is its own. Of
KubeShare only the kind is there.
"""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sterna.backends.kubernetes.api.rbac import FENCE, Who, all_uses
from sterna.backends.kubernetes.monitor.host_paths import AGENT_VOLUME, Roots
from sterna.backends.kubernetes.monitor.main import MonitorAddresses, connect_monitor
from sterna.backends.kubernetes.monitor.monitor import MonitorOptions
from sterna.backends.kubernetes.transport.kubeconfig import access_of
from tests.deploy import chart
from tests.deploy.chart import NAMESPACE
from tests.deploy.permissions import granted, of_audit
from tests.kubernetes.api import Api, Object, until
from tests.kubernetes.binaries import KUBEFLOW, NotAvailable, module_folder
from tests.kubernetes.conftest import running_plane
from tests.kubernetes.control_plane import ControlPlane, Parts
from tests.kubernetes.fake_nodes import FakeNodes, fleet
from tests.kubernetes.mpi_operator import mpi_operator
from tests.kubernetes.operated import (
    JOBS,
    MPI_JOBS,
    PODS,
    PYTORCH_JOBS,
    SHARE_PODS,
    STEADY,
    TF_JOBS,
    Operated,
    a_training_job,
    example,
    install,
    nodes_of,
)
from tests.kubernetes.operator_process import OperatorProcess

ACCOUNT = {who: f"system:serviceaccount:{NAMESPACE}:sterna-{who.value}" for who in Who}
FLAGS = (f"--lease-namespace={NAMESPACE}", "--cpu-share=growth:interval=1")
NODES = 3


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    yield from running_plane(Parts(has_controllers=True, has_scheduler=True, is_audited=True))


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane) -> Iterator[Operated]:
    """The operator has the account and the name of a pod of its Deployment, so that the fence lets it through."""
    try:
        kubeflow = module_folder(KUBEFLOW) / "manifests" / "base" / "crds"
    except NotAvailable as error:
        pytest.skip(str(error))
    with plane.api() as api, mpi_operator(plane):
        install(api, chart.ONE_FILE)
        install(api, Path(__file__).with_name("sharepods.yaml"))
        install(api, *(kubeflow / f"kubeflow.org_{kind}.yaml" for kind in ("tfjobs", "pytorchjobs")))
        nodes = fleet(NODES, gpus=4, labels={"vodascheduler/accelerator": "a100"})
        with FakeNodes(plane.kubeconfig, nodes) as fakes:
            name = until(functools.partial(_replica, api), what="a pod of the operator's Deployment")
            login = plane.account(NAMESPACE, "sterna-operator", name)
            with OperatorProcess(login, f"--identity={name}", *STEADY, *FLAGS) as operator:
                cluster = Operated(plane, fakes, operator, api)
                cluster.until(lambda: operator.leads, "an operator that leads")
                yield cluster


def _replica(api: Api) -> str:
    pods = api.items(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io/component=operator")
    return next((pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"), "")


def test_everything_that_is_granted_is_asked_for_and_nothing_else(cluster: Operated, tmp_path: Path) -> None:
    _run_a_job_that_fails_twice(cluster)
    _run_kubeflows_kinds(cluster)
    _run_an_mpi_job(cluster)
    _share_gpus(cluster)
    _move_a_plain_pod_to_one_node_and_on_the_way_to_another(cluster)
    with _monitor(cluster, "node-0000", tmp_path):
        _run_a_job_that_stops_improving(cluster, "node-0000", tmp_path)
    cluster.operator.stop()
    for who in Who:
        requests = [each for each in cluster.plane.requests() if each["user"]["username"] == ACCOUNT[who]]
        refused = [each for each in requests if each["responseStatus"]["code"] == 403 and FENCE not in str(each)]
        assert [(each["verb"], each["objectRef"]) for each in refused] == []
        asked, may = of_audit(requests, ACCOUNT[who]), granted(all_uses(), who)
        assert (asked - may, may - asked) == (set(), set())


def _run_a_job_that_fails_twice(cluster: Operated) -> None:
    """An event with equal text is counted as a series; a job without a TTL is deleted."""
    cluster.submit(a_training_job("fails", ttl=0, restartPolicy="OnFailure"))
    for _ in range(2):
        (pod,) = cluster.until_running("fails", 1)
        cluster.nodes.end("fails-worker-0", exit_code=1)
        cluster.until(functools.partial(_is_another, cluster, "fails-worker-0", pod), "another pod")
    cluster.until_running("fails", 1)
    cluster.nodes.end("fails-worker-0")
    _until_gone(cluster, f"{JOBS}/fails")


def _is_another(cluster: Operated, name: str, pod: Object) -> bool:
    found = cluster.api.find(f"{PODS}/{name}")
    return found is not None and found["metadata"]["uid"] != pod["metadata"]["uid"]


def _run_kubeflows_kinds(cluster: Operated) -> None:
    for kind, name, path in (
        ("tfjob-under-kubeflow", "digits-annotated", TF_JOBS),
        ("pytorchjob", "bert", PYTORCH_JOBS),
    ):
        job = example(kind)
        job["spec"]["runPolicy"] = {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 0}
        cluster.submit(job)
        cluster.until(functools.partial(_are_running, cluster, name), f"all pods of {name}")
        for index in range(4):
            cluster.nodes.end(f"{name}-worker-{index}")
        _until_gone(cluster, f"{path}/{name}")


def _are_running(cluster: Operated, job: str) -> bool:
    return len(cluster.pods(job, "Running")) >= 4


def _run_an_mpi_job(cluster: Operated) -> None:
    cluster.submit(example("mpijob"))
    cluster.until(lambda: _is_running(cluster, "keras-worker-0"), "a worker that Sterna has bound")
    cluster.api.remove(f"{MPI_JOBS}/keras")
    cluster.until(lambda: cluster.api.find(f"{PODS}/keras-worker-0") is None, "the end of its workers")


def _is_running(cluster: Operated, name: str) -> bool:
    return bool((cluster.api.find(f"{PODS}/{name}") or {}).get("status", {}).get("phase") == "Running")


def _share_gpus(cluster: Operated) -> None:
    """A job that is suspended after its start, and an urgent SharePod of another owner."""
    cluster.submit(a_training_job("half", gpus=0.5))
    cluster.until(lambda: cluster.api.find(f"{SHARE_PODS}/half-worker-0"), "a SharePod of ours")
    cluster.api.patch(f"{JOBS}/half", {"metadata": {"annotations": {"sterna.dev/suspend": "true"}}})
    _until_gone(cluster, f"{SHARE_PODS}/half-worker-0")
    cluster.api.remove(f"{JOBS}/half")
    annotations = {"lsalab.nthu/priority": "high", "kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1.0"}
    meta = {"name": "urgent", "annotations": {**annotations, "kubeshare/gpu_mem": "1000"}}
    spec = {"containers": [{"name": "x", "image": "x"}]}
    cluster.submit({"apiVersion": "kubeshare.nthu/v1", "kind": "SharePod", "metadata": meta, "spec": spec})
    cluster.until(lambda: _has_gpu(cluster, "urgent"), "a node and a GPU for somebody's SharePod")
    cluster.api.remove(f"{SHARE_PODS}/urgent")


def _has_gpu(cluster: Operated, name: str) -> bool:
    share = cluster.api.get(f"{SHARE_PODS}/{name}")
    return bool(share["spec"].get("nodeName") and share["metadata"]["annotations"].get("kubeshare/GPUID"))


def _move_a_plain_pod_to_one_node_and_on_the_way_to_another(cluster: Operated) -> None:
    """It takes its time to stop, so that the second wish meets the record of the first."""
    pod = example("pod")
    del pod["spec"]["volumes"], pod["spec"]["containers"][0]["volumeMounts"]
    pod["spec"]["nodeName"] = "node-0000"
    pod["metadata"]["annotations"] = {"fake/stop-seconds": "15"}
    cluster.submit(pod)
    record = "/api/v1/namespaces/default/configmaps/sterna-move-job1"
    cluster.until(lambda: _is_running(cluster, "job1"), "the pod")
    _wish_for(cluster, "node-0001")
    cluster.until(lambda: (cluster.api.find(record) or {}).get("data", {}).get("node") == "node-0001", "a record")
    _wish_for(cluster, "node-0002")
    cluster.until(lambda: _is_running(cluster, "job1") and _is_on(cluster, "job1", "node-0002"), "the pod elsewhere")
    _until_gone(cluster, record)
    cluster.api.remove(f"{PODS}/job1", gracePeriodSeconds=0)


def _wish_for(cluster: Operated, node: str) -> None:
    cluster.api.patch(f"{PODS}/job1", {"metadata": {"annotations": {"sterna.dev/migrate-to": node}}})


def _is_on(cluster: Operated, pod: str, node: str) -> bool:
    return bool((cluster.api.find(f"{PODS}/{pod}") or {}).get("spec", {}).get("nodeName") == node)


@contextmanager
def _monitor(cluster: Operated, node: str, folder: Path) -> Iterator[None]:
    plane = cluster.plane
    token = access_of(str(plane.account(NAMESPACE, "sterna-monitor", audiences=("sterna",)))).token
    (folder / "token").write_text(str(token), encoding="utf-8")
    addresses = MonitorAddresses("127.0.0.1:0", lease_namespace=NAMESPACE, token_file=folder / "token")
    login = plane.account(NAMESPACE, "sterna-monitor")
    monitor = connect_monitor(MonitorOptions(node, Roots(folder, folder / "logs")), addresses, str(login))
    thread = threading.Thread(target=monitor.run)
    thread.start()
    try:
        yield
    finally:
        monitor.stop()
        thread.join()


def _run_a_job_that_stops_improving(cluster: Operated, node: str, folder: Path) -> None:
    """Without devices, on a node with a monitor: the job leaves its CPUs to others."""
    job = a_training_job("flat", gpus=0)
    job["spec"]["template"]["spec"] = {"nodeSelector": {"kubernetes.io/hostname": node}}
    cluster.submit(job)
    (pod,) = cluster.until_running("flat", 1)
    assert nodes_of([pod]) == [node]
    volume = folder / "pods" / pod["metadata"]["uid"] / "volumes" / "kubernetes.io~empty-dir" / AGENT_VOLUME
    volume.mkdir(parents=True)
    now = time.time()
    reports = [{"t": now - 60 + step, "step": step + 1, "total": 1000, "metrics": {"loss": 0.5}} for step in range(60)]
    (volume / "progress.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in reports), encoding="utf-8")
    asked = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    cluster.until(lambda: _cpu(cluster, "flat-worker-0") != asked, "another weight")
    cluster.api.remove(f"{JOBS}/flat")


def _cpu(cluster: Operated, pod: str) -> str:
    return str(cluster.api.get(f"{PODS}/{pod}")["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def _until_gone(cluster: Operated, path: str) -> None:
    cluster.until(lambda: cluster.api.find(path) is None, f"the end of {path}")
