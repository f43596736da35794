"""Failures in words: exit codes, back-off and crash loops, the same for every backend and command."""

from __future__ import annotations

import time

from sterna.control.job_state import JobState
from sterna.model.formatting import format_count

CRASH_LOOP = 3
"""Failures in a row, none of them after a good run, that are called a crash loop."""

_MEANINGS = {
    1: "an error of the program",
    2: "wrong usage, or a file that does not exist",
    126: "the command cannot be executed",
    127: "command not found",
    130: "interrupted",
    132: "illegal instruction",
    134: "aborted",
    135: "bus error, often because shared memory ran out",
    136: "arithmetic error",
    137: "killed, often because memory ran out",
    139: "segmentation fault",
    143: "ended by SIGTERM",
}


def describe_exit(code: int | None) -> str:
    """Return an exit code with its usual meaning; None: the exit was not recorded."""
    if code is None:
        return "an exit that was not recorded"
    meaning = _MEANINGS.get(code) or (f"ended by signal {code - 128}" if 128 < code < 160 else "")
    return f"exit code {code}" + (f" ({meaning})" if meaning else "")


def clock_time(at: float, now: float) -> str:
    """Return the local time of day, with the date where that is not the date of `now`."""
    then, today = time.localtime(at), time.localtime(now)
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d %H:%M:%S", then)


def describe_failures(state: JobState) -> str:
    """Return how often a job failed in a row and how it failed last."""
    how = describe_exit(state.exit_code)
    if state.failures <= 1:
        return how
    times = f"{format_count(state.failures, 'failure')} in a row, the last one with {how}"
    return times if state.failures < CRASH_LOOP else f"{times}, a crash loop"


def backoff_sentence(state: JobState, now: float) -> str:
    """Return why a job that failed waits until `not_before`."""
    advice = "; look into its log" if state.failures >= CRASH_LOOP else ""
    place = " and keeps its place in the queue" if state.ran_well else ""
    until = clock_time(state.not_before, now)
    return f"waits: back-off until {until} after {describe_failures(state)}{place}{advice}."


def free_capacity_sentence(state: JobState, sentence: str) -> str:
    """Return the reason of a waiting job, with the limit that its failures put on it."""
    if state.may_preempt or not sentence.startswith("waits: "):
        return sentence
    return f"{sentence.removesuffix('.')}; after {describe_failures(state)} it starts on free capacity only."
