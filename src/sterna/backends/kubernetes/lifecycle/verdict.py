"""Verdict on a job from its pods: continue, replace replicas, restart, or end. Pure.

Computed from scratch whenever something changes. A pod that is being deleted is never a failure, whatever its exit
code; whether it is created again follows from the assignment (`replicas.next_steps`). Restart policies, exit codes,
back-off and deadlines are Kubeflow's, except that what the cluster did to a pod does not count against the job.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from sterna.backends.kubernetes.api.assignment import Key
from sterna.backends.kubernetes.api.job import KubeJob, PersistedState, PodRow, PodState, ReplicaAssignment
from sterna.backends.kubernetes.lifecycle.replicas import replaces_in_place
from sterna.backends.kubernetes.lifecycle.termination import TerminationCause, termination_cause, termination_message
from sterna.control.job_state import SaveEvidence
from sterna.control.restart_policy import backoff_seconds, has_restarts_left, leading_type, may_restart
from sterna.kinds.parsed_job import CleanPods, ParsedJob
from sterna.model.job import RestartPolicy
from sterna.model.snapshot import NEVER

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 10.0, 300.0
"""Bounds of the exponential back-off between restarts, as in Kubernetes."""
REJECTION_WAIT_SECONDS = 10.0
"""Delay after a kubelet rejected a pod that should have fit: its view of the node is newer than the cache."""

_EVICTED = "MPIJobEvicted"


class VerdictKind(Enum):
    """Next step of a job as a whole."""

    CONTINUE = "continue"
    REPLACE = "replace"
    """Failed replicas are created again while the others keep running."""
    RESTART = "restart"
    """All pods are deleted and created again with the next attempt; the caller resets `started_at`."""
    STOPPED = "stopped"
    """All pods of a started attempt are gone; the caller resets `started_at`."""
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True)
class Verdict:
    """Kind of verdict, its reason, and what the caller must record."""

    kind: VerdictKind = VerdictKind.CONTINUE
    replicas: tuple[Key, ...] = ()
    """With `REPLACE`: replicas to delete and create again (`next_steps(replaced=...)`)."""
    reason: str = ""
    """Reason of the condition: `TFJobFailed`, `BackoffLimitExceeded`, `DeadlineExceeded`, .."""
    sentence: str = ""
    is_counted: bool = False
    """True if it counts against the back-off limit (`PersistedState.restarts`)."""
    not_before: float = 0.0
    """Earliest restart, for `PersistedState.not_before`."""
    exit_code: int | None = None
    cause: str = ""
    """Beginning of a sentence about the pod that failed, for `PersistedState.failure_cause`."""
    refused_by: frozenset[str] = frozenset()
    """Nodes whose kubelets rejected a pod."""
    lost_seconds: float = 0.0
    """Work of the ended attempt that is in no checkpoint, in seconds, for `PersistedState.lost_seconds`."""
    until: float = NEVER
    """Time at which to judge again without an event."""


CONTINUE = Verdict()


def judge(job: KubeJob, now: float, replicas: Sequence[ReplicaAssignment] = ()) -> Verdict:
    """Return the verdict on a job that has not ended.

    Without `replicas` the existing pods count as the whole gang. A restart or replacement is returned until the failed
    pods are being deleted, so the caller counts it when it sends the deletions.
    """
    if job.persisted.ended_at is not None:
        return CONTINUE
    if job.parsed_job.ownership.is_delegated:
        return _judge_delegated(job, now)
    present = _present(job)
    if _is_complete(job, present, replicas):
        return completion(job)
    deadline = deadline_of(job)
    if now >= deadline:
        return _deadline_exceeded(job, now)
    failed = [pod for pod in present if pod.state is PodState.FAILED and not pod.is_deleting]
    if failed:
        return _after_failure(job, failed, now, deadline)
    restarts = job.persisted.restarts + sum(pod.restarts for pod in present)
    limit = job.parsed_job.spec.backoff_limit
    if limit is not None and any(pod.restarts for pod in present) and restarts >= max(limit, 1):
        return _backoff_exceeded(job, "its containers were restarted too often", None, now)
    if not job.pods and job.persisted.started_at is not None:
        return stop_verdict(job.persisted, now, deadline)
    return CONTINUE if deadline == NEVER else Verdict(until=deadline)


def stop_verdict(persisted: PersistedState, now: float, deadline: float = NEVER) -> Verdict:
    """Return the verdict on an attempt that was stopped, whose pods are gone.

    What a job has lost that only declares a checkpoint is unknown until its next attempt reports a step.
    """
    at_risk = lost_seconds(persisted, now)
    lost = 0.0 if persisted.save is SaveEvidence.DECLARED else at_risk
    return Verdict(
        VerdictKind.STOPPED, sentence=_stop_sentence(persisted, at_risk, lost), lost_seconds=lost, until=deadline
    )


def completion(job: KubeJob) -> Verdict:
    return Verdict(VerdictKind.COMPLETED, reason=f"{job.parsed_job.spec.kind}Succeeded", sentence="completed.")


def pods_to_delete(job: KubeJob) -> list[PodRow]:
    """Return the pods of an ended job to delete, by its cleanPodPolicy."""
    policy = job.parsed_job.clean_pods
    if policy is CleanPods.NONE or not job.parsed_job.ownership.creates_pods:
        return []
    return [
        pod for pod in job.pods.values() if not pod.is_deleting and (policy is CleanPods.ALL or not pod.is_terminated)
    ]


def expires_at(job: KubeJob) -> float:
    """Return when an ended job is deleted (`ttlSecondsAfterFinished`); `NEVER` if it stays."""
    ended_at, ttl = job.persisted.ended_at, job.parsed_job.spec.ttl_seconds
    return NEVER if ended_at is None or ttl is None else ended_at + ttl


def saved_step(pod: PodRow) -> int | None:
    """Return the step that a pod saved on termination, from its termination message.

    Returns -1 if the step is unknown, None if the pod did not save on termination.
    """
    report = _termination_report(pod)
    if report is None or not report.saved:
        return None
    return report.step if report.step is not None and report.step >= 0 else -1


def record_checkpoint(persisted: PersistedState, pod: PodRow, now: float) -> bool:
    """Record the checkpoint of a terminated pod; return True if it saved on termination.

    Also called for a pod that is gone, as last seen. Only replica 0, which never leaves a running job, reports a
    checkpoint for the whole attempt.
    """
    report = _termination_report(pod)
    if report is None or not pod.is_terminated:
        return False
    is_asked = report.saved and pod.is_deleting
    persisted.note_evidence(SaveEvidence.REGISTERED if is_asked else SaveEvidence.SAVED)
    persisted.saved_step = max(persisted.saved_step, report.step if report.step is not None else -1)
    if report.at is not None and math.isfinite(report.at):
        persisted.saved_at = max(persisted.saved_at, min(report.at, now))
    if is_asked and pod.index == 0 and persisted.saved_attempt != pod.attempt:
        persisted.saved_at, persisted.saved_attempt = max(persisted.saved_at, now), pod.attempt
    return report.saved


def lost_seconds(persisted: PersistedState, ended_at: float) -> float:
    """Return the seconds of work since the last checkpoint, 0 if the attempt saved on termination."""
    if persisted.started_at is None or persisted.saved_attempt == persisted.attempt:
        return 0.0
    return max(0.0, ended_at - max(persisted.saved_at, persisted.started_at))


def unsaved_since(persisted: PersistedState) -> float:
    """Return the time from which a stop loses work; `NEVER` if it loses none: it does not run, or saves on request."""
    if persisted.started_at is None or persisted.save is SaveEvidence.REGISTERED:
        return NEVER
    return max(persisted.saved_at, persisted.started_at)


def ignored_stop_request(persisted: PersistedState, pod: PodRow) -> bool:
    """Return True if the first worker of a job that saves on request ended after one without a checkpoint."""
    is_asked = pod.is_terminated and pod.is_deleting and not pod.disruption and pod.index == 0
    return (
        is_asked
        and pod.state is not PodState.SUCCEEDED
        and persisted.save is SaveEvidence.REGISTERED
        and persisted.saved_attempt != pod.attempt == persisted.attempt
    )


def conditions_in(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the well-formed conditions of a status."""
    found = status.get("conditions")
    listed = found if isinstance(found, list) else []
    return [each for each in listed if isinstance(each, dict) and isinstance(each.get("type"), str)]


def is_eviction_condition(condition: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return True if a `Failed` condition of an MPIJob only reports an evicted worker.

    The MPI operator continues such a job; a job that it gave up has a `completionTime`.
    """
    return condition.get("reason") == _EVICTED and not status.get("completionTime")


def wait_seconds(restarts: int) -> float:
    """Return the back-off before restart number `restarts`, from 1."""
    return backoff_seconds(restarts, FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)


class _TerminationReport(msgspec.Struct):
    """Termination message that the agent writes."""

    saved: bool
    """True if it saved on termination; otherwise `step` and `at` are those of its last periodic checkpoint."""
    step: int | None = None
    at: float | None = None


def _termination_report(pod: PodRow) -> _TerminationReport | None:
    try:
        return msgspec.json.decode(pod.message, type=_TerminationReport)
    except (msgspec.MsgspecError, ValueError):
        return None


def _present(job: KubeJob) -> list[PodRow]:
    """Return the pods of the latest attempt, by type and index."""
    latest = max((pod.attempt for pod in job.pods.values()), default=0)
    return [job.pods[key] for key in sorted(job.pods) if job.pods[key].attempt == latest]


def deadline_of(job: KubeJob) -> float:
    """Return when `activeDeadlineSeconds` is over, counted from the first start without suspended time."""
    started_at, seconds = job.persisted.first_started_at, job.parsed_job.spec.deadline_seconds
    return NEVER if started_at is None or seconds is None else started_at + seconds + job.persisted.suspended_seconds


# Completion.


def _is_complete(job: KubeJob, present: Sequence[PodRow], replicas: Sequence[ReplicaAssignment]) -> bool:
    """Return True if the job succeeded.

    A chief, master or launcher decides if there is one; else worker 0 of a TFJob, unless its success policy is
    `AllWorkers`; else all workers.
    """
    parsed_job, spec = job.parsed_job, job.parsed_job.spec
    done = {parsed_job.framework_name(pod.type, pod.index) for pod in present if is_done(job, pod)}
    if not done:
        return False
    leader = _leader(parsed_job)
    if leader is not None:
        return leader in done
    worker = spec.worker.type
    if spec.is_done_by_first and (worker, 0) in done:
        return True
    counting = [(pod.type, pod.index) for pod in present if not pod.is_deleting]
    if not replaces_in_place(parsed_job):
        counting += [replica[:2] for replica in replicas]
    workers = {who for who in (parsed_job.framework_name(*each) for each in counting) if who[0] == worker}
    return workers <= done and any(who[0] == worker for who in done)


def _leader(parsed_job: ParsedJob) -> Key | None:
    types = {*parsed_job.leading, *(each.type for each in parsed_job.spec.replicas)}
    leader = leading_type(types)
    return None if leader is None else (leader, 0)


def is_done(job: KubeJob, pod: PodRow) -> bool:
    """Return True if a pod completed its work.

    A deleted pod that saved on termination did not. Otherwise its last step must have been reported; without steps a
    plain pod that exited with 0 is complete, as in Kubernetes.
    """
    if pod.state is not PodState.SUCCEEDED:
        return False
    is_plain = job.parsed_job.ownership.is_pod
    if not pod.is_deleting or (is_plain and pod.deletes_at is None):  # it had ended before the deletion arrived
        return True
    if saved_step(pod) is not None:
        return False
    step, total = job.persisted.step, job.persisted.total
    return step >= total if total and step is not None else is_plain


def _judge_delegated(job: KubeJob, now: float) -> Verdict:
    """Read the end of an MPIJob from the conditions of the MPI operator, which also restarts launchers.

    It keeps rejected and evicted workers, so those are replaced here as for other jobs.
    """
    held = {each.get("type"): each for each in conditions_in(job.status) if each.get("status") == "True"}
    if "Succeeded" in held:
        return Verdict(VerdictKind.COMPLETED, reason="MPIJobSucceeded", sentence="completed.")
    if "Failed" in held and not is_eviction_condition(held["Failed"], job.status):
        why = str(held["Failed"].get("message") or held["Failed"].get("reason") or "its launcher failed")
        return Verdict(VerdictKind.FAILED, reason="MPIJobFailed", sentence=f"failed: {why.removesuffix('.')}.")
    failed = [
        pod
        for pod in _present(job)
        if pod.state is PodState.FAILED and not pod.is_deleting
        if pod.type == job.parsed_job.spec.worker.type and termination_cause(pod) is not TerminationCause.ENDED
    ]
    return _after_failure(job, failed, now, NEVER) if failed else CONTINUE


def _deadline_exceeded(job: KubeJob, now: float) -> Verdict:
    seconds = job.parsed_job.spec.deadline_seconds or 0.0
    return Verdict(
        VerdictKind.FAILED,
        reason="DeadlineExceeded",
        sentence=f"failed: it was active for longer than the {seconds:g} s of its deadline.",
        lost_seconds=lost_seconds(job.persisted, now),
    )


def _backoff_exceeded(job: KubeJob, how: str, exit_code: int | None, now: float) -> Verdict:
    limit = job.parsed_job.spec.backoff_limit
    return Verdict(
        VerdictKind.FAILED,
        reason="BackoffLimitExceeded",
        sentence=f"failed: {how}, and its back-off limit of {limit} is used up.",
        exit_code=exit_code,
        lost_seconds=lost_seconds(job.persisted, now),
    )


def _stop_sentence(persisted: PersistedState, at_risk: float, lost: float) -> str:
    if persisted.saved_attempt == persisted.attempt:
        at = f" at step {persisted.saved_step}" if persisted.saved_step >= 0 else ""
        return f"saved its work{at} and stopped."
    if lost < at_risk:
        return f"stopped; its next start shows whether its checkpoint holds the last {at_risk:.0f} s of work."
    return f"stopped; {lost:.0f} s of work are lost: it did not say that it saved before it ended."


# Failures.


def _after_failure(job: KubeJob, failed: Sequence[PodRow], now: float, deadline: float) -> Verdict:
    parsed_job, spec = job.parsed_job, job.parsed_job.spec
    own = [pod for pod in failed if termination_cause(pod) is TerminationCause.ENDED]
    fatal = next((pod for pod in own if not _may_come_again(parsed_job, pod)), None)
    if fatal is not None:
        return Verdict(
            VerdictKind.FAILED,
            reason=f"{spec.kind}Failed",
            sentence=f"failed: {termination_message(fatal)} (restart policy {_policy(parsed_job, fatal).value}).",
            exit_code=fatal.exit_code,
            lost_seconds=lost_seconds(job.persisted, now),
        )
    if own and not has_restarts_left(job.persisted.restarts, spec.backoff_limit):
        return _backoff_exceeded(job, termination_message(own[0]), own[0].exit_code, now)
    refused_by = frozenset(pod.node for pod in failed if termination_cause(pod) is TerminationCause.REJECTED)
    wait = wait_seconds(job.persisted.restarts + 1) if own else REJECTION_WAIT_SECONDS if refused_by else 0.0
    is_single = replaces_in_place(parsed_job)
    others = f" and {len(failed) - 1} more failed" if len(failed) > 1 else ""
    cause = f"{termination_message(own[0] if own else failed[0])}{others}"
    return Verdict(
        VerdictKind.REPLACE if is_single else VerdictKind.RESTART,
        tuple((pod.type, pod.index) for pod in failed) if is_single else (),
        f"{spec.kind}Restarting",
        _restart_sentence(job, cause, bool(own), wait, is_single),
        bool(own),
        now + wait if wait else 0.0,
        own[0].exit_code if own else None,
        cause,
        refused_by,
        0.0 if is_single else lost_seconds(job.persisted, now),
        deadline,
    )


def _may_come_again(parsed_job: ParsedJob, pod: PodRow) -> bool:
    """Return True if the restart policy of the replica type allows another attempt."""
    return may_restart(_policy(parsed_job, pod), pod.exit_code)


def _policy(parsed_job: ParsedJob, pod: PodRow) -> RestartPolicy:
    return parsed_job.spec.restart_of(parsed_job.framework_name(pod.type, pod.index)[0])


def _restart_sentence(job: KubeJob, cause: str, is_counted: bool, wait: float, is_single: bool) -> str:
    what = "it is replaced" if is_single else "all of it is started again"
    when = f" in {wait:g} s" if wait else ""
    counted = f" ({restart_number(job, job.persisted.restarts + 1)})" if is_counted else ""
    return f"{cause}; {what}{when}{counted}."


def restart_number(job: KubeJob, restarts: int) -> str:
    """Return `restart 2 of 6`."""
    limit = job.parsed_job.spec.backoff_limit
    return f"restart {restarts} of {limit}" if limit is not None else f"restart {restarts}"
