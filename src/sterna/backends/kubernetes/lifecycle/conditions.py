"""Conditions of a job: Kubeflow's, and `Scheduled`, whose reason is why the job is assigned or queued. Pure.

As in Kubeflow, a transition time changes only with the status of its condition, `Running` and `Restarting` replace
each other, and conditions are final once a job has succeeded or failed. One exception: a job that failed because its
object was invalid is judged again after a change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sterna.backends.kubernetes.lifecycle.phase import JobPhase
from sterna.model.reason import Code, Reason

Conditions = list[dict[str, Any]]

CREATED, SCHEDULED, RUNNING, RESTARTING = "Created", "Scheduled", "Running", "Restarting"
SUCCEEDED, FAILED = "Succeeded", "Failed"
INVALID = "Invalid"
"""Prefix of the reason of a failure that the user can repair."""

_LAST_SECOND = 253402300799
"""End of the year 9999, the last that RFC 3339 can express."""
_LONGEST_MESSAGE = 4096


class Subject(NamedTuple):
    """The job that conditions are about."""

    kind: str
    name: str


class Scheduling(NamedTuple):
    """Status, reason and message of the `Scheduled` condition."""

    is_assigned: bool
    code: str
    sentence: str


def conditions_of(
    old: Sequence[Mapping[str, Any]],
    subject: Subject,
    phase: JobPhase,
    sentence: str,
    scheduling: Scheduling,
    now: float,
    why: str = "",
) -> Conditions:
    """Return the new list of conditions; `sentence` is the message, `why` the reason of the end of the job."""
    if end_condition(old) is not None:
        return [dict(each) for each in old]
    kind, found = subject.kind, _without_invalid(old)
    if not any(each.get("type") == CREATED for each in found):
        found = _set(found, CREATED, True, f"{kind}Created", f"{kind} {subject.name} was created.", now)
    found = _set(found, SCHEDULED, scheduling.is_assigned, scheduling.code, scheduling.sentence, now)
    if phase.is_over:
        end = SUCCEEDED if phase is JobPhase.SUCCEEDED else FAILED
        found = _set_false(found, RUNNING, f"{kind}{end}", sentence, now)
        found = [each for each in found if each["type"] != RESTARTING]
        return _set(found, end, True, why or f"{kind}{end}", sentence, now)
    if phase is JobPhase.RUNNING:
        found = [each for each in found if each["type"] != RESTARTING]
        return _set(found, RUNNING, True, f"{kind}Running", f"{kind} {subject.name} is running.", now)
    has_run = any(each["type"] in (RUNNING, RESTARTING) for each in found)
    if phase is JobPhase.RESTARTING or (phase is JobPhase.STARTING and has_run):
        found = [each for each in found if each["type"] != RUNNING]
        return _set(found, RESTARTING, True, f"{kind}Restarting", sentence, now)
    found = [each for each in found if each["type"] != RESTARTING]
    word = "Suspended" if phase is JobPhase.SUSPENDED else "Stopped"
    return _set_false(found, RUNNING, f"{kind}{word}", sentence, now)


def invalid_conditions(old: Sequence[Mapping[str, Any]], subject: Subject, sentence: str, now: float) -> Conditions:
    """Return the conditions of an invalid object, with a reason such as `InvalidTFJobSpec`."""
    if end_condition(old) is not None:
        return [dict(each) for each in old]
    return _set([dict(each) for each in old], FAILED, True, f"{INVALID}{subject.kind}Spec", sentence, now)


def end_condition(conditions: Sequence[Mapping[str, Any]]) -> str | None:
    """Return `Succeeded` or `Failed` if the job has ended for good, else None."""
    for each in conditions:
        is_true = each.get("type") in (SUCCEEDED, FAILED) and each.get("status") == "True"
        if is_true and not str(each.get("reason", "")).startswith(INVALID):
            return str(each["type"])
    return None


def scheduling_of(is_assigned: bool, reason: Reason | None, sentence: str = "") -> Scheduling:
    """Build the `Scheduled` condition from the last reason, or from a sentence that replaces it."""
    if reason is not None and not sentence:
        return Scheduling(is_assigned, reason_word(reason.code), reason.sentence)
    usual = "has its place." if is_assigned else "waits for its turn."
    return Scheduling(is_assigned, "Scheduled" if is_assigned else "Waiting", sentence or usual)


def reason_word(code: Code) -> str:
    """Return a code in the spelling of Kubernetes reasons: `NeedsDevices`."""
    return "".join(part.title() for part in code.name.split("_"))


def format_time(seconds: float) -> str:
    """Format as `2024-05-01T12:00:00Z`."""
    return _second_text(int(min(max(seconds, 0.0), _LAST_SECOND)))


@lru_cache(maxsize=256)
def _second_text(second: int) -> str:
    """Format with a cache: a burst of status writes shares few distinct seconds."""
    return f"{datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()}Z"


def _without_invalid(old: Sequence[Mapping[str, Any]]) -> Conditions:
    return [dict(each) for each in old if not _is_invalid(each)]


def _is_invalid(condition: Mapping[str, Any]) -> bool:
    return condition.get("type") == FAILED and str(condition.get("reason", "")).startswith(INVALID)


def _set_false(conditions: Conditions, type_: str, reason: str, message: str, now: float) -> Conditions:
    """Set a condition to False if it exists."""
    if not any(each["type"] == type_ for each in conditions):
        return conditions
    return _set(conditions, type_, False, reason, message, now)


def _set(conditions: Conditions, type_: str, holds: bool, reason: str, message: str, now: float) -> Conditions:
    """Return the list with one condition set; times stay where nothing changed."""
    content = {
        "type": type_,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message[:_LONGEST_MESSAGE],
    }
    at = format_time(now)
    for place, each in enumerate(conditions):
        if each.get("type") != type_:
            continue
        if all(each.get(key) == value for key, value in content.items()):
            return conditions
        since = each.get("lastTransitionTime", at) if each.get("status") == content["status"] else at
        changed = {**content, "lastUpdateTime": at, "lastTransitionTime": since}
        return _true_last([*conditions[:place], changed, *conditions[place + 1 :]])
    return _true_last([*conditions, {**content, "lastUpdateTime": at, "lastTransitionTime": at}])


def _true_last(conditions: Conditions) -> Conditions:
    """Sort true conditions last: Kubeflow's CRDs print the last condition as the state of a job."""
    return sorted(conditions, key=lambda each: each.get("status") == "True")
