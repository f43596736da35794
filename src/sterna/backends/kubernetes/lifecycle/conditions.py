"""The conditions of a job: Kubeflow's, with `Scheduled` beside them, which says why the job sits or waits. Pure.

The rules are DRAGON's (DRAGON-8): a condition's transition time changes only with its status, `Running` and
`Restarting` replace each other, and once a job has succeeded or failed nothing changes any more. One exception, because
people mend their manifests: a job that failed for being invalid is judged again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sterna.backends.kubernetes.lifecycle.phase import Phase
from sterna.model.reason import Code, Reason

Conditions = list[dict[str, Any]]

CREATED, SCHEDULED, RUNNING, RESTARTING = "Created", "Scheduled", "Running", "Restarting"
SUCCEEDED, FAILED = "Succeeded", "Failed"
INVALID = "Invalid"
"""How the reason of a failure begins that its user can mend."""

_LAST_SECOND = 253402300799
"""Of the year 9999, after which there is no such text."""
_LONGEST_MESSAGE = 4096


class Subject(NamedTuple):
    """Whose conditions they are."""

    kind: str
    name: str


class Scheduling(NamedTuple):
    """What `Scheduled` says."""

    is_seated: bool
    code: str
    sentence: str


def conditions_of(
    old: Sequence[Mapping[str, Any]],
    subject: Subject,
    phase: Phase,
    sentence: str,
    scheduling: Scheduling,
    now: float,
    why: str = "",
) -> Conditions:
    """The list as it shall be. `sentence` is what is said of the job, `why` the one word for its end."""
    if ending(old) is not None:
        return [dict(each) for each in old]
    kind, found = subject.kind, _without_invalid(old)
    if not any(each.get("type") == CREATED for each in found):
        found = _with(found, CREATED, True, f"{kind}Created", f"{kind} {subject.name} was created.", now)
    found = _with(found, SCHEDULED, scheduling.is_seated, scheduling.code, scheduling.sentence, now)
    if phase.is_over:
        end = SUCCEEDED if phase is Phase.SUCCEEDED else FAILED
        found = _lowered(found, RUNNING, f"{kind}{end}", sentence, now)
        found = [each for each in found if each["type"] != RESTARTING]
        return _with(found, end, True, why or f"{kind}{end}", sentence, now)
    if phase is Phase.RUNNING:
        found = [each for each in found if each["type"] != RESTARTING]
        return _with(found, RUNNING, True, f"{kind}Running", f"{kind} {subject.name} is running.", now)
    has_run = any(each["type"] in (RUNNING, RESTARTING) for each in found)
    if phase is Phase.RESTARTING or (phase is Phase.STARTING and has_run):
        found = [each for each in found if each["type"] != RUNNING]
        return _with(found, RESTARTING, True, f"{kind}Restarting", sentence, now)
    found = [each for each in found if each["type"] != RESTARTING]
    word = "Suspended" if phase is Phase.SUSPENDED else "Stopped"
    return _lowered(found, RUNNING, f"{kind}{word}", sentence, now)


def invalid_conditions(old: Sequence[Mapping[str, Any]], subject: Subject, sentence: str, now: float) -> Conditions:
    """Of an object that cannot be understood (DRAGON-2: `InvalidTFJobSpec`)."""
    if ending(old) is not None:
        return [dict(each) for each in old]
    return _with([dict(each) for each in old], FAILED, True, f"{INVALID}{subject.kind}Spec", sentence, now)


def ending(conditions: Sequence[Mapping[str, Any]]) -> str | None:
    """`Succeeded` or `Failed` if the job has ended for good."""
    for each in conditions:
        is_true = each.get("type") in (SUCCEEDED, FAILED) and each.get("status") == "True"
        if is_true and not str(each.get("reason", "")).startswith(INVALID):
            return str(each["type"])
    return None


def scheduling_of(is_seated: bool, reason: Reason | None, sentence: str = "") -> Scheduling:
    """From the reason that was decided last, or from a sentence in its place."""
    if reason is not None and not sentence:
        return Scheduling(is_seated, reason_word(reason.code), reason.sentence)
    usual = "has its place." if is_seated else "waits for its turn."
    return Scheduling(is_seated, "Scheduled" if is_seated else "Waiting", sentence or usual)


def reason_word(code: Code) -> str:
    """`NeedsDevices`: a code as Kubernetes spells reasons."""
    return "".join(part.title() for part in code.name.split("_"))


def format_time(seconds: float) -> str:
    """`2024-05-01T12:00:00Z`."""
    return _second_text(int(min(max(seconds, 0.0), _LAST_SECOND)))


@lru_cache(maxsize=256)
def _second_text(second: int) -> str:
    """The same few are asked for again and again while a burst is told of."""
    return f"{datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()}Z"


def _without_invalid(old: Sequence[Mapping[str, Any]]) -> Conditions:
    return [dict(each) for each in old if not _is_invalid(each)]


def _is_invalid(condition: Mapping[str, Any]) -> bool:
    return condition.get("type") == FAILED and str(condition.get("reason", "")).startswith(INVALID)


def _lowered(conditions: Conditions, type_: str, reason: str, message: str, now: float) -> Conditions:
    """The condition no longer holds, if it ever did."""
    if not any(each["type"] == type_ for each in conditions):
        return conditions
    return _with(conditions, type_, False, reason, message, now)


def _with(conditions: Conditions, type_: str, holds: bool, reason: str, message: str, now: float) -> Conditions:
    """The list with one condition set; times stay where nothing changed."""
    said = {
        "type": type_,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message[:_LONGEST_MESSAGE],
    }
    at = format_time(now)
    for place, each in enumerate(conditions):
        if each.get("type") != type_:
            continue
        if all(each.get(key) == value for key, value in said.items()):
            return conditions
        since = each.get("lastTransitionTime", at) if each.get("status") == said["status"] else at
        changed = {**said, "lastUpdateTime": at, "lastTransitionTime": since}
        return _holding_last([*conditions[:place], changed, *conditions[place + 1 :]])
    return _holding_last([*conditions, {**said, "lastUpdateTime": at, "lastTransitionTime": at}])


def _holding_last(conditions: Conditions) -> Conditions:
    """Kubeflow's definitions show the last condition as the state of a job."""
    return sorted(conditions, key=lambda each: each.get("status") == "True")
