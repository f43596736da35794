"""Restart policy: which failures are retried, after which delay, and which replica decides about the job."""

from __future__ import annotations

from collections.abc import Collection

from sterna.model.job import RestartPolicy

RETRYABLE_EXIT_CODES = frozenset({130, 137, 138, 143})
"""128 + signal, for signals from outside: SIGINT, SIGKILL, SIGUSR1 (Kubeflow's user-defined retry), SIGTERM."""

_RUN_SECONDS, _RUN_RESTARTS = 60.0, 10.0
"""Run time after which an attempt without progress reports ran well: at least this, and this many restarts."""

_LEADING_TYPES = ("chief", "master", "launcher")


def leading_type(types: Collection[str]) -> str | None:
    """Return the replica type whose first replica alone decides whether the job succeeded; None: there is none."""
    return next((each for each in _LEADING_TYPES if each in types), None)


def may_restart(policy: RestartPolicy, exit_code: int | None) -> bool:
    """True if the policy allows another attempt after a replica failed with `exit_code`."""
    return exit_code in RETRYABLE_EXIT_CODES if policy is RestartPolicy.EXIT_CODE else policy is not RestartPolicy.NEVER


def has_restarts_left(restarts: int, backoff_limit: int | None) -> bool:
    return backoff_limit is None or restarts < backoff_limit


def ran_well(has_progressed: bool, run_seconds: float, restart_seconds: float) -> bool:
    """True if an attempt went beyond the steps of its predecessors, or ran for long compared with its restart."""
    return has_progressed or run_seconds >= max(_RUN_SECONDS, _RUN_RESTARTS * restart_seconds)


def backoff_seconds(restarts: int, first_seconds: float, max_seconds: float) -> float:
    """Return the delay before restart number `restarts`, from 1: doubled each time up to `max_seconds`."""
    return float(min(first_seconds * 2.0 ** max(restarts - 1, 0), max_seconds))
