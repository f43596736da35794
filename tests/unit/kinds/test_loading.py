"""Manifests become jobs: every kind, several in one file, with a notice for each ignored field."""

from __future__ import annotations

from pathlib import Path

import pytest

from sterna.kinds.environment.mpi import with_local_paths
from sterna.kinds.loading import load, load_values
from sterna.model.job import JobSpec, Resizing, RestartPolicy
from tests.published import MANIFESTS
from tests.unit.kinds.manifest_texts import MPI_JOB, POD, PYTORCH_JOB, SERVING, TF_JOB, TRAINING_JOB, VOLUME


def only(text: str) -> JobSpec:
    (job,) = load(text, "job.yaml").jobs
    return job


def test_ten_lines_make_an_elastic_job() -> None:
    job = only(TRAINING_JOB)
    assert (job.minimum, job.maximum, job.request) == (1, 4, 1)
    assert job.worker.command == ("python", "train.py", "--lr", "0.1")
    assert (job.worker.cpus, job.worker.devices, job.worker.memory_bytes) == (500, 500, 2 << 30)
    assert (job.progress.total, job.grace_seconds) == (1000, 120.0)
    assert job.notices == ()


def test_a_training_job_needs_a_name_and_a_command_only() -> None:
    job = only(
        "apiVersion: sterna.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: a}\nspec: {command: python t.py}\n"
    )
    assert job.worker.command == ("python", "t.py")
    assert (job.minimum, job.maximum, job.worker.cpus) == (1, 1, 0)
    assert (job.restart, job.resizing) == (RestartPolicy.ON_FAILURE, Resizing.NONE)


def test_parameter_servers_stay_while_workers_come_and_go() -> None:
    job = only(TRAINING_JOB + "  env: {A: 1}\n  parameterServers: {command: [python, ps.py], env: {B: x}}\n")
    assert [(each.type, each.count) for each in job.replicas] == [("worker", 1), ("ps", 1)]
    assert dict(job.replicas[1].env) == {"A": "1", "B": "x"}
    assert job.worker.type == "worker"


def test_a_tf_job_has_e_dragon_s_bounds_and_kubeshare_s_share() -> None:
    job = only(TF_JOB)
    assert (job.minimum, job.maximum, job.request) == (1, 4, 3)
    assert [(each.type, each.count) for each in job.replicas] == [("worker", 3), ("ps", 1)]
    assert job.worker.devices == 251  # rounded up to thousandths
    assert (job.worker.cpus, job.worker.memory_bytes) == (2000, 1 << 30)
    assert (job.restart, job.grace_seconds) == (RestartPolicy.EXIT_CODE, 7.0)


def test_a_plain_tf_job_keeps_its_number_of_workers() -> None:
    text = TF_JOB.replace("  max-instances: 4\n  min-instances: 1\n", "")
    job = only(text)
    assert (job.minimum, job.maximum) == (3, 3)


def test_an_mpi_job_is_bounded_by_voda_s_variables() -> None:
    job = only(MPI_JOB)
    assert (job.minimum, job.maximum, job.request, job.priority) == (1, 4, 2, -1)
    assert (job.category, job.progress.total, job.progress.sources["csv"]) == ("keras", 5, "/metrics/keras.csv")
    launcher, worker = job.replicas
    assert launcher.command[2].startswith("run -np 1 --name keras --epochs 5 --cost $5 $(NOPE) ")
    assert dict(launcher.env)["JOB_NAME"] == "keras"
    assert (worker.command, worker.devices, worker.count) == ((), 1000, 2)


@pytest.mark.parametrize(
    ("old", "new", "bounds"),
    [
        ('{name: NP, value: "2"}', '{name: NUM_PROC, value: "3"}', (1, 4, 3)),
        ('{name: NP, value: "2"}', '{name: OTHER, value: "2"}', (1, 4, 1)),
        ('{name: MAX_NP, value: "4"}', '{name: MAX_NUM_PROC, value: "8"}', (1, 8, 2)),
    ],
)
def test_voda_s_variables_have_two_names_and_defaults(old: str, new: str, bounds: tuple[int, int, int]) -> None:
    job = only(MPI_JOB.replace(old, new))
    assert (job.minimum, job.maximum, job.request) == bounds


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("bash", "-c", "run -f /etc/mpi/hostfile x"), ("bash", "-c", "run -f ${STERNA_HOSTFILE} x")),
        (("run", "a b", "-f=/etc/mpi/hostfile"), ("/bin/sh", "-c", "exec run 'a b' -f=\"$STERNA_HOSTFILE\"")),
        (("run", "/etc/mpi/discover_hosts.sh"), ("/bin/sh", "-c", 'exec run "$STERNA_DISCOVER_HOSTS"')),
        (("run", "/etc/mpi/hostfile.old"), ("run", "/etc/mpi/hostfile.old")),
    ],
)
def test_files_of_the_mpi_operator_are_found_where_they_are_here(
    command: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert with_local_paths(command) == expected


def test_an_mpi_job_without_variables_has_the_workers_of_its_spec() -> None:
    text = "\n".join(line for line in MPI_JOB.replace("replicas: 1", "replicas: 3").splitlines() if "_NP" not in line)
    job = only(text.replace("{name: NP,", "{name: OTHER,"))
    assert (job.minimum, job.maximum, job.request) == (3, 3, 3)


def test_an_elastic_pytorch_job_is_resized_by_torchrun() -> None:
    job = only(PYTORCH_JOB)
    assert (job.minimum, job.maximum, job.request) == (1, 3, 2)
    assert job.resizing is Resizing.TORCHRUN
    assert (job.backoff_limit, job.ttl_seconds, job.deadline_seconds) == (3, 60.0, 3600.0)
    assert (job.worker.cpus, job.worker.devices) == (500, 1000)


def test_the_success_policy_of_a_tfjob_decides_which_workers_end_it() -> None:
    """DRAGON-45."""
    text = TF_JOB.replace("  cleanPodPolicy:", "  successPolicy: AllWorkers\n  cleanPodPolicy:")
    assert [only(each).is_done_by_first for each in (TF_JOB, text)] == [True, False]
    assert not any("successPolicy" in notice for notice in only(text).notices)


def test_replica_types_keep_their_own_restart_policies() -> None:
    """DRAGON-42."""
    job = only(TF_JOB)
    assert [job.restart_of(each) for each in ("worker", "ps")] == [RestartPolicy.EXIT_CODE, RestartPolicy.ON_FAILURE]


def test_the_default_number_of_retries_depends_on_the_kind() -> None:
    """DRAGON-43: Kubeflow's operator has no limit then, the Job of an MPI launcher has six."""
    assert [only(each).backoff_limit for each in (TF_JOB, MPI_JOB)] == [None, 6]


def test_a_pod_is_a_job_of_one_worker() -> None:
    job = only(POD)
    assert (job.minimum, job.maximum, job.restart) == (1, 1, RestartPolicy.NEVER)
    assert job.worker.command == ("python", "app.py", "/data/rnn.csv", "rnn")
    assert job.progress.sources["csv"] == "/data/rnn.csv"
    assert dict(job.worker.env) == {"POD_NAME": "rnn", "NODE_IP": "127.0.0.1"}


@pytest.mark.parametrize("text", [TF_JOB, MPI_JOB, PYTORCH_JOB, POD])
def test_the_image_is_ignored_and_that_is_said(text: str) -> None:
    assert any(notice.startswith("The image registry.example/") for notice in only(text).notices)


def test_what_kubernetes_knows_and_we_do_not_use_is_said() -> None:
    assert "'volumes' has no meaning here and is left out." in only(POD).notices


def test_a_file_may_hold_many_documents() -> None:
    loaded = load(f"{TRAINING_JOB}---\n---\n{POD}---\n{VOLUME}", "jobs.yaml")
    assert [job.name for job in loaded.jobs] == ["mnist", "rnn"]
    assert loaded.notices == (
        "jobs.yaml, line 29: PersistentVolumeClaim logs is left out: jobs use the files of this machine.",
    )


def test_lists_are_taken_apart() -> None:
    item = {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "a"},
        "spec": {"command": ["x"]},
    }
    other = item | {"metadata": {"name": "b"}}
    assert [job.name for job in load_values([item, other], "x").jobs] == ["a", "b"]
    assert [job.name for job in load_values([{"kind": "List", "items": [item, other]}], "x").jobs] == ["a", "b"]


def test_json_indented_with_tabs_is_read() -> None:
    head = '{\n\t"apiVersion": "v1", "kind": "Pod",\n\t"metadata": {"name": "p"}, '
    text = head + '"spec": {"containers": [{"command": ["x"]}]}}'
    assert only(text).name == "p"


def test_serving_pods_are_left_out() -> None:
    loaded = load(SERVING, "serving.yaml")
    assert loaded.jobs == ()
    assert len(loaded.notices) == 2


@pytest.mark.parametrize("path", sorted(MANIFESTS.glob("*.yaml")), ids=lambda path: path.name)
def test_manifests_of_the_older_systems_load(path: Path) -> None:
    loaded = load(path.read_text(), path.name)
    assert loaded.jobs or loaded.notices
    assert all(job.minimum <= job.request <= job.maximum for job in loaded.jobs)
