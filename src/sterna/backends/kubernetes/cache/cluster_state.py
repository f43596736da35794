"""`ClusterState`: the operator's cache of the cluster: jobs and their desired assignments, nodes, pods, usage.

Each watch delta changes only what it is about and notes follow-up work in the work queue. Objects are the only truth;
an object that cannot be parsed becomes an invalid job and does not affect others. Nothing is written or decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec
from msgspec import structs

from sterna.backends.kubernetes.api.job import KubeJob, PodRow, ReplicaAssignment
from sterna.backends.kubernetes.api.objects import ConfigMap, Node
from sterna.backends.kubernetes.api.resources import CONFIG_MAPS, NODES, PRIORITY_CLASSES, SERVICES, Delta, DeltaKind
from sterna.backends.kubernetes.cache.job_entry import JobEntry, Stage, assignment_by_row, planned_gpus, planned_usage
from sterna.backends.kubernetes.cache.job_index import JobIndex
from sterna.backends.kubernetes.cache.node_capacity import NodeCapacity, NodeChange
from sterna.backends.kubernetes.cache.object_parser import (
    ORPHAN,
    as_asked,
    final_status,
    memory_in,
    parse_object,
    read_of,
    status_in,
)
from sterna.backends.kubernetes.cache.pod_cache import PodCache
from sterna.backends.kubernetes.cache.priority_classes import PriorityClasses
from sterna.backends.kubernetes.cache.progress import Progress
from sterna.backends.kubernetes.cache.service_cache import ServiceCache
from sterna.backends.kubernetes.cache.share_pod_cache import SharePodCache
from sterna.backends.kubernetes.cache.snapshot import JobTable
from sterna.backends.kubernetes.cache.work_queue import WorkQueue
from sterna.backends.kubernetes.lifecycle.conditions import end_condition
from sterna.backends.kubernetes.lifecycle.verdict import conditions_in
from sterna.backends.kubernetes.pods.move_record import MoveRecord, read_record
from sterna.backends.kubernetes.pods.pod_rows import disruption_reason
from sterna.control.job_state import SaveEvidence
from sterna.errors import UserError
from sterna.kinds.context import ParseContext
from sterna.kinds.labels import ATTEMPT_LABEL, KIND_LABEL, PHASE
from sterna.kinds.objects import JobObject, Meta, Pod
from sterna.kinds.parse import is_managed
from sterna.kinds.parsed_job import GpuFraction, NodeNeeds, ParsedJob, PodOwnership
from sterna.kinds.parsing.job_builder import parse_timestamp
from sterna.kinds.pod import is_plain_job
from sterna.kinds.resource import PODS, Resource
from sterna.kinds.share_pod import SHARE_PODS
from sterna.model.cluster import NOWHERE, Assignment, Shape
from sterna.model.snapshot import NEVER, JobKey

_WITHIN_SECOND = 0.999
"""Upper bound on the fraction of a second added to `creationTimestamp`."""


@dataclass(frozen=True)
class StateHooks:
    """Callbacks of the backend about single jobs."""

    on_arrival: Callable[[JobEntry], None] = lambda entry: None
    on_departure: Callable[[JobEntry], None] = lambda entry: None
    on_repaired: Callable[[JobEntry], None] = lambda entry: None
    """An invalid object became valid."""


class ClusterState:
    """Cache of all watched objects, and the desired assignments."""

    def __init__(
        self,
        context: ParseContext,
        progress: Progress,
        clock: Callable[[], float],
        namespace: str = "",
        hooks: StateHooks | None = None,
    ) -> None:
        self._hooks = hooks or StateHooks()
        self._context, self.clock = context, clock
        self._namespace = namespace
        """Namespace whose jobs are managed, empty for all; pods are watched in all namespaces."""
        self.progress = progress
        self.capacity, self.table, self.work_queue = NodeCapacity(), JobTable(), WorkQueue()
        self.jobs = JobIndex()
        self.pods = PodCache(self.jobs, self.capacity, self.work_queue, progress)
        self.share_pods = SharePodCache(self.jobs, self.pods, self.capacity, self.work_queue)
        self.priority_classes = PriorityClasses(self.jobs, self.work_queue)
        self.assignments: dict[JobKey, Assignment] = {}
        """Non-empty assignments of jobs that want to run."""
        self.services = ServiceCache(self.jobs, self.work_queue)
        self._shapes: dict[tuple[Shape, NodeNeeds, GpuFraction | None], Shape] = {}
        self.orphans: list[PodRow] = []
        """Pods to delete because their job is gone."""
        self.absent: set[Resource] = set()
        """Resources that are not served now, so that their cached jobs may be stale."""
        self.is_standing_by = True
        """True while another replica leads: persisted state is read from objects."""
        self.arrived_at = -NEVER
        """Time of the last job arrival."""

    @property
    def entries(self) -> dict[int, JobEntry]:
        return self.jobs.entries

    # Deltas.

    def take(self, delta: Delta) -> None:
        """Apply one watch delta."""
        seen, is_there = delta.object, delta.change is DeltaKind.SEEN
        if seen is None:
            return
        if delta.resource == PODS:
            self._see_pod(seen) if is_there else self._lose_pod(seen.metadata)
        elif delta.resource == NODES:
            self._take_node(seen, is_there)
        elif delta.resource == SERVICES:
            self.services.update(seen, is_there)
        elif delta.resource == CONFIG_MAPS:
            self._take_record(seen, is_there)
        elif delta.resource == PRIORITY_CLASSES:
            self.priority_classes.update(seen, is_there)
        elif delta.resource == SHARE_PODS:
            self.share_pods.see(seen) if is_there else self.share_pods.lose(seen.metadata)
        elif is_there:
            self._see_job(seen, delta.resource)
        else:
            self._lose_job(seen.metadata)

    def _take_node(self, node: Node, is_there: bool) -> None:
        name = node.metadata.name
        interest = self.capacity.see(node) if is_there else self.capacity.lose(name)
        if interest is NodeChange.NONE:
            return
        self.work_queue.request_round()
        self.work_queue.wake_blocked()
        if not self.capacity.is_open(name):
            for entry in self.entries.values():
                nodes = {replica.node for replica in entry.replicas} | {pod.node for pod in entry.job.pods.values()}
                if name in nodes:
                    self.work_queue.enqueue(entry)

    def _see_pod(self, pod: Pod) -> None:
        is_here = self._namespace in ("", pod.metadata.namespace)
        if is_here and is_plain_job(pod) and KIND_LABEL not in pod.metadata.labels:
            self._see_job(pod, PODS)
        self.pods.see(pod)

    def _lose_pod(self, meta: Meta) -> None:
        is_asked = self.pods.may_be_deleted_by_us(meta.uid)
        row = self.pods.lose(meta)
        entry = self.jobs.by_uid.get(meta.uid)
        if row is None or entry is None or not entry.parsed_job.ownership.is_pod:
            return
        if entry.move.record is None and not entry.writes_in_flight and not row.disruption:
            self.forget(entry)
        else:  # it is under way, unless its user has deleted it
            is_moved = is_asked or bool(row.disruption)
            entry.move.previous_pod, entry.job.is_deleting = row, entry.job.is_deleting or not is_moved
            self.reindex(entry)

    def _take_record(self, record: ConfigMap, is_there: bool) -> None:
        """Add or remove the move record of a plain pod."""
        try:
            move = read_record(msgspec.to_builtins(record))
        except UserError:
            return
        name = f"{move.namespace}/{move.name}"
        entry = self.jobs.find(name, PodOwnership.BARE_POD)
        if entry is None and is_there:
            self._see_job(_recorded_pod(move), PODS)
            entry = self.jobs.find(name, PodOwnership.BARE_POD)
        if entry is None:
            return
        if is_there:
            entry.move.record = move
            if self.is_standing_by:
                entry.job.is_deleting = False  # decided when this replica leads (`PlainPodController.prepare_recovery`)
            self.reindex(entry)
        elif entry.move.record is not None:
            self.drop_record(entry)

    def drop_record(self, entry: JobEntry) -> None:
        """Remove the move record; forget the job if its pod is gone."""
        entry.move.record = None
        if entry.job.pods:
            self.reindex(entry)
        else:
            self.forget(entry)

    # Jobs.

    def _see_job(self, seen: JobObject | Pod, resource: Resource) -> None:
        meta = seen.metadata
        entry = self.jobs.by_uid.get(meta.uid) or self._find_moved_job(seen)
        if entry is None:
            self._enter(seen, resource)
            return
        if entry.parsed_job.ref.uid != meta.uid:
            self._replace_job(entry, seen, resource)
            return
        job = entry.job
        if meta.version < job.version:
            return
        job.version = meta.version
        if not entry.is_compacted:
            entry.source.annotations = meta.annotations
            if isinstance(seen, JobObject):
                self._note_status(entry, seen)
            if self.is_standing_by:
                self._load_persisted(entry)
        if ORPHAN in meta.finalizers:
            entry.source.orphans_pods = True
        is_moved = entry.move.record is not None and (self.is_standing_by or self.pods.may_be_deleted_by_us(meta.uid))
        if _is_unwanted(seen) and not job.is_deleting and not is_moved:
            job.is_deleting = True
            self.reindex(entry)
        if not entry.is_compacted and entry.source.fingerprint != read_of(meta):
            self._parse_again(entry, seen, resource)

    def _find_moved_job(self, seen: JobObject | Pod) -> JobEntry | None:
        """Return the moved job that waits for a pod of this name; adopt the pod if the move created it."""
        entry = self.jobs.find(seen.metadata.key, PodOwnership.BARE_POD) if isinstance(seen, Pod) else None
        if entry is None or entry.move.record is None or any(pod.uid for pod in entry.job.pods.values()):
            return None
        uid = seen.metadata.uid
        if entry.move.record.is_about(uid, seen.metadata.labels.get(ATTEMPT_LABEL, "")):
            self.jobs.by_uid.pop(entry.parsed_job.ref.uid, None)
            entry.job.parsed_job = structs.replace(entry.parsed_job, ref=entry.parsed_job.ref._replace(uid=uid))
            self.jobs.by_uid[uid] = entry
            entry.job.version = 0
        return entry

    def _replace_job(self, former: JobEntry, seen: JobObject | Pod, resource: Resource) -> None:
        """Replace a moved job by a foreign pod of its name, whose controller deletes the stale record."""
        record = former.move.record
        self.forget(former)
        self._enter(seen, resource)
        entry = self.jobs.by_uid.get(seen.metadata.uid)
        if entry is not None:
            entry.move.record = record

    def _note_status(self, entry: JobEntry, seen: JobObject) -> None:
        entry.status.seen = status_in(seen)
        if not entry.status.writes_in_flight or entry.parsed_job.ownership.is_delegated:
            entry.job.status = entry.status.seen
        if entry.parsed_job.ownership.is_delegated:
            entry.source.raw_spec = bytes(seen.spec)
            self.work_queue.enqueue(entry)

    def _enter(self, seen: JobObject | Pod, resource: Resource) -> None:
        meta = seen.metadata
        if not is_managed(seen, resource, self._context):
            return
        parsed_job, problem = parse_object(seen, resource, self._context)
        status = status_in(seen) if isinstance(seen, JobObject) else {}
        persisted = memory_in(meta.annotations, status)
        if persisted.enqueued_at is None:
            persisted.enqueued_at = self._arrival_time(parsed_job.submitted_at)
        elif parsed_job.ownership.is_pod:
            parsed_job = as_asked(parsed_job, persisted)
        parsed_job = structs.replace(
            parsed_job, submitted_at=persisted.enqueued_at
        )  # also of a pod that a move created
        parsed_job = self.priority_classes.resolve(parsed_job)
        job = KubeJob(self.jobs.next_key(), parsed_job, persisted, meta.version, status=status)
        job.is_deleting = _is_unwanted(seen)
        _note_declared_checkpoint(job)
        entry = JobEntry(job, self._shape(parsed_job))
        entry.status.seen, entry.source.fingerprint, entry.source.annotations = status, read_of(meta), meta.annotations
        entry.source.raw_spec = (
            bytes(seen.spec) if isinstance(seen, JobObject) and parsed_job.ownership.is_delegated else b""
        )
        entry.source.orphans_pods = ORPHAN in meta.finalizers
        entry.services = dict.fromkeys(self.services.replicas_of(meta.uid), True)
        self.jobs.add(entry)
        if persisted.ended_at is not None or self._has_ended(entry):
            entry.stage = Stage.ENDED  # whatever changed since
        elif problem is not None:
            entry.stage, entry.outcome = Stage.INVALID, problem
        self.pods.adopt(entry)
        self.share_pods.adopt(entry)
        if entry.stage is Stage.ACTIVE:
            self.progress.follow(job)
            self.arrived_at = self.clock()
        self._hooks.on_arrival(entry)
        self.reindex(entry)
        if entry.stage is Stage.ENDED:
            self.compact(entry)

    def _arrival_time(self, created_at: float) -> float:
        """Return the arrival time of a new object. `creationTimestamp` has one-second resolution; the local clock
        breaks ties in arrival order."""
        return created_at + min(max(self.clock() - created_at, 0.0), _WITHIN_SECOND)

    def _has_ended(self, entry: JobEntry) -> bool:
        """Return True if the status reports the end but the persisted state does not: two writes store them."""
        if not entry.parsed_job.ownership.creates_pods or end_condition(conditions_in(entry.job.status)) is None:
            return False
        entry.job.persisted.ended_at = parse_timestamp(entry.job.status.get("completionTime")) or self.clock()
        return True

    def _parse_again(self, entry: JobEntry, seen: JobObject | Pod, resource: Resource) -> None:
        """Parse an object again after its user changed it."""
        entry.source.fingerprint = read_of(seen.metadata)
        parsed_job, problem = parse_object(seen, resource, self._context)
        is_mended = False
        if entry.stage is Stage.ENDED:
            return
        if problem is not None:
            entry.outcome = problem
            if entry.stage is Stage.ACTIVE and entry.job.pods:
                entry.retry.message = problem.sentence  # running pods continue as submitted
                self.work_queue.enqueue(entry)
                return
            entry.stage = Stage.INVALID
        elif entry.stage is Stage.INVALID:
            entry.stage, entry.outcome, entry.retry.message, is_mended = Stage.ACTIVE, ("", ""), "", True
        elif entry.retry.message and entry.retry.message == entry.outcome[1]:
            entry.outcome, entry.retry.message = ("", ""), ""  # it kept running while invalid
        self._plan(entry, -1)
        parsed_job = structs.replace(parsed_job, submitted_at=entry.parsed_job.submitted_at)
        if parsed_job.ownership.is_pod:  # only the CPU request of a pod changes, by Sterna itself
            spec = replace(entry.parsed_job.spec, checkpoint=parsed_job.spec.checkpoint)
            parsed_job = structs.replace(parsed_job, spec=spec, shape=entry.parsed_job.shape)
        entry.job.parsed_job = self.priority_classes.resolve(parsed_job)
        _note_declared_checkpoint(entry.job)
        entry.shape = self._shape(entry.job.parsed_job)
        self._plan(entry, 1)
        if entry.stage is Stage.ACTIVE:
            self.progress.follow(entry.job)
        self.reindex(entry)
        if is_mended:
            self._hooks.on_repaired(entry)

    def update_spec(self, entry: JobEntry, body: bytes) -> None:
        """Update the raw spec from the response to a patch of the object."""
        if entry.parsed_job.ownership.is_delegated:
            try:
                seen = msgspec.json.decode(body, type=JobObject)
            except (msgspec.DecodeError, msgspec.ValidationError):
                return
            if seen.metadata.version >= entry.job.version:
                entry.source.raw_spec = bytes(seen.spec)

    def _load_persisted(self, entry: JobEntry) -> None:
        """Read the persisted state that the leader wrote."""
        job = entry.job
        job.persisted = memory_in(entry.source.annotations, job.status)
        _note_declared_checkpoint(job)
        if entry.stage is Stage.ACTIVE and (job.persisted.ended_at is not None or self._has_ended(entry)):
            entry.stage = Stage.ENDED
            self.reindex(entry)
            self.compact(entry)

    def compact(self, entry: JobEntry) -> None:
        """Drop most of the memory of an ended job whose status is written: thousands may stay until deleted."""
        entry.is_compacted = True
        entry.job.parsed_job = structs.replace(entry.parsed_job, templates={})
        entry.job.status = entry.status.seen = final_status(entry.status.seen)
        entry.source.annotations = {key: value for key, value in entry.source.annotations.items() if key == PHASE}
        entry.source.fingerprint, entry.source.raw_spec = None, b"{}"

    def _lose_job(self, meta: Meta) -> None:
        entry = self.jobs.by_uid.get(meta.uid)
        if entry is None:
            return
        if not entry.source.orphans_pods and ORPHAN not in meta.finalizers:
            self.orphans += [pod for pod in entry.job.pods.values() if pod.uid and not pod.is_deleting]
        self.forget(entry)

    def forget(self, entry: JobEntry) -> None:
        """Remove a job."""
        entry.job.is_deleting = True
        self.reindex(entry)
        self.progress.forget(entry.key)
        self.jobs.remove(entry)
        self.work_queue.forget(entry)
        self.pods.disown(entry)
        self._hooks.on_departure(entry)

    def reindex(self, entry: JobEntry) -> None:
        """Update table, usage and work queue after `wants_to_run` may have changed."""
        if entry.wants_to_run:
            self.work_queue.mark_row_stale(entry)
        else:
            if entry.replicas:
                self.assign(entry, (), NOWHERE)
            self.table.drop(entry.key)
            self.work_queue.forget_row(entry)
            self.work_queue.set_blocked(entry, False)
        self.pods.update_job_usage(entry)
        self.share_pods.update_job_usage(entry)
        self.work_queue.enqueue(entry)
        self.work_queue.request_round()

    # Assignments.

    def assign(self, entry: JobEntry, replicas: Sequence[ReplicaAssignment], assignment: Assignment) -> None:
        """Set the desired assignment of a job."""
        self._plan(entry, -1)
        entry.replicas, entry.assignment = tuple(replicas), assignment
        self._plan(entry, 1)
        if assignment.workers:
            self.assignments[JobKey(entry.key)] = assignment
        else:
            self.assignments.pop(JobKey(entry.key), None)
        self.work_queue.mark_changed(entry)

    def reassign(self, entry: JobEntry, replicas: Sequence[ReplicaAssignment]) -> None:
        """Set the desired assignment by replicas; unknown nodes are left out of the row view."""
        self.assign(entry, replicas, assignment_by_row(entry.parsed_job, replicas, self.capacity.row_of))

    def _plan(self, entry: JobEntry, sign: int) -> None:
        if entry.replicas:
            self.capacity.plan(planned_usage(entry), sign)
            if entry.shape.is_fraction:
                self.capacity.gpu_fractions.plan(planned_gpus(entry), entry.shape.devices, sign)

    def refresh(self) -> None:
        """Update everything that depends on the set of nodes."""
        generation = self.capacity.generation
        if not self.capacity.refresh():
            return
        if generation != self.capacity.generation:
            self._refit()
        row_of = self.capacity.row_of
        for entry in self.entries.values():
            if not entry.wants_to_run:
                continue
            if entry.replicas:
                entry.assignment = self.assignments[JobKey(entry.key)] = assignment_by_row(
                    entry.parsed_job, entry.replicas, row_of
                )
            self.work_queue.mark_row_stale(entry)

    def _refit(self) -> None:
        """Compute shapes and GPU fractions again after taints or GPU sizes changed."""
        self._shapes.clear()
        for entry in self.entries.values():
            self._plan(entry, -1)
            entry.shape = self._shape(entry.parsed_job)
            self._plan(entry, 1)
        self.share_pods.refresh_fractions()

    def write_table(self) -> None:
        """Rewrite stale rows of the job table."""
        row_of = self.capacity.row_of
        for key in self.work_queue.take_stale_rows():
            entry = self.entries.get(key)
            if entry is not None and entry.wants_to_run:
                self.table.put(entry, row_of, self.jobs.key_of)

    def _shape(self, parsed_job: ParsedJob) -> Shape:
        """Return the shape of one worker with its needs resolved on the existing nodes."""
        key = (parsed_job.shape, parsed_job.needs, parsed_job.gpu_fraction)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self.capacity.fit(*key)
        return shape


def _note_declared_checkpoint(job: KubeJob) -> None:
    """Record whether the object names a checkpoint, unless the job has shown more than that."""
    persisted = job.persisted
    if persisted.save in (SaveEvidence.NONE, SaveEvidence.DECLARED):
        persisted.save = SaveEvidence.DECLARED if job.parsed_job.spec.checkpoint else SaveEvidence.NONE


def _is_unwanted(seen: JobObject | Pod) -> bool:
    """Return True if a user deleted the object; an evicted pod is created again elsewhere."""
    return seen.metadata.deletion_timestamp is not None and not (isinstance(seen, Pod) and disruption_reason(seen))


def _recorded_pod(move: MoveRecord) -> Pod:
    """Return the pod stored in a move record, for a move whose pod is gone."""
    pod = msgspec.convert(move.pod, Pod)
    pod.metadata.uid = f"record:{move.namespace}/{move.name}"
    return pod
