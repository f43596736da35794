"""Events: what happened to a job, for whoever asks `kubectl describe`. Pure: bodies, not conversations.

The name of an event follows from what it says, so that saying it again meets `AlreadyExists` instead of making another
one; `again` then counts it as one series. Words are DRAGON's where it had one (DRAGON-53); decisions carry the sentence
of their Reason. One event may tell of many pods: a gang is worth one write, not five hundred.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from sterna.backends.kubernetes.api.job import KubeJob, PodRow, ReplicaAssignment
from sterna.backends.kubernetes.api.resources import EVENTS, Urgency, Verb, Write
from sterna.backends.kubernetes.cache.node_facts import describe_labels
from sterna.backends.kubernetes.lifecycle.termination import termination_message
from sterna.backends.kubernetes.lifecycle.verdict import Verdict, VerdictKind
from sterna.kinds.parsed_job import JobRef
from sterna.model.reason import Code, Reason

CONTROLLER = "sterna.dev/operator"
NORMAL, WARNING = "Normal", "Warning"

_LONGEST_NOTE_BYTES = 1024
_LONGEST_INSTANCE = 128
_LONGEST_NAME = 253
_MOST_NAMED = 4
"""Pods that one event names; the others are counted."""

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
    """Makes the events of one operator."""

    def __init__(self, identity: str) -> None:
        self._instance = identity[:_LONGEST_INSTANCE] or "operator"

    def event(self, ref: JobRef, reason: str, action: str, note: str, now: float, kind: str = NORMAL) -> Write:
        """Anything else, in a word for the machine and a sentence for people."""
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

    # What was decided.

    def decision(self, job: KubeJob, reason: Reason, now: float) -> Write:
        """Scheduled, Resized, Moved, Stopped, Shared or Waiting, with the reason's sentence."""
        word, action = _DECISIONS.get(reason.code, ("Waiting", "Schedule"))
        kind = WARNING if reason.code in _UNSCHEDULABLE_CODES else NORMAL
        sentence = describe_labels(reason.sentence, job.parsed_job.needs.required)
        return self.event(job.parsed_job.ref, word, action, sentence, now, kind)

    def verdict(self, job: KubeJob, verdict: Verdict, now: float) -> Write | None:
        """`TFJobSucceeded`, `TFJobFailed`, `TFJobRestarting` and their like, or `Stopped`; None if nothing happened."""
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

    # What became of pods.

    def created(self, job: KubeJob, replicas: Sequence[ReplicaAssignment], now: float, sentence: str = "") -> Write:
        """Of the pods that were made together; with the decision's sentence, so that one event tells both."""
        nodes = list(dict.fromkeys(replica.node for replica in replicas))
        names = _join_names([_pod_name(job, replica) for replica in replicas])
        note = f"Created {_pod_count(len(replicas))} on {_join_names(nodes)}: {names}."
        return self.event(
            job.parsed_job.ref, "SuccessfulCreatePod", "Create", f"{note} {_capitalize(sentence)}".strip(), now
        )

    def create_failure(self, job: KubeJob, replica: ReplicaAssignment, message: str, now: float) -> Write:
        note = f"Could not create {_pod_name(job, replica)} on {replica.node}: {message}"
        return self.event(job.parsed_job.ref, "FailedCreatePod", "Create", note, now, WARNING)

    def deleted(self, job: KubeJob, pods: Sequence[PodRow], now: float, why: str = "") -> Write:
        names = _join_names([_name_in(pod.key) for pod in pods])
        note = f"Deleted {_pod_count(len(pods))}: {names}. {_capitalize(why)}".strip()
        return self.event(job.parsed_job.ref, "SuccessfulDeletePod", "Delete", note, now)

    def delete_failure(self, job: KubeJob, pod: PodRow, message: str, now: float) -> Write:
        note = f"Could not delete {_name_in(pod.key)}: {message}"
        return self.event(job.parsed_job.ref, "FailedDeletePod", "Delete", note, now, WARNING)

    def pod_exit(self, job: KubeJob, pod: PodRow, now: float) -> Write:
        """A pod ended with an error, or was refused, evicted or lost."""
        word = "ExitedWithCode" if pod.exit_code is not None else pod.reason or "PodLost"
        return self.event(job.parsed_job.ref, word, "Watch", f"{_capitalize(termination_message(pod))}.", now, WARNING)

    def repeat(self, created: Write, count: int, now: float) -> Write:
        """Build the patch that counts a repeated event; `created` is the write answered with `AlreadyExists`."""
        series = {"series": {"count": max(count, 2), "lastObservedTime": _micro_time(now)}}
        return Write(
            Verb.MERGE, EVENTS, created.namespace, created.name, msgspec.json.encode(series), urgency=Urgency.EVENT,
            slot=f"event/{created.namespace}/{created.name}",
        )  # fmt: skip


def event_name(ref: JobRef, reason: str, note: str) -> str:
    """The same for the same words about the same object."""
    digest = hashlib.blake2b("\0".join((ref.uid, reason, note)).encode(), digest_size=8).hexdigest()
    return f"{ref.name[: _LONGEST_NAME - len(digest) - 1]}.{digest}"


def _micro_time(now: float) -> str:
    """With microseconds, as events have it."""
    return f"{datetime.fromtimestamp(max(now, 0.0), UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _truncate(note: str) -> str:
    """At most a kilobyte, cut between characters."""
    raw = note.encode()
    if len(raw) <= _LONGEST_NOTE_BYTES:
        return note
    return f"{raw[: _LONGEST_NOTE_BYTES - 3].decode(errors='ignore').rstrip()}.."


def _pod_name(job: KubeJob, replica: ReplicaAssignment) -> str:
    return f"{job.parsed_job.ref.name}-{replica.type}-{replica.ordinal}"


def _name_in(key: str) -> str:
    return key.rpartition("/")[2]


def _join_names(names: Sequence[str]) -> str:
    """`a, b and 3 more`."""
    if len(names) <= _MOST_NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: _MOST_NAMED - 1])} and {len(names) - _MOST_NAMED + 1} more"


def _pod_count(pods: int) -> str:
    return "1 pod" if pods == 1 else f"{pods} pods"


def _capitalize(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
