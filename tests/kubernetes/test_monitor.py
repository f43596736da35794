"""A monitor and the operator's service on a real API server: pods of a node, the Lease, and tokens made for us."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sterna.backends.kubernetes.monitor.host_paths import AGENT_VOLUME, Roots
from sterna.backends.kubernetes.monitor.main import MonitorAddresses, RunningMonitor, connect_monitor
from sterna.backends.kubernetes.monitor.monitor import MonitorOptions
from sterna.backends.kubernetes.server.endpoints import EndpointSources, OperatorEndpoints
from sterna.backends.kubernetes.server.token_review import INVALID_TOKEN, TokenReviewer
from sterna.backends.kubernetes.transport.client import Client
from sterna.backends.kubernetes.transport.kubeconfig import access_of
from tests.fakes.operator_http import ServedEndpoints
from tests.fakes.replica import FakeReplica
from tests.kubernetes.api import PATIENCE_SECONDS, Api
from tests.kubernetes.control_plane import ControlPlane

ACCOUNT = "default/sterna-monitor"


@pytest.fixture(scope="module")
def accounts(plane: ControlPlane) -> None:
    """The monitors' account, as far as it matters here."""
    with plane.api() as api:
        meta = {"name": "sterna-monitor", "namespace": "default"}
        api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})


@pytest.fixture
def server(plane: ControlPlane) -> Iterator[Client]:
    client = Client(access_of(str(plane.kubeconfig)))
    yield client
    client.close()


def token_for(plane: ControlPlane, *audiences: str) -> str:
    access = access_of(str(plane.account("default", "sterna-monitor", audiences=audiences)))
    assert access.token
    return access.token


def test_only_tokens_that_were_made_for_us_are_good(plane: ControlPlane, accounts: None, server: Client) -> None:
    reviewer = TokenReviewer(server, "sterna")
    ours = reviewer.review(token_for(plane, "sterna"))
    assert ours.name == "system:serviceaccount:default:sterna-monitor"
    assert reviewer.review(token_for(plane)) is INVALID_TOKEN, "it was made for the API server"
    assert reviewer.review("made.up.token") is INVALID_TOKEN
    assert TokenReviewer(server).review(token_for(plane)).name == ours.name, "which is its audience by default"


def a_pod(name: str, node: str) -> dict[str, object]:
    container = {"name": "main", "image": "none"}
    meta = {"name": name, "namespace": "default", "labels": {"sterna.dev/job": "mnist"}}
    spec = {"nodeName": node, "containers": [container], "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def a_lease(address: str) -> dict[str, object]:
    meta = {"name": "sterna-operator", "namespace": "default", "annotations": {"sterna.dev/address": address}}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {}}


def test_report_of_a_pod_reaches_the_operator(
    plane: ControlPlane, accounts: None, api: Api, server: Client, tmp_path: Path
) -> None:
    woken = threading.Event()
    sources = EndpointSources(lambda: "now", dict, bytes, str, FakeReplica())
    endpoints = OperatorEndpoints(sources, TokenReviewer(server, "sterna"), woken.set, [ACCOUNT])
    http = ServedEndpoints(endpoints)
    api.create(a_lease(f"127.0.0.1:{http.port}"))
    api.create(a_pod("elsewhere", "node-2"))
    uid = api.create(a_pod("mnist-worker-0", "node-1"))["metadata"]["uid"]
    folder = tmp_path / "pods" / uid / "volumes" / "kubernetes.io~empty-dir" / AGENT_VOLUME
    folder.mkdir(parents=True)
    (folder / "progress.jsonl").write_text(
        f'{{"t": {time.time()}, "step": 7, "total": 9, "metrics": {{"loss": 0.5}}}}\n'
    )
    (tmp_path / "token").write_text(token_for(plane, "sterna"))
    addresses = MonitorAddresses("127.0.0.1:0", lease_namespace="default", token_file=tmp_path / "token")
    monitor = connect_monitor(
        MonitorOptions("node-1", Roots(tmp_path, tmp_path / "logs")), addresses, str(plane.kubeconfig)
    )
    thread = _start(monitor)
    try:
        assert woken.wait(PATIENCE_SECONDS)
        [batch] = endpoints.batches.take()
    finally:
        monitor.stop()
        thread.join()
        http.stop()
    [pod] = batch.pods
    assert (batch.node, pod.name, pod.uid, pod.reports[0].step) == ("node-1", "mnist-worker-0", uid, 7)


def _start(monitor: RunningMonitor) -> threading.Thread:
    thread = threading.Thread(target=monitor.run)
    thread.start()
    return thread
