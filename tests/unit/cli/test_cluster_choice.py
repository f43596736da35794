"""Selection of the cluster of a command, and errors if there is none or access is denied."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sterna.cli.plugin import run as plugin
from sterna.kinds.resource import PODS
from sterna.kinds.tf_job import TF_JOBS
from sterna.kinds.training_job import TRAINING_JOBS
from tests.fakes.kube_http import HttpKube
from tests.fakes.kube_requests import Response
from tests.unit.cli.cluster_builders import Lab, kubeconfig, tf_job
from tests.unit.cli.conftest import Run, Sterna
from tests.unit.cli.test_client import environment


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("STERNA_STATE", str(tmp_path / "nowhere"))
    kube = Lab()
    kube.training_job("a")
    with HttpKube(kube) as http:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, http)))
        yield kube


@pytest.fixture
def kubectl(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """`kubectl sterna ...`."""

    def run(*arguments: str) -> Run:
        capsys.readouterr()
        code = plugin(list(arguments))
        captured = capsys.readouterr()
        return Run(code, captured.out, captured.err)

    return run


def lists_a(run: Run) -> bool:
    assert run.code == 0, run.err
    return run.out.splitlines()[1].startswith("a ")


def test_a_context_a_kubeconfig_or_a_variable_mean_kubernetes(
    sterna: Sterna, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sterna("get", "jobs").err.startswith("sterna: No cluster runs in ")
    assert lists_a(sterna("get", "jobs", "--context", "lab"))
    assert lists_a(sterna("get", "jobs", "--kubeconfig", tmp_path / "kubeconfig"))
    monkeypatch.setenv("STERNA_CONTEXT", "lab")
    assert lists_a(sterna("get", "jobs"))
    assert sterna("get", "jobs", "--state", tmp_path / "other").err.startswith("sterna: No cluster runs in ")


def test_kubectl_s_plugin_asks_the_cluster_that_kubectl_would(kubectl: Callable[..., Run], lab: Lab) -> None:
    assert lists_a(kubectl("get", "jobs"))
    assert lists_a(kubectl("get", "jobs", "--context=lab", "--namespace", "default"))
    assert lists_a(kubectl("-n", "default", "--context=lab", "get", "jobs"))
    assert kubectl("-A", "get", "jobs").out.splitlines()[1].startswith("default/a ")
    assert kubectl("-n", "default", "policy", "get").err.startswith("sterna: No operator has ever held the Lease")
    run = kubectl("submit", "--name", "b", "--image", "i", "--", "python")
    assert run.out == "b is submitted; follow it with: kubectl sterna logs -f b\n"


def test_kubectl_s_plugin_offers_what_asks_a_cluster(kubectl: Callable[..., Run], lab: Lab) -> None:
    offered = kubectl("--help").out
    assert "explain" in offered
    assert "simulate" not in offered
    run = kubectl("get", "jbs")
    assert (run.code, "did you mean 'jobs'?" in run.err) == (2, True)
    assert "See 'kubectl sterna get --help'." in kubectl("get").err


def test_two_clusters_at_once_are_refused(sterna: Sterna, lab: Lab, tmp_path: Path) -> None:
    run = sterna("get", "jobs", "--context", "lab", "--server", "http://127.0.0.1:1")
    assert (run.code, run.err.count("\n")) == (2, 1)
    assert "--context names a Kubernetes cluster and --server another one; give one of them." in run.err
    run = sterna("get", "jobs", "-n", "team", "--state", tmp_path)
    assert (run.code, "-n is for Kubernetes clusters; add --context NAME" in run.err) == (2, True)


def test_options_are_listed_in_the_help(sterna: Sterna) -> None:
    for command in (("get",), ("logs",), ("policy", "get"), ("drain",)):
        out = sterna(*command, "--help").out
        assert "--context" in out
        assert "--all-namespaces" in out
    assert "--all-namespaces" not in sterna("simulate", "--help").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--context", "lib"), "There is no context 'lib' in "),
        (("--context", "away"), "The API server at http://127.0.0.1:9 cannot be reached"),
        (("--kubeconfig", "nowhere.yaml"), "There is no kubeconfig nowhere.yaml"),
    ],
    ids=["wrong-context", "no-server", "no-kubeconfig"],
)
def test_a_cluster_that_is_not_there_is_one_sentence(
    sterna: Sterna, lab: Lab, arguments: tuple[str, ...], message: str
) -> None:
    for command in (("get", "jobs"), ("explain", "a"), ("wait", "a")):
        run = sterna(*command, *arguments)
        assert (run.code, run.err.count("\n")) == (2, 1)
        assert run.err.startswith(f"sterna: {message}")


def test_no_definitions_are_one_sentence(sterna: Sterna, lab: Lab) -> None:
    for served in list(lab.rest.served.values()):
        if served.kind.endswith("Job"):
            lab.rest.withdraw(served)
    run = sterna("get", "jobs", "--context", "lab")
    expected = (
        "The cluster of the context 'lab' does not know the kind TrainingJob; install Sterna first: kubectl apply"
    )
    assert (run.code, run.err) == (2, f"sterna: {expected} -f deploy/sterna.yaml.\n")
    run = sterna("wait", "a", "--context", "lab")
    assert (run.code, run.err.count("\n")) == (2, 1)


def test_kinds_that_are_not_installed_hide_no_others(sterna: Sterna, lab: Lab) -> None:
    lab.rest.withdraw(TF_JOBS)
    assert lists_a(sterna("get", "jobs", "--context", "lab"))


def test_no_permission_is_one_sentence(sterna: Sterna, lab: Lab) -> None:
    lab.rest.forbidden = lambda seen: seen.verb == "list"
    run = sterna("get", "jobs", "--context", "lab")
    assert (run.code, run.err.count("\n")) == (2, 1)
    assert run.err.startswith("sterna: You (fake) may not list ")
    assert "ask the cluster's administrator for that right, or choose another context or namespace." in run.err
    lab.rest.forbidden = lambda seen: seen.verb == "delete"
    assert sterna("delete", "a", "--context", "lab").err.startswith("sterna: You (fake) may not delete trainingjobs")


def test_forbidden_kinds_are_named(sterna: Sterna, lab: Lab) -> None:
    lab.create(TF_JOBS, tf_job("t"))
    lab.rest.forbidden = lambda seen: seen.resource == TF_JOBS
    run = sterna("get", "jobs", "--context", "lab")
    assert lists_a(run)
    assert run.err.startswith("note: You (fake) may not list tfjobs")


def test_nodes_need_the_right_to_see_them(sterna: Sterna, lab: Lab) -> None:
    lab.rest.forbidden = lambda seen: seen.resource == PODS
    run = sterna("get", "nodes", "--context", "lab")
    assert (run.code, run.err.count("\n")) == (2, 1)
    assert "This needs to see the pods of the whole cluster, which you may not" in run.err


def test_a_login_that_has_ended_is_one_sentence(
    sterna: Sterna, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HttpKube(Lab()) as http:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, http)))
        http.answer_instead = lambda method, path: Response(401, b'{"reason": "Unauthorized", "message": "no"}')
        run = sterna("get", "jobs", "--context", "lab")
    assert (run.code, run.err.count("\n")) == (2, 1)
    assert "The cluster of the context 'lab' does not accept your login" in run.err


def test_a_server_that_is_no_api_server_is_an_error(
    sterna: Sterna, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HttpKube(Lab()) as http:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, http)))
        http.answer_instead = lambda method, path: Response(200, b"<html>hello</html>")
        run = sterna("get", "jobs", "--context", "lab")
    assert (run.code, run.err.count("\n")) == (2, 1)
    assert "What answers there is no API server" in run.err


def test_commands_on_one_machine_carry_nothing_of_kubernetes(tmp_path: Path) -> None:
    program = (
        "import sys; from sterna.cli.main import main; main(['get', 'jobs']);"
        "print([name for name in ('aiohttp', 'numpy', 'pydantic', 'yaml') if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=environment() | {"STERNA_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "[]\n"


def test_an_object_of_another_controller_is_no_job(sterna: Sterna, lab: Lab) -> None:
    """A TFJob with `managedBy` of another operator."""
    lab.create(TF_JOBS, tf_job("theirs", runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))
    lab.delete(TRAINING_JOBS, "a")
    assert sterna("get", "jobs", "--context", "lab").err == "There are no jobs yet.\n"
