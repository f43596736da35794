"""What the end of a process means for its job: stopped, completed, to be tried again, or failed. Pure.

A process that was asked to stop and said that it saved is stopped, whatever code it ends with. One that ends by itself
is judged by its code and the job's restart policy. Nobody is asked to guess: a lost exit counts as a fault of the
machine, never of the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sterna.backends.local.store.records import AttemptRecord, JobRecord
from sterna.model.job import JobSpec, RestartPolicy

RETRYABLE = frozenset({130, 137, 138, 143})
"""Exit codes that mean somebody else ended it: SIGINT, SIGKILL, SIGUSR1 (a permanent 'try again'), SIGTERM."""
SIGNALLED = 128
LOST_CODE = 137
"""What an exit that nobody recorded counts as."""

_DECISIVE = ("chief", "master", "launcher")


@dataclass(frozen=True)
class Ending:
    """How one process ended."""

    code: int
    at: float
    asked: bool
    """It had been asked to stop."""
    saved: bool
    """It said after that that it saved."""
    lost: bool = False
    """Nobody saw how it ended."""
    began: bool = True
    cpu_seconds: float = 0.0
    why: str = ""
    """Why it could not be started, if so."""


class Verdict(Enum):
    """What becomes of a job whose attempt is over."""

    STOPPED = "stopped"
    COMPLETED = "completed"
    AGAIN = "again"
    FAILED = "failed"


def is_done(ending: Ending, step: int | None, total: int | None) -> bool:
    """Whether a process did all it had to do. One that was asked to stop counts only if its last step was reported."""
    if ending.code != 0 or ending.lost:
        return False
    if not ending.asked:
        return True
    return not ending.saved and bool(total) and step is not None and step >= (total or 0)


def decides(spec: JobSpec, replica_type: str, index: int) -> bool:
    """Whether this replica's success is the job's: chief, master or launcher where there is one; the first worker of a
    TFJob, unless all shall; else every worker's counts."""
    types = {each.type for each in spec.replicas if each.command}
    leader = next((kind for kind in _DECISIVE if kind in types), None)
    if leader is not None:
        return replica_type == leader and index == 0
    if replica_type != spec.worker.type:
        return False
    return index == 0 if spec.is_done_by_first else True


def is_complete(spec: JobSpec, attempt: AttemptRecord, done: set[str]) -> bool:
    """Whether all replicas whose success counts have done what they had to do."""
    deciding = [each for each in attempt.replicas if decides(spec, each.type, each.index)]
    staying = [each for each in deciding if each.name in done or not each.leaving]
    return bool(staying) and all(each.name in done for each in staying)


def after_failure(job: JobRecord, attempt: AttemptRecord) -> Verdict:
    """By the restart policy of whoever failed. A lost exit is always tried again: training goes on from its
    checkpoint."""
    if attempt.lost:
        return Verdict.AGAIN
    policy = job.spec.restart_of(attempt.failed_type)
    if policy is RestartPolicy.NEVER:
        return Verdict.FAILED
    if policy is RestartPolicy.EXIT_CODE and attempt.exit_code not in RETRYABLE:
        return Verdict.FAILED
    limit = job.spec.backoff_limit
    return Verdict.AGAIN if limit is None or job.restarts < limit else Verdict.FAILED


def patience(restarts: int, first_seconds: float, most_seconds: float) -> float:
    """Seconds to wait before another attempt, twice as long each time."""
    return float(min(first_seconds * 2 ** max(restarts - 1, 0), most_seconds))
