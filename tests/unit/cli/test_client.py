"""Commands that ask a running cluster, as a user types them: against the real API over a fake cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import sterna as package
from sterna.model.job import Resizing
from tests.fakes.http_server import MANIFEST, Served, served
from tests.unit.cli.conftest import Sterna


def environment() -> dict[str, str]:
    """For a process that imports what this one imports, from whatever folder."""
    return os.environ | {"PYTHONPATH": str(Path(package.__file__).parents[1])}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    state = tmp_path / "state"
    state.mkdir()
    monkeypatch.setenv("STERNA_STATE", str(state))
    monkeypatch.chdir(tmp_path)
    with served(state) as answering:
        yield answering


def test_a_command_is_submitted_from_this_folder(sterna: Sterna, cluster: Served, tmp_path: Path) -> None:
    run = sterna(
        "submit", "--name", "a", "--workers", "1:3", "--resizing", "restart", "--cpus", "0.5", "-e", "LR=1",
        "--checkpoint", "model.pt", "--", sys.executable, "t.py", "--x",
    )  # fmt: skip
    assert (run.code, run.out) == (0, "a is submitted; follow it with: sterna logs -f a\n")
    spec = cluster.cluster.specs["a"]
    assert spec.worker.command == (sys.executable, "t.py", "--x")
    assert (spec.minimum, spec.maximum, spec.worker.cpus) == (1, 3, 500)
    assert (spec.resizing, spec.checkpoint) == (Resizing.RESTART, "model.pt")
    assert spec.worker.working_dir == str(tmp_path)
    env = dict(spec.worker.env)
    assert env["LR"] == "1"
    assert "PATH" in env


def test_a_command_that_cannot_resize_runs_once_and_submit_says_why(sterna: Sterna, cluster: Served) -> None:
    run = sterna("submit", "--name", "a", "--workers", "1:4", "--", sys.executable, "t.py")
    spec = cluster.cluster.specs["a"]
    assert (spec.minimum, spec.maximum, spec.request, spec.resizing) == (1, 1, 1, Resizing.NONE)
    assert run.err.startswith("note: It runs with 1 worker, not with 1 to 4, because nothing says how it resizes;")
    assert "--resizing" in run.err


def test_a_job_without_a_name_gets_one_from_its_script(sterna: Sterna, cluster: Served) -> None:
    first = sterna("submit", "-q", "--", sys.executable, "My_Train.py").out.strip()
    second = sterna("submit", "-q", sys.executable, "My_Train.py", "--workers", "9").out.strip()
    assert first.startswith("my-train-")
    assert first != second
    assert cluster.cluster.specs[second].category == "my-train"
    assert cluster.cluster.specs[second].worker.command[-2:] == ("--workers", "9")


def test_manifests_are_created_from_a_file(sterna: Sterna, cluster: Served, tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text("---\n".join(MANIFEST.replace("NAME", name) for name in ("a", "b")))
    assert sterna("create", "-f", path, "-q").out == "a\nb\n"
    run = sterna("create", "-f", path)
    assert (run.code, run.err) == (2, "sterna: A job named 'a' exists already; choose another name.\n")


def test_a_wrong_manifest_names_the_file_and_the_line(sterna: Sterna, cluster: Served, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(MANIFEST.replace("NAME", "a").replace("command", "comand"))
    run = sterna("create", "-f", path)
    assert run.code == 2
    assert run.err == f"sterna: {path}, line 4: spec has no field 'comand'; did you mean 'command'?\n"


def test_jobs_are_listed_in_voda_s_columns(sterna: Sterna, cluster: Served) -> None:
    assert sterna("get", "jobs").err == "There are no jobs yet.\n"
    cluster.create("a")
    cluster.cluster.run("a", 1, 4)
    header, row = sterna("get", "jobs").out.splitlines()
    assert header.split() == ["NAME", "STATUS", "WORKERS", "SCHEDULER", "WAITING", "RUNNING", "TOTAL", "PROGRESS"]
    assert row.split() == ["a", "Running", "1", "local", "3s", "1m5s", "1m8s", "25", "%"]
    wide = sterna("get", "job", "a", "-o", "wide").out
    assert "loss 0.25" in wide
    assert "progressing" in wide


def test_lists_are_documents_too(sterna: Sterna, cluster: Served) -> None:
    cluster.create("a")
    assert json.loads(sterna("get", "jobs", "-o", "json").out)[0]["name"] == "a"
    assert yaml.safe_load(sterna("get", "nodes", "-o", "yaml").out)[1]["name"] == "node-1"
    assert "submitted" in sterna("get", "events", "a").out
    assert "affinity" in sterna("get", "nodes", "-o", "wide").out


def test_changes_are_printed_until_the_cluster_ends(cluster: Served) -> None:
    cluster.create("a", "b")
    command = [sys.executable, "-m", "sterna.cli", "get", "jobs", "a", "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as watching:
        assert watching.stdout is not None
        lines = (line.split()[:2] for line in watching.stdout)
        assert [next(lines), next(lines)] == [["NAME", "STATUS"], ["a", "Waiting"]]
        cluster.cluster.run("b", 1, 4)
        cluster.cluster.run("a", 1, 4)
        assert next(lines) == ["a", "Running"]
        cluster.cluster.end("a")
        assert next(lines) == ["a", "Completed"]
        cluster.server.stop()
        assert list(lines) == []
    assert watching.returncode == 0


def test_everything_about_a_job_is_described(sterna: Sterna, cluster: Served) -> None:
    cluster.create("a")
    cluster.cluster.run("a", 1, 4)
    out = sterna("describe", "job", "a").out
    for words in ("step 1 of 4 (25 %), loss 0.25", "Ends in:       1m5s", "worker-0   node-0", "a started on node-0."):
        assert words in out
    assert "affinity" in sterna("describe", "node", "node-0").out


def test_logs_are_printed_whole_or_their_end(sterna: Sterna, cluster: Served) -> None:
    cluster.create("a")
    cluster.cluster.logs["a"] = b"".join(b"line %d\n" % number for number in range(2000))
    assert sterna("logs", "a").out.splitlines() == [f"line {number}" for number in range(2000)]
    assert sterna("logs", "a", "--tail", "2").out == "line 1998\nline 1999\n"
    cluster.cluster.end("a")
    assert sterna("logs", "-f", "a", "--tail", "1").out == "line 1999\n"


def test_a_job_is_scaled_moved_and_deleted(sterna: Sterna, cluster: Served) -> None:
    cluster.create("a", "b")
    assert sterna("scale", "a", "2:5").out == "a may have 2 to 5 workers.\n"
    assert sterna("scale", "a", ":4").out == "a may have 2 to 4 workers.\n"
    assert sterna("migrate", "a", "node-1", "--checkpoint").code == 0
    assert cluster.cluster.moved == [("a", "node-1", True)]
    assert sterna("delete", "a", "b", "a").out == "a is deleted.\nb is deleted.\n"


def test_nodes_are_taken_out_of_use_and_back(sterna: Sterna, cluster: Served) -> None:
    assert sterna("cordon", "node-0", "node-1").out == "node-0 is cordoned.\nnode-1 is cordoned.\n"
    assert sterna("drain", "node-0").out == "node-0 is draining.\n"
    assert sterna("uncordon", "node-0").out == "node-0 is ready.\n"


def test_rules_are_seen_and_changed(sterna: Sterna, cluster: Served) -> None:
    assert "elastic-fifo" in sterna("policy", "get").out
    assert "srjf" in sterna("policy", "set", "srjf", "--rate-limit", "30").out
    assert sterna("policy", "get", "--json").document["rate_limit_seconds"] == 30.0
    assert cluster.cluster.in_force.policy == "srjf"


def test_reports_are_printed_and_exported(sterna: Sterna, cluster: Served) -> None:
    cluster.create("a")
    assert "nothing so far" in sterna("history", "a").out
    cluster.cluster.report("a", 1, 9, {"loss": 0.5})
    cluster.cluster.report("a", 2, 9, {"loss": 0.25})
    assert sterna("history", "a").out.splitlines()[0].split() == ["TIME", "ATTEMPT", "STEP", "TOTAL", "LOSS"]
    assert sterna("history", "a", "-o", "csv", "--last", "1").out.splitlines()[1].endswith(",2,9,0.25")


def test_explain_reads_the_cluster_or_a_journal(sterna: Sterna, cluster: Served) -> None:
    cluster.create("a")
    out = sterna("explain", "a").out
    assert "a under elastic-fifo / stay" in out
    assert "1 more core would start it now." in out
    assert sterna("explain", "a", "--json").document["state"] == "waits"
    assert sterna("explain", "a", "--at", "3").code == 2
    assert sterna("explain", "x", "y", "z").code == 2


def test_the_cluster_is_seen_at_a_glance(sterna: Sterna, cluster: Served) -> None:
    cluster.create("a")
    cluster.cluster.run("a", 1, 4)
    out = sterna("top", "--once").out
    assert "node-0" in out
    assert "a started on node-0." in out


def test_waiting_ends_when_the_job_has_come_so_far(sterna: Sterna, cluster: Served) -> None:
    cluster.create("a", "b")
    timer = threading.Timer(0.4, lambda: cluster.cluster.end("a"))
    timer.start()
    assert sterna("wait", "a", "--for=completed", "--timeout", "20").code == 0
    timer.join()
    assert sterna("wait", "a", "--for", "failed").code == 1
    run = sterna("wait", "b", "--timeout", "0.5")
    assert (run.code, run.err) == (1, "sterna: b did not come so far in time.\n")
    cluster.cluster.end("b", "failed")
    run = sterna("wait", "b")
    assert run.code == 1
    assert run.err.startswith("sterna: b has failed")
    assert sterna("wait", "a", "b", "--for", "ended").code == 0


def test_waiting_for_a_deletion(sterna: Sterna, cluster: Served) -> None:
    cluster.create("a", "b")
    timer = threading.Timer(0.4, lambda: cluster.cluster.delete(["a", "b"]))
    timer.start()
    assert sterna("wait", "a", "--for", "deleted", "--timeout", "20").code == 0
    timer.join()


def test_a_cluster_is_asked_at_an_address(
    sterna: Sterna, cluster: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STERNA_STATE", str(tmp_path / "nothing"))
    assert "node-0" in sterna("get", "nodes", "--server", cluster.server.url).out
    assert "node-0" in sterna("get", "nodes", "--server", cluster.server.url.removeprefix("http://")).out


REFUSED = [
    (["get", "jobs", "nope"], "There is no job 'nope'"),
    (["get", "things"], "There is nothing called 'things' to list; choose one of: events, jobs, nodes."),
    (["get", "jobs", "-o", "jsn"], "-o jsn: did you mean 'json'?"),
    (["describe", "jobb", "x"], "There is nothing called 'jobb' to describe; did you mean 'job'?"),
    (["create", "-f", "missing.yaml"], "missing.yaml: there is no such file"),
    (["create", "-f", "."], "this is a folder"),
    (["create"], "Missing option '--filename'"),
    (["submit"], "Missing argument"),
    (["submit", "--", "no-such-program"], "There is no command 'no-such-program'; check its name, or give its path."),
    (["submit", "--workers", "5:2", "--", "true"], "spec.workers: min 5 is more than max 2"),
    (["submit", "--name", "../x", "--", "true"], "metadata.name: expected a name of at most 63 small letters"),
    (["submit", "--cpus", "64", "--", "true"], "needs more cores than any node has"),
    (["submit", "-e", "NO_SUCH_VARIABLE", "--", "true"], "your environment has no such variable"),
    (["delete"], "Missing argument"),
    (["delete", "nope"], "There is no job 'nope'"),
    (["scale", "a", "x"], "'x' says no bounds"),
    (["scale", "a", "5:2"], "min 5 is above max 2"),
    (["migrate", "a", "nowhere"], "There is no node 'nowhere'"),
    (["cordon", "nowhere"], "There is no node 'nowhere'"),
    (["policy", "set"], "Nothing is to be changed"),
    (["policy", "set", "typo"], "There is no policy 'typo'"),
    (["wait", "a", "--for", "complete"], "--for complete: did you mean 'completed'?"),
    (["wait", "nope"], "There is no job 'nope'"),
    (["logs", "a", "--replica", "worker-9"], "has no replica 'worker-9'"),
    (["history", "a", "-o", "xml"], "-o xml:"),
    (["get", "jobs", "--server", "ftp://x"], "--server ftp://x: write an address such as http://127.0.0.1:8470."),
    (["get", "jobs", "--server", "127.0.0.1:1"], "no cluster answers there"),
    (["get", "jobs", "--state", "nowhere"], "No cluster runs in"),
    (["down", "--state", "nowhere"], "No cluster runs in"),
    (["up", "--tls-cert", "x"], "--tls-cert and --tls-key belong together"),
    (["explain", "nope"], "There is no job 'nope'"),
]


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_bad_input_is_one_sentence(sterna: Sterna, cluster: Served, arguments: list[str], sentence: str) -> None:
    cluster.create("a")
    run = sterna(*arguments)
    assert run.code == 2
    assert sentence in run.err
    assert run.err.count("\n") == 1
    assert "Traceback" not in run.err


COMMANDS = [
    "up",
    "down",
    "submit",
    "create",
    "get",
    "describe",
    "logs",
    "delete",
    "scale",
    "migrate",
    "cordon",
    "drain",
]
COMMANDS += ["uncordon", "top", "policy get", "policy set", "history", "wait", "explain"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(sterna: Sterna, name: str) -> None:
    run = sterna(*name.split(), "--help")
    assert run.code == 0
    assert f"  sterna {name}" in run.out
    assert "--state" in run.out


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("get", "Kind of object to list."),
        ("submit", "Command that every worker runs."),
        ("scale", "Number of workers: 2, 1:4"),
        ("policy set", "name or name:key=value"),
        ("replay", "File written with --journal."),
        ("trace info", "Trace file of any known format."),
        ("trace make", "poisson, bursty, fixed or random."),
    ],
)
def test_positional_arguments_are_explained_too_and_once(sterna: Sterna, name: str, says: str) -> None:
    help_ = sterna(*name.split(), "--help").out
    assert says in help_
    assert help_.lower().count("arguments:\n") == 1


@pytest.mark.parametrize("arguments", [["get", "jobs"], ["submit", "--", "true"]])
def test_asking_a_cluster_imports_nothing_heavy(cluster: Served, arguments: list[str]) -> None:
    heavy = ("numpy", "rich", "yaml", "pydantic", "fastapi", "http.client", "ssl", "asyncio")
    code = (
        f"import sys; from sterna.cli.main import main; code = main({arguments}); "
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    cluster.create("seen")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert done.stderr.strip() == "[]"
