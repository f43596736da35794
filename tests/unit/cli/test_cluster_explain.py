"""`explain` and `migrate` on a Kubernetes cluster: recorded events, and answers of the operator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sterna.backends.kubernetes.api.resources import EVENTS
from sterna.backends.kubernetes.moves.manual import ManualMoves
from sterna.kinds.labels import MIGRATE_TO, RULES
from sterna.kinds.resource import PODS
from sterna.kinds.training_job import TRAINING_JOBS
from tests.fakes.kube_http import HttpKube
from tests.simulation.kubernetes_runs import Incarnation
from tests.unit.cli.cluster_builders import Lab, kubeconfig
from tests.unit.cli.conftest import Sterna

LAB = ("--context", "lab")
GPU = {"gpu": 1, "cpu": 1}
SRJF = {
    "policy": "srjf", "placement": "stay", "migration": "none", "cpu_share": "equal", "reservation": "serving",
    "rate_limit_seconds": 0.0,
}  # fmt: skip


class Scene:
    """A cluster of two nodes with two devices each, its operator, and commands on it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kube = Lab()
        for name in ("node-1", "node-2"):
            self.kube.nodes.add(name, gpus=2)
        self._folder, self._monkeypatch = folder, monkeypatch
        self.operator = self.begin()

    def begin(self) -> Incarnation:
        operator = Incarnation(self.kube)
        operator.before_reconcile.append(ManualMoves(operator.backend).process)
        return operator

    def pass_time(self, seconds: float = 10.0) -> None:
        self.operator.run_until(self.kube.now + seconds)

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Meanwhile commands may ask."""
        with HttpKube(self.kube) as http:
            self._monkeypatch.setenv("KUBECONFIG", str(kubeconfig(self._folder, http)))
            yield

    def nodes_of(self, job: str) -> list[str]:
        pods = [pod for pod in self.kube.items(PODS) if pod["metadata"]["name"].startswith(f"{job}-")]
        return [pod["spec"]["nodeName"] for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    def memory_of(self, job: str) -> dict[str, Any]:
        return dict(self.kube.get(TRAINING_JOBS, job)["status"]["sterna"])


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


def test_explain_names_what_would_start_a_waiting_job(sterna: Sterna, scene: Scene) -> None:
    scene.kube.training_job("first", workers=3, resources=GPU)
    scene.pass_time()
    scene.kube.training_job("second", workers=2, resources=GPU)
    scene.pass_time()
    with scene.serve():
        run = sterna("explain", "second", *LAB)
        document = sterna("explain", "second", *LAB, "--json").document
    assert run.code == 0
    assert "second under least-delay / stay, " in run.out
    assert "1 more device would start it now." in run.out
    assert document["state"] == "waits"
    assert [event["event"] for event in document["events"]] == ["submitted", "waits"]
    assert document["events"][-1]["sentence"] == "waits: 1 more device needed (1 free)."
    assert document["changes"][0] == {"change": "devices", "amount": 1, "sentence": "1 more device would start it now."}
    assert document["notices"] == [
        "No operator has ever held the Lease, so the usual rules are asked; see that one runs: sterna operator."
    ]


def test_explain_lists_the_events_of_a_running_job(sterna: Sterna, scene: Scene) -> None:
    scene.kube.training_job("a", workers="1:2", resources=GPU)
    scene.pass_time()
    with scene.serve():
        document = sterna("explain", "a", *LAB, "--json").document
    assert (document["state"], document["changes"]) == ("runs", [])
    assert [event["event"] for event in document["events"]] == ["submitted", "started", "runs"]
    assert document["events"][0]["sentence"] == "submitted: asks for 1 worker (1 to 2 possible)."
    assert document["events"][-1]["sentence"] == "runs with 2 workers on node-1."


def test_the_rules_are_those_that_the_operator_wrote_into_its_lease(sterna: Sterna, scene: Scene) -> None:
    scene.kube.hold_lease("2100-01-01T00:00:00.000000Z", **{RULES: json.dumps(SRJF)})
    scene.kube.training_job("a", workers=9, resources=GPU)
    scene.pass_time()
    with scene.serve():
        assert sterna("policy", "get", *LAB, "--json").document == SRJF
        document = sterna("explain", "a", *LAB, "--json").document
    assert document["policy"] == "srjf"
    assert "notices" not in document


def test_a_missing_operator_is_reported(sterna: Sterna, scene: Scene) -> None:
    scene.kube.hold_lease("2020-01-01T00:00:00.000000Z")
    scene.kube.training_job("a", workers=1, resources=GPU)
    with scene.serve():
        document = sterna("explain", "a", *LAB, "--json").document
    assert document["notices"][0].endswith("no job is scheduled; see that one runs.")
    assert document["events"][-1]["sentence"] == "waits: no operator has looked at it yet; see that one runs."
    assert document["changes"][0]["sentence"].startswith("There is room for it now")


def test_a_user_who_may_not_list_nodes_gets_the_events_only(sterna: Sterna, scene: Scene) -> None:
    scene.kube.training_job("a", workers=9, resources=GPU)
    scene.pass_time()
    scene.kube.rest.forbidden = lambda seen: seen.resource.kind in ("Node", "Lease")
    with scene.serve():
        document = sterna("explain", "a", *LAB, "--json").document
    assert document["changes"] == []
    assert any(notice.startswith("What would start it cannot be told.") for notice in document["notices"])


def test_a_job_goes_to_the_node_that_was_asked_for_once(sterna: Sterna, scene: Scene) -> None:
    scene.kube.training_job("a", workers=2, resources=GPU)
    scene.pass_time()
    assert scene.nodes_of("a") == ["node-1", "node-1"]
    with scene.serve():
        run = sterna("migrate", "a", "node-2", *LAB)
    assert (run.code, run.out) == (0, "a goes to node-2; it has moved 0 times so far.\n")
    scene.pass_time(30.0)
    assert scene.nodes_of("a") == ["node-2", "node-2"]
    assert scene.memory_of("a")["moves"] == 1
    reasons = [event["reason"] for event in scene.kube.items(EVENTS)]
    assert reasons.count("Moved") == 1


def test_a_request_is_not_carried_out_again_by_a_successor(sterna: Sterna, scene: Scene) -> None:
    scene.kube.training_job("a", workers=2, resources=GPU)
    scene.pass_time()
    scene.kube.patch(TRAINING_JOBS, "a", {"metadata": {"annotations": {MIGRATE_TO: "node-2"}}})
    scene.pass_time(30.0)
    scene.kube.patch(TRAINING_JOBS, "a", {"metadata": {"annotations": {MIGRATE_TO: "node-1 again"}}})
    scene.pass_time(30.0)
    scene.kube.patch(TRAINING_JOBS, "a", {"metadata": {"annotations": {MIGRATE_TO: "node-2"}}})
    scene.pass_time(30.0)
    assert scene.nodes_of("a") == ["node-2", "node-2"]
    assert scene.memory_of("a")["moves"] == 3
    scene.operator.client.close()
    scene.operator = scene.begin()
    scene.pass_time(30.0)
    assert scene.nodes_of("a") == ["node-2", "node-2"]
    assert scene.memory_of("a")["moves"] == 3


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("node-1", "Job 'a' is on node-1 already; name another node."),
        ("node-2", "node-2 has no room for the 2 workers of 'a'; name another node, or move others away first."),
        ("node-3", "There is no node 'node-3': did you mean"),
    ],
)
def test_a_move_that_cannot_be_is_refused_at_once(sterna: Sterna, scene: Scene, node: str, message: str) -> None:
    scene.kube.training_job("a", workers=2, resources=GPU)
    scene.pass_time()
    scene.kube.training_job("b", workers=1, resources=GPU)
    scene.pass_time()
    with scene.serve():
        run = sterna("migrate", "a", node, *LAB)
    assert (run.code, run.err.startswith(f"sterna: {message}")) == (2, True)
    assert MIGRATE_TO not in scene.kube.get(TRAINING_JOBS, "a")["metadata"].get("annotations", {})


def test_a_waiting_job_cannot_be_moved(sterna: Sterna, scene: Scene) -> None:
    scene.kube.training_job("a", workers=9, resources=GPU)
    scene.pass_time()
    with scene.serve():
        run = sterna("migrate", "a", "node-2", *LAB)
    assert (run.code, "does not run, so that it cannot be moved" in run.err) == (2, True)


def test_an_invalid_move_annotation_moves_no_job(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.kube.training_job("a", workers=2, resources=GPU)
    scene.pass_time()
    scene.kube.patch(TRAINING_JOBS, "a", {"metadata": {"annotations": {MIGRATE_TO: "nowhere"}}})
    scene.pass_time(30.0)
    assert scene.nodes_of("a") == ["node-1", "node-1"]
    [message] = caplog.messages
    assert message.startswith("Request to move the job rejected: There is no node 'nowhere'")


def test_a_drained_node_s_jobs_go_on_elsewhere(sterna: Sterna, scene: Scene) -> None:
    scene.kube.training_job("a", workers=2, resources=GPU)
    scene.pass_time()
    with scene.serve():
        assert sterna("drain", "node-1", *LAB).out == "node-1 is draining.\n"
    scene.pass_time(60.0)
    assert scene.nodes_of("a") == ["node-2", "node-2"]
