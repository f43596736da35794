"""Controller of jobs whose pods Sterna creates: TFJob, PyTorchJob, TrainingJob.

Level-triggered: `reconcile` compares the desired assignment with the existing pods and returns the next writes; writes
in flight count as done, so a job in its desired state costs no write. `lifecycle` judges what the pods mean for the
job and computes the steps, `pods` builds the pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from sterna.backends.kubernetes.api.assignment import Key
from sterna.backends.kubernetes.api.job import PodRow, PodState, ReplicaAssignment
from sterna.backends.kubernetes.api.resources import SERVICES, Urgency, Verb, Write
from sterna.backends.kubernetes.api.write_purpose import (
    CreatedPod,
    CreatedService,
    DeletedJob,
    DeletedPod,
    DeletedService,
)
from sterna.backends.kubernetes.cache.cluster_state import ClusterState
from sterna.backends.kubernetes.cache.job_entry import JobEntry, JobEvent, Stage, clear_verdict, has_ended
from sterna.backends.kubernetes.cache.timers import Timers
from sterna.backends.kubernetes.controllers.controller import Controller
from sterna.backends.kubernetes.controllers.cpu_resize import resizes
from sterna.backends.kubernetes.controllers.runtime_accounting import RuntimeAccounting, is_whole
from sterna.backends.kubernetes.lifecycle.backoff import crash_loop_sentence
from sterna.backends.kubernetes.lifecycle.replicas import (
    Need,
    Steps,
    is_dead,
    need_of,
    next_deadline,
    next_steps,
    replaces_in_place,
)
from sterna.backends.kubernetes.lifecycle.services import ServiceRow, service_steps, services_to_delete
from sterna.backends.kubernetes.lifecycle.verdict import (
    CONTINUE,
    Verdict,
    VerdictKind,
    deadline_of,
    expires_at,
    ignored_stop_request,
    judge,
    pods_to_delete,
    record_checkpoint,
)
from sterna.backends.kubernetes.pods.gang import ClusterDomain, gang_ranks
from sterna.backends.kubernetes.pods.pod_builder import pod_name, pod_of, service_of
from sterna.backends.kubernetes.status.event_recorder import EventRecorder
from sterna.control.failures import CRASH_LOOP
from sterna.kinds.resource import PODS, Resource
from sterna.model.cluster import NOWHERE
from sterna.model.snapshot import NEVER

_DISTRUST_SECONDS = 30.0
"""Time for which a node gets no new pods after its kubelet rejected one."""

OnJobEvent = Callable[[JobEntry, JobEvent], None]


class PodController(Controller):
    """Creates and deletes the pods and services of jobs. Other controllers use it for what all jobs have in common."""

    def __init__(
        self,
        state: ClusterState,
        timers: Timers,
        domain: ClusterDomain,
        recorder: EventRecorder,
        on_job_event: OnJobEvent,
    ) -> None:
        super().__init__(state)
        self.timers, self._domain = timers, domain
        self.runtime = RuntimeAccounting(lambda: state.capacity.unit, state.progress.restart_seconds_of)
        self._recorder, self._on_job_event = recorder, on_job_event

    def reconcile(self, entry: JobEntry, now: float) -> list[Write]:
        if entry.stage is Stage.INVALID:
            self.report_invalid(entry, now)
            return []
        if entry.stage is Stage.ENDED:
            return self._cleanup_finished(entry, now)
        self.runtime.suspend(entry, now)
        if not entry.wants_to_run:
            return self._teardown(entry, now)
        if not entry.replicas and self._is_idle(entry, now):
            return []
        self._note_pods(entry, now)
        verdict = judge(entry.job, now, entry.replicas)
        self.apply_verdict(entry, verdict, now)
        if entry.stage is not Stage.ACTIVE:
            return self._cleanup_finished(entry, now)
        self.release_lost_assignments(entry, now)
        replaced = verdict.replicas if verdict.kind is VerdictKind.REPLACE else ()
        if verdict.kind is VerdictKind.RESTART:
            replaced = tuple(entry.job.pods)
        return [*self._steps(entry, replaced, now, verdict.until), *resizes(entry, now, self.timers)]

    def _is_idle(self, entry: JobEntry, now: float) -> bool:
        """Return True if an unassigned job has no pods and its deadline is ahead, so that only timers matter."""
        persisted, deadline = entry.job.persisted, deadline_of(entry.job)
        if persisted.not_before > now:
            self.timers.set(persisted.not_before, entry)
        elif not entry.job.pods:
            clear_verdict(entry)  # its pods are gone: it is queued like any other job
        if now >= deadline:
            return False
        self.timers.set(deadline, entry)
        return not entry.job.pods and persisted.started_at is None

    # Verdicts.

    def _note_pods(self, entry: JobEntry, now: float) -> None:
        """Record checkpoints of terminated pods and accrue run time."""
        persisted = entry.job.persisted
        for pod in entry.job.pods.values():
            if pod.is_terminated and pod.message:
                record_checkpoint(persisted, pod, now)
            if pod.is_terminated and entry.ending_attempt != pod.attempt and ignored_stop_request(persisted, pod):
                entry.unsaved_attempt = pod.attempt
        self.runtime.update(entry, now)
        self._state.work_queue.mark_row_stale(entry)

    def apply_verdict(self, entry: JobEntry, verdict: Verdict, now: float) -> None:
        """Change the job's state as the verdict demands."""
        kind = verdict.kind
        entry.job.persisted.lost_seconds += verdict.lost_seconds
        if kind in (VerdictKind.COMPLETED, VerdictKind.FAILED):
            self.finish(entry, verdict, now)
        elif kind is VerdictKind.STOPPED:
            self._end_stopped_attempt(entry, verdict, now)
        elif kind in (VerdictKind.REPLACE, VerdictKind.RESTART):
            if not self._is_handled(entry, verdict):
                self.restart(entry, verdict, now)
        elif (entry.verdict is not CONTINUE or entry.retry.count) and is_whole(entry):
            clear_verdict(entry)
            entry.retry.count, entry.retry.message = 0, ""

    def _end_stopped_attempt(self, entry: JobEntry, verdict: Verdict, now: float) -> None:
        """Record what an attempt that the scheduler stopped has shown: whether it ran well and whether it saved."""
        persisted = entry.job.persisted
        self._recorder.record_verdict(entry, verdict, now)
        if self.runtime.runs_well(entry, now):
            persisted.note_good_run()
            persisted.failure_cause = ""
        if entry.unsaved_attempt == persisted.attempt:
            persisted.break_save(0.0)  # the verdict has counted the loss
            self._recorder.record_broken_save(entry, verdict.lost_seconds, now)
        elif persisted.can_save and persisted.step is not None:
            persisted.resume_step = persisted.step
        self.runtime.stop(entry, now)
        self._state.work_queue.request_round()

    def note_failure(self, entry: JobEntry, cause: str, exit_code: int | None, now: float) -> None:
        """Record that the job failed by itself or that its pods were refused; `cause` begins a sentence."""
        persisted = entry.job.persisted
        persisted.note_failure(self.runtime.runs_well(entry, now), exit_code)
        persisted.failure_cause, persisted.resume_step = cause, -1
        persisted.reached_step = max(persisted.reached_step, -1 if persisted.step is None else persisted.step)

    def _is_handled(self, entry: JobEntry, verdict: Verdict) -> bool:
        """Return True if the attempt is being deleted already: a failed parameter server is deleted last and shows its
        failure until then."""
        attempt = max((pod.attempt for pod in entry.job.pods.values()), default=0)
        is_handled = verdict.kind is VerdictKind.RESTART and entry.ending_attempt == attempt
        entry.ending_attempt = attempt if verdict.kind is VerdictKind.RESTART else -1
        return is_handled

    def restart(self, entry: JobEntry, verdict: Verdict, now: float) -> None:
        """Count and report a restart of some or all replicas."""
        persisted = entry.job.persisted
        persisted.restarts += verdict.is_counted
        if verdict.is_counted or (verdict.refused_by and verdict.kind is VerdictKind.RESTART):
            self.note_failure(entry, verdict.cause, verdict.exit_code, now)
            if persisted.failures >= CRASH_LOOP:
                verdict = replace(verdict, sentence=f"{verdict.sentence} {crash_loop_sentence(persisted)}")
        persisted.not_before = max(persisted.not_before, verdict.not_before)
        for node in verdict.refused_by:
            self._state.capacity.distrust(node, now + _DISTRUST_SECONDS)
            self.timers.set(now + _DISTRUST_SECONDS)
        entry.verdict = verdict
        self._recorder.record_verdict(entry, verdict, now)
        self._on_job_event(entry, JobEvent.RESTARTED)
        self._state.work_queue.request_round()
        if verdict.kind is VerdictKind.RESTART:
            self.runtime.stop(entry, now)
            if persisted.not_before > now:  # free its capacity during the back-off
                self.unassign(entry, now)

    def report_invalid(self, entry: JobEntry, now: float) -> None:
        """Record an event about an invalid object, once per message."""
        if entry.status.sentence != entry.outcome[1]:
            self._recorder.record_invalid(entry, now)

    def finish(self, entry: JobEntry, verdict: Verdict, now: float) -> None:
        """Mark the job as ended, which is final."""
        self.runtime.stop(entry, now)
        entry.job.persisted.ended_at = now
        if verdict.exit_code is not None:
            entry.job.persisted.exit_code = verdict.exit_code
        entry.stage = Stage.ENDED
        entry.outcome, entry.verdict = (verdict.reason, verdict.sentence), verdict
        self._recorder.record_verdict(entry, verdict, now)
        self._state.reindex(entry)
        self._on_job_event(entry, JobEvent.COMPLETED if verdict.kind is VerdictKind.COMPLETED else JobEvent.FAILED)

    def unassign(self, entry: JobEntry, now: float) -> None:
        """Return the job to the queue."""
        if entry.replicas:
            entry.job.persisted.waiting_since = now
            self._state.assign(entry, (), NOWHERE)
            self._state.work_queue.request_round()

    # Assignment.

    def release_lost_assignments(self, entry: JobEntry, now: float) -> None:
        """Drop replicas on nodes that are gone or no longer accept the missing pod; the next round assigns others."""
        if not entry.replicas or self._is_at_assignment(entry):
            return
        lost = [replica for replica in entry.replicas if self._is_lost(entry, replica)]
        if not lost:
            return
        left = [replica for replica in entry.replicas if replica not in lost]
        worker = entry.parsed_job.spec.worker.type
        is_broken = any(replica.type != worker for replica in lost) or not any(
            replica.type == worker for replica in left
        )
        if is_broken or not replaces_in_place(entry.parsed_job):
            self.unassign(entry, now)
        else:
            self.runtime.accrue(entry, now)
            self._state.reassign(entry, left)
            self._state.work_queue.request_round()

    def _is_at_assignment(self, entry: JobEntry) -> bool:
        """Return True if every replica has a pod that stays, on a known node, so that no assignment can be lost."""
        pods = entry.job.pods
        if len(pods) < len(entry.replicas) or any(pod.is_deleting or not pod.node for pod in pods.values()):
            return False
        is_known = all(
            self._state.capacity.facts(node) is not None for node in {replica.node for replica in entry.replicas}
        )
        return is_known and all((replica.type, replica.ordinal) in pods for replica in entry.replicas)

    def _is_lost(self, entry: JobEntry, replica: ReplicaAssignment) -> bool:
        capacity = self._state.capacity
        facts = capacity.facts(replica.node)
        if facts is None:
            return True
        pod = entry.job.pods.get((replica.type, replica.ordinal))
        if pod is None or not pod.node:
            return not capacity.takes(replica.node, entry.shape)
        return pod.is_deleting and pod.node == replica.node and not facts.is_ready

    # Pods.

    def _steps(self, entry: JobEntry, replaced: Collection[Key], now: float, until: float) -> list[Write]:
        state, job = self._state, entry.job
        is_fraction = entry.shape.is_fraction

        def has_room(node: str, need: Need) -> bool:
            return state.capacity.has_room(node, 0 if is_fraction else need.devices, need.cpus, need.memory_bytes)

        def is_taken(replica: ReplicaAssignment) -> bool:
            name = pod_name(entry.parsed_job, replica.type, replica.ordinal)
            if replica.gpu_id and not state.capacity.has_fractions(
                replica.node, _missing_fractions(entry, replica.node)
            ):
                return True
            return state.pods.is_taken(f"{entry.parsed_job.ref.namespace}/{name}", entry.parsed_job.ref.uid)

        lost = self._dead_nodes(entry)
        todo = next_steps(job, entry.replicas, has_room, now, replaced, lost, is_taken)
        is_stuck = not todo.is_settled and len(job.pods) < len(entry.replicas)
        is_stuck = is_stuck and (not todo.create or entry.parsed_job.ref.resource in state.absent)
        state.work_queue.set_blocked(entry, bool(todo.waits_for) or is_stuck)
        writes = self._deletions(entry, todo.delete, todo.force, now)
        if entry.retry.at <= now and entry.parsed_job.ref.resource not in state.absent:
            writes += self._services(entry, now)
            writes += self._creations(entry, todo)
        self.timers.set(min(until, todo.until, entry.retry.at if entry.retry.at > now else NEVER), entry)
        return writes

    def delete_pods(self, entry: JobEntry, going: Sequence[PodRow], now: float) -> list[Write]:
        """Delete pods gracefully, and force-delete pods on dead nodes whose grace period is over."""
        lost, pods = self._dead_nodes(entry), entry.job.pods.values()
        self.timers.set(next_deadline(pods, lost, now), entry)
        return self._deletions(entry, going, [pod for pod in pods if is_dead(pod, lost, now)], now)

    def _dead_nodes(self, entry: JobEntry) -> set[str]:
        nodes = {pod.node for pod in entry.job.pods.values()}  # a gang of hundreds of pods has a few dozen nodes
        return {node for node in nodes if self.is_dead(node)}

    def is_dead(self, node: str) -> bool:
        """Return True if the node is gone or its kubelet is not ready."""
        facts = self._state.capacity.facts(node)
        return bool(node) and (facts is None or not facts.is_ready)

    def _creations(self, entry: JobEntry, todo: Steps) -> list[Write]:
        if not todo.create:
            return []
        parsed_job, persisted = entry.parsed_job, entry.job.persisted
        if todo.attempt != persisted.attempt:
            persisted.attempt = todo.attempt
            persisted.not_before = 0.0
        assignment = gang_ranks(entry.replicas).assignment
        writes = []
        resource = self._resource(entry)
        for replica in todo.create:
            body = self._body(entry, replica, todo.attempt)
            name = pod_name(parsed_job, replica.type, replica.ordinal)
            row = expected_pod(entry, replica, name, todo.attempt, assignment)
            self._state.pods.expect(entry, row)
            self._recorder.expect_pod(entry, replica)
            raw, tag = msgspec.json.encode(body), CreatedPod(entry.key, row)
            writes.append(Write(Verb.CREATE, resource, parsed_job.ref.namespace, name, raw, tag=tag))
        return writes

    def _body(self, entry: JobEntry, replica: ReplicaAssignment, attempt: int) -> dict[str, Any]:
        return pod_of(entry.parsed_job, replica, entry.replicas, attempt, self._domain)

    def _resource(self, entry: JobEntry, pod: PodRow | None = None) -> Resource:
        """Return the resource of a pod, or of pods to be created."""
        return PODS

    def _deletions(self, entry: JobEntry, going: Sequence[PodRow], dead: Sequence[PodRow], now: float) -> list[Write]:
        """Delete `going` pods gracefully and `dead` ones without grace."""
        if entry.retry.at > now:
            self.timers.set(entry.retry.at, entry)
            return []
        self._recorder.record_deleted(entry, [*going, *dead], now)
        writes = [self._deletion(entry, pod) for pod in going]
        return writes + [self._deletion(entry, pod, force=True) for pod in dead]

    def _deletion(self, entry: JobEntry, pod: PodRow, force: bool = False) -> Write:
        self._state.pods.mark_deleted(entry, pod)
        return deletion_of(pod, DeletedPod(entry.key, pod.uid), force, self._resource(entry, pod))

    # Services.

    def _services(self, entry: JobEntry, now: float) -> list[Write]:
        """Return the writes that give each reachable replica its service."""
        todo = service_steps(entry.parsed_job, entry.replicas, entry.services) if entry.replicas else None
        if todo is None or not (todo.create or todo.delete):
            return []
        return [
            *(self._create_service(entry, key) for key in todo.create if not self._is_service_taken(entry, key)),
            *(self._delete_service(entry, key) for key in todo.delete),
        ]

    def _is_service_taken(self, entry: JobEntry, key: Key) -> bool:
        row = self.service_row(entry, key)
        return row is not None and row.owner != entry.parsed_job.ref.uid

    def service_row(self, entry: JobEntry, key: Key) -> ServiceRow | None:
        """Return the service of a replica's name, whatever its owner; None if there is none."""
        name = pod_name(entry.parsed_job, *key)
        return self._state.services.get(f"{entry.parsed_job.ref.namespace}/{name}")

    def _create_service(self, entry: JobEntry, key: Key) -> Write:
        entry.services[key] = False
        body = msgspec.json.encode(service_of(entry.parsed_job, *key))
        name, tag = pod_name(entry.parsed_job, *key), CreatedService(entry.key, key)
        return Write(Verb.CREATE, SERVICES, entry.parsed_job.ref.namespace, name, body, tag=tag)

    def _delete_service(self, entry: JobEntry, key: Key) -> Write:
        entry.services.pop(key, None)
        name, row = pod_name(entry.parsed_job, *key), self.service_row(entry, key)
        options = {"preconditions": {"uid": row.uid}} if row is not None and row.uid else {}
        body, tag = msgspec.json.encode(options), DeletedService(entry.key, key)
        return Write(Verb.DELETE, SERVICES, entry.parsed_job.ref.namespace, name, body, urgency=Urgency.STATUS, tag=tag)

    # End of a job.

    def _cleanup_finished(self, entry: JobEntry, now: float) -> list[Write]:
        """Delete pods of an ended job by its cleanPodPolicy, and the job itself when its TTL is over.

        Nothing is deleted before the status reports the end, because the pods are the only other proof of it.
        """
        job, ref = entry.job, entry.parsed_job.ref
        if has_ended(entry) and not entry.status.is_end_written:
            return []
        writes = self._deletions(entry, pods_to_delete(job), (), now)
        staying = {key for key, pod in job.pods.items() if not pod.is_deleting}
        spare = services_to_delete(entry.parsed_job, entry.services, staying) if entry.retry.at <= now else []
        writes += [self._delete_service(entry, key) for key in spare]
        at = expires_at(job)
        if at <= now and not job.is_deleting:
            job.is_deleting = True
            body = msgspec.json.encode({"preconditions": {"uid": ref.uid}, "propagationPolicy": "Background"})
            writes.append(Write(Verb.DELETE, ref.resource, ref.namespace, ref.name, body, tag=DeletedJob(entry.key)))
        elif at > now:
            self.timers.set(at, entry)
        return writes

    def _teardown(self, entry: JobEntry, now: float) -> list[Write]:
        """Delete all pods of a job that is being deleted or suspended."""
        if entry.job.is_deleting and entry.source.orphans_pods:
            return []
        self._note_pods(entry, now)
        lost = self._dead_nodes(entry)
        todo = next_steps(entry.job, (), lambda node, need: False, now, lost=lost)
        if not entry.job.pods:
            self.runtime.stop(entry, now)
        self.timers.set(todo.until, entry)
        return self._deletions(entry, todo.delete, todo.force, now)


def expected_pod(entry: JobEntry, replica: ReplicaAssignment, name: str, attempt: int, assignment: str = "") -> PodRow:
    """Return the row that stands for a pod until the server shows it."""
    ref, need = entry.parsed_job.ref, need_of(entry.parsed_job, replica.type)
    return PodRow(
        f"{ref.namespace}/{name}",
        "",
        0,
        replica.node,
        PodState.PENDING,
        is_terminated=False,
        is_deleting=False,
        devices=0 if entry.shape.is_fraction else need.devices,
        cpus=need.cpus,
        memory_bytes=need.memory_bytes,
        job=entry.name,
        owner_uid=ref.uid,
        type=replica.type,
        index=replica.ordinal,
        attempt=attempt,
        assignment=assignment,
        gpu_id=replica.gpu_id,
    )


def _missing_fractions(entry: JobEntry, node: str) -> Counter[str]:
    """Return the GPU fractions by GPU id that the job still needs on a node for replicas without a pod."""
    parts = Counter[str]()
    for replica in entry.replicas:
        if replica.node == node and replica.gpu_id and (replica.type, replica.ordinal) not in entry.job.pods:
            parts[replica.gpu_id] += entry.shape.devices
    return parts


def deletion_of(pod: PodRow, tag: object, force: bool = False, resource: Resource = PODS) -> Write:
    """Build a deletion with a uid precondition; with `force`, without a grace period."""
    options: dict[str, object] = {"preconditions": {"uid": pod.uid}} if pod.uid else {}
    if force:
        options["gracePeriodSeconds"] = 0
    namespace, _, name = pod.key.partition("/")
    return Write(Verb.DELETE, resource, namespace, name, msgspec.json.encode(options), tag=tag)
