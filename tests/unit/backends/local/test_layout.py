"""From where a job shall sit to its replicas, their environment and their devices."""

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


def test_worker_numbers_run_through_the_replicas_from_the_left() -> None:
    replicas = lay_out_replicas(a_record(workers=[("b", 2), ("a", 1)]))
    assert [(each.name, each.node, each.rank) for each in replicas] == [
        ("worker-0", "b", 0),
        ("worker-1", "b", 1),
        ("worker-2", "a", 2),
    ]


def test_the_chief_is_first_in_rank_and_servers_are_last() -> None:
    record = a_record(PS, WORKER, CHIEF, workers=[("a", 2)], servers=[("b", 2)])
    assert [each.name for each in lay_out_replicas(record)] == ["chief-0", "worker-0", "worker-1", "ps-0"]


def test_workers_without_a_command_are_replicas_only() -> None:
    launcher = ReplicaSpec("launcher", 1, ("mpirun",))
    record = a_record(launcher, ReplicaSpec("worker", 2, ()), workers=[("a", 2)], servers=[("a", 1)], kind="MPIJob")
    assert [each.name for each in lay_out_replicas(record)] == ["launcher-0"]


def test_a_launcher_runs_where_its_workers_sit_whatever_replica_it_was_given() -> None:
    launcher = ReplicaSpec("launcher", 1, ("mpirun",))
    record = a_record(launcher, ReplicaSpec("worker", 2, ()), workers=[("b", 2)], servers=[("a", 1)], kind="MPIJob")
    assert [each.node for each in lay_out_replicas(record)] == ["b"]


def test_every_start_has_a_token_of_its_own() -> None:
    record = a_record(workers=[("a", 2)])
    assert len({each.token for each in [*lay_out_replicas(record), *lay_out_replicas(record)]}) == 4


def test_tf_config_names_all_by_type_and_leaves_the_evaluator_out(tmp_path: Path) -> None:
    evaluator = ReplicaSpec("evaluator", 1, ("judge",))
    record = a_record(PS, WORKER, evaluator, workers=[("a", 2)], servers=[("a", 2)], kind="TFJob")
    told = json.loads(variables(record, "worker-1", tmp_path)["TF_CONFIG"])
    assert told["task"] == {"type": "worker", "index": 1}
    assert {kind: len(found) for kind, found in told["cluster"].items()} == {"ps": 1, "worker": 2}
    assert all(address.startswith("127.0.0.1:") for found in told["cluster"].values() for address in found)
    judge = json.loads(variables(record, "evaluator-0", tmp_path)["TF_CONFIG"])
    assert judge["task"] == {"type": "evaluator", "index": 0}


def test_tf_config_is_in_the_order_of_the_numbers(tmp_path: Path) -> None:
    record = a_record(ReplicaSpec("worker", 11, ("train",)), workers=[("a", 11)], kind="TFJob")
    cluster = json.loads(variables(record, "worker-10", tmp_path)["TF_CONFIG"])["cluster"]
    assert cluster["worker"] == [f"127.0.0.1:{7000 + number}" for number in range(11)]


def test_a_pytorch_job_meets_at_its_master(tmp_path: Path) -> None:
    master = ReplicaSpec("master", 1, ("lead",))
    record = a_record(master, WORKER, workers=[("a", 2)], servers=[("a", 1)], kind="PyTorchJob")
    told = variables(record, "worker-0", tmp_path)
    assert (told["MASTER_ADDR"], told["MASTER_PORT"], told["WORLD_SIZE"], told["RANK"]) == (
        "127.0.0.1",
        "7000",
        "3",
        "1",
    )


def test_torchrun_gets_what_makes_it_grow(tmp_path: Path) -> None:
    record = a_record(workers=[("a", 2)], kind="PyTorchJob", resizing=Resizing.TORCHRUN)
    told = variables(record, "worker-1", tmp_path)
    assert told["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert told["PET_NNODES"] == "1:4"
    assert told["PET_RDZV_ENDPOINT"] == "127.0.0.1:7000"
    assert "last_call_timeout=1" in told["PET_RDZV_CONF"]
    assert told["PET_RDZV_CONF"].endswith("is_host=false")
    assert variables(record, "worker-0", tmp_path)["PET_RDZV_CONF"].endswith("is_host=true")


def test_an_mpi_job_finds_a_hostfile_and_its_size(tmp_path: Path) -> None:
    launcher = ReplicaSpec("launcher", 1, ("mpirun",))
    record = a_record(launcher, ReplicaSpec("worker", 3, ()), workers=[("a", 3)], servers=[("a", 1)], kind="MPIJob")
    told = variables(record, "launcher-0", tmp_path)
    assert told["OMPI_MCA_orte_default_hostfile"].endswith("jobs/job/1/hostfile")
    assert told["STERNA_SIZE"] == "3"


def test_a_replica_knows_who_it_is_and_where_to_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STERNA_STATE", "the daemon's own")
    worker = ReplicaSpec("worker", 2, ("train",), env=(("STERNA_RANK", "7"), ("MINE", "x"), ("OMP_NUM_THREADS", "9")))
    told = variables(a_record(worker, workers=[("a", 2)], resizing=Resizing.IN_PLACE), "worker-1", tmp_path)
    assert (told["STERNA_JOB"], told["STERNA_RANK"], told["STERNA_SIZE"], told["MINE"]) == ("job", "1", "2", "x")
    assert told["STERNA_DIR"] == str(tmp_path / "jobs" / "job" / "1" / "worker-1")
    assert told["STERNA_CHECKPOINT_DIR"] == str(tmp_path / "jobs" / "job" / "checkpoint")
    assert told["STERNA_WORLD"] == str(tmp_path / "jobs" / "job" / "world.json")
    assert told["OMP_NUM_THREADS"] == "9"
    assert told["PYTHONUNBUFFERED"] == "1"
    assert "STERNA_STATE" not in told
    assert told["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize("token_file", ["", "/somewhere/token"])
def test_trainers_that_know_kubeflow_s_protocol_find_a_token_whether_one_is_needed_or_not(
    tmp_path: Path, token_file: str
) -> None:
    record, paths = a_record(workers=[("a", 1)]), StatePaths(tmp_path)
    link_agent(paths)
    config = EnvironmentConfig(paths, "http://127.0.0.1:1", token_file)
    attempt = an_attempt(record)
    told = replica_environment(config, record, attempt, attempt.replicas[0], record.spec.worker, 1)
    assert told["KUBEFLOW_TRAINER_SERVER_URL"] == "http://127.0.0.1:1/api/v1/jobs/job/trainer-status"
    assert told["KUBEFLOW_TRAINER_SERVER_TOKEN"] == (token_file or str(tmp_path / "no-token"))
    assert (tmp_path / "no-token").read_text().strip()


def test_python_of_a_job_imports_the_agent_from_its_environment(tmp_path: Path) -> None:
    link_agent(StatePaths(tmp_path))
    found = variables(a_record(workers=[("a", 1)]), "worker-0", tmp_path)
    folder = found["PYTHONPATH"].split(os.pathsep)[-1]
    assert (Path(folder) / "sterna" / "agent" / "__init__.py").is_file()


def test_the_fewest_changes_lead_from_one_arrangement_to_another() -> None:
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
def test_the_one_at_which_others_meet_never_leaves(
    resizing: Resizing, moved: list[tuple[str, str]], leaving: list[str]
) -> None:
    record = a_record(workers=[("a", 2), ("b", 1)], resizing=resizing)
    attempt = an_attempt(record)
    record.workers = [("b", 1)]
    change = plan_layout_change(record, attempt)
    assert [(each.name, target) for each, target in change.moved] == moved
    assert [each.name for each in change.leaving] == leaving


def test_devices_are_given_once_and_parts_of_one_are_shared() -> None:
    node = LocalNode("a", (0,), (4, 5), 0)
    taken = [ReplicaRecord("worker", 0, 0, "a", "t", devices=[4])]
    assert devices_for(node, Shape(1000), -1, taken) == [5]
    assert devices_for(node, Shape(2000), -1, taken) is None
    assert devices_for(node, Shape(0), -1, taken) == []
    half = [ReplicaRecord("worker", 0, 0, "a", "t", devices=[5], slot=0)]
    assert devices_for(node, Shape(500), 0, half) == [5]
    assert devices_for(node, Shape(500), 1, half) == [4]


def test_ports_are_free_and_differ() -> None:
    first = free_ports(5, frozenset())
    assert len(set(first)) == 5
    assert not set(free_ports(5, frozenset(first))) & set(first)


def test_a_record_survives_being_written_down() -> None:
    record = a_record(PS, WORKER, workers=[("a", 2)], servers=[("b", 1)], resizing=Resizing.TORCHRUN)
    record.attempt = an_attempt(record)
    assert decode_record(encode(record)) == record
