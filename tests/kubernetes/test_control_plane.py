"""The harness itself, on a real server: the behaviour on which tests of the operator rely."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes import control_plane
from tests.kubernetes.api import MERGE, PATIENCE_SECONDS, Api, Refused, until
from tests.kubernetes.binaries import NotAvailable, found
from tests.kubernetes.control_plane import ControlPlane, free_ports, options
from tests.kubernetes.fake_nodes import FakeNodes, Habits, fleet

ROOT = Path(__file__).resolve().parents[2]
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def nodes(plane: ControlPlane) -> Iterator[FakeNodes]:
    with FakeNodes(plane.kubeconfig, fleet(2, gpus=1), Habits(has_logs=True)) as nodes:
        yield nodes


def a_pod(name: str, node: str = "node-0000", gpus: int = 0, **annotations: str) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    written = {f"fake/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": written},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "any", "resources": {"limits": limits}}],
        },
    }


def phase(api: Api, name: str) -> str:
    return str(api.get(f"{PODS}/{name}")["status"].get("phase"))


def test_a_pod_with_a_node_runs_and_is_gone_when_deleted(api: Api, nodes: FakeNodes) -> None:
    api.create(a_pod("runs"))
    until(lambda: phase(api, "runs") == "Running")
    api.delete(f"{PODS}/runs")
    until(lambda: api.find(f"{PODS}/runs") is None)


def test_an_ended_container_leaves_its_code_and_message(api: Api, nodes: FakeNodes) -> None:
    api.create(a_pod("ends"))
    until(lambda: phase(api, "ends") == "Running")
    nodes.end("ends", 3, "out of luck")
    until(lambda: phase(api, "ends") == "Failed")
    state = api.get(f"{PODS}/ends")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["message"]) == (3, "out of luck")


def test_a_device_is_not_given_twice(api: Api, nodes: FakeNodes) -> None:
    api.create(a_pod("has", "node-0001", gpus=1))
    until(lambda: phase(api, "has") == "Running")
    api.create(a_pod("wants", "node-0001", gpus=1))
    until(lambda: phase(api, "wants") == "Failed")
    assert api.get(f"{PODS}/wants")["status"]["reason"] == "OutOfnvidia.com/gpu"


def test_logs_come_from_the_node(api: Api, nodes: FakeNodes) -> None:
    api.create(a_pod("speaks", log="step 1\nstep 2\n"))
    until(lambda: phase(api, "speaks") == "Running")
    assert api.get(f"{PODS}/speaks/log") == "step 1\nstep 2\n"


def test_user_without_permission_is_rejected(plane: ControlPlane) -> None:
    with Api(plane.user("bob")) as bob, pytest.raises(Refused) as refused:
        bob.get(PODS)
    assert refused.value.status == 403


def test_bound_token_names_its_pod(plane: ControlPlane, api: Api, nodes: FakeNodes) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    api.create(account)
    pod = a_pod("holder")
    pod["spec"]["serviceAccountName"] = "robot"
    api.create(pod)
    with Api(plane.account("default", "robot", "holder")) as robot:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        user = robot.ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:default:robot"
    assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["holder"]


def test_watch_from_before_a_server_restart_expires(plane: ControlPlane, api: Api) -> None:
    old = api.get(PODS)["metadata"]["resourceVersion"]
    for number in range(3):
        api.patch("/api/v1/namespaces/default", {"metadata": {"annotations": {"tick": str(number)}}}, MERGE)
        api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"tick-{number}"}})
        api.create(a_pod(f"tick-{number}", node="nowhere"))
    plane.kill("kube-apiserver")
    plane.compact()
    plane.start_api_server()
    (event, *_) = api.watch(f"{PODS}?resourceVersion={old}", timeout_seconds=5)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def test_a_killed_harness_leaves_no_process() -> None:
    if found("etcd") is None or found("kube-apiserver") is None:
        pytest.skip("no control plane has been built; run make test-kubernetes")
    program = [sys.executable, "-m", "tests.kubernetes.control_plane", "up"]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True) as harness:
        assert harness.stdout is not None
        folder = Path(harness.stdout.readline().strip()).parent
        assert _processes_of(folder)
        harness.send_signal(signal.SIGKILL)
        harness.wait()
    until(lambda: not _processes_of(folder))
    for file in sorted(folder.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    folder.rmdir()


def test_harness_that_is_terminated_leaves_no_process() -> None:
    if found("etcd") is None or found("kube-apiserver") is None:
        pytest.skip("no control plane has been built; run make test-kubernetes")
    program = [sys.executable, "-m", "tests.kubernetes.control_plane", "up"]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True) as harness:
        assert harness.stdout is not None
        folder = Path(harness.stdout.readline().strip()).parent
        harness.terminate()
        assert harness.wait(PATIENCE_SECONDS) == 0
    assert not _processes_of(folder)
    assert not folder.exists()


def _processes_of(folder: Path) -> list[int]:
    """Return the processes with the folder in their command line."""
    mark, found_pids = str(folder).encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark in line:
                found_pids.append(int(entry.name))
    return found_pids


@pytest.mark.parametrize("words", [["up", "--controller-manager"], ["--controller-manager", "up"]], ids=" ".join)
def test_parts_may_be_asked_for_behind_the_verb(words: list[str]) -> None:
    assert options(words).controller_manager


def test_flags_of_the_command_are_its_own() -> None:
    asked = options(["run", "--scheduler", "pytest", "-q", "--audit"])
    assert (asked.scheduler, asked.audit, asked.command) == (True, False, ["pytest", "-q", "--audit"])


def test_port_that_was_taken_meanwhile_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        chosen = iter([[taken.getsockname()[1], *free_ports(2)]])
        monkeypatch.setattr(control_plane, "free_ports", lambda count: next(chosen, None) or free_ports(count))
        try:
            plane = ControlPlane()
        except NotAvailable as error:
            pytest.skip(str(error))
        with plane:
            assert str(taken.getsockname()[1]) not in plane.etcd
            assert plane.has("/readyz")
