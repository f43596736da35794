"""`EventBuilder`: bodies of Kubernetes Events about jobs. Pure.

The name of an event is a hash of its content, so that writing it again meets `AlreadyExists` instead of creating a
duplicate; `repeat` then counts it as a series. Reasons are DRAGON's where it had one; decisions carry the sentence of
their Reason. One event may cover many pods: a gang costs one write, not five hundred.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from sterna.backends.kubernetes.api.job import KubeJob, PodRow, ReplicaAssignment
from sterna.backends.kubernetes.api.resources import EVENTS, Urgency, Verb, Write
from sterna.backends.kubernetes.cache.job_entry import JobEntry
from sterna.backends.kubernetes.cache.node_facts import describe_labels
from sterna.backends.kubernetes.lifecycle.replicas import replaces_in_place
from sterna.backends.kubernetes.lifecycle.termination import termination_message
from sterna.backends.kubernetes.lifecycle.verdict import Verdict, VerdictKind, unsaved_since
from sterna.kinds.parsed_job import JobRef
from sterna.model.plan import Action, ActionKind
from sterna.model.reason import Code, Reason

CONTROLLER = "sterna.dev/operator"
NORMAL, WARNING = "Normal", "Warning"

_MAX_NOTE_BYTES = 1024
_MAX_INSTANCE = 128
_MAX_NAME = 253
_MAX_NAMES = 4
"""Upper bound on pod names in one event; further pods are counted."""

_DECISIONS = {
    Code.STARTED: ("Scheduled", "Schedule"),
    Code.GREW: ("Resized", "Resize"),
    Code.SHRANK: ("Resized", "Resize"),
    Code.SHRANK_BY_RULE: ("Resized", "Resize"),
    Code.STOPPED: ("Stopped", "Stop"),
    Code.STOPPED_BY_RULE: ("Stopped", "Stop"),
    Code.MOVED: ("Moved", "Move"),
    Code.MOVED_FOR: ("Moved", "Move"),
    Code.SHARED: ("Shared", "Share"),
}
_UNSCHEDULABLE_CODES = frozenset({Code.TOO_LARGE, Code.NO_NODE, Code.NO_SERVERS, Code.NOT_BESIDE_SERVERS})
_VERDICTS = {
    VerdictKind.COMPLETED: ("Succeeded", "End", NORMAL),
    VerdictKind.FAILED: ("Failed", "End", WARNING),
    VerdictKind.RESTART: ("Restarting", "Restart", WARNING),
    VerdictKind.REPLACE: ("Restarting", "Restart", WARNING),
}


class EventBuilder:
    """Builds the event writes of one operator replica."""

    def __init__(self, identity: str) -> None:
        self._instance = identity[:_MAX_INSTANCE] or "operator"

    def event(self, ref: JobRef, reason: str, action: str, note: str, now: float, kind: str = NORMAL) -> Write:
        """Build an event from a machine-readable reason and a sentence."""
        note = _truncate(note)
        name = event_name(ref, reason, note)
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": ref.namespace},
            "eventTime": _micro_time(now),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "type": kind,
            "reason": reason,
            "action": action,
            "note": note,
            "regarding": {
                "apiVersion": ref.resource.api_version,
                "kind": ref.resource.kind,
                "namespace": ref.namespace,
                "name": ref.name,
                "uid": ref.uid,
            },
        }
        return Write(Verb.CREATE, EVENTS, ref.namespace, name, msgspec.json.encode(body), urgency=Urgency.EVENT)

    # Decisions and verdicts.

    def decision(self, job: KubeJob, reason: Reason, now: float, loss: str = "") -> Write:
        """Build a Scheduled, Resized, Moved, Stopped, Shared or Waiting event with the reason's sentence and `loss`, a
        sentence about the work that the change loses."""
        word, action = _DECISIONS.get(reason.code, ("Waiting", "Schedule"))
        kind = WARNING if reason.code in _UNSCHEDULABLE_CODES else NORMAL
        sentence = describe_labels(reason.sentence, job.parsed_job.needs.required)
        kind = WARNING if loss else kind
        return self.event(job.parsed_job.ref, word, action, f"{sentence} {loss}".strip(), now, kind)

    def broken_save(self, job: KubeJob, lost_seconds: float, now: float) -> Write:
        """Build the event about a job that had said that it can save and has lost its work in a stop."""
        note = (
            f"Lost {lost_seconds:.0f} s of work: the job had said that it can save, was stopped, and did not resume. "
            "From now on it counts as a job that cannot save; correct its save and submit it again."
        )
        return self.event(job.parsed_job.ref, "CheckpointMissing", "Watch", note, now, WARNING)

    def verdict(self, job: KubeJob, verdict: Verdict, now: float) -> Write | None:
        """Build an event such as `TFJobSucceeded`, `TFJobRestarting` or `Stopped`; None for `CONTINUE`."""
        ref = job.parsed_job.ref
        if verdict.kind is VerdictKind.STOPPED:
            kind = WARNING if verdict.lost_seconds >= 1.0 else NORMAL
            return self.event(ref, "Stopped", "Stop", verdict.sentence, now, kind)
        if verdict.kind not in _VERDICTS:
            return None
        word, action, kind = _VERDICTS[verdict.kind]
        return self.event(ref, f"{job.parsed_job.spec.kind}{word}", action, verdict.sentence, now, kind)

    def invalid(self, ref: JobRef, sentence: str, now: float) -> Write:
        return self.event(ref, f"Invalid{ref.resource.kind}Spec", "Read", sentence, now, WARNING)

    # Pods.

    def pods_created(
        self, job: KubeJob, replicas: Sequence[ReplicaAssignment], now: float, sentence: str = ""
    ) -> Write:
        """Build one event for pods created together, with the sentence of the decision."""
        nodes = list(dict.fromkeys(replica.node for replica in replicas))
        names = _join_names([_pod_name(job, replica) for replica in replicas])
        note = f"Created {_pod_count(len(replicas))} on {_join_names(nodes)}: {names}."
        return self.event(
            job.parsed_job.ref, "SuccessfulCreatePod", "Create", f"{note} {_capitalize(sentence)}".strip(), now
        )

    def create_failure(self, job: KubeJob, replica: ReplicaAssignment, message: str, now: float) -> Write:
        note = f"Could not create {_pod_name(job, replica)} on {replica.node}: {message}"
        return self.event(job.parsed_job.ref, "FailedCreatePod", "Create", note, now, WARNING)

    def pods_deleted(self, job: KubeJob, pods: Sequence[PodRow], now: float, why: str = "") -> Write:
        names = _join_names([_name_in(pod.key) for pod in pods])
        note = f"Deleted {_pod_count(len(pods))}: {names}. {_capitalize(why)}".strip()
        return self.event(job.parsed_job.ref, "SuccessfulDeletePod", "Delete", note, now)

    def delete_failure(self, job: KubeJob, pod: PodRow, message: str, now: float) -> Write:
        note = f"Could not delete {_name_in(pod.key)}: {message}"
        return self.event(job.parsed_job.ref, "FailedDeletePod", "Delete", note, now, WARNING)

    def pod_exit(self, job: KubeJob, pod: PodRow, now: float) -> Write:
        """Build an event about a pod that failed, or was rejected, evicted or lost."""
        word = "ExitedWithCode" if pod.exit_code is not None else pod.reason or "PodLost"
        return self.event(job.parsed_job.ref, word, "Watch", f"{_capitalize(termination_message(pod))}.", now, WARNING)

    def repeat(self, created: Write, count: int, now: float) -> Write:
        """Build the patch that counts a repeated event; `created` is the write answered with `AlreadyExists`."""
        series = {"series": {"count": max(count, 2), "lastObservedTime": _micro_time(now)}}
        return Write(
            Verb.MERGE, EVENTS, created.namespace, created.name, msgspec.json.encode(series), urgency=Urgency.EVENT,
            slot=f"event/{created.namespace}/{created.name}",
        )  # fmt: skip


def loss_sentence(entry: JobEntry, action: Action | None, now: float) -> str:
    """Return the work that an action on a running job will lose, as a sentence; empty if it loses none."""
    if action is None or action.kind is ActionKind.SET_CPU_SHARE:
        return ""
    if action.kind is not ActionKind.STOP and replaces_in_place(entry.parsed_job):
        return ""
    lost = now - unsaved_since(entry.job.persisted)
    if lost < 1.0:
        return ""
    price = f"; the change costs {action.price:.0f} device-seconds in all" if action.price else ""
    return f"It loses {lost:.0f} s of work that is in no checkpoint{price}."


def event_name(ref: JobRef, reason: str, note: str) -> str:
    """Return a name that is equal for equal content about the same object."""
    digest = hashlib.blake2b("\0".join((ref.uid, reason, note)).encode(), digest_size=8).hexdigest()
    return f"{ref.name[: _MAX_NAME - len(digest) - 1]}.{digest}"


def _micro_time(now: float) -> str:
    """Format as MicroTime."""
    return f"{datetime.fromtimestamp(max(now, 0.0), UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _truncate(note: str) -> str:
    """Cut a note to the limit of the API server, between characters."""
    raw = note.encode()
    if len(raw) <= _MAX_NOTE_BYTES:
        return note
    return f"{raw[: _MAX_NOTE_BYTES - 3].decode(errors='ignore').rstrip()}.."


def _pod_name(job: KubeJob, replica: ReplicaAssignment) -> str:
    return f"{job.parsed_job.ref.name}-{replica.type}-{replica.ordinal}"


def _name_in(key: str) -> str:
    return key.rpartition("/")[2]


def _join_names(names: Sequence[str]) -> str:
    """Join as `a, b and 3 more`."""
    if len(names) <= _MAX_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: _MAX_NAMES - 1])} and {len(names) - _MAX_NAMES + 1} more"


def _pod_count(pods: int) -> str:
    return "1 pod" if pods == 1 else f"{pods} pods"


def _capitalize(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
