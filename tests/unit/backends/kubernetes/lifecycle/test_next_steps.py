"""Next steps of a job: pods to create and to delete, and the order between them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sterna.backends.kubernetes.api.job import PodState, ReplicaAssignment
from sterna.backends.kubernetes.lifecycle.replicas import Need, Steps, need_of, next_steps, replaces_in_place
from sterna.kinds.parsed_job import ParsedJob
from sterna.model.job import Resizing
from sterna.model.snapshot import NEVER
from tests.unit.backends.kubernetes.replica_builders import kube_job, parsed_job, pod, tf_job, workers_at

PS = ReplicaAssignment("ps", 0, "a")


def everywhere(node: str, need: Need) -> bool:
    return True


def only_on(*nodes: str) -> Callable[[str, Need], bool]:
    return lambda node, need: node in nodes


def names(found: Steps) -> tuple[list[str], list[str]]:
    return (
        [f"{replica.type}-{replica.ordinal}@{replica.node}" for replica in found.create],
        [f"{row.type}-{row.index}@{row.node}" for row in found.delete],
    )


# Starting.


def test_the_first_pods_of_a_job_are_made_together() -> None:
    """DRAGON-12, DRAGON-13."""
    found = next_steps(kube_job(tf_job(), attempt=0), [PS, *workers_at("a", "b")], everywhere)
    assert names(found) == (["ps-0@a", "worker-0@a", "worker-1@b"], [])
    assert found.attempt == 1
    assert not found.is_settled


def test_no_pod_of_a_gang_is_made_while_room_is_missing_for_one() -> None:
    """DRAGON-12."""
    found = next_steps(kube_job(tf_job()), [PS, *workers_at("a", "b")], only_on("a"))
    assert found.create == []
    assert found.waits_for == {"b"}


def test_room_is_asked_for_all_that_would_come_to_a_node_together() -> None:
    asked: dict[str, Need] = {}

    def notes(node: str, need: Need) -> bool:
        asked[node] = need
        return True

    next_steps(kube_job(tf_job()), [PS, *workers_at("a", "a")], notes)
    assert asked == {"a": Need(2000, 2500)}


def test_the_rest_of_a_gang_follows_one_by_one_with_the_same_attempt() -> None:
    replicas = [PS, *workers_at("a", "b", "b")]
    job = kube_job(tf_job(workers=3), pod(PS, attempt=4), pod(replicas[1], PodState.PENDING, 4), attempt=4)
    found = next_steps(job, replicas, lambda node, need: need.devices <= 1000)
    assert names(found) == (["worker-1@b"], [])
    assert found.waits_for == {"b"}
    assert found.attempt == 4


def test_a_job_in_its_desired_state_has_no_steps() -> None:
    replicas = workers_at("a", "b")
    found = next_steps(
        kube_job(parsed_job(workers=2), *(pod(replica, gang=replicas) for replica in replicas)), replicas, only_on()
    )
    assert (found.create, found.delete, found.force, found.is_settled) == ([], [], [], True)


def test_nothing_is_made_before_the_back_off_is_over() -> None:
    job = kube_job(parsed_job(), not_before=50.0)
    found = next_steps(job, workers_at("a"), everywhere, now=49.0)
    assert (found.create, found.until) == ([], 50.0)
    found = next_steps(job, workers_at("a"), everywhere, now=50.0)
    assert (names(found)[0], found.until) == (["worker-0@a"], NEVER)


def test_a_job_waits_for_the_pods_of_its_predecessor_of_the_same_name() -> None:
    """DRAGON-9."""
    replicas = [PS, *workers_at("a", "b")]
    found = next_steps(kube_job(tf_job()), replicas, everywhere, is_taken=lambda replica: replica.ordinal == 1)
    assert found.create == []


# Changes in place.


def test_growing_in_place_touches_no_existing_pod() -> None:
    """DRAGON-32: the others are not restarted."""
    replicas = [PS, *workers_at("a", "b")]
    job = kube_job(tf_job(), pod(PS), pod(replicas[1]), started_at=1.0)
    assert names(next_steps(job, replicas, everywhere)) == (["worker-1@b"], [])


def test_shrinking_in_place_removes_only_the_leaving_replicas() -> None:
    """DRAGON-24, DRAGON-28."""
    replicas = [PS, *workers_at("a", "b", "b")]
    job = kube_job(tf_job(workers=3), *(pod(replica) for replica in replicas), started_at=1.0)
    assert names(next_steps(job, replicas[:3], everywhere)) == ([], ["worker-2@b"])


def test_a_moved_worker_goes_before_it_comes_because_its_name_is_taken() -> None:
    """DRAGON-72, DRAGON-89."""
    old, new = [PS, *workers_at("a", "b")], [PS, *workers_at("a", "c")]
    pods = [pod(replica) for replica in old]
    job = kube_job(tf_job(), *pods, started_at=1.0)
    assert names(next_steps(job, new, everywhere)) == ([], ["worker-1@b"])
    pods[2].is_deleting = True
    assert names(next_steps(job, new, everywhere)) == ([], [])
    pods[2].is_terminated = True
    assert names(next_steps(job, new, everywhere)) == ([], [])
    del job.pods["worker", 1]
    assert names(next_steps(job, new, everywhere)) == (["worker-1@c"], [])


def test_a_replica_that_vanished_without_trace_is_replaced() -> None:
    """DRAGON-50: a NoExecute taint deletes pods without a reason."""
    replicas = [PS, *workers_at("a", "b")]
    job = kube_job(tf_job(), pod(PS), pod(replicas[1]), started_at=1.0)
    found = next_steps(job, replicas, everywhere)
    assert names(found) == (["worker-1@b"], [])
    assert found.attempt == 1


def test_a_refused_pod_is_deleted_first_because_it_keeps_its_name() -> None:
    replicas = [PS, *workers_at("a", "b")]
    job = kube_job(tf_job(), pod(PS), pod(replicas[1]), pod(replicas[2], PodState.FAILED, reason="OutOfcpu"))
    found = next_steps(job, replicas, everywhere, replaced=[("worker", 1)])
    assert names(found) == ([], ["worker-1@b"])


def test_a_failed_pod_stays_until_it_was_judged() -> None:
    replicas = [PS, *workers_at("a")]
    job = kube_job(tf_job(workers=1), pod(PS), pod(replicas[1], PodState.FAILED, exit_code=1))
    found = next_steps(job, replicas, everywhere)
    assert names(found) == ([], [])


def test_a_worker_that_has_done_its_work_does_not_come_again() -> None:
    replicas = [PS, *workers_at("a", "c")]
    done = pod(ReplicaAssignment("worker", 1, "b"), PodState.SUCCEEDED)
    found = next_steps(kube_job(tf_job(), pod(PS), pod(replicas[1]), done, started_at=1.0), replicas, everywhere)
    assert found.is_settled


# Restarts.


def test_another_size_of_a_job_that_restarts_takes_all_of_it_down_first() -> None:
    old, new = workers_at("a", "b"), workers_at("a", "b", "c")
    pods = [pod(replica, gang=old) for replica in old]
    job = kube_job(parsed_job(workers=2, maximum=3), *pods, started_at=1.0)
    found = next_steps(job, new, everywhere)
    assert names(found) == ([], ["worker-0@a", "worker-1@b"])
    for each in pods:
        each.is_deleting = True
    assert names(next_steps(job, new, everywhere)) == ([], [])
    del job.pods["worker", 0]
    assert names(next_steps(job, new, everywhere)) == ([], [])
    del job.pods["worker", 1]
    job.persisted.started_at = None
    found = next_steps(job, new, everywhere)
    assert names(found)[0] == ["worker-0@a", "worker-1@b", "worker-2@c"]
    assert found.attempt == 2


def test_a_smaller_gang_waits_for_all_of_the_larger_one_to_be_gone() -> None:
    job = kube_job(
        parsed_job(workers=2, minimum=1), pod(ReplicaAssignment("worker", 1, "b"), is_deleting=True), started_at=1.0
    )
    assert names(next_steps(job, workers_at("a"), everywhere)) == ([], [])


def test_a_gang_created_for_another_size_restarts_even_if_it_has_not_run() -> None:
    old, new = workers_at("a", "b"), workers_at("a", "b", "c")
    job = kube_job(parsed_job(workers=3), *(pod(replica, PodState.PENDING, gang=old) for replica in old))
    assert names(next_steps(job, new, everywhere))[1] == ["worker-0@a", "worker-1@b"]


def test_a_gang_that_lost_one_before_it_ran_only_gets_it_back() -> None:
    replicas = workers_at("a", "b")
    found = next_steps(
        kube_job(parsed_job(workers=2), pod(replicas[0], PodState.PENDING, gang=replicas)), replicas, everywhere
    )
    assert names(found) == (["worker-1@b"], [])


def test_a_gang_that_lost_a_pod_after_it_ran_restarts() -> None:
    replicas = workers_at("a", "b")
    job = kube_job(parsed_job(workers=2), pod(replicas[0], gang=replicas), started_at=1.0)
    assert names(next_steps(job, replicas, everywhere)) == ([], ["worker-0@a"])


def test_a_job_of_one_pod_moves_by_stopping_and_starting_elsewhere() -> None:
    """DRAGON-89."""
    job = kube_job(parsed_job(), pod(ReplicaAssignment("worker", 0, "a")), started_at=1.0)
    assert names(next_steps(job, workers_at("b"), everywhere)) == ([], ["worker-0@a"])
    job.pods.clear()
    found = next_steps(job, workers_at("b"), everywhere)
    assert (names(found)[0], found.attempt) == (["worker-0@b"], 2)


def test_a_job_that_was_given_another_assignment_at_once_waits_until_the_old_pods_are_gone() -> None:
    old = pod(ReplicaAssignment("worker", 0, "a"), is_deleting=True)
    assert names(next_steps(kube_job(parsed_job(), old), workers_at("a"), everywhere)) == ([], [])


# Stopping.


def test_stopping_asks_parameter_servers_last_because_a_worker_that_saves_needs_them() -> None:
    """DRAGON-78."""
    replicas = [PS, *workers_at("a", "b")]
    pods = [pod(replica) for replica in replicas]
    job = kube_job(tf_job(), *pods, started_at=1.0)
    assert names(next_steps(job, [], everywhere))[1] == ["worker-0@a", "worker-1@b"]
    for each in pods[1:]:
        each.is_deleting = True
    assert names(next_steps(job, [], everywhere))[1] == []
    for each in pods[1:]:
        each.is_terminated = True
    assert names(next_steps(job, [], everywhere))[1] == ["ps-0@a"]


def test_a_stopped_job_is_settled_when_nothing_of_it_is_left() -> None:
    assert next_steps(kube_job(parsed_job()), [], everywhere).is_settled


# Lost nodes.


def test_a_pod_on_a_lost_node_is_forced_out_when_its_grace_is_over_and_not_before() -> None:
    """DRAGON-50."""
    replicas = [PS, *workers_at("a", "c")]
    lost = pod(ReplicaAssignment("worker", 1, "b"), is_deleting=True, deletes_at=100.0)
    job = kube_job(tf_job(), pod(PS), pod(replicas[1]), lost, started_at=1.0)
    assert next_steps(job, replicas, everywhere, now=99.0, lost={"b"}).force == []
    found = next_steps(job, replicas, everywhere, now=100.0, lost={"b"})
    assert (found.force, found.create) == ([lost], [])


def test_a_pod_whose_end_its_node_will_confirm_is_never_forced_out() -> None:
    lost = pod(ReplicaAssignment("worker", 0, "b"), is_deleting=True, deletes_at=100.0)
    assert next_steps(kube_job(parsed_job(), lost), [], everywhere, now=1000.0).force == []


# What it rests on.


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        pytest.param(tf_job(), True, id="TFJob with parameter servers"),
        pytest.param(parsed_job("TFJob", 2), False, id="TFJob without"),
        pytest.param(parsed_job("MPIJob", 2), False, id="MPIJob of fixed size"),
        pytest.param(parsed_job("MPIJob", 2, resizing=Resizing.IN_PLACE), True, id="elastic MPIJob"),
        pytest.param(parsed_job(resizing=Resizing.IN_PLACE), True, id="in place"),
        pytest.param(parsed_job(resizing=Resizing.TORCHRUN), True, id="torchrun"),
        pytest.param(parsed_job(), False, id="by restart"),
    ],
)
def test_which_jobs_change_in_place(job: ParsedJob, expected: bool) -> None:
    assert replaces_in_place(job) is expected


def test_each_type_has_needs_of_its_own() -> None:
    job = tf_job()
    assert need_of(job, "worker") == Need(1000, 1000)
    assert need_of(job, "ps") == Need(0, 500)
    assert need_of(job, "chief") == Need(0, 500)
