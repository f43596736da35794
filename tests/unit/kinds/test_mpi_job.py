"""MPIJobs: Voda's variables, the translation of its manifests, and the patches that carry decisions out."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sterna.errors import UserError
from sterna.kinds.mpi_job import MPI_JOBS, mpi_scale, mpi_start, mpi_suspend
from sterna.kinds.mpi_v1 import conversion_notices, convert_v1
from sterna.kinds.parse import is_managed
from sterna.kinds.parsed_job import PodOwnership
from tests.unit.kinds.kind_builders import group, job_object, mpi_job, old_manifest, parsed_job

NUMBERS = [
    ({"NP": "2", "MIN_NP": "1", "MAX_NP": "4"}, (1, 2, 4)),
    ({"NUM_PROC": "2", "MIN_NUM_PROC": "1", "MAX_NUM_PROC": "4"}, (1, 2, 4)),
    ({"MIN_NP": "2", "MAX_NP": "4"}, (2, 2, 4)),
    ({"MAX_NP": "4"}, (1, 1, 4)),
    ({"NP": "3"}, (3, 3, 3)),
    ({}, (2, 2, 2)),
]


@pytest.mark.parametrize(("env", "bounds"), NUMBERS)
def test_bounds_are_voda_s_variables_of_the_launcher(env: dict[str, str], bounds: tuple[int, int, int]) -> None:
    """VODA-6, VODA-7, VODA-11: the number of replicas has no effect beside them."""
    spec = parsed_job(mpi_job(env, workers=2)).spec
    assert (spec.minimum, spec.request, spec.maximum) == bounds


def test_annotations_count_workers_and_go_before_variables() -> None:
    annotations = {"sterna.dev/min-workers": "1", "sterna.dev/max-workers": "6", "sterna.dev/workers": "3"}
    spec = parsed_job(mpi_job({"NP": "2"}, annotations=annotations)).spec
    assert (spec.minimum, spec.request, spec.maximum) == (1, 3, 6)


def test_variables_count_processes_where_workers_have_several_slots() -> None:
    spec = parsed_job(mpi_job({"NP": "4", "MIN_NP": "3", "MAX_NP": "9"}, slotsPerWorker=2)).spec
    assert (spec.minimum, spec.request, spec.maximum) == (2, 2, 4)


def test_epochs_priority_and_metrics_are_read() -> None:
    """VODA-4, VODA-8, VODA-51."""
    job = parsed_job(mpi_job({"EPOCHS": "5", "JOB_PRIORITY": "2"}))
    assert job.spec.priority == -2
    assert job.spec.progress.total == 5
    assert job.spec.progress.sources["csv"] == "/metrics/keras.csv"
    assert job.spec.category == "keras"
    assert job.ownership is PodOwnership.MPI_OPERATOR
    assert (job.shape.devices, job.shape.ps) == (1000, 0)


@pytest.mark.parametrize("name", ["NP", "MIN_NP", "MAX_NP", "EPOCHS", "JOB_PRIORITY"])
def test_a_variable_that_is_no_number_is_refused(name: str) -> None:
    """VODA-9."""
    with pytest.raises(UserError, match=f"The launcher's {name} is 'five'; write a whole number"):
        parsed_job(mpi_job({name: "five"}))


def test_only_jobs_whose_workers_ask_for_our_scheduler_are_ours() -> None:
    assert is_managed(job_object(mpi_job()), MPI_JOBS)
    assert not is_managed(job_object(mpi_job(scheduler="default-scheduler")), MPI_JOBS)
    assert not is_managed(job_object(mpi_job(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})), MPI_JOBS)


def test_suspension_is_our_tool_and_users_have_an_annotation_of_their_own() -> None:
    assert not parsed_job(mpi_job(runPolicy={"suspend": True})).is_suspended
    assert parsed_job(mpi_job(annotations={"sterna.dev/suspend": "true"})).is_suspended


def test_patches_change_what_they_are_about_and_nothing_else() -> None:
    """VODA-65 to 67."""
    assert mpi_scale(3) == {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 3}}}}
    assert mpi_suspend(True) == {"spec": {"runPolicy": {"suspend": True}}}
    assert mpi_start(2, "17") == {
        "metadata": {"resourceVersion": "17"},
        "spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 2}}, "runPolicy": {"suspend": False}},
    }


def converted_manifest(name: str = "") -> dict[str, Any]:
    return convert_v1(old_manifest("voda-mpijob.yaml"), name)


def test_a_manifest_of_voda_becomes_one_of_the_present_operator() -> None:
    """VODA-1, VODA-66."""
    job = converted_manifest()
    assert job["apiVersion"] == "kubeflow.org/v2beta1"
    assert job["spec"]["runPolicy"] == {"cleanPodPolicy": "Running", "suspend": True}
    assert "cleanPodPolicy" not in job["spec"]
    worker = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    assert worker["spec"]["schedulerName"] == "sterna"
    label = {"vodascheduler/accelerator": "rtx-2080ti"}
    assert worker["metadata"]["labels"] == job["metadata"]["labels"] == label
    assert job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["metadata"]["labels"] == label
    assert is_managed(job_object(job), MPI_JOBS)


def test_a_translated_job_asks_for_what_was_written() -> None:
    job = parsed_job(converted_manifest())
    assert (job.spec.minimum, job.spec.request, job.spec.maximum) == (1, 2, 4)
    assert job.spec.progress.total == 5
    assert job.needs.selector == (("vodascheduler/accelerator", "rtx-2080ti"),)


def test_a_unique_name_keeps_the_category() -> None:
    """VODA-3 to 5."""
    job = converted_manifest("keras-20240501-120000")
    assert job["metadata"]["name"] == "keras-20240501-120000"
    env = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["env"]
    assert [each["value"] for each in env if each["name"] == "JOB_NAME"] == ["keras-20240501-120000"]
    assert parsed_job(job).spec.category == "tensorflow2-keras-mnist-elastic"


def test_a_job_of_the_current_operator_version_is_unchanged() -> None:
    """Only the lines by which a job becomes Sterna's are added."""
    job = mpi_job({"JOB_NAME": "mine"}, scheduler="", runPolicy={"backoffLimit": 2})
    job["spec"] |= {"launcherCreationPolicy": "WaitForWorkersReady", "runLauncherAsWorker": False}
    job["spec"]["mpiReplicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure"
    expected = copy.deepcopy(job)
    expected["spec"]["runPolicy"]["suspend"] = True
    expected["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"] = "sterna"
    assert convert_v1(job)["spec"] == expected["spec"]


def a_vodas_worker(selector: dict[str, str], limits: dict[str, Any]) -> dict[str, Any]:
    job = old_manifest("voda-mpijob.yaml")
    spec = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    spec["nodeSelector"], spec["containers"][0]["resources"] = selector, {"limits": limits}
    return job


TYPE = {"vodascheduler/accelerator": "rtx-2080ti"}


@pytest.mark.parametrize(
    ("selector", "limits", "expected", "remark"),
    [
        pytest.param(TYPE, {}, {"nvidia.com/gpu": 1}, "each of them gets one (nvidia.com/gpu: 1)", id="VODA-66"),
        pytest.param(TYPE, {"cpu": 2}, {"cpu": 2, "nvidia.com/gpu": 1}, "each of them gets one", id="CPUs only"),
        pytest.param(TYPE, {"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 2}, "", id="two"),
        pytest.param(TYPE, {"amd.com/gpu": 1}, {"amd.com/gpu": 1}, "", id="another make"),
        pytest.param({}, {}, {}, "it names no type of GPU", id="VODA-10"),
    ],
)
def test_a_worker_of_voda_has_one_gpu_of_its_type_and_defaults_are_reported(
    selector: dict[str, str], limits: dict[str, Any], expected: dict[str, Any], remark: str
) -> None:
    job = a_vodas_worker(selector, limits)
    worker = convert_v1(job)["spec"]["mpiReplicaSpecs"]["Worker"]
    assert worker["template"]["spec"]["containers"][0]["resources"]["limits"] == expected
    assert remark in " ".join(conversion_notices(job))
    assert bool(conversion_notices(job)) == bool(remark)
    assert conversion_notices({**job, "apiVersion": MPI_JOBS.api_version}) == []


ARGUMENTS = [
    (["run --host-discovery-script /etc/mpi/discover_hosts.sh x"], "--slots-per-host 2"),
    (["run", "--host-discovery-script", "/etc/mpi/discover_hosts.sh", "x"], "--slots-per-host 2"),
    (["run", "--host-discovery-script=/etc/mpi/discover_hosts.sh", "x"], "--slots-per-host 2"),
    (["run --host-discovery-script /etc/mpi/discover_hosts.sh --slots-per-host 4"], "--slots-per-host 4"),
    (["run x"], ""),
]


@pytest.mark.parametrize(("args", "slots"), ARGUMENTS)
def test_horovod_gets_the_slots_that_the_script_no_longer_prints(args: list[str], slots: str) -> None:
    launcher = group(1, name="launcher", args=args)
    spec = {"slotsPerWorker": 2, "mpiReplicaSpecs": {"launcher": launcher, "worker": group(name="worker")}}
    job = convert_v1({"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": "a"}, "spec": spec})
    made = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["args"]
    command_line = " ".join(made)
    assert command_line.count("--slots-per-host") == bool(slots)
    assert slots in command_line
    assert command_line.replace(f" {slots}", "") == " ".join(args).replace(f" {slots}", "")


@pytest.mark.parametrize("missing", ["Launcher", "Worker"])
def test_a_job_without_launcher_or_workers_is_refused(missing: str) -> None:
    job = mpi_job()
    del job["spec"]["mpiReplicaSpecs"][missing]
    with pytest.raises(UserError, match=f"spec.mpiReplicaSpecs.{missing} is missing"):
        parsed_job(job)
    with pytest.raises(UserError, match=f"spec.mpiReplicaSpecs.{missing} is missing"):
        convert_v1(job)
