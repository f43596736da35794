"""Overloaded nodes, and the target of a worker that moves off one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sterna.backends.kubernetes.api.job import KubeJob, PodState, ReplicaAssignment
from sterna.backends.kubernetes.api.monitor_protocol import PodMoveRequest
from sterna.backends.kubernetes.lifecycle.overload import (
    AcceptedMove,
    Found,
    NodeInfo,
    RejectedMove,
    evaluate_requests,
    is_overloaded,
)
from tests.unit.backends.kubernetes.replica_builders import kube_job, parsed_job, pod, tf_job


def node(cpus: int = 0, memory: int = 0, **more: Any) -> NodeInfo:
    """A node of 10 cores, 10 kB and 2 GPUs, with the given pod limits."""
    usual: dict[str, Any] = {"cpu_total": 10_000, "mem_total": 10_000, "gpu_total": 2, "cpu_free": 10_000 - cpus}
    usual |= {"mem_free": 10_000 - memory, "gpu_free_count": 2, "cpu_max_request": cpus, "mem_max_request": memory}
    return NodeInfo(**(usual | more))


def worker(name: str = "mnist", index: int = 0, on: str = "a", job: KubeJob | None = None, **more: Any) -> Found:
    """Asks for one core and no memory."""
    row = pod(ReplicaAssignment("worker", index, on), job=name, **({"devices": 0} | more))
    row.uid = f"uid-{name}-{index}"
    return Found(job or kube_job(parsed_job(name=name, devices=0), row), row)


def finder(*known: Found) -> Callable[[PodMoveRequest], Found | None]:
    by_name = {found.pod.key.partition("/")[2]: found for found in known}
    return lambda request: by_name.get(request.pod)


def request_moves(
    infos: dict[str, NodeInfo], *known: Found, **choices: Any
) -> tuple[list[AcceptedMove], list[RejectedMove]]:
    requests = [PodMoveRequest(found.pod.node, found.pod.key.partition("/")[2]) for found in known]
    outcomes = list(evaluate_requests(requests, finder(*known), lambda found: choices.get("hosts", infos), infos))
    return [each for each in outcomes if isinstance(each, AcceptedMove)], [
        each for each in outcomes if isinstance(each, RejectedMove)
    ]


def targets(infos: dict[str, NodeInfo], *known: Found, **choices: Any) -> list[str]:
    return [move.target for move in request_moves(infos, *known, **choices)[0]]


# Overload, DRAGON-64.


def test_a_node_s_score_is_half_its_cpu_limits_and_half_its_memory_limits() -> None:
    assert node(5_000, 1_000).score == pytest.approx(0.5 * 0.5 + 0.5 * 0.1)
    assert NodeInfo().score == 0.0


@pytest.mark.parametrize(
    ("loads", "threshold", "overloaded"),
    [
        ([9_000, 1_000, 1_000, 1_000], 1.0, True),
        ([9_000, 1_000, 1_000, 1_000], 2.0, False),
        ([5_000, 5_000, 5_000], 0.0, False),
        ([9_000], 1.0, False),
        ([6_000, 4_000], 1.0, False),
        ([6_000, 4_000], 0.9, True),
    ],
    ids=["far above", "not far enough", "all alike", "alone", "exactly one deviation", "just above"],
)
def test_overload_uses_the_population_standard_deviation(loads: list[int], threshold: float, overloaded: bool) -> None:
    infos = {f"n{number}": node(load, load) for number, load in enumerate(loads)}
    assert is_overloaded("n0", infos, threshold) is overloaded


def test_a_node_of_which_nothing_is_known_is_not_overloaded() -> None:
    assert not is_overloaded("unknown", {"a": node(9_000), "b": node()})
    assert not is_overloaded("a", {})


# Targets, DRAGON-70 and 71.


def test_a_worker_goes_to_the_node_with_the_smallest_score() -> None:
    infos = {"a": node(9_000, 9_000), "b": node(4_000, 4_000), "c": node(2_000, 2_000)}
    assert targets(infos, worker()) == ["c"]


def test_equally_good_nodes_are_taken_by_name() -> None:
    infos = {"a": node(9_000, 9_000), "c": node(1_000), "b": node(1_000)}
    assert targets(infos, worker()) == ["b"]


def test_a_worker_stays_if_its_node_would_be_as_good_without_it() -> None:
    infos = {"a": node(1_000), "b": node()}
    moves, dropped = request_moves(infos, worker())
    assert moves == []
    assert "mnist-worker-0" in dropped[0].why


def test_a_node_that_cannot_take_the_pod_is_no_target() -> None:
    infos = {"a": node(9_000, 9_000), "b": node(), "c": node(3_000)}
    assert targets(infos, worker(), hosts=["a", "c"]) == ["c"]
    assert targets(infos, worker(), hosts=["a"]) == []


def test_a_node_that_is_gone_has_no_pod_to_move() -> None:
    assert targets({"b": node()}, worker()) == []


def test_limits_count_where_pods_have_them() -> None:
    """DRAGON-64: a worker that asks for little and may use much weighs much."""
    infos = {"a": node(5_000), "b": node(4_500)}
    assert targets(infos, worker()) == []
    infos = {"a": node(9_000), "b": node(2_000)}
    assert targets(infos, worker(limit_cpus=8_000)) == []


def test_many_requests_from_one_node_are_answered_one_by_one() -> None:
    """DRAGON-75."""
    infos = {"a": node(4_000), "b": node()}
    leaving = [worker(f"job{number}") for number in range(4)]
    assert targets(infos, *leaving) == ["b", "b"], "the third would find b no better than a"
    infos = {"a": node(8_000), "b": node(), "c": node()}
    assert targets(infos, *[worker(f"job{number}") for number in range(4)]) == ["b", "c", "b", "c"]


# Requests that come to nothing, DRAGON-69, 73, 79.


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (worker(on="b"), "is on node 'b'"),
        (Found(kube_job(tf_job()), pod(ReplicaAssignment("ps", 0, "a"))), "is a ps"),
        (worker(is_deleting=True), "does not run"),
        (worker(state=PodState.PENDING), "does not run"),
        (worker(job=kube_job(parsed_job(), replica_moves={"worker-0": 3})), "moved 3 times"),
        (worker()._replace(steps_left=5.0), "about to end"),
        (worker()._replace(is_leaving=True), "about to leave"),
    ],
    ids=["another node", "parameter server", "deleted", "not running", "moved three times", "about to end", "leaving"],
)
def test_a_request_that_cannot_be_met_is_dropped_with_a_sentence(found: Found, why: str) -> None:
    infos = {"a": node(9_000), "b": node()}
    request = PodMoveRequest("a", "mnist-worker-0")
    (dropped,) = evaluate_requests([request], lambda _: found, lambda _: infos, infos)
    assert isinstance(dropped, RejectedMove)
    assert why in dropped.why
    assert dropped.request is request


def test_a_request_for_an_unknown_pod_is_dropped() -> None:
    (dropped,) = evaluate_requests(
        [PodMoveRequest("a", "x")], lambda _: None, lambda _: {"b"}, {"a": node(), "b": node()}
    )
    assert isinstance(dropped, RejectedMove)


def test_a_worker_may_move_up_to_three_times_whatever_others_of_its_job_did() -> None:
    """DRAGON-73."""
    infos = {"a": node(9_000), "b": node()}
    rows = [pod(ReplicaAssignment("worker", index, "a"), devices=0) for index in range(2)]
    job = kube_job(parsed_job(workers=2), *rows, replica_moves={"worker-0": 3, "worker-1": 2}, moves=5)
    assert targets(infos, Found(job, rows[1], math.nan)) == ["b"]
    assert targets(infos, Found(job, rows[0], math.nan)) == []


def test_cluster_info_is_spelled_as_container_migration_spells_it() -> None:
    told = msgspec.json.decode(msgspec.json.encode(node(1_000, 2_000)))
    assert told == {
        "CpuTotal": 10_000,
        "MemTotal": 10_000,
        "GpuTotal": 2,
        "GpuMemTotal": 0,
        "CpuFree": 9_000,
        "MemFree": 8_000,
        "CpuMaxRequest": 1_000,
        "MemMaxRequest": 2_000,
        "GpuFreeCount": 2,
        "GpuFree": {},
    }
