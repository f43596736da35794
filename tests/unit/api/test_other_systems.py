"""Endpoints that scripts of older systems know: Voda's, container-migration's, Kubeflow Trainer's."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.fakes.http_server import MANIFEST, Served
from tests.unit.kinds.manifest_texts import MPI_JOB

SMALL = MPI_JOB.replace("nvidia.com/gpu: 1", "cpu: 1")


def test_voda_creates_a_job_under_a_name_of_its_own(api: Served) -> None:
    """VODA-1, VODA-3 to 5."""
    first, second = (api.ask("POST", "/training", SMALL) for _ in range(2))
    lines = first.text.splitlines()
    name = lines[0].removeprefix("Training job created: ")
    assert (first.status, len(lines), lines[1]) == (200, 3, "View your logs by:")
    assert lines[2].startswith(f"    kubectl logs {name}-launcher")
    assert name.startswith("keras-2")
    spec = api.cluster.specs[name]
    assert (spec.category, dict(spec.replicas[0].env)["JOB_NAME"]) == ("keras", name)
    assert second.status == 200
    assert len(api.cluster.specs) == 2


def test_voda_s_manifests_may_be_json(api: Served) -> None:
    """VODA-2."""
    reply = api.ask("POST", "/training", json.dumps(yaml.safe_load(SMALL)))
    assert (reply.status, len(api.cluster.specs)) == (200, 1)


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ("a: [", 400, "not YAML"),
        (SMALL.replace("vodascheduler/accelerator", "other"), 422, "GPU type is not specified"),
        (SMALL.replace('"5"', '"x"'), 422, "EPOCHS is 'x'"),
        (f"{SMALL}---\n{SMALL}", 422, "one manifest at a time"),
    ],
)
def test_voda_s_mistakes_have_real_status_codes(api: Served, body: str, status: int, sentence: str) -> None:
    """VODA-9, VODA-10, VODA-12: nothing is stored."""
    reply = api.ask("POST", "/training", body)
    assert reply.status == status
    assert sentence in reply.detail
    assert api.cluster.views == {}


def test_voda_s_table_has_its_columns_and_widths(api: Served) -> None:
    """VODA-21, VODA-22."""
    api.create("b", "a")
    api.cluster.run("a", 1, 2)
    header, first, second = api.ask("GET", "/training").text.splitlines()
    widths = (60, 10, 10, 25, 10, 10)
    starts = [sum(widths[:n]) + n for n in range(7)]
    assert [header[start:].split()[0] for start in starts] == header.split()
    assert header.split() == ["NAME", "STATUS", "WORKERS", "SCHEDULER", "WAITING", "RUNNING", "TOTAL"]
    assert first.split() == ["a", "Running", "1", "local", "3s", "1m5s", "1m8s"]
    assert second.split()[:3] == ["b", "Waiting", "0"]


def test_voda_deletes_by_a_name_in_json(api: Served) -> None:
    """VODA-16, VODA-19."""
    api.create("a")
    assert api.ask("DELETE", "/training", "a").status == 400
    assert api.ask("DELETE", "/training", '"nope"').status == 404
    assert api.ask("DELETE", "/training", '"a"').text == "Training job deleted: a\n"


def test_voda_s_algorithm_and_rate_limit_are_checked(api: Served) -> None:
    """VODA-25, VODA-62."""
    assert api.ask("PUT", "/algorithm", '"srjf"').text == "Scheduler: local\nScheduling Algorithm: srjf\n"
    assert api.ask("PUT", "/algorithm", '"typo"').status == 422
    assert api.ask("PUT", "/algorithm", "typo").status == 400
    assert api.cluster.in_force.policy == "srjf"
    assert api.ask("PUT", "/ratelimit", "30").text.endswith("Re-scheduling ratelimit (sec): 30\n")
    assert api.ask("PUT", "/ratelimit", "-1").status == 422


@pytest.mark.parametrize(
    "name", ["FIFO", "ElasticFIFO", "SRJF", "ElasticSRJF", "Tiresias", "ElasticTiresias", "FfDLOptimizer", "AFS-L"]
)
def test_voda_s_allocator_answers_for_every_algorithm(api: Served, name: str) -> None:
    jobs = [
        {
            "job_name": f"j{n}",
            "config": {"num_proc": 1, "min_num_proc": 1, "max_num_proc": 4, "epochs": 5},
            "info": {"estimate_remainning_time_seconds": 60.0 + n, "speedup": {"1": 1, "2": 1.8, "3": 2.4, "4": 2.8}},
        }
        for n in range(3)
    ]
    body = {"SchedulerID": "x", "NumGpu": 4, "AlgorithmName": name, "ReadyJobs": jobs}
    given = api.ask("POST", "/allocation", body).value
    assert given.keys() == {"j0", "j1", "j2"}
    assert sum(given.values()) <= 4
    assert all(0 <= count <= 4 for count in given.values())


def test_voda_s_allocator_refuses_what_it_does_not_know(api: Served) -> None:
    body = {"NumGpu": 4, "AlgorithmName": "Typo", "ReadyJobs": [{"job_name": "a", "config": {}}]}
    assert api.ask("POST", "/allocation", body).status == 422
    assert api.ask("POST", "/allocation", "{").status == 400
    assert api.ask("POST", "/allocation", body | {"NumGpu": 0}).value == {"a": 0}


@pytest.mark.parametrize("pod", ["a", "a-worker-0", "a-worker-0-xk2p9"])
def test_a_value_reaches_its_job_by_the_pod_s_name(api: Served, pod: str) -> None:
    api.create("a")
    reply = api.ask("POST", "/monitor", {"pod": pod, "value": 0.75})
    assert (reply.status, reply.text) == (200, "Ok")
    assert api.cluster.reports["a"][0].metrics["value"] == 0.75


def test_a_monitor_survives_bad_samples(api: Served) -> None:
    assert api.ask("POST", "/monitor", {"pod": "nope", "value": 1}).status == 404
    assert api.ask("POST", "/monitor", "{").status == 400
    assert api.ask("POST", "/monitor", {"pod": "a", "value": "high"}).status == 422


def test_a_pod_leaves_for_the_least_loaded_node(api: Served) -> None:
    api.create("a")
    api.cluster.run("a", 1, 9, "node-0")
    assert api.ask("POST", "/migrate", {"node": "node-0", "pod": "a-worker-0"}).text == "Ok"
    api.server.stop()  # what was begun after the answer is finished first
    assert api.cluster.moved == [("a", "node-1", False)]


@pytest.mark.parametrize(
    ("node", "pod"), [("node-1", "a"), ("node-0", "a-ps-0"), ("node-0", "nope"), ("node-0", "x"), ("nowhere", "a")]
)
def test_a_move_that_cannot_be_made_has_no_effect(api: Served, node: str, pod: str) -> None:
    api.create("a")
    api.cluster.run("a", 1, 9, "node-0")
    assert api.ask("POST", "/migrate", {"node": node, "pod": pod}).text == "Ok"
    api.server.stop()
    assert api.cluster.moved == []


def test_a_job_that_has_moved_three_times_stays(api: Served) -> None:
    api.create("a")
    api.cluster.run("a", 1, 9, "node-0").moves = 3
    assert api.ask("POST", "/migrate", "{").status == 400
    api.ask("POST", "/migrate", {"node": "node-0", "pod": "a"})
    api.server.stop()
    assert api.cluster.moved == []


def test_cluster_info_has_container_migration_s_fields(api: Served) -> None:
    info = api.ask("GET", "/cluster-info").value["node-0"]
    assert (info["CpuTotal"], info["CpuFree"], info["CpuMaxRequest"], info["MemTotal"]) == (2000, 1000, 1000, 8 << 30)


@pytest.mark.parametrize(
    "path",
    ["/api/v1/jobs/a/trainer-status", "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/a/status"],
)
def test_an_unmodified_hugging_face_job_reports(api: Served, path: str) -> None:
    api.create("a")
    status = {
        "progressPercentage": 30,
        "estimatedRemainingSeconds": 10,
        "metrics": [
            {"name": "loss", "value": "0.5"},
            {"name": "current_step", "value": "30"},
            {"name": "total_steps", "value": "100"},
            {"name": "lr", "value": "nan"},
            {"name": "note", "value": "text"},
        ],
        "lastUpdatedTime": "2026-01-01T00:00:00Z",
    }
    assert api.ask("POST", path, {"trainerStatus": status}).status == 200
    report = api.cluster.reports["a"][0]
    assert (report.step, report.total, report.metrics) == (30, 100, {"loss": 0.5})


def test_a_percentage_alone_is_progress_too(api: Served) -> None:
    api.create("a")
    api.ask("POST", "/api/v1/jobs/a/trainer-status", {"trainerStatus": {"progressPercentage": 7}})
    assert (api.cluster.views["a"].step, api.cluster.views["a"].total) == (7, 100)
    status = {"progressPercentage": 50, "metrics": [{"name": "total_steps", "value": "900"}]}
    api.ask("POST", "/api/v1/jobs/a/trainer-status", {"trainerStatus": status})
    assert (api.cluster.views["a"].step, api.cluster.views["a"].total) == (450, 900)
    assert api.ask("POST", "/api/v1/jobs/a/trainer-status", json.dumps({})).status == 422


def test_any_kind_of_manifest_may_be_sent_to_voda_s_endpoint(api: Served) -> None:
    assert api.ask("POST", "/training", MANIFEST.replace("NAME", "a")).status == 200
