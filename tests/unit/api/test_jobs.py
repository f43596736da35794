"""Jobs over REST: proper status codes, all or none, nothing twice."""

from __future__ import annotations

import pytest

from tests.fakes.http_server import MANIFEST, Served

JOB = {
    "apiVersion": "sterna.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "a"},
    "spec": {"command": ["python", "train.py"]},
}


def job_named(name: str) -> dict[str, object]:
    return {**JOB, "metadata": {"name": name}}


def test_a_manifest_is_created_as_yaml_and_as_json(api: Served) -> None:
    reply = api.ask("POST", "/api/v1/jobs", MANIFEST.replace("NAME", "y"))
    assert (reply.status, reply.headers["location"]) == (201, "/api/v1/jobs/y")
    assert api.ask("POST", "/api/v1/jobs", job_named("j")).value["jobs"][0]["name"] == "j"
    assert [job["name"] for job in api.ask("GET", "/api/v1/jobs").value] == ["y", "j"]
    assert api.cluster.specs["y"].maximum == 2


def test_the_submitter_and_the_folder_go_with_the_job(api: Served) -> None:
    job = job_named("a")
    job["spec"] = {"command": ["x"], "workingDir": "sub"}
    assert api.ask("POST", "/api/v1/jobs?cwd=/data/me", job).status == 201
    spec = api.cluster.specs["a"]
    assert spec.worker.working_dir == "/data/me/sub"
    assert spec.user
    assert api.ask("POST", "/api/v1/jobs?cwd=elsewhere", job_named("b")).status == 422


def test_a_bulk_create_takes_all_or_none(api: Served) -> None:
    assert len(api.ask("POST", "/api/v1/jobs", [job_named(f"j{n}") for n in range(200)]).value["jobs"]) == 200
    reply = api.ask("POST", "/api/v1/jobs", [job_named("new"), job_named("j7")])
    assert (reply.status, reply.detail) == (409, "A job named 'j7' exists already; choose another name.")
    assert api.ask("GET", "/api/v1/jobs/new").status == 404


def test_the_same_key_creates_once(api: Served) -> None:
    for _ in range(2):
        reply = api.ask("POST", "/api/v1/jobs", JOB, Idempotency_Key="k1")
        assert (reply.status, [job["name"] for job in reply.value["jobs"]]) == (201, ["a"])
    assert len(api.cluster.happened) == 1
    assert api.ask("POST", "/api/v1/jobs", JOB, Idempotency_Key="k2").status == 409
    assert api.ask("POST", "/api/v1/jobs", JOB, Idempotency_Key="k" * 201).status == 422


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ("a: [", 422, "this is not YAML"),
        (
            MANIFEST.replace("NAME", "a").replace("command", "comand"),
            422,
            "the request, line 4: spec has no field 'comand'",
        ),
        ({"kind": "Job"}, 422, "the kind 'Job' cannot be run"),
        (
            JOB | {"spec": {"command": ["x"], "progress": {"stdout": "step=("}}},
            422,
            r"spec.progress.stdout: expected a regular expression with named groups such as step=(?P<step>\d+)",
        ),
        (JOB | {"spec": {"command": ["x"], "resources": {"cpu": 64}}}, 422, "more cores than any node has"),
    ],
)
def test_what_cannot_be_created_is_refused_and_not_stored(
    api: Served, body: object, status: int, sentence: str
) -> None:
    reply = api.ask("POST", "/api/v1/jobs", body)
    assert reply.status == status
    assert sentence in reply.detail
    assert reply.headers["content-type"] == "application/problem+json"
    assert api.cluster.views == {}


def test_a_body_that_cannot_be_read_is_a_bad_request(api: Served) -> None:
    assert api.ask("POST", "/api/v1/jobs", "{nope", Content_Type="application/json").status == 400
    api.create("a")
    assert api.ask("PATCH", "/api/v1/jobs/a", "nope").status == 400
    assert api.ask("PATCH", "/api/v1/jobs/a", {"minimum": "x"}).status == 422
    assert api.ask("PATCH", "/api/v1/jobs/a", {"least": 1}).status == 422


def test_volumes_alone_create_nothing_and_are_noticed(api: Served) -> None:
    reply = api.ask("POST", "/api/v1/jobs", "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n")
    assert (reply.status, reply.value["jobs"]) == (201, [])
    assert "Namespace x is left out" in reply.value["notices"][0]


def test_a_job_is_scaled_moved_reported_on_and_deleted(api: Served) -> None:
    api.create("a")
    assert api.ask("PATCH", "/api/v1/jobs/a", {"maximum": 4}).value["maximum"] == 4
    assert api.ask("PATCH", "/api/v1/jobs/a", {"minimum": 9}).status == 422
    assert api.ask("POST", "/api/v1/jobs/a/migrate", {"node": "node-1"}).value["nodes"] == ["node-1"]
    assert api.ask("POST", "/api/v1/jobs/a/migrate", {"node": "nowhere"}).status == 422
    assert api.ask("POST", "/api/v1/jobs/a/progress", {"step": 3, "total": 9, "metrics": {"loss": 0.5}}).status == 204
    assert api.ask("GET", "/api/v1/jobs/a/history").value[0]["metrics"] == {"loss": 0.5}
    assert api.ask("DELETE", "/api/v1/jobs/a").value["state"] == "deleting"
    assert api.ask("DELETE", "/api/v1/jobs/a").status == 404


def test_many_are_deleted_or_none(api: Served) -> None:
    api.create("a", "b", "c")
    assert api.ask("DELETE", "/api/v1/jobs?name=a&name=nope").status == 404
    assert len(api.cluster.views) == 3
    assert [job["name"] for job in api.ask("DELETE", "/api/v1/jobs?name=a&name=b").value] == ["a", "b"]
    assert api.ask("DELETE", "/api/v1/jobs").status == 422


@pytest.mark.parametrize("path", ["", "/log", "/explain", "/history"])
def test_a_job_that_is_not_there_is_not_found(api: Served, path: str) -> None:
    api.create("mnist")
    reply = api.ask("GET", f"/api/v1/jobs/mnits{path}")
    assert reply.status == 404
    assert "mnist" in reply.detail


@pytest.mark.parametrize("name", ["..", "%2e%2e", "..%2f..%2fetc", "a%00b", "A/../b", ".hidden", "-x"])
def test_a_name_cannot_leave_its_folder(api: Served, name: str) -> None:
    for method, path in (("GET", ""), ("GET", "/log"), ("DELETE", ""), ("GET", "/history"), ("GET", "/explain")):
        assert api.ask(method, f"/api/v1/jobs/{name}{path}").status in (404, 405)


def test_a_replica_s_name_cannot_leave_its_folder(api: Served) -> None:
    api.create("a")
    assert api.ask("GET", "/api/v1/jobs/a/log?replica=../../token").status == 422


def test_a_log_is_read_in_parts(api: Served) -> None:
    api.create("a")
    api.cluster.logs["a"] = b"one\ntwo\nthree\n"
    reply = api.ask("GET", "/api/v1/jobs/a/log?offset=4&limit=4")
    assert (reply.text, reply.headers["sterna-log-end"]) == ("two\n", "8")
    assert api.ask("GET", "/api/v1/jobs/a/log?offset=-6").text == "three\n"
    assert api.ask("GET", "/api/v1/jobs/a/log?replica=worker-9").status == 404
    assert api.ask("GET", "/api/v1/jobs/a/log?limit=0").status == 422


def test_explain_returns_the_events_of_a_job(api: Served) -> None:
    api.create("a")
    assert api.ask("GET", "/api/v1/jobs/a/explain").value["state"] == "waits"
