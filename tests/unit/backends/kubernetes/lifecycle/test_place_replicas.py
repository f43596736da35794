"""Placement of replicas: indices, nodes and the fewest changes."""

from __future__ import annotations

import pytest

from sterna.backends.kubernetes.api.assignment import decode_assignment, encode_assignment, gpu_id, gpu_number
from sterna.backends.kubernetes.api.job import ReplicaAssignment
from sterna.backends.kubernetes.lifecycle.replicas import place_replicas
from sterna.errors import Bug
from sterna.model.cluster import NOWHERE, Assignment
from sterna.model.job import Resizing
from tests.unit.backends.kubernetes.replica_builders import NODES, parsed_job, tf_job, workers_at

A, B, C, D = range(4)


def nodes_by_replica(*replicas_: ReplicaAssignment) -> dict[tuple[str, int], str]:
    return {(replica.type, replica.ordinal): replica.node for replica in replicas_}


def test_an_assignment_of_nothing_has_no_replicas() -> None:
    assert place_replicas(tf_job(), NOWHERE, NODES, {}) == []


def test_workers_of_a_new_job_run_through_its_assignment_from_the_left() -> None:
    assignment = Assignment(((B, 2), (A, 1)))
    assert place_replicas(parsed_job(workers=3), assignment, NODES, {}) == workers_at("b", "b", "a")


def test_parameter_servers_come_first_and_run_on_their_assigned_nodes() -> None:
    """DRAGON-16."""
    found = place_replicas(tf_job(workers=1, ps=2), Assignment(((A, 1),), ((B, 1), (C, 1))), NODES, {})
    assert found == [
        ReplicaAssignment("ps", 0, "b"),
        ReplicaAssignment("ps", 1, "c"),
        ReplicaAssignment("worker", 0, "a"),
    ]


def test_a_replica_without_an_assignment_of_its_own_runs_beside_the_first_worker() -> None:
    found = place_replicas(parsed_job("TFJob", 1, {"chief": 1}), Assignment(((C, 1),)), NODES, {})
    assert found == [ReplicaAssignment("chief", 0, "c"), ReplicaAssignment("worker", 0, "c")]


def test_new_workers_take_the_lowest_free_indices() -> None:
    """DRAGON-32: after worker 1 left, the next one to come is worker 1 again."""
    current = nodes_by_replica(
        ReplicaAssignment("ps", 0, "a"), ReplicaAssignment("worker", 0, "a"), ReplicaAssignment("worker", 2, "b")
    )
    found = place_replicas(
        tf_job(workers=4, maximum=4), Assignment(((A, 2), (B, 1), (C, 1)), ((A, 1),)), NODES, current
    )
    workers = [(replica.ordinal, replica.node) for replica in found if replica.type == "worker"]
    assert workers == [(0, "a"), (1, "a"), (2, "b"), (3, "c")]


def test_remaining_replicas_keep_index_and_node_when_a_job_shrinks() -> None:
    """DRAGON-28: of two workers on a node that keeps one, the higher leaves."""
    current = nodes_by_replica(ReplicaAssignment("ps", 0, "a"), *workers_at("a", "b", "b", "c"))
    found = place_replicas(tf_job(workers=4, minimum=1), Assignment(((A, 1), (B, 1)), ((A, 1),)), NODES, current)
    assert [tuple(replica[:3]) for replica in found] == [("ps", 0, "a"), ("worker", 0, "a"), ("worker", 1, "b")]


def test_worker_0_never_leaves_even_where_its_node_is_given_up() -> None:
    """DRAGON-25."""
    current = nodes_by_replica(ReplicaAssignment("ps", 0, "a"), *workers_at("a", "b"))
    found = place_replicas(tf_job(workers=2, minimum=1), Assignment(((B, 1),), ((A, 1),)), NODES, current)
    assert found[1:] == [ReplicaAssignment("worker", 0, "b")]


def test_a_moved_worker_keeps_its_index() -> None:
    """DRAGON-72."""
    current = nodes_by_replica(ReplicaAssignment("ps", 0, "a"), *workers_at("a", "b", "c"))
    found = place_replicas(tf_job(workers=3), Assignment(((A, 1), (C, 1), (D, 1)), ((A, 1),)), NODES, current)
    assert found[1:] == [
        ReplicaAssignment("worker", 0, "a"),
        ReplicaAssignment("worker", 1, "d"),
        ReplicaAssignment("worker", 2, "c"),
    ]


def test_a_parameter_server_stays_while_its_assignment_holds_it() -> None:
    current = nodes_by_replica(
        ReplicaAssignment("ps", 0, "c"), ReplicaAssignment("ps", 1, "b"), ReplicaAssignment("worker", 0, "a")
    )
    found = place_replicas(tf_job(workers=1, ps=2), Assignment(((A, 1),), ((B, 1), (C, 1))), NODES, current)
    assert found[:2] == [ReplicaAssignment("ps", 0, "c"), ReplicaAssignment("ps", 1, "b")]


def test_workers_of_an_mpi_job_are_the_first_ones_because_its_operator_removes_the_last() -> None:
    """VODA-88."""
    current = nodes_by_replica(*workers_at("a", "b", "c"))
    assert place_replicas(parsed_job("MPIJob", 3), Assignment(((A, 1), (C, 1))), NODES, current) == workers_at("a", "c")


def test_a_restarted_job_is_numbered_from_zero() -> None:
    current = nodes_by_replica(ReplicaAssignment("worker", 0, "a"), ReplicaAssignment("worker", 2, "b"))
    assert place_replicas(parsed_job(workers=2), Assignment(((B, 1), (A, 1))), NODES, current) == workers_at("b", "a")


def test_a_job_that_would_restart_is_left_alone_while_its_places_are_the_same() -> None:
    current = nodes_by_replica(*workers_at("b", "a"))
    assert place_replicas(parsed_job(workers=2), Assignment(((A, 1), (B, 1))), NODES, current) == workers_at("b", "a")


def test_gpu_fractions_are_placed_by_node_and_shared_gpu() -> None:
    """DRAGON-36: what exists keeps its name, what is opened gets one of five letters."""
    job = parsed_job(workers=2, devices=500, resizing=Resizing.IN_PLACE)
    found = place_replicas(job, Assignment(((A, 2),), (), (0, 3)), NODES, {}, gpu_ids={("a", 3): "gpuxy"})
    assert found == [ReplicaAssignment("worker", 0, "a", "aaaaa"), ReplicaAssignment("worker", 1, "a", "gpuxy")]


def test_a_worker_stays_on_its_shared_gpu() -> None:
    job = parsed_job(workers=2, devices=500, resizing=Resizing.IN_PLACE)
    current, gpus = nodes_by_replica(*workers_at("a", "a")), {("worker", 0): "aaaab", ("worker", 1): "aaaaa"}
    found = place_replicas(job, Assignment(((A, 2),), (), (0, 1)), NODES, current, gpus)
    assert [replica.gpu_id for replica in found] == ["aaaab", "aaaaa"]


def test_an_assignment_off_the_node_table_is_our_bug() -> None:
    with pytest.raises(Bug, match="4 nodes"):
        place_replicas(parsed_job(), Assignment(((-1, 1),)), NODES, {})


@pytest.mark.parametrize("number", [0, 25, 26, 26**5 - 1])
def test_shared_gpus_are_named_by_five_letters_that_lead_back_to_their_number(number: int) -> None:
    name = gpu_id(number)
    assert len(name) == 5
    assert gpu_number(name) == number


def test_names_that_others_gave_shared_gpus_never_meet_ours() -> None:
    assert gpu_number("GPU-1") >= 26**5
    assert gpu_number("GPU-1") != gpu_number("GPU-2")


def test_the_assignment_on_a_pod_names_each_node_once() -> None:
    gang = [
        ReplicaAssignment("ps", 0, "a"),
        *workers_at(*["b"] * 4),
        ReplicaAssignment("worker", 6, "b"),
        ReplicaAssignment("worker", 5, "c", "aaaaa"),
    ]
    text = encode_assignment(gang)
    assert text == '{"ps":{"a":"0"},"worker":{"b":"0-3,6","c/aaaaa":"5"}}'
    assert decode_assignment(text) == sorted(gang)


def test_equal_gangs_have_equal_texts() -> None:
    gang = workers_at("b", "a", "b")
    assert encode_assignment(gang) == encode_assignment(reversed(gang))


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"worker":{"a":"x"}}', '{"worker":["a"]}', '{"worker":{"a":"0-9999999999"}}']
)
def test_an_assignment_that_is_not_ours_is_not_read(text: str) -> None:
    assert decode_assignment(text) is None
