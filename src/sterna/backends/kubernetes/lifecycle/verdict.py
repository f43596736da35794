"""What the pods of a job mean for it: it goes on, replicas are replaced, all begins anew, or it has ended. Pure.

Judged anew from what is there each time something changes; nothing is remembered here. A pod that somebody asked to go
is never a failure, whatever code it ends with: it is replaced or not by whoever decides where the job sits
(`replicas.steps`). Restart policies, exit codes, back-off and deadlines are Kubeflow's (DRAGON-42 to 50), except that
what the cluster did to a pod is not held against the job.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from sterna.backends.kubernetes.api.assignment import Key
from sterna.backends.kubernetes.api.job import KubeJob, PersistedState, PodRow, PodState, ReplicaAssignment
from sterna.backends.kubernetes.lifecycle.replicas import replaces_in_place
from sterna.backends.kubernetes.lifecycle.termination import TerminationCause, termination_cause, termination_message
from sterna.control.restart_policy import backoff_seconds, has_restarts_left, leading_type, may_restart
from sterna.kinds.parsed_job import CleanPods, ParsedJob
from sterna.model.job import RestartPolicy
from sterna.model.snapshot import NEVER

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 10.0, 300.0
"""Between restarts, twice as long each time, as Kubernetes waits."""
REFUSAL_WAIT_SECONDS = 10.0
"""After a kubelet refused a pod for which we had counted room: it knows something that we do not see yet."""

_EVICTED = "MPIJobEvicted"


class Fate(Enum):
    """What becomes of a job."""

    GOES_ON = "goes on"
    REPLACE = "replace"
    """Some replicas failed and come again while the others go on."""
    RESTART = "restart"
    """All of it goes and comes again, with the next attempt: set `Memory.started_at` to None."""
    STOPPED = "stopped"
    """Nothing is left of an attempt that had begun. It comes again where it shall sit, if anywhere: set
    `Memory.started_at` to None."""
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True)
class Verdict:
    """What becomes of a job, and why."""

    fate: Fate = Fate.GOES_ON
    replicas: tuple[Key, ...] = ()
    """With `REPLACE`: whose pods are to be deleted and made again (`steps(replaced=...)`)."""
    reason: str = ""
    """One word for a condition: `TFJobFailed`, `BackoffLimitExceeded`, `DeadlineExceeded`, .."""
    sentence: str = ""
    is_counted: bool = False
    """Counts against the back-off limit: add one to `Memory.restarts`."""
    not_before: float = 0.0
    """When it may come again: goes into `Memory.not_before`."""
    exit_code: int | None = None
    refused_by: frozenset[str] = frozenset()
    """Nodes whose kubelets did not take a pod."""
    lost_seconds: float = 0.0
    """With an end of the attempt: work that nobody saved; to be added to `Memory.lost_seconds`."""
    until: float = NEVER
    """When to judge again though nothing happened."""


GOES_ON = Verdict()


def judge(job: KubeJob, now: float, replicas: Sequence[ReplicaAssignment] = ()) -> Verdict:
    """What becomes of a job that has not ended, by its pods and the time.

    `seats` is where it shall sit (`replicas.seats`): without them whoever exists counts as everybody. A restart or a
    replacement is said as long as pods show the failure that calls for it and have not been asked to go, so count it
    when the deletions are sent.
    """
    if job.memory.ended_at is not None:
        return GOES_ON
    if job.parsed_job.ownership.is_delegated:
        return _as_its_operator_says(job, now)
    present = _present(job)
    if _is_complete(job, present, replicas):
        return completed(job)
    deadline = deadline_of(job)
    if now >= deadline:
        return _out_of_time(job, now)
    failed = [pod for pod in present if pod.state is PodState.FAILED and not pod.is_deleting]
    if failed:
        return _after_failure(job, failed, now, deadline)
    restarts = job.memory.restarts + sum(pod.restarts for pod in present)
    limit = job.parsed_job.spec.backoff_limit
    if limit is not None and any(pod.restarts for pod in present) and restarts >= max(limit, 1):
        return _given_up(job, "its containers were restarted too often", None, now)
    if not job.pods and job.memory.started_at is not None:
        lost = lost_seconds(job.memory, now)
        return Verdict(Fate.STOPPED, sentence=_how_it_stopped(job.memory, lost), lost_seconds=lost, until=deadline)
    return GOES_ON if deadline == NEVER else Verdict(until=deadline)


def completed(job: KubeJob) -> Verdict:
    """It has done all it had to do."""
    return Verdict(Fate.COMPLETED, reason=f"{job.parsed_job.spec.kind}Succeeded", sentence="completed.")


def leftovers(job: KubeJob) -> list[PodRow]:
    """Pods of a job that has ended which are to be deleted, by its cleanPodPolicy (DRAGON-46)."""
    policy = job.parsed_job.clean_pods
    if policy is CleanPods.NONE or not job.parsed_job.ownership.creates_pods:
        return []
    return [
        pod for pod in job.pods.values() if not pod.is_deleting and (policy is CleanPods.ALL or not pod.is_terminated)
    ]


def expires_at(job: KubeJob) -> float:
    """When a job that has ended is to be deleted (`ttlSecondsAfterFinished`); `NEVER` if it stays."""
    ended_at, ttl = job.memory.ended_at, job.parsed_job.spec.ttl_seconds
    return NEVER if ended_at is None or ttl is None else ended_at + ttl


def saved_step(pod: PodRow) -> int | None:
    """The step that a pod says it saved when it was asked to end, from its termination message; -1 if it does not say
    which, None if it did not save then."""
    said = _said(pod)
    if said is None or not said.saved:
        return None
    return said.step if said.step is not None and said.step >= 0 else -1


def record_checkpoint(memory: PersistedState, pod: PodRow, now: float) -> bool:
    """Take down which work of a pod is in a checkpoint; whether it saved when it was asked to go. To be called once its
    containers have ended, also for one that is gone, as it was last seen. Only who never leaves a job that runs,
    number 0, speaks for all of it."""
    said = _said(pod)
    if said is None or not pod.is_terminated:
        return False
    memory.saved_step = max(memory.saved_step, said.step if said.step is not None else -1)
    if said.at is not None and math.isfinite(said.at):
        memory.saved_at = max(memory.saved_at, min(said.at, now))
    if said.saved and pod.is_deleting and pod.index == 0 and memory.saved_attempt != pod.attempt:
        memory.saved_at, memory.saved_attempt = max(memory.saved_at, now), pod.attempt
    return said.saved


def lost_seconds(memory: PersistedState, ended_at: float) -> float:
    """Work of an attempt that ends which is in no checkpoint: all since the last one, unless somebody saved when asked
    to go."""
    if memory.started_at is None or memory.saved_attempt == memory.attempt:
        return 0.0
    return max(0.0, ended_at - max(memory.saved_at, memory.started_at))


def conditions_in(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The conditions that a status holds, as far as they are any."""
    found = status.get("conditions")
    listed = found if isinstance(found, list) else []
    return [each for each in listed if isinstance(each, dict) and isinstance(each.get("type"), str)]


def is_eviction_condition(condition: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Whether it says of an MPI job that a worker was evicted: its operator calls that `Failed` too, and goes on. It is
    done with a job when it has given it a time of completion."""
    return condition.get("reason") == _EVICTED and not status.get("completionTime")


def wait_seconds(restarts: int) -> float:
    """How long to wait before restart number so many, from 1."""
    return backoff_seconds(restarts, FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)


class _Said(msgspec.Struct):
    """What the agent leaves in the termination log."""

    saved: bool
    """When it was asked to end; else it tells of the last checkpoint that it made of its own accord."""
    step: int | None = None
    at: float | None = None


def _said(pod: PodRow) -> _Said | None:
    try:
        return msgspec.json.decode(pod.message, type=_Said)
    except (msgspec.MsgspecError, ValueError):
        return None


def _present(job: KubeJob) -> list[PodRow]:
    """The pods of the present attempt, in an order that does not depend on who came first."""
    latest = max((pod.attempt for pod in job.pods.values()), default=0)
    return [job.pods[key] for key in sorted(job.pods) if job.pods[key].attempt == latest]


def deadline_of(job: KubeJob) -> float:
    """When its time is over, counted from its first start; while its user has it suspended the clock stands still."""
    started_at, seconds = job.memory.first_started_at, job.parsed_job.spec.deadline_seconds
    return NEVER if started_at is None or seconds is None else started_at + seconds + job.memory.suspended_seconds


# How a job ends.


def _is_complete(job: KubeJob, present: Sequence[PodRow], replicas: Sequence[ReplicaAssignment]) -> bool:
    """Chief, master or launcher decide where there is one; worker 0 of a TFJob, unless all shall; else every worker
    (DRAGON-45)."""
    parsed_job, spec = job.parsed_job, job.parsed_job.spec
    done = {parsed_job.known_as(pod.type, pod.index) for pod in present if is_done(job, pod)}
    if not done:
        return False
    leader = _leader(parsed_job)
    if leader is not None:
        return leader in done
    worker = spec.worker.type
    if spec.kind == "TFJob" and not spec.is_done_by_all and (worker, 0) in done:
        return True
    counting = [(pod.type, pod.index) for pod in present if not pod.is_deleting]
    if not replaces_in_place(parsed_job):
        counting += [replica[:2] for replica in replicas]
    workers = {who for who in (parsed_job.known_as(*each) for each in counting) if who[0] == worker}
    return workers <= done and any(who[0] == worker for who in done)


def _leader(parsed_job: ParsedJob) -> Key | None:
    types = {*parsed_job.leading, *(each.type for each in parsed_job.spec.replicas)}
    leader = leading_type(types)
    return None if leader is None else (leader, 0)


def is_done(job: KubeJob, pod: PodRow) -> bool:
    """Whether it did all it had to do. One that was asked to go and says that it saved did not; else its last step must
    have been reported, and if nobody knows of steps, a plain pod that ended well is done, as Kubernetes sees it."""
    if pod.state is not PodState.SUCCEEDED:
        return False
    is_plain = job.parsed_job.ownership.is_pod
    if not pod.is_deleting or (is_plain and pod.deletes_at is None):  # asked, but it had ended before that arrived
        return True
    if saved_step(pod) is not None:
        return False
    step, total = job.memory.step, job.memory.total
    return step >= total if total and step is not None else is_plain


def _as_its_operator_says(job: KubeJob, now: float) -> Verdict:
    """The MPI operator judges its jobs itself, restarts of the launcher included (VODA-72, VODA-73, VODA-76). But it
    keeps workers that their nodes refused or put off, so that they are replaced as those of other jobs are."""
    said = {each.get("type"): each for each in conditions_in(job.status) if each.get("status") == "True"}
    if "Succeeded" in said:
        return Verdict(Fate.COMPLETED, reason="MPIJobSucceeded", sentence="completed.")
    if "Failed" in said and not is_eviction_condition(said["Failed"], job.status):
        why = str(said["Failed"].get("message") or said["Failed"].get("reason") or "its launcher failed")
        return Verdict(Fate.FAILED, reason="MPIJobFailed", sentence=f"failed: {why.removesuffix('.')}.")
    failed = [
        pod
        for pod in _present(job)
        if pod.state is PodState.FAILED and not pod.is_deleting
        if pod.type == job.parsed_job.spec.worker.type and termination_cause(pod) is not TerminationCause.ENDED
    ]
    return _after_failure(job, failed, now, NEVER) if failed else GOES_ON


def _out_of_time(job: KubeJob, now: float) -> Verdict:
    seconds = job.parsed_job.spec.deadline_seconds or 0.0
    return Verdict(
        Fate.FAILED,
        reason="DeadlineExceeded",
        sentence=f"failed: it was active for longer than the {seconds:g} s of its deadline.",
        lost_seconds=lost_seconds(job.memory, now),
    )


def _given_up(job: KubeJob, how: str, exit_code: int | None, now: float) -> Verdict:
    limit = job.parsed_job.spec.backoff_limit
    return Verdict(
        Fate.FAILED,
        reason="BackoffLimitExceeded",
        sentence=f"failed: {how}, and its back-off limit of {limit} is used up.",
        exit_code=exit_code,
        lost_seconds=lost_seconds(job.memory, now),
    )


def _how_it_stopped(memory: PersistedState, lost: float) -> str:
    if memory.saved_attempt == memory.attempt:
        at = f" at step {memory.saved_step}" if memory.saved_step >= 0 else ""
        return f"saved its work{at} and stopped."
    return f"stopped; {lost:.0f} s of work are lost: it did not say that it saved before it ended."


# What follows from failures.


def _after_failure(job: KubeJob, failed: Sequence[PodRow], now: float, deadline: float) -> Verdict:
    parsed_job, spec = job.parsed_job, job.parsed_job.spec
    own = [pod for pod in failed if termination_cause(pod) is TerminationCause.ENDED]
    fatal = next((pod for pod in own if not _may_come_again(parsed_job, pod)), None)
    if fatal is not None:
        return Verdict(
            Fate.FAILED,
            reason=f"{spec.kind}Failed",
            sentence=f"failed: {termination_message(fatal)} (restart policy {_policy(parsed_job, fatal).value}).",
            exit_code=fatal.exit_code,
            lost_seconds=lost_seconds(job.memory, now),
        )
    if own and not has_restarts_left(job.memory.restarts, spec.backoff_limit):
        return _given_up(job, termination_message(own[0]), own[0].exit_code, now)
    refused_by = frozenset(pod.node for pod in failed if termination_cause(pod) is TerminationCause.REFUSED)
    wait = wait_seconds(job.memory.restarts + 1) if own else REFUSAL_WAIT_SECONDS if refused_by else 0.0
    is_single = replaces_in_place(parsed_job)
    return Verdict(
        Fate.REPLACE if is_single else Fate.RESTART,
        tuple((pod.type, pod.index) for pod in failed) if is_single else (),
        f"{spec.kind}Restarting",
        _comes_again(job, failed, own, wait, is_single),
        bool(own),
        now + wait if wait else 0.0,
        own[0].exit_code if own else None,
        refused_by,
        0.0 if is_single else lost_seconds(job.memory, now),
        deadline,
    )


def _may_come_again(parsed_job: ParsedJob, pod: PodRow) -> bool:
    """By the restart policy of its type (DRAGON-42)."""
    return may_restart(_policy(parsed_job, pod), pod.exit_code)


def _policy(parsed_job: ParsedJob, pod: PodRow) -> RestartPolicy:
    return parsed_job.spec.restart_of(parsed_job.known_as(pod.type, pod.index)[0])


def _comes_again(job: KubeJob, failed: Collection[PodRow], own: Sequence[PodRow], wait: float, is_single: bool) -> str:
    first = own[0] if own else next(iter(failed))
    others = f" and {len(failed) - 1} more failed" if len(failed) > 1 else ""
    who = "it is replaced" if is_single else "all of it is started again"
    when = f" in {wait:g} s" if wait else ""
    limit = job.parsed_job.spec.backoff_limit
    most = f" of {limit}" if limit is not None else ""
    counted = f" (restart {job.memory.restarts + 1}{most})" if own else ""
    return f"{termination_message(first)}{others}; {who}{when}{counted}."
