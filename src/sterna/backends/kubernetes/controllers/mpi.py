"""MPIJobs: carried out by Kubeflow's MPI operator, told by us what to do (VODA-58 to 79).

Where such a job shall sit becomes: suspended or not, so many workers, and each worker pod bound to its node. Workers
wait for our binding, because their template names us as their scheduler; a gang is bound when all of it can be. One
that moves is deleted, and bound elsewhere when its operator has made it again; a job of fixed size goes as a whole, and
so does one of which nobody stays. Its operator takes whatever has the name of a worker for that worker, so that we
clear away those that will never run again: on nodes that are lost, refused, evicted, or of a life before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sterna.backends.kubernetes.api.assignment import written_ranges
from sterna.backends.kubernetes.api.job import PodRow, PodState, ReplicaAssignment
from sterna.backends.kubernetes.api.resources import Verb, Write
from sterna.backends.kubernetes.api.write_purpose import Bound, DeletedPod, Patched
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.cache.job_entry import Hosts, JobEntry, Stage, cleared
from sterna.backends.kubernetes.controllers.pods import Reconciler, deletion_of
from sterna.backends.kubernetes.controllers.runtime_accounting import is_whole
from sterna.backends.kubernetes.lifecycle.replicas import Need, need_of
from sterna.backends.kubernetes.lifecycle.verdict import Fate, Verdict, judge, lost_seconds, note_saved
from sterna.backends.kubernetes.pods.pod_builder import binding_of
from sterna.kinds.labels import HOSTS, MAX_WORKERS, MIN_WORKERS
from sterna.kinds.mpi_job import mpi_scale, mpi_start, mpi_suspend
from sterna.kinds.resource import PODS
from sterna.model.job import Resizing
from sterna.model.snapshot import NEVER

_NUDGE_SECONDS = 2.0


class _Run(msgspec.Struct):
    suspend: bool = False


class _Group(msgspec.Struct):
    replicas: int | None = None


class MpiState(msgspec.Struct, rename="camel"):
    """What of the object says how it is carried out."""

    run_policy: _Run = msgspec.field(default_factory=_Run)
    mpi_replica_specs: dict[str, _Group] = {}

    @property
    def is_suspended(self) -> bool:
        return self.run_policy.suspend

    @property
    def workers(self) -> int:
        group = self.mpi_replica_specs.get("Worker")
        return 1 if group is None or group.replicas is None else group.replicas


def state_of(entry: JobEntry) -> MpiState:
    try:
        return msgspec.json.decode(entry.raw_spec, type=MpiState)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return MpiState()


class MpiCarrier:
    """Looks after MPIJobs."""

    def __init__(self, state: ClusterState, reconciler: Reconciler) -> None:
        self._world, self._reconciler = state, reconciler

    def look(self, entry: JobEntry, now: float) -> list[Write]:
        """The next writes for a job."""
        if entry.stage is Stage.INVALID:
            self._reconciler.refuse(entry, now)
        if entry.stage is not Stage.ACTIVE or entry.job.is_deleting:
            return self._let_go(entry, now)
        memory = entry.job.memory
        for pod in entry.job.pods.values():
            if pod.is_terminated and pod.message:
                note_saved(memory, pod, now)
        self._reconciler.time.count(entry, now)
        self._world.work_queue.changed.add(entry.key)
        verdict = judge(entry.job, now, entry.replicas)
        if verdict.fate is not Fate.GOES_ON:
            self._reconciler.act_on(entry, verdict, now)
        elif is_whole(entry):
            cleared(entry)
        if entry.stage is not Stage.ACTIVE:
            return self._let_go(entry, now)
        if verdict.fate is Fate.RESTART:
            self._reconciler.unassign(entry, now)
        writes = self._reconciler.clear_away(entry, self._useless(entry, verdict), now)
        if entry.under_way or entry.retry_at > now:
            self._reconciler.timers.set(entry.retry_at if entry.retry_at > now else NEVER, entry)
            return writes
        self._reconciler.drop_lost_replicas(entry, now)
        return writes + self._towards(entry, now) + self._nudges(entry, now)

    def _let_go(self, entry: JobEntry, now: float) -> list[Write]:
        """When a job has ended, its operator sees to those that were to stay; one that was to leave just then would
        keep its device."""
        if entry.stage is not Stage.ENDED or entry.is_resting:
            return []
        count = state_of(entry).workers
        return self._reconciler.clear_away(entry, [pod for pod in self._present(entry) if pod.index >= count], now)

    def _towards(self, entry: JobEntry, now: float) -> list[Write]:
        state, workers = state_of(entry), self._workers(entry)
        if state.is_suspended:
            return self._resumed(entry, workers, now) if self._has_stopped(entry, now) else []
        if not workers or self._must_stop_first(entry):
            return [self._patch(entry, mpi_suspend(True), "suspend")]
        if len(workers) < entry.parsed_job.spec.minimum:
            return []  # of a node that was lost; the next round finds room for more, or stops it (VODA-107)
        # Its operator removes the last, so that a gap stays until the next round fills it.
        count = max(replica.index for replica in workers) + 1
        if state.workers != count:
            return [self._patch(entry, mpi_scale(count), "scale")]
        return self._moves(entry) + self._bindings(entry, now)

    def _has_stopped(self, entry: JobEntry, now: float) -> bool:
        """Whether nothing of a suspended job is left. What its operator has not taken away yet would be taken for the
        next life of it."""
        job, worker = entry.job, entry.parsed_job.spec.worker.type
        if any(pod.type == worker or not pod.is_terminated for pod in job.pods.values()):
            return False
        if job.memory.started_at is not None:
            job.memory.lost_seconds += lost_seconds(job.memory, now)
            self._reconciler.time.stop(entry, now)
            self._world.work_queue.dirty.add(entry.key)
        if job.memory.not_before > now:
            self._reconciler.timers.set(job.memory.not_before, entry)
        else:
            cleared(entry)
        return True

    def _resumed(self, entry: JobEntry, workers: Sequence[ReplicaAssignment], now: float) -> list[Write]:
        if not workers:
            return []
        if len(workers) < max(entry.parsed_job.spec.minimum, *(replica.index + 1 for replica in workers)):
            self._reconciler.unassign(entry, now)  # a node was lost on the way
            return []
        entry.job.memory.attempt += 1
        return [self._patch(entry, mpi_start(len(workers)), "start")]

    def _workers(self, entry: JobEntry) -> list[ReplicaAssignment]:
        worker = entry.parsed_job.spec.worker.type
        return [replica for replica in entry.replicas if replica.type == worker] if entry.wants_to_run else []

    def _must_stop_first(self, entry: JobEntry) -> bool:
        """A job of fixed size whose pods sit elsewhere than they shall is stopped as a whole and begun again. So is any
        other of whose workers none stays: Horovod gives up when all its hosts go at once (VODA-87)."""
        replicas = {(replica.type, replica.index): replica.node for replica in entry.replicas}
        sitting = {key: pod for key, pod in entry.job.pods.items() if pod.node and not pod.is_terminated}
        if entry.parsed_job.spec.resizing is Resizing.RESTART:
            return any(replicas.get(key, pod.node) != pod.node for key, pod in sitting.items())
        worker = entry.parsed_job.spec.worker.type
        staying = [
            replicas.get(key) == pod.node for key, pod in sitting.items() if pod.type == worker and not pod.is_deleting
        ]
        return bool(staying) and not any(staying)

    def _patch(self, entry: JobEntry, patch: dict[str, Any], what: str) -> Write:
        ref, spec = entry.parsed_job.ref, entry.parsed_job.spec
        given = {MIN_WORKERS: spec.minimum, MAX_WORKERS: spec.maximum}
        lacking = {key: str(value) for key, value in given.items() if key not in entry.annotations}
        if len(lacking) == 1:
            # What is not said follows the number of workers, which is ours to change from now on.
            patch = {**patch, "metadata": {**patch.get("metadata", {}), "annotations": lacking}}
        body = msgspec.json.encode(patch)
        entry.under_way += 1
        return Write(
            Verb.MERGE, ref.resource, ref.namespace, ref.name, body, slot=f"mpi/{ref.uid}", tag=Patched(entry.key, what)
        )

    # Workers.

    def _useless(self, entry: JobEntry, verdict: Verdict) -> list[PodRow]:
        """Workers that have the name of one to come, and will not run again."""
        state = state_of(entry)
        is_over = state.is_suspended or verdict.fate is Fate.RESTART
        return [
            pod
            for pod in self._present(entry)
            if (pod.type, pod.index) in verdict.replicas
            or (is_over and (pod.is_terminated or pod.index >= state.workers))
        ]

    def _present(self, entry: JobEntry) -> list[PodRow]:
        """Workers that nobody has asked to go."""
        worker = entry.parsed_job.spec.worker.type
        pods = [pod for _, pod in sorted(entry.job.pods.items()) if pod.type == worker]
        return [pod for pod in pods if pod.uid and not pod.is_deleting]

    def _moves(self, entry: JobEntry) -> list[Write]:
        """Workers that sit elsewhere than they shall are made anew by their operator."""
        replicas = {(replica.type, replica.index): replica for replica in entry.replicas}
        astray = [
            pod
            for key, pod in sorted(entry.job.pods.items())
            if key in replicas and pod.node and pod.node != replicas[key].node and not pod.is_deleting and pod.uid
        ]
        for pod in astray:
            self._world.pods.ask_to_go(entry, pod)
        return [deletion_of(pod, DeletedPod(entry.key, pod.uid)) for pod in astray]

    def _bindings(self, entry: JobEntry, now: float) -> list[Write]:
        if entry.job.memory.not_before > now:
            self._reconciler.timers.set(entry.job.memory.not_before, entry)
            return []
        pods = entry.job.pods
        waiting = [
            (replica, pod)
            for replica in entry.replicas
            if (pod := pods.get((replica.type, replica.index))) and _waits(pod)
        ]
        if not waiting:
            self._world.work_queue.set_waiting(entry, False)
            return []
        is_new = entry.job.memory.started_at is None
        if is_new and any((replica.type, replica.index) not in pods for replica in entry.replicas):
            return []  # its operator is still making the others: a gang is bound as one
        needs: dict[str, Need] = {}
        fitting: list[tuple[ReplicaAssignment, PodRow]] = []
        full: set[str] = set()
        for replica, pod in waiting:
            need = needs.get(replica.node, Need()).plus(need_of(entry.parsed_job, replica.type))
            if self._world.capacity.has_room(replica.node, need.devices, need.cpus, need.memory_bytes):
                needs[replica.node] = need
                fitting.append((replica, pod))
            else:
                full.add(replica.node)
        self._world.work_queue.set_waiting(entry, bool(full))
        if is_new and full:
            return []
        return [self._binding(entry, replica, pod) for replica, pod in fitting]

    def _binding(self, entry: JobEntry, replica: ReplicaAssignment, pod: PodRow) -> Write:
        namespace, _, name = pod.key.partition("/")
        self._world.pods.bind(entry, pod, replica.node)
        body = msgspec.json.encode(binding_of(namespace, name, pod.uid, replica.node))
        tag = Bound(entry.key, pod.uid, replica.node)
        return Write(Verb.CREATE, PODS, namespace, name, body, "binding", tag=tag)

    def _nudges(self, entry: JobEntry, now: float) -> list[Write]:
        """A launcher sees in `discover_hosts.sh` who has come or gone when its kubelet next looks after its volumes,
        about once a minute, or when its pod changes (VODA-70). That is done a little later, because its operator has
        to write them down first. Nothing follows from it if it fails."""
        pods, worker = entry.job.pods, entry.parsed_job.spec.worker.type
        launcher = pods.get(("launcher", 0))
        if launcher is None or launcher.state is not PodState.RUNNING or launcher.is_deleting:
            entry.hosts = None
            return []
        running = [pod.index for pod in pods.values() if pod.type == worker and _runs(pod)]
        seen, known = written_ranges(sorted(running)), entry.hosts
        if known is None or known.launcher != launcher.uid:
            known = Hosts(launcher.uid, seen, seen, now)
        if known.seen != seen:
            known = known._replace(seen=seen, since=now)
        entry.hosts = known
        if known.told == seen:
            return []
        if now < known.since + _NUDGE_SECONDS:
            self._reconciler.timers.set(known.since + _NUDGE_SECONDS, entry)
            return []
        entry.hosts = known._replace(told=seen)
        namespace, _, name = launcher.key.partition("/")
        body = msgspec.json.encode({"metadata": {"uid": launcher.uid, "annotations": {HOSTS: seen}}})
        return [Write(Verb.MERGE, PODS, namespace, name, body)]


def _runs(pod: PodRow) -> bool:
    return pod.state is PodState.RUNNING and not pod.is_deleting


def _waits(pod: PodRow) -> bool:
    return not pod.node and pod.state is PodState.PENDING and not pod.is_deleting and bool(pod.uid)
