"""MPIJobs that lose workers: nodes that go, refuse or evict, and moves; their operator takes whatever has the name of a
worker for that worker.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from sterna.backends.kubernetes.moves.manual import ManualMoves
from sterna.kinds.labels import MIGRATE_TO
from sterna.kinds.mpi_job import MPI_JOBS
from sterna.kinds.resource import PODS, Resource
from sterna.model.cluster import Assignment
from sterna.model.plan import Action, ActionKind, Decision, Plan
from sterna.model.snapshot import JobKey
from tests.fakes.kube_client import Faults
from tests.fakes.kube_store import Event, Object
from tests.simulation.kubernetes_mpi import FakeMpiOperator, an_mpi_job
from tests.simulation.kubernetes_runs import Chosen, Cluster

LONG = 10_000.0
ROUGH = Faults(lost_before=0.02, lost_after=0.02, conflict=0.05, too_many=0.05, expired=0.01, broken=0.01)


class Scene:
    """Nodes of two GPUs each, an MPIJob, and the worker counts its operator was given."""

    def __init__(self, job: Object, nodes: int = 3, policy: str = "elastic-fifo") -> None:
        self.cluster = Cluster(rules=Chosen(policy))
        self.kube = self.cluster.kube
        for number in range(nodes):
            self.cluster.nodes.add(f"node-{number}", gpus=2)
        FakeMpiOperator(self.kube)
        operator = self.cluster.start()
        operator.before_reconcile.append(ManualMoves(operator.backend).process)
        self.name = job["metadata"]["name"]
        self.counts: list[int] = []
        self.kube.store.listeners.append(self._note)
        self.kube.create(MPI_JOBS, job)
        self.cluster.run(8.0)
        assert self.phase == "Running"

    def _note(self, resource: Resource, event: Event) -> None:
        if resource == MPI_JOBS and event.after is not None and not event.after["spec"]["runPolicy"].get("suspend"):
            self.counts.append(event.after["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"])

    @property
    def job(self) -> Object:
        return self.kube.get(MPI_JOBS, self.name)

    @property
    def phase(self) -> str:
        return str(self.job["metadata"]["annotations"].get("sterna.dev/phase", ""))

    @property
    def workers(self) -> dict[int, tuple[str, str]]:
        """Node and uid of those that run, by number."""
        running = [
            pod
            for pod in self.cluster.pods(f"{self.name}-worker")
            if pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp")
        ]
        return {
            int(pod["metadata"]["name"].rpartition("-")[2]): (pod["spec"]["nodeName"], pod["metadata"]["uid"])
            for pod in running
        }

    @property
    def nodes(self) -> dict[int, str]:
        return {index: node for index, (node, _) in self.workers.items()}

    @property
    def launcher(self) -> str:
        return str(self.kube.get(PODS, f"{self.name}-launcher")["metadata"]["uid"])

    def lose(self, node: str) -> None:
        """The node is not ready, its pods are being deleted, and no kubelet confirms their end."""
        self.cluster.lose(node, evicts=True)
        self.cluster.run(60.0)

    def fail(self, index: int, reason: str) -> None:
        """Its kubelet has put a worker off, or will not take it."""
        status: Any = {"phase": "Failed", "reason": reason, "message": reason, "containerStatuses": None}
        self.kube.patch(PODS, f"{self.name}-worker-{index}", {"status": status}, "status")


def fixed_size_job() -> Object:
    return an_mpi_job("fixed", 4, seconds=LONG)


def elastic(least: int = 1, most: int = 4) -> Object:
    return an_mpi_job("elastic", least, most, seconds=LONG)


# Nodes that are lost.


def test_workers_on_a_lost_node_come_again_elsewhere_while_the_others_stay() -> None:
    """VODA-98: the names of the lost ones are freed, or their operator could not make them again."""
    scene = Scene(elastic())
    before, launcher = scene.workers, scene.launcher
    scene.lose("node-1")
    assert scene.nodes == {0: "node-0", 1: "node-0", 2: "node-2", 3: "node-2"}
    assert (scene.workers[0], scene.workers[1]) == (before[0], before[1])
    assert (scene.launcher, scene.phase) == (launcher, "Running")


@pytest.mark.parametrize(("nodes", "expected"), [(3, [0, 1, 2, 3]), (2, [2, 3])])
def test_the_last_workers_stay_where_they_are_when_the_first_ones_are_lost(nodes: int, expected: list[int]) -> None:
    """VODA-98: a lower worker count would make the MPI operator remove the surviving workers."""
    scene = Scene(elastic(2), nodes)
    before = scene.workers
    lost = before[0][0]
    assert {index for index, (node, _) in before.items() if node == lost} == {0, 1}
    scene.lose(lost)
    assert list(scene.workers) == expected
    assert (scene.workers[2], scene.workers[3]) == (before[2], before[3])
    assert scene.phase == "Running"


def test_a_job_of_fixed_size_begins_again_as_a_whole_when_a_node_is_lost() -> None:
    """VODA-98: its worker count is never lowered."""
    scene = Scene(fixed_size_job())
    launcher = scene.launcher
    scene.lose("node-1")
    assert scene.nodes == {0: "node-0", 1: "node-0", 2: "node-2", 3: "node-2"}
    assert set(scene.counts) == {4}
    assert scene.launcher != launcher


@pytest.mark.parametrize("policy", ["elastic-fifo", "fifo", "elastic-tiresias", "ffdl", "afs-l", "dragon"])
@pytest.mark.parametrize("job", [elastic(3), fixed_size_job()], ids=["elastic", "fixed"])
def test_a_job_waits_suspended_when_less_than_its_minimum_is_left(job: Object, policy: str) -> None:
    """VODA-98, VODA-107: it never runs with fewer workers than it may, and comes again when there is room."""
    scene = Scene(job, nodes=2, policy=policy)
    least = 3 if scene.name == "elastic" else 4
    scene.lose("node-1")
    assert scene.job["spec"]["runPolicy"]["suspend"] is True
    assert (scene.phase, scene.workers) == ("Waiting", {})
    scene.cluster.heal("node-1")
    scene.cluster.run(30.0)
    assert scene.phase == "Running"
    assert len(scene.workers) >= least
    assert min(scene.counts) >= least


# Workers that fail through no fault of their own.


@pytest.mark.parametrize("reason", ["Evicted", "OutOfnvidia.com/gpu", "NodeAffinity"])
@pytest.mark.parametrize("job", [elastic(), fixed_size_job()], ids=["elastic", "fixed"])
def test_a_worker_that_was_evicted_or_refused_is_replaced_and_its_job_goes_on(job: Object, reason: str) -> None:
    """VODA-73: its operator keeps such a pod, and calls a job `Failed` of which a worker was evicted."""
    scene = Scene(job)
    uid = scene.workers[2][1]
    scene.fail(2, reason)
    scene.cluster.run(60.0)
    assert scene.phase == "Running"
    assert list(scene.workers) == [0, 1, 2, 3]
    assert scene.workers[2][1] != uid


def test_a_node_that_refused_a_worker_is_left_alone_for_a_while() -> None:
    scene = Scene(elastic())
    scene.cluster.run(60.0)
    scene.fail(2, "OutOfnvidia.com/gpu")
    scene.cluster.run(25.0)
    assert scene.nodes == {0: "node-0", 1: "node-0", 2: "node-2", 3: "node-1"}


def test_a_worker_that_ended_by_itself_is_its_operator_s_affair() -> None:
    """VODA-76: its restart policy and its launcher decide."""
    scene = Scene(elastic())
    uid = scene.kube.get(PODS, "elastic-worker-2")["metadata"]["uid"]
    scene.cluster.nodes.end("elastic-worker-2", exit_code=1)
    scene.cluster.run(30.0)
    assert scene.kube.get(PODS, "elastic-worker-2")["metadata"]["uid"] == uid


def test_workers_that_had_ended_are_not_taken_for_those_of_the_next_life() -> None:
    """VODA-65: under the clean-up policy `Running` its operator leaves them where they are."""
    scene = Scene(fixed_size_job())
    scene.cluster.nodes.end("fixed-worker-3", exit_code=1)
    scene.kube.patch(MPI_JOBS, "fixed", {"metadata": {"annotations": {"sterna.dev/suspend": "true"}}})
    scene.cluster.run(10.0)
    assert scene.cluster.pods("fixed-worker") == []
    scene.kube.patch(MPI_JOBS, "fixed", {"metadata": {"annotations": {"sterna.dev/suspend": "false"}}})
    scene.cluster.run(10.0)
    assert list(scene.workers) == [0, 1, 2, 3]


def test_a_worker_that_was_to_leave_when_its_job_ended_leaves() -> None:
    """VODA-72: its operator cleans up only those that were to stay."""
    scene = Scene(an_mpi_job("elastic", 1, 4, seconds=12.0))
    done = [{"type": "Succeeded", "status": "True", "reason": "MPIJobSucceeded", "message": "done"}]
    status = {"conditions": done, "completionTime": "2025-06-15T15:20:53Z"}
    scene.kube.patch(MPI_JOBS, "elastic", {"status": status}, "status")
    scene.kube.patch(MPI_JOBS, "elastic", {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 2}}}})
    scene.cluster.run(10.0)
    assert (scene.phase, scene.workers) == ("Succeeded", {})


# Moves.


def test_a_job_of_which_every_worker_moves_begins_again_with_its_launcher() -> None:
    """VODA-87: Horovod cannot go on when all its hosts are replaced at once."""
    scene = Scene(elastic(1, 2))
    launcher = scene.launcher
    scene.kube.patch(MPI_JOBS, "elastic", {"metadata": {"annotations": {MIGRATE_TO: "node-2"}}})
    scene.cluster.run(15.0)
    assert scene.nodes == {0: "node-2", 1: "node-2"}
    assert scene.launcher != launcher


def test_workers_move_without_the_others_and_the_launcher_where_some_stay() -> None:
    """VODA-86."""
    scene = Scene(elastic(1, 3))
    before, launcher = scene.workers, scene.launcher
    assert scene.nodes == {0: "node-0", 1: "node-0", 2: "node-1"}
    assert scene.cluster.operator is not None
    backend = scene.cluster.operator.backend
    entry = backend.state.jobs.find("default/elastic")
    assert entry is not None
    move = Action(ActionKind.MIGRATE, JobKey(entry.key), -1, entry.assignment, Assignment(((0, 2), (2, 1))))
    backend.apply(Decision(Plan([move])))
    scene.cluster.run(15.0)
    assert scene.nodes == {0: "node-0", 1: "node-0", 2: "node-2"}
    assert (scene.workers[0], scene.workers[1], scene.launcher) == (before[0], before[1], launcher)


# All of it.


@pytest.mark.parametrize("seed", range(6))
def test_mpi_jobs_survive_lost_nodes_evictions_faults_and_crashes(seed: int) -> None:
    """VODA-93 to 98."""
    luck = random.Random(seed)
    cluster = Cluster(seed, ROUGH)
    for number in range(4):
        cluster.nodes.add(f"node-{number}", gpus=3)
    FakeMpiOperator(cluster.kube)
    cluster.start()
    for number in range(5):
        least = luck.choice([1, 2, 4])
        job = an_mpi_job(f"job-{number}", least, least + luck.randrange(4), luck.uniform(5.0, 30.0))
        cluster.kube.create(MPI_JOBS, job)
        cluster.run(luck.uniform(0.0, 8.0))
        _mischief(cluster, luck, [f"node-{each}" for each in range(4)])
    cluster.kube.heal()
    for number in range(4):
        cluster.heal(f"node-{number}")
    cluster.run(900.0)
    phases = {job["metadata"]["name"]: job["metadata"]["annotations"] for job in cluster.kube.items(MPI_JOBS)}
    assert {name: each.get("sterna.dev/phase") for name, each in phases.items()} == {
        f"job-{number}": "Succeeded" for number in range(5)
    }


def _mischief(cluster: Cluster, luck: random.Random, nodes: Sequence[str]) -> None:
    """A node goes or comes back, a worker is evicted, or the operator dies."""
    what, node = luck.randrange(4), luck.choice(nodes)
    if what == 0:
        cluster.lose(node, evicts=True)
    elif what == 1:
        cluster.heal(node)
    elif what == 2:
        running = [pod for pod in cluster.pods() if "worker" in pod["metadata"]["name"] and _runs(pod)]
        for pod in luck.sample(running, min(1, len(running))):
            status: Any = {"phase": "Failed", "reason": "Evicted", "containerStatuses": None}
            cluster.kube.patch(PODS, pod["metadata"]["name"], {"status": status}, "status")
    else:
        cluster.crash(luck.uniform(0.1, 3.0))


def _runs(pod: Object) -> bool:
    return pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp")
