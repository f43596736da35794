"""`deploy/sterna.yaml` on real nodes, as its objects are: two replicas behind the fence, a monitor on each node.

No image of Sterna can be built here, so the containers run its source and this environment's packages, mounted into a
Debian of the same Python; all else (accounts, tokens, users, read-only file systems, probes) is the file's.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sterna.backends.kubernetes.api.rbac import FENCE
from tests.deploy import chart
from tests.deploy.chart import NAMESPACE
from tests.kubernetes.api import Api, Object, Refused
from tests.kubernetes.nodes.images import PYTHON, PYTHON_VERSION
from tests.kubernetes.nodes.machines import Machines
from tests.kubernetes.nodes.training import ROOT, a_counting_job
from tests.kubernetes.operated import PODS, Sight

SYSTEM_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/sterna-operator"
SET_UP = (
    (f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/sterna-operator", "readyReplicas", 2),
    (
        f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/sterna-monitor",
        "numberReady",
        2,
    ),
)
CHOSEN = {"STERNA_OPERATOR_CPU_SHARE": "growth:strict=true:interval=2"}
"""Settings that are changed in the file, as a user may."""
MOUNTED = {"/sterna": ROOT / "src", "/packages": Path(sysconfig.get_path("platlib"))}


class Logs:
    """Logs of the pods, for failure reports."""

    def __init__(self, machines: Machines) -> None:
        self._kubectl = functools.partial(machines.plane.kubectl, "-n", NAMESPACE)

    def output(self) -> str:
        selector = ("--selector=app.kubernetes.io/name=sterna", "--prefix", "--tail=20", "--ignore-errors")
        return self._kubectl("get", "pods", "-o", "wide") + self._kubectl("logs", *selector)


class Installed(Sight):
    """The cluster with everything that the file holds."""

    def __init__(self, machines: Machines, api: Api) -> None:
        super().__init__(machines.plane, Logs(machines), api)
        self.machines = machines

    @property
    def holder(self) -> str:
        return str((self.api.find(LEASE) or {}).get("spec", {}).get("holderIdentity", ""))

    def replicas(self) -> list[str]:
        found = self.api.items(f"{SYSTEM_PODS}?labelSelector=app.kubernetes.io/component=operator")
        return sorted(each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"])

    def may_write(self, replica: str) -> bool:
        """Return True if the server accepts a write with this replica's token."""
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}}
        pod["spec"] = {"containers": [{"name": "main", "image": PYTHON}]}
        with Api(self.plane.account(NAMESPACE, "sterna-operator", replica)) as as_replica:
            try:
                as_replica.ask("POST", f"{PODS}?dryRun=All", pod)
            except Refused as error:
                if FENCE not in error.message or error.status != 403:
                    raise
                return False
        return True

    def has_steps(self, job: str) -> bool:
        return bool(self.progress(job).get("step", 0) > 5)

    def progress(self, job: str) -> dict[str, Any]:
        return dict(self.job(job).get("status", {}).get("progress", {}))


@pytest.fixture(scope="module")
def everything(labelled: Machines) -> Iterator[Installed]:
    if sys.version_info[:2] != PYTHON_VERSION:
        ours, theirs = (".".join(map(str, version)) for version in (sys.version_info[:2], PYTHON_VERSION))
        pytest.skip(f"the containers have Python {theirs}, and cannot use the packages of this one, {ours}")
    with labelled.plane.api() as api:
        documents = [each for each in yaml.safe_load_all(chart.ONE_FILE.read_text(encoding="utf-8")) if each]
        for document in documents:
            api.apply(_without_image(document), document["metadata"].get("namespace", ""))
        cluster = Installed(labelled, api)
        try:
            for path, field, count in SET_UP:
                cluster.until(functools.partial(_has, api, path, field, count), f"{field} of {path}")
            cluster.until(lambda: cluster.holder in cluster.replicas(), "a leader")
            yield cluster
        finally:
            _remove(cluster, documents)


@pytest.fixture
def cluster(everything: Installed) -> Iterator[Installed]:
    yield everything
    everything.delete_all()


def _without_image(document: Object) -> Object:
    if document["kind"] not in ("Deployment", "DaemonSet"):
        return document
    spec = document["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    container |= {"image": PYTHON, "command": ["python3", "-m", "sterna.cli"]}
    for variable in container["env"]:
        if variable["name"] in CHOSEN:
            variable["value"] = CHOSEN[variable["name"]]
    container["env"].append({"name": "PYTHONPATH", "value": ":".join(MOUNTED)})
    for number, (place, folder) in enumerate(MOUNTED.items()):
        spec["volumes"].append({"name": f"code-{number}", "hostPath": {"path": str(folder)}})
        container["volumeMounts"].append({"name": f"code-{number}", "mountPath": place, "readOnly": True})
    return document


def _has(api: Api, path: str, field: str, count: int) -> bool:
    return bool(api.get(path).get("status", {}).get(field) == count)


def _remove(cluster: Installed, documents: list[Object]) -> None:
    """Everything but the definitions, which other tests go on with."""
    for document in reversed(documents):
        if document["kind"] != "CustomResourceDefinition":
            path = cluster.api._collection(document, document["metadata"].get("namespace", ""))
            cluster.api.remove(f"{path}/{document['metadata']['name']}")
    cluster.until(lambda: cluster.api.find(f"/api/v1/namespaces/{NAMESPACE}") is None, "the end of the namespace")


def a_speaking_job(name: str, script: str, gpus: int = 1, **progress: Any) -> Object:
    """One that knows nothing of Sterna."""
    volume = {"name": "metrics", "emptyDir": {}}
    container = {"name": "worker", "volumeMounts": [{"name": "metrics", "mountPath": "/metrics"}]}
    loop = f"n=0; while :; do n=$((n+1)); {script}; sleep 0.2; done"
    spec = {
        "image": PYTHON,
        "command": ["sh", "-c", loop],
        "resources": {"cpu": "50m", "memory": "64Mi", "gpu": gpus},
        "grace": "1s",
        "template": {"spec": {"containers": [container], "volumes": [volume]}},
        "progress": {"total": 100_000, **progress},
    }
    return {"apiVersion": "sterna.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}


def test_progress_of_real_pods_reaches_their_statuses(cluster: Installed) -> None:
    """By the agent's files, by a CSV file in a volume, by output: read by the monitor of the pod's node."""
    cluster.submit(a_counting_job(cluster.machines, "agent", 100_000))
    cluster.submit(a_speaking_job("output", 'echo "step=$n loss=0.5"'))
    csv = "[ $n -gt 1 ] || echo Steps,Loss > /metrics/loss.csv; echo $n,0.5 >> /metrics/loss.csv"
    cluster.submit(a_speaking_job("file", csv, csv="/metrics/loss.csv"))
    for name in ("agent", "output", "file"):
        cluster.until(functools.partial(cluster.has_steps, name), f"steps of {name}")
        progress = cluster.progress(name)
        assert (progress["total"], progress["metric"].lower()) == (100_000, "loss")
        assert progress["value"] > 0


def test_a_replica_that_was_frozen_writes_nothing_when_it_wakes_up(cluster: Installed) -> None:
    cluster.submit(a_counting_job(cluster.machines, "kept", 100_000))
    (before,) = cluster.until_running("kept", 1)
    old = cluster.holder
    cluster.until(lambda: cluster.may_write(old), "that the holder may write")
    (standby,) = (name for name in cluster.replicas() if name != old)
    assert not cluster.may_write(standby)
    frozen = process_of(old)
    os.kill(frozen, signal.SIGSTOP)
    try:
        cluster.until(lambda: cluster.holder == standby, "a takeover")
        cluster.until(lambda: cluster.may_write(standby), "that the new holder may write")
        assert not cluster.may_write(old)
    finally:
        os.kill(frozen, signal.SIGCONT)
    cluster.submit(a_counting_job(cluster.machines, "next", 100_000))
    cluster.until_running("next", 1)
    (after,) = cluster.pods("kept")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


def test_a_job_that_no_longer_improves_leaves_its_cpu_to_others_without_a_restart(cluster: Installed) -> None:
    """Its CPU request is its weight; the kubelet changes it while the container runs."""
    cluster.submit(a_speaking_job("flat", 'echo "step=$n loss=0.5"', gpus=0))
    (before,) = cluster.until_running("flat", 1)
    assert requested_cpu(before["spec"]["containers"][0]) == "50m"
    cluster.until(lambda: in_force(cluster, "flat") not in ("", "50m"), "another weight")
    (after,) = cluster.pods("flat")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0


def requested_cpu(container: Object) -> str:
    return str(container.get("resources", {}).get("requests", {}).get("cpu", ""))


def in_force(cluster: Installed, job: str) -> str:
    """Return the allocated CPU in the pod's status, once it equals the request."""
    (pod,) = cluster.pods(job)
    wanted, given = requested_cpu(pod["spec"]["containers"][0]), requested_cpu(pod["status"]["containerStatuses"][0])
    return given if given == wanted else ""


def process_of(pod: str) -> int:
    """Processes of nodes are seen from here, each with the variables that its pod was given."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"POD_NAME={pod}".encode() in variables:
            return int(folder.name)
    raise AssertionError(f"{pod} has no process")
