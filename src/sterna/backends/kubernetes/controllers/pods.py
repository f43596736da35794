"""Reconciling: makes real what was decided, one job at a time, for jobs whose pods we make ourselves.

Level-triggered: each look compares where a job shall sit with the pods that are there, and asks for the next writes
that bring the two together; what is under way counts as done. A look at a job that is as it shall be costs no write.
What its pods mean for the job is judged by `lifecycle`, who sits where by `replicas`, what a pod looks like by `kinds`.
Jobs that others carry out are seen to in `carriers.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
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
from sterna.backends.kubernetes.cache.job_entry import JobEntry, Stage, cleared, has_ended
from sterna.backends.kubernetes.cache.timers import Timers
from sterna.backends.kubernetes.controllers.cpu_resize import resizes
from sterna.backends.kubernetes.controllers.runtime_accounting import Timekeeper, is_whole
from sterna.backends.kubernetes.lifecycle.replicas import (
    Need,
    Steps,
    changes_in_place,
    is_dead,
    look_again,
    need_of,
    steps,
)
from sterna.backends.kubernetes.lifecycle.services import ServiceRow, leftover_services, service_steps
from sterna.backends.kubernetes.lifecycle.verdict import (
    GOES_ON,
    Fate,
    Verdict,
    deadline_of,
    expires_at,
    judge,
    leftovers,
    note_saved,
)
from sterna.backends.kubernetes.pods.gang import gang_of
from sterna.backends.kubernetes.pods.pod_builder import pod_name, pod_of, service_of, share_pod_of
from sterna.backends.kubernetes.server.metrics import Happened
from sterna.backends.kubernetes.status.event_recorder import EventRecorder
from sterna.kinds.context import ClusterDomain
from sterna.kinds.parsed_job import PodOwnership
from sterna.kinds.resource import PODS, SHARE_PODS, Resource
from sterna.model.cluster import NOWHERE
from sterna.model.snapshot import NEVER

_DISTRUST_SECONDS = 30.0
"""A node whose kubelet refused a pod gets no other for so long."""

Happens = Callable[[JobEntry, Happened], None]
"""Told that a job has ended, or begins again."""


class Reconciler:
    """Looks after the jobs whose pods we make."""

    def __init__(
        self, state: ClusterState, timers: Timers, around: ClusterDomain, recorder: EventRecorder, happens: Happens
    ) -> None:
        self._world, self.timers, self._around = state, timers, around
        self.time = Timekeeper(lambda: state.capacity.unit)
        self._recorder, self._happens = recorder, happens

    def look(self, entry: JobEntry, now: float) -> list[Write]:
        """The next writes for a job."""
        if entry.parsed_job.ownership is PodOwnership.SHARE_PODS:
            self._world.share_pods.join(entry)
        if entry.stage is Stage.INVALID:
            self.refuse(entry, now)
            return []
        if entry.stage is Stage.ENDED:
            return self._tidied(entry, now)
        self.time.suspend(entry, now)
        if not entry.wants_to_run:
            return self._gone(entry, now)
        if not entry.replicas and self._waits(entry, now):
            return []
        self._note_pods(entry, now)
        verdict = judge(entry.job, now, entry.replicas)
        self.act_on(entry, verdict, now)
        if entry.stage is not Stage.ACTIVE:
            return self._tidied(entry, now)
        self.drop_lost_replicas(entry, now)
        replaced = verdict.replicas if verdict.fate is Fate.REPLACE else ()
        if verdict.fate is Fate.RESTART:
            replaced = tuple(entry.job.pods)
        return [*self._steps(entry, replaced, now, verdict.until), *resizes(entry, now, self.timers)]

    def _waits(self, entry: JobEntry, now: float) -> bool:
        """Whether nothing of a job without a home is there, and its time is not over: then only time changes that."""
        memory, deadline = entry.job.memory, deadline_of(entry.job)
        if memory.not_before > now:
            self.timers.set(memory.not_before, entry)
        elif not entry.job.pods:
            cleared(entry)  # what its pods showed is over; from now on it waits like any other
        if now >= deadline:
            return False
        self.timers.set(deadline, entry)
        return not entry.job.pods and memory.started_at is None

    # What its pods mean.

    def _note_pods(self, entry: JobEntry, now: float) -> None:
        """What pods told when they ended, and how long how many workers have run."""
        memory = entry.job.memory
        for pod in entry.job.pods.values():
            if pod.is_terminated and pod.message:
                note_saved(memory, pod, now)
        self.time.count(entry, now)
        self._world.work_queue.changed.add(entry.key)

    def act_on(self, entry: JobEntry, verdict: Verdict, now: float) -> None:
        """Take down what a verdict means for a job."""
        fate = verdict.fate
        entry.job.memory.lost_seconds += verdict.lost_seconds
        if fate in (Fate.COMPLETED, Fate.FAILED):
            self.end(entry, verdict, now)
        elif fate is Fate.STOPPED:
            self.time.stop(entry, now)
            self._recorder.judged(entry, verdict, now)
            self._world.work_queue.has_news = True
        elif fate in (Fate.REPLACE, Fate.RESTART):
            if not self._is_known(entry, verdict):
                self.begin_again(entry, verdict, now)
        elif (entry.verdict is not GOES_ON or entry.tries) and is_whole(entry):
            cleared(entry)
            entry.tries, entry.trouble = 0, ""

    def _is_known(self, entry: JobEntry, verdict: Verdict) -> bool:
        """Whether all of it goes already because of this: a parameter server that failed goes last, and shows its
        failure until then."""
        attempt = max((pod.attempt for pod in entry.job.pods.values()), default=0)
        is_known = verdict.fate is Fate.RESTART and entry.ending_attempt == attempt
        entry.ending_attempt = attempt if verdict.fate is Fate.RESTART else -1
        return is_known

    def begin_again(self, entry: JobEntry, verdict: Verdict, now: float) -> None:
        """Some of it, or all, comes again, which is told."""
        memory = entry.job.memory
        memory.restarts += verdict.is_counted
        memory.not_before = max(memory.not_before, verdict.not_before)
        for node in verdict.refused_by:
            self._world.capacity.distrust(node, now + _DISTRUST_SECONDS)
            self.timers.set(now + _DISTRUST_SECONDS)
        entry.verdict = verdict
        self._recorder.judged(entry, verdict, now)
        self._happens(entry, Happened.RESTARTED)
        self._world.work_queue.has_news = True
        if verdict.fate is Fate.RESTART:
            self.time.stop(entry, now)
            if memory.not_before > now:  # others may use the room meanwhile
                self.unassign(entry, now)

    def refuse(self, entry: JobEntry, now: float) -> None:
        """What was submitted cannot be run, which is told once."""
        if entry.telling.sentence != entry.outcome[1]:
            self._recorder.invalid(entry, now)

    def end(self, entry: JobEntry, verdict: Verdict, now: float) -> None:
        """It is over; nothing changes that any more."""
        self.time.stop(entry, now)
        entry.job.memory.ended_at = now
        entry.stage = Stage.ENDED
        entry.outcome, entry.verdict = (verdict.reason, verdict.sentence), verdict
        self._recorder.judged(entry, verdict, now)
        self._world.reindex(entry)
        self._happens(entry, Happened.COMPLETED if verdict.fate is Fate.COMPLETED else Happened.FAILED)

    def unassign(self, entry: JobEntry, now: float) -> None:
        """It has no home any more and waits again."""
        if entry.replicas:
            entry.job.memory.waiting_since = now
            self._world.assign(entry, (), NOWHERE)
            self._world.work_queue.has_news = True

    # Where it sits.

    def drop_lost_replicas(self, entry: JobEntry, now: float) -> None:
        """Seats on nodes that are gone, or that will not take the pod that is missing there, are given up: the next
        round finds others (DRAGON-50)."""
        if not entry.replicas or self._is_at_assignment(entry):
            return
        lost = [replica for replica in entry.replicas if self._is_lost(entry, replica)]
        if not lost:
            return
        left = [replica for replica in entry.replicas if replica not in lost]
        worker = entry.parsed_job.spec.worker.type
        is_maimed = any(replica.type != worker for replica in lost) or not any(
            replica.type == worker for replica in left
        )
        if is_maimed or not changes_in_place(entry.parsed_job):
            self.unassign(entry, now)
        else:
            self.time.book(entry, now)
            self._world.reassign(entry, left)
            self._world.work_queue.has_news = True

    def _is_at_assignment(self, entry: JobEntry) -> bool:
        """Whether everybody has a pod that stays, on nodes that are there: then no seat can be lost."""
        pods = entry.job.pods
        if len(pods) < len(entry.replicas) or any(pod.is_deleting or not pod.node for pod in pods.values()):
            return False
        is_known = all(
            self._world.capacity.facts(node) is not None for node in {replica.node for replica in entry.replicas}
        )
        return is_known and all((replica.type, replica.index) in pods for replica in entry.replicas)

    def _is_lost(self, entry: JobEntry, replica: ReplicaAssignment) -> bool:
        capacity = self._world.capacity
        facts = capacity.facts(replica.node)
        if facts is None:
            return True
        pod = entry.job.pods.get((replica.type, replica.index))
        if pod is None or not pod.node:
            return not capacity.takes(replica.node, entry.shape)
        return pod.is_deleting and pod.node == replica.node and not facts.is_ready

    # Towards it.

    def _steps(self, entry: JobEntry, replaced: Collection[Key], now: float, until: float) -> list[Write]:
        state, job = self._world, entry.job
        is_fraction = entry.shape.is_fraction

        def has_room(node: str, need: Need) -> bool:
            return state.capacity.has_room(node, 0 if is_fraction else need.devices, need.cpus, need.memory_bytes)

        def is_taken(replica: ReplicaAssignment) -> bool:
            name = pod_name(entry.parsed_job, replica.type, replica.index)
            if replica.gpu_id and not state.capacity.has_parts(replica.node, _parts_missing(entry, replica.node)):
                return True
            return state.pods.is_taken(f"{entry.parsed_job.ref.namespace}/{name}", entry.parsed_job.ref.uid)

        lost = self._dead_nodes(entry)
        todo = steps(job, entry.replicas, has_room, now, replaced, lost, is_taken)
        is_stuck = not todo.is_settled and len(job.pods) < len(entry.replicas)
        is_stuck = is_stuck and (not todo.create or entry.parsed_job.ref.resource in state.absent)
        state.work_queue.set_waiting(entry, bool(todo.waits_for) or is_stuck)
        writes = self._deletions(entry, todo.delete, todo.force, now)
        if entry.retry_at <= now and entry.parsed_job.ref.resource not in state.absent:
            writes += self._services(entry, now)
            writes += self._creations(entry, todo)
        self.timers.set(min(until, todo.until, entry.retry_at if entry.retry_at > now else NEVER), entry)
        return writes

    def clear_away(self, entry: JobEntry, going: Sequence[PodRow], now: float) -> list[Write]:
        """Ask pods to go, and delete at once those of the job whose end nobody will confirm."""
        lost, pods = self._dead_nodes(entry), entry.job.pods.values()
        self.timers.set(look_again(pods, lost, now), entry)
        return self._deletions(entry, going, [pod for pod in pods if is_dead(pod, lost, now)], now)

    def _dead_nodes(self, entry: JobEntry) -> set[str]:
        nodes = {pod.node for pod in entry.job.pods.values()}  # of hundreds of pods only a few dozen
        return {node for node in nodes if self.is_dead(node)}

    def is_dead(self, node: str) -> bool:
        """Whether nobody there carries out what is asked for."""
        facts = self._world.capacity.facts(node)
        return bool(node) and (facts is None or not facts.is_ready)

    def _creations(self, entry: JobEntry, todo: Steps) -> list[Write]:
        if not todo.create:
            return []
        parsed_job, memory = entry.parsed_job, entry.job.memory
        if todo.attempt != memory.attempt:
            memory.attempt = todo.attempt
            memory.not_before = 0.0
        assignment = gang_of(entry.replicas).assignment
        writes = []
        resource = resource_of(entry)
        for replica in todo.create:
            body = self._body(entry, replica, todo.attempt)
            name = pod_name(parsed_job, replica.type, replica.index)
            row = expected(entry, replica, name, todo.attempt, assignment)
            self._world.pods.expect(entry, row)
            self._recorder.creating(entry, replica)
            raw, tag = msgspec.json.encode(body), CreatedPod(entry.key, row)
            writes.append(Write(Verb.CREATE, resource, parsed_job.ref.namespace, name, raw, tag=tag))
        return writes

    def _body(self, entry: JobEntry, replica: ReplicaAssignment, attempt: int) -> dict[str, Any]:
        """The pod, or the SharePod, of a seat."""
        parsed_job, replicas, around = entry.parsed_job, entry.replicas, self._around
        if parsed_job.ownership is PodOwnership.SHARE_PODS:
            memory_bytes = self._world.capacity.gpu_memory_bytes(replica.node)
            return share_pod_of(parsed_job, replica, replicas, attempt, around, gpu_memory_bytes=memory_bytes)
        return pod_of(parsed_job, replica, replicas, attempt, around)

    def _deletions(self, entry: JobEntry, going: Sequence[PodRow], dead: Sequence[PodRow], now: float) -> list[Write]:
        """Ask pods to go; `dead` ones are not asked."""
        if entry.retry_at > now:
            self.timers.set(entry.retry_at, entry)
            return []
        going = [*going, *self._world.share_pods.bereft(entry)]
        self._recorder.deleted(entry, [*going, *dead], now)
        writes = [self._deletion(entry, pod) for pod in going]
        made = [entry.made_pods.get((pod.type, pod.index), pod) for pod in dead]  # a SharePod runs nowhere itself
        return writes + [self._deletion(entry, pod, force=True) for pod in made]

    def _deletion(self, entry: JobEntry, pod: PodRow, force: bool = False) -> Write:
        self._world.pods.ask_to_go(entry, pod)
        is_made = entry.made_pods.get((pod.type, pod.index)) is pod
        return deletion_of(pod, DeletedPod(entry.key, pod.uid), force, PODS if is_made else resource_of(entry))

    # Names.

    def _services(self, entry: JobEntry, now: float) -> list[Write]:
        """A name for each replica that others call."""
        todo = service_steps(entry.parsed_job, entry.replicas, entry.services) if entry.replicas else None
        if todo is None or not (todo.create or todo.delete):
            return []
        return [
            *(self._new_service(entry, key) for key in todo.create if not self._is_service_taken(entry, key)),
            *(self._old_service(entry, key) for key in todo.delete),
        ]

    def _is_service_taken(self, entry: JobEntry, key: Key) -> bool:
        row = self.service_row(entry, key)
        return row is not None and row.owner != entry.parsed_job.ref.uid

    def service_row(self, entry: JobEntry, key: Key) -> ServiceRow | None:
        """Whatever has the name of a replica's service."""
        name = pod_name(entry.parsed_job, *key)
        return self._world.services.get(f"{entry.parsed_job.ref.namespace}/{name}")

    def _new_service(self, entry: JobEntry, key: Key) -> Write:
        entry.services[key] = False
        body = msgspec.json.encode(service_of(entry.parsed_job, *key))
        name, tag = pod_name(entry.parsed_job, *key), CreatedService(entry.key, key)
        return Write(Verb.CREATE, SERVICES, entry.parsed_job.ref.namespace, name, body, tag=tag)

    def _old_service(self, entry: JobEntry, key: Key) -> Write:
        entry.services.pop(key, None)
        name, row = pod_name(entry.parsed_job, *key), self.service_row(entry, key)
        options = {"preconditions": {"uid": row.uid}} if row is not None and row.uid else {}
        body, tag = msgspec.json.encode(options), DeletedService(entry.key, key)
        return Write(Verb.DELETE, SERVICES, entry.parsed_job.ref.namespace, name, body, urgency=Urgency.STATUS, tag=tag)

    # Endings.

    def _tidied(self, entry: JobEntry, now: float) -> list[Write]:
        """What is left of a job that has ended goes by its cleanPodPolicy, the job itself when its time is over; but
        not before its status says that it ended, because its pods are the only other proof of that."""
        job, ref = entry.job, entry.parsed_job.ref
        if has_ended(entry) and not entry.telling.is_end_told:
            return []
        writes = self._deletions(entry, leftovers(job), (), now)
        staying = {key for key, pod in job.pods.items() if not pod.is_deleting}
        spare = leftover_services(entry.parsed_job, entry.services, staying) if entry.retry_at <= now else []
        writes += [self._old_service(entry, key) for key in spare]
        at = expires_at(job)
        if at <= now and not job.is_deleting:
            job.is_deleting = True
            body = msgspec.json.encode({"preconditions": {"uid": ref.uid}, "propagationPolicy": "Background"})
            writes.append(Write(Verb.DELETE, ref.resource, ref.namespace, ref.name, body, tag=DeletedJob(entry.key)))
        elif at > now:
            self.timers.set(at, entry)
        return writes

    def _gone(self, entry: JobEntry, now: float) -> list[Write]:
        """A job that is being deleted, or that its user has suspended: nothing of it stays."""
        if entry.job.is_deleting and entry.leaves_pods:
            return []
        self._note_pods(entry, now)
        lost = self._dead_nodes(entry)
        todo = steps(entry.job, (), lambda node, need: False, now, lost=lost)
        if not entry.job.pods:
            self.time.stop(entry, now)
        self.timers.set(todo.until, entry)
        return self._deletions(entry, todo.delete, todo.force, now)


def expected(entry: JobEntry, replica: ReplicaAssignment, name: str, attempt: int, assignment: str = "") -> PodRow:
    """What stands for a pod that is being made."""
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
        index=replica.index,
        attempt=attempt,
        assignment=assignment,
        gpu_id=replica.gpu_id,
    )


def _parts_missing(entry: JobEntry, node: str) -> Counter[str]:
    """By name, what a job shall have of the shared GPUs of a node for replicas that are not there yet."""
    parts = Counter[str]()
    for replica in entry.replicas:
        if replica.node == node and replica.gpu_id and (replica.type, replica.index) not in entry.job.pods:
            parts[replica.gpu_id] += entry.shape.devices
    return parts


def resource_of(entry: JobEntry) -> Resource:
    """What a replica of a job is."""
    return SHARE_PODS if entry.parsed_job.ownership is PodOwnership.SHARE_PODS else PODS


def deletion_of(pod: PodRow, tag: object, force: bool = False, resource: Resource = PODS) -> Write:
    """Never of another pod that has the name by then; with the grace that the pod has, or at once."""
    options: dict[str, object] = {"preconditions": {"uid": pod.uid}} if pod.uid else {}
    if force:
        options["gracePeriodSeconds"] = 0
    namespace, _, name = pod.key.partition("/")
    return Write(Verb.DELETE, resource, namespace, name, msgspec.json.encode(options), tag=tag)
