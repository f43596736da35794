"""Replicas, environment variables and devices derived from the assignment of a job."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sterna.backends.local.jobs.environment import EnvironmentConfig, free_ports, link_agent, replica_environment
from sterna.backends.local.jobs.layout import devices_for, lay_out_replicas, plan_layout_change, spec_of
from sterna.backends.local.store.node_slices import LocalNode
from sterna.backends.local.store.records import (
    AttemptRecord,
    JobRecord,
    NodeWorkers,
    ReplicaRecord,
    StatePaths,
    decode_record,
    encode,
)
from sterna.model.cluster import Shape
from sterna.model.job import JobSpec, ReplicaSpec, Resizing

WORKER = ReplicaSpec("worker", 2, ("train",))
PS = ReplicaSpec("ps", 1, ("serve",))
CHIEF = ReplicaSpec("chief", 1, ("lead",))


def a_record(
    *replicas: ReplicaSpec,
    workers: NodeWorkers,
    servers: NodeWorkers | None = None,
    kind: str = "TrainingJob",
    resizing: Resizing = Resizing.RESTART,
    slots: list[int] | None = None,
) -> JobRecord:
    spec = JobSpec("job", kind, replicas or (WORKER,), 1, 4, 2, resizing=resizing)
    return JobRecord(
        key=1,
        spec=spec,
        submitted_at=0.0,
        minimum=1,
        maximum=4,
        workers=workers,
        servers=servers or [],
        slots=slots or [],
    )


def an_attempt(record: JobRecord) -> AttemptRecord:
    replicas = lay_out_replicas(record)
    for number, replica in enumerate(replicas):
        replica.port = 7000 + number
    return AttemptRecord(1, 0.0, replicas, record.workers, record.servers)


def variables(record: JobRecord, name: str, tmp_path: Path) -> dict[str, str]:
    attempt = an_attempt(record)
    replica = next(each for each in attempt.replicas if each.name == name)
    spec = spec_of(record, replica.type)
    return replica_environment(EnvironmentConfig(StatePaths(tmp_path)), record, attempt, replica, spec, 1)


def test_worker_indices_follow_the_order_of_the_nodes() -> None:
    replicas = lay_out_replicas(a_record(workers=[("b", 2), ("a", 1)]))
    assert [(each.name, each.node, each.rank) for each in replicas] == [
        ("worker-0", "b", 0),
        ("worker-1", "b", 1),
        ("worker-2", "a", 2),
    ]


def test_chief_has_the_first_rank_and_parameter_servers_the_last() -> None:
    record = a_record(PS, WORKER, CHIEF, workers=[("a", 2)], servers=[("b", 2)])
    assert [each.name for each in lay_out_replicas(record)] == ["chief-0", "worker-0", "worker-1", "ps-0"]


def test_workers_without_a_command_have_no_process() -> None:
    launcher = ReplicaSpec("launcher", 1, ("mpirun",))
    record = a_record(launcher, ReplicaSpec("worker", 2, ()), workers=[("a", 2)], servers=[("a", 1)], kind="MPIJob")
    assert [each.name for each in lay_out_replicas(record)] == ["launcher-0"]


def test_launcher_runs_on_the_node_of_its_workers() -> None:
    launcher = ReplicaSpec("launcher", 1, ("mpirun",))
    record = a_record(launcher, ReplicaSpec("worker", 2, ()), workers=[("b", 2)], servers=[("a", 1)], kind="MPIJob")
    assert [each.node for each in lay_out_replicas(record)] == ["b"]


def test_every_start_has_its_own_token() -> None:
    record = a_record(workers=[("a", 2)])
    assert len({each.token for each in [*lay_out_replicas(record), *lay_out_replicas(record)]}) == 4


def test_tf_config_lists_replicas_by_type_without_the_evaluator(tmp_path: Path) -> None:
    evaluator = ReplicaSpec("evaluator", 1, ("judge",))
    record = a_record(PS, WORKER, evaluator, workers=[("a", 2)], servers=[("a", 2)], kind="TFJob")
    env = json.loads(variables(record, "worker-1", tmp_path)["TF_CONFIG"])
    assert env["task"] == {"type": "worker", "index": 1}
    assert {kind: len(found) for kind, found in env["cluster"].items()} == {"ps": 1, "worker": 2}
    assert all(address.startswith("127.0.0.1:") for found in env["cluster"].values() for address in found)
    judge = json.loads(variables(record, "evaluator-0", tmp_path)["TF_CONFIG"])
    assert judge["task"] == {"type": "evaluator", "index": 0}


def test_tf_config_is_ordered_by_index(tmp_path: Path) -> None:
    record = a_record(ReplicaSpec("worker", 11, ("train",)), workers=[("a", 11)], kind="TFJob")
    cluster = json.loads(variables(record, "worker-10", tmp_path)["TF_CONFIG"])["cluster"]
    assert cluster["worker"] == [f"127.0.0.1:{7000 + number}" for number in range(11)]


def test_pytorch_environment_names_the_master(tmp_path: Path) -> None:
    master = ReplicaSpec("master", 1, ("lead",))
    record = a_record(master, WORKER, workers=[("a", 2)], servers=[("a", 1)], kind="PyTorchJob")
    env = variables(record, "worker-0", tmp_path)
    assert (env["MASTER_ADDR"], env["MASTER_PORT"], env["WORLD_SIZE"], env["RANK"]) == (
        "127.0.0.1",
        "7000",
        "3",
        "1",
    )


def test_torchrun_environment_allows_resizing(tmp_path: Path) -> None:
    record = a_record(workers=[("a", 2)], kind="PyTorchJob", resizing=Resizing.TORCHRUN)
    env = variables(record, "worker-1", tmp_path)
    assert env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert env["PET_NNODES"] == "1:4"
    assert env["PET_RDZV_ENDPOINT"] == "127.0.0.1:7000"
    assert "last_call_timeout=1" in env["PET_RDZV_CONF"]
    assert env["PET_RDZV_CONF"].endswith("is_host=false")
    assert variables(record, "worker-0", tmp_path)["PET_RDZV_CONF"].endswith("is_host=true")


def test_mpi_environment_names_the_hostfile_and_the_size(tmp_path: Path) -> None:
    launcher = ReplicaSpec("launcher", 1, ("mpirun",))
    record = a_record(launcher, ReplicaSpec("worker", 3, ()), workers=[("a", 3)], servers=[("a", 1)], kind="MPIJob")
    env = variables(record, "launcher-0", tmp_path)
    assert env["OMPI_MCA_orte_default_hostfile"].endswith("jobs/job/1/hostfile")
    assert env["STERNA_SIZE"] == "3"


def test_replica_environment_names_rank_and_checkpoint_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STERNA_STATE", "the daemon's own")
    worker = ReplicaSpec("worker", 2, ("train",), env=(("STERNA_RANK", "7"), ("MINE", "x"), ("OMP_NUM_THREADS", "9")))
    env = variables(a_record(worker, workers=[("a", 2)], resizing=Resizing.IN_PLACE), "worker-1", tmp_path)
    assert (env["STERNA_JOB"], env["STERNA_RANK"], env["STERNA_SIZE"], env["MINE"]) == ("job", "1", "2", "x")
    assert env["STERNA_DIR"] == str(tmp_path / "jobs" / "job" / "1" / "worker-1")
    assert env["STERNA_CHECKPOINT_DIR"] == str(tmp_path / "jobs" / "job" / "checkpoint")
    assert env["STERNA_WORLD"] == str(tmp_path / "jobs" / "job" / "world.json")
    assert env["OMP_NUM_THREADS"] == "9"
    assert env["PYTHONUNBUFFERED"] == "1"
    assert "STERNA_STATE" not in env
    assert env["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize("token_file", ["", "/somewhere/token"])
def test_kubeflow_trainer_variables_always_name_a_token_file(tmp_path: Path, token_file: str) -> None:
    record, paths = a_record(workers=[("a", 1)]), StatePaths(tmp_path)
    link_agent(paths)
    config = EnvironmentConfig(paths, "http://127.0.0.1:1", token_file)
    attempt = an_attempt(record)
    env = replica_environment(config, record, attempt, attempt.replicas[0], record.spec.worker, 1)
    assert env["KUBEFLOW_TRAINER_SERVER_URL"] == "http://127.0.0.1:1/api/v1/jobs/job/trainer-status"
    assert env["KUBEFLOW_TRAINER_SERVER_TOKEN"] == (token_file or str(tmp_path / "no-token"))
    assert (tmp_path / "no-token").read_text().strip()


def test_python_of_a_job_imports_the_agent_from_its_environment(tmp_path: Path) -> None:
    link_agent(StatePaths(tmp_path))
    found = variables(a_record(workers=[("a", 1)]), "worker-0", tmp_path)
    folder = found["PYTHONPATH"].split(os.pathsep)[-1]
    assert (Path(folder) / "sterna" / "agent" / "__init__.py").is_file()


def test_layout_change_keeps_as_many_replicas_as_possible() -> None:
    record = a_record(workers=[("a", 2), ("b", 1)])
    attempt = an_attempt(record)
    record.workers = [("a", 1), ("c", 1)]
    change = plan_layout_change(record, attempt)
    assert [(each.name, target) for each, target in change.moved] == [("worker-1", "c")]
    assert [each.name for each in change.leaving] == ["worker-2"]
    record.workers = [("b", 1), ("a", 4)]
    change = plan_layout_change(record, attempt)
    assert (change.moved, change.leaving, change.arriving) == ([], [], [("a", -1), ("a", -1)])


@pytest.mark.parametrize(
    ("resizing", "moved", "leaving"),
    [
        (Resizing.IN_PLACE, [], ["worker-0", "worker-1"]),
        (Resizing.TORCHRUN, [("worker-0", "b")], ["worker-1", "worker-2"]),
    ],
)
def test_rendezvous_replica_never_leaves(resizing: Resizing, moved: list[tuple[str, str]], leaving: list[str]) -> None:
    record = a_record(workers=[("a", 2), ("b", 1)], resizing=resizing)
    attempt = an_attempt(record)
    record.workers = [("b", 1)]
    change = plan_layout_change(record, attempt)
    assert [(each.name, target) for each, target in change.moved] == moved
    assert [each.name for each in change.leaving] == leaving


def test_whole_devices_are_exclusive_and_fractions_share_one() -> None:
    node = LocalNode("a", (0,), (4, 5), 0)
    taken = [ReplicaRecord("worker", 0, 0, "a", "t", devices=[4])]
    assert devices_for(node, Shape(1000), -1, taken) == [5]
    assert devices_for(node, Shape(2000), -1, taken) is None
    assert devices_for(node, Shape(0), -1, taken) == []
    half = [ReplicaRecord("worker", 0, 0, "a", "t", devices=[5], slot=0)]
    assert devices_for(node, Shape(500), 0, half) == [5]
    assert devices_for(node, Shape(500), 1, half) == [4]


def test_free_ports_are_distinct() -> None:
    first = free_ports(5, frozenset())
    assert len(set(first)) == 5
    assert not set(free_ports(5, frozenset(first))) & set(first)


def test_record_round_trips_through_its_encoding() -> None:
    record = a_record(PS, WORKER, workers=[("a", 2)], servers=[("b", 1)], resizing=Resizing.TORCHRUN)
    record.attempt = an_attempt(record)
    assert decode_record(encode(record)) == record
