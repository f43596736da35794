"""The result of an attempt: stopped, completed, to be restarted, or failed. Pure.

A process that saved its work after a stop request is stopped, whatever its exit code. Otherwise the exit code and the
job's restart policy decide. An exit that was not recorded counts as a failure of the machine, never of the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sterna.backends.local.store.records import AttemptRecord, JobRecord
from sterna.control.restart_policy import has_restarts_left, leading_type, may_restart
from sterna.model.job import JobSpec

LOST_CODE = 137
"""Exit code of a process whose exit was not recorded."""


@dataclass(frozen=True)
class ProcessExit:
    """The end of one process."""

    code: int
    at: float
    asked: bool
    """It had been asked to stop."""
    saved: bool
    """It reported a checkpoint after the stop request."""
    lost: bool = False
    """Its exit was not recorded."""
    began: bool = True
    cpu_seconds: float = 0.0
    why: str = ""
    """Why it could not be started; empty: it was."""


class AttemptResult(Enum):
    STOPPED = "stopped"
    COMPLETED = "completed"
    RESTART = "restart"
    FAILED = "failed"


def is_done(end: ProcessExit, step: int | None, total: int | None) -> bool:
    """True if a process finished its work. After a stop request that takes a report of its last step."""
    if end.code != 0 or end.lost:
        return False
    if not end.asked:
        return True
    return not end.saved and bool(total) and step is not None and step >= (total or 0)


def decides(spec: JobSpec, replica_type: str, index: int) -> bool:
    """True if the success of this replica counts for the job: chief, master or launcher where there is one; the first
    worker of a TFJob, unless its success policy is AllWorkers; else every worker."""
    leader = leading_type({each.type for each in spec.replicas if each.command})
    if leader is not None:
        return replica_type == leader and index == 0
    if replica_type != spec.worker.type:
        return False
    return index == 0 if spec.is_done_by_first else True


def is_complete(spec: JobSpec, attempt: AttemptRecord, done: set[str]) -> bool:
    """True if all replicas that decide, and are not leaving, are done."""
    deciding = [each for each in attempt.replicas if decides(spec, each.type, each.index)]
    staying = [each for each in deciding if each.name in done or not each.leaving]
    return bool(staying) and all(each.name in done for each in staying)


def after_failure(job: JobRecord, attempt: AttemptRecord) -> AttemptResult:
    """Apply the restart policy of the replica type that failed. An exit that was not recorded is always retried."""
    if attempt.lost:
        return AttemptResult.RESTART
    may_retry = may_restart(job.spec.restart_of(attempt.failed_type), attempt.exit_code)
    is_allowed = may_retry and has_restarts_left(job.restarts, job.spec.backoff_limit)
    return AttemptResult.RESTART if is_allowed else AttemptResult.FAILED
