"""Controller of MPIJobs, whose pods Kubeflow's MPI operator creates.

A desired assignment becomes: `suspend` true or false, a number of workers, and a binding for each worker pod. Workers
wait for the binding because their template names Sterna as the scheduler; a gang is bound when all of it fits. A moved
worker is deleted, and bound on its new node when the MPI operator has created it again. A job of fixed size, and a job
none of whose workers stays, is suspended first. The MPI operator takes any pod of a worker's name for that worker, so
pods that will never run again are deleted here: on lost nodes, rejected, evicted, or of a previous attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sterna.backends.kubernetes.api.assignment import encode_ranges
from sterna.backends.kubernetes.api.job import PodRow, PodState, ReplicaAssignment
from sterna.backends.kubernetes.api.resources import Verb, Write
from sterna.backends.kubernetes.api.write_purpose import BoundPod, DeletedPod, PatchedObject
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.cache.job_entry import JobEntry, MpiHosts, Stage, clear_verdict
from sterna.backends.kubernetes.controllers.controller import Controller, present_pods, replicas_on
from sterna.backends.kubernetes.controllers.pods import PodController, deletion_of
from sterna.backends.kubernetes.controllers.runtime_accounting import is_whole
from sterna.backends.kubernetes.lifecycle.replicas import Need, need_of
from sterna.backends.kubernetes.lifecycle.verdict import Verdict, VerdictKind, judge, record_checkpoint, stop_verdict
from sterna.backends.kubernetes.pods.pod_builder import binding_of
from sterna.kinds.labels import HOSTS, MAX_WORKERS, MIN_WORKERS
from sterna.kinds.mpi_job import mpi_scale, mpi_start, mpi_suspend
from sterna.kinds.resource import PODS
from sterna.model.job import Resizing
from sterna.model.snapshot import NEVER

_HOSTFILE_SECONDS = 2.0
"""Delay between a change of the running workers and the refresh of the launcher's hostfile."""


class _Run(msgspec.Struct):
    suspend: bool = False


class _Group(msgspec.Struct):
    replicas: int | None = None


class MpiState(msgspec.Struct, rename="camel"):
    """The fields of an MPIJob's spec that steer the MPI operator."""

    run_policy: _Run = msgspec.field(default_factory=_Run)
    mpi_replica_specs: dict[str, _Group] = {}

    @property
    def is_suspended(self) -> bool:
        return self.run_policy.suspend

    @property
    def workers(self) -> int:
        group = self.mpi_replica_specs.get("Worker")
        return 1 if group is None or group.replicas is None else group.replicas


def mpi_state(entry: JobEntry) -> MpiState:
    try:
        return msgspec.json.decode(entry.source.raw_spec, type=MpiState)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return MpiState()


class MpiController(Controller):
    """Suspends, resumes and scales MPIJobs, and binds their workers."""

    def __init__(self, state: ClusterState, pods: PodController) -> None:
        super().__init__(state)
        self._pods = pods

    def find_replicas(self, entry: JobEntry) -> list[ReplicaAssignment]:
        """Return the nodes of bound workers; nothing if a gang is bound in part, because the rest is unknown."""
        found = self._complete(entry, replicas_on(present_pods(entry)))
        worker = entry.parsed_job.spec.worker.type
        workers = sum(replica.type == worker for replica in found)
        return found if workers >= entry.parsed_job.spec.minimum else []

    def reconcile(self, entry: JobEntry, now: float) -> list[Write]:
        if entry.stage is Stage.INVALID:
            self._pods.report_invalid(entry, now)
        if entry.stage is not Stage.ACTIVE or entry.job.is_deleting:
            return self._delete_surplus(entry, now)
        persisted = entry.job.persisted
        for pod in entry.job.pods.values():
            if pod.is_terminated and pod.message:
                record_checkpoint(persisted, pod, now)
        self._pods.runtime.update(entry, now)
        self._state.work_queue.mark_row_stale(entry)
        verdict = judge(entry.job, now, entry.replicas)
        if verdict.kind is not VerdictKind.CONTINUE:
            self._pods.apply_verdict(entry, verdict, now)
        elif is_whole(entry):
            clear_verdict(entry)
        if entry.stage is not Stage.ACTIVE:
            return self._delete_surplus(entry, now)
        if verdict.kind is VerdictKind.RESTART:
            self._pods.unassign(entry, now)
        writes = self._pods.delete_pods(entry, self._obsolete(entry, verdict), now)
        if entry.writes_in_flight or entry.retry.at > now:
            self._pods.timers.set(entry.retry.at if entry.retry.at > now else NEVER, entry)
            return writes
        self._pods.release_lost_assignments(entry, now)
        return writes + self._steps(entry, now) + self._refresh_hostfile(entry, now)

    def _delete_surplus(self, entry: JobEntry, now: float) -> list[Write]:
        """Delete workers beyond the job's size after its end; the MPI operator only cleans up the others."""
        if entry.stage is not Stage.ENDED or entry.is_compacted:
            return []
        count = mpi_state(entry).workers
        return self._pods.delete_pods(entry, [pod for pod in self._present(entry) if pod.index >= count], now)

    def _steps(self, entry: JobEntry, now: float) -> list[Write]:
        state, workers = mpi_state(entry), self._workers(entry)
        if state.is_suspended:
            return self._resume(entry, workers, now) if self._has_stopped(entry, now) else []
        if not workers or self._must_stop_first(entry):
            return [self._patch(entry, mpi_suspend(True), "suspend")]
        if len(workers) < entry.parsed_job.spec.minimum:
            return []  # a node was lost: the next round assigns more workers or stops the job
        # The MPI operator removes the highest ordinals, so a gap stays until the next round fills it.
        count = max(replica.ordinal for replica in workers) + 1
        if state.workers != count:
            return [self._patch(entry, mpi_scale(count), "scale")]
        return self._moves(entry) + self._bindings(entry, now)

    def _has_stopped(self, entry: JobEntry, now: float) -> bool:
        """Return True if no pod of a suspended job is left; the MPI operator would take one for the next attempt."""
        job, worker = entry.job, entry.parsed_job.spec.worker.type
        if any(pod.type == worker or not pod.is_terminated for pod in job.pods.values()):
            return False
        if job.persisted.started_at is not None:
            self._pods.apply_verdict(entry, stop_verdict(job.persisted, now), now)
            self._state.work_queue.enqueue(entry)
        if job.persisted.not_before > now:
            self._pods.timers.set(job.persisted.not_before, entry)
        else:
            clear_verdict(entry)
        return True

    def _resume(self, entry: JobEntry, workers: Sequence[ReplicaAssignment], now: float) -> list[Write]:
        if not workers:
            return []
        if len(workers) < max(entry.parsed_job.spec.minimum, *(replica.ordinal + 1 for replica in workers)):
            self._pods.unassign(entry, now)  # a node was lost meanwhile
            return []
        entry.job.persisted.attempt += 1
        return [self._patch(entry, mpi_start(len(workers)), "start")]

    def _workers(self, entry: JobEntry) -> list[ReplicaAssignment]:
        worker = entry.parsed_job.spec.worker.type
        return [replica for replica in entry.replicas if replica.type == worker] if entry.wants_to_run else []

    def _must_stop_first(self, entry: JobEntry) -> bool:
        """Return True if the job must be suspended before it is moved.

        That is a job of fixed size with a pod on another node than assigned, and any job none of whose workers stays:
        Horovod aborts when all its hosts leave at once.
        """
        replicas = {(replica.type, replica.ordinal): replica.node for replica in entry.replicas}
        bound = {key: pod for key, pod in entry.job.pods.items() if pod.node and not pod.is_terminated}
        if entry.parsed_job.spec.resizing is not Resizing.IN_PLACE:
            return any(replicas.get(key, pod.node) != pod.node for key, pod in bound.items())
        worker = entry.parsed_job.spec.worker.type
        staying = [
            replicas.get(key) == pod.node for key, pod in bound.items() if pod.type == worker and not pod.is_deleting
        ]
        return bool(staying) and not any(staying)

    def _patch(self, entry: JobEntry, patch: dict[str, Any], what: str) -> Write:
        ref, spec = entry.parsed_job.ref, entry.parsed_job.spec
        given = {MIN_WORKERS: spec.minimum, MAX_WORKERS: spec.maximum}
        lacking = {key: str(value) for key, value in given.items() if key not in entry.source.annotations}
        if len(lacking) == 1:
            # A missing bound defaults to the number of workers, which Sterna changes: write it down.
            patch = {**patch, "metadata": {**patch.get("metadata", {}), "annotations": lacking}}
        body = msgspec.json.encode(patch)
        entry.writes_in_flight += 1
        return Write(
            Verb.MERGE,
            ref.resource,
            ref.namespace,
            ref.name,
            body,
            slot=f"mpi/{ref.uid}",
            tag=PatchedObject(entry.key, what),
        )

    # Workers.

    def _obsolete(self, entry: JobEntry, verdict: Verdict) -> list[PodRow]:
        """Return workers that will not run again and whose names are needed."""
        state = mpi_state(entry)
        is_over = state.is_suspended or verdict.kind is VerdictKind.RESTART
        return [
            pod
            for pod in self._present(entry)
            if (pod.type, pod.index) in verdict.replicas
            or (is_over and (pod.is_terminated or pod.index >= state.workers))
        ]

    def _present(self, entry: JobEntry) -> list[PodRow]:
        """Return existing workers that are not being deleted, in order."""
        worker = entry.parsed_job.spec.worker.type
        pods = [pod for _, pod in sorted(entry.job.pods.items()) if pod.type == worker]
        return [pod for pod in pods if pod.uid and not pod.is_deleting]

    def _moves(self, entry: JobEntry) -> list[Write]:
        """Delete workers on other nodes than assigned; the MPI operator creates them again."""
        replicas = {(replica.type, replica.ordinal): replica for replica in entry.replicas}
        misplaced = [
            pod
            for key, pod in sorted(entry.job.pods.items())
            if key in replicas and pod.node and pod.node != replicas[key].node and not pod.is_deleting and pod.uid
        ]
        for pod in misplaced:
            self._state.pods.mark_deleted(entry, pod)
        return [deletion_of(pod, DeletedPod(entry.key, pod.uid)) for pod in misplaced]

    def _bindings(self, entry: JobEntry, now: float) -> list[Write]:
        if entry.job.persisted.not_before > now:
            self._pods.timers.set(entry.job.persisted.not_before, entry)
            return []
        pods = entry.job.pods
        waiting = [
            (replica, pod)
            for replica in entry.replicas
            if (pod := pods.get((replica.type, replica.ordinal))) and _is_unbound(pod)
        ]
        if not waiting:
            self._state.work_queue.set_blocked(entry, False)
            return []
        is_new = entry.job.persisted.started_at is None
        if is_new and any((replica.type, replica.ordinal) not in pods for replica in entry.replicas):
            return []  # the MPI operator is still creating the others: a gang is bound as one
        needs: dict[str, Need] = {}
        fitting: list[tuple[ReplicaAssignment, PodRow]] = []
        full: set[str] = set()
        for replica, pod in waiting:
            need = needs.get(replica.node, Need()).plus(need_of(entry.parsed_job, replica.type))
            if self._state.capacity.has_room(replica.node, need.devices, need.cpus, need.memory_bytes):
                needs[replica.node] = need
                fitting.append((replica, pod))
            else:
                full.add(replica.node)
        self._state.work_queue.set_blocked(entry, bool(full))
        if is_new and full:
            return []
        return [self._binding(entry, replica, pod) for replica, pod in fitting]

    def _binding(self, entry: JobEntry, replica: ReplicaAssignment, pod: PodRow) -> Write:
        namespace, _, name = pod.key.partition("/")
        self._state.pods.bind(entry, pod, replica.node)
        body = msgspec.json.encode(binding_of(namespace, name, pod.uid, replica.node))
        tag = BoundPod(entry.key, pod.uid, replica.node)
        return Write(Verb.CREATE, PODS, namespace, name, body, "binding", tag=tag)

    def _refresh_hostfile(self, entry: JobEntry, now: float) -> list[Write]:
        """Annotate the launcher when workers came or went, so that its kubelet refreshes `discover_hosts.sh`.

        Kubelets refresh volumes about once a minute, or when the pod changes. The annotation follows after a short
        delay, because the MPI operator updates the ConfigMap first. A failed write has no consequence.
        """
        pods, worker = entry.job.pods, entry.parsed_job.spec.worker.type
        launcher = pods.get(("launcher", 0))
        if launcher is None or launcher.state is not PodState.RUNNING or launcher.is_deleting:
            entry.hosts = None
            return []
        running = [pod.index for pod in pods.values() if pod.type == worker and _is_running(pod)]
        seen, known = encode_ranges(sorted(running)), entry.hosts
        if known is None or known.launcher != launcher.uid:
            known = MpiHosts(launcher.uid, seen, seen, now)
        if known.running != seen:
            known = known._replace(running=seen, since=now)
        entry.hosts = known
        if known.announced == seen:
            return []
        if now < known.since + _HOSTFILE_SECONDS:
            self._pods.timers.set(known.since + _HOSTFILE_SECONDS, entry)
            return []
        entry.hosts = known._replace(announced=seen)
        namespace, _, name = launcher.key.partition("/")
        body = msgspec.json.encode({"metadata": {"uid": launcher.uid, "annotations": {HOSTS: seen}}})
        return [Write(Verb.MERGE, PODS, namespace, name, body)]


def _is_running(pod: PodRow) -> bool:
    return pod.state is PodState.RUNNING and not pod.is_deleting


def _is_unbound(pod: PodRow) -> bool:
    return not pod.node and pod.state is PodState.PENDING and not pod.is_deleting and bool(pod.uid)
