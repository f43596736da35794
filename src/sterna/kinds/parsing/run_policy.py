"""What Kubeflow's kinds share beside their replicas: clean-up, back-off limit, deadlines, suspension.

Newer versions have it in `runPolicy`, older ones and E-DRAGON in `spec`; `runPolicy` goes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sterna.errors import UserError
from sterna.kinds.labels import GROUP
from sterna.kinds.parsed_job import CleanPods
from sterna.kinds.parsing.fields import Fields

OPERATOR = f"{GROUP}/operator"
_MOST_RETRIES = 1_000_000
_MOST_SECONDS = 1e10


class RunPolicyFields(Fields, rename="camel"):
    ignored: ClassVar[frozenset[str]] = frozenset({"schedulingPolicy", "managedBy", "suspend"})

    clean_pod_policy: str | None = None
    backoff_limit: int | None = None
    ttl_seconds_after_finished: float | None = None
    active_deadline_seconds: float | None = None
    suspend: bool | None = None
    managed_by: str | None = None
    scheduling_policy: dict[str, Any] | None = None


class SpecFields(RunPolicyFields, rename="camel"):
    """Fields of a specification that are no replicas."""

    run_policy: RunPolicyFields | None = None


@dataclass(frozen=True)
class RunPolicy:
    """The run policy of a job, with all values in range."""

    clean_pods: CleanPods = CleanPods.RUNNING
    backoff_limit: int | None = None
    """None: no limit, as Kubeflow has it."""
    ttl_seconds: float | None = None
    deadline_seconds: float | None = None
    is_suspended: bool = False


def parse_run_policy(spec: SpecFields) -> RunPolicy:
    first = spec.run_policy or spec
    clean = first.clean_pod_policy or spec.clean_pod_policy or CleanPods.RUNNING.value
    if clean not in (each.value for each in CleanPods):
        known = ", ".join(each.value for each in CleanPods)
        raise UserError(f"cleanPodPolicy is '{clean[:40]}'; write one of {known}.")
    retries = _first(first.backoff_limit, spec.backoff_limit)
    if retries is not None and not 0 <= retries <= _MOST_RETRIES:
        raise UserError(f"backoffLimit is {retries}; write a number from 0 to {_MOST_RETRIES:,}.")
    return RunPolicy(
        CleanPods(clean),
        None if retries is None else int(retries),
        _seconds("ttlSecondsAfterFinished", first.ttl_seconds_after_finished, spec.ttl_seconds_after_finished, 0.0),
        _seconds("activeDeadlineSeconds", first.active_deadline_seconds, spec.active_deadline_seconds, 1.0),
        bool(first.suspend or spec.suspend),
    )


def is_managed_by_others(spec: SpecFields) -> bool:
    """True if `managedBy` names another controller."""
    manager = (spec.run_policy.managed_by if spec.run_policy else None) or spec.managed_by
    return bool(manager) and manager != OPERATOR


def _first(value: float | None, otherwise: float | None) -> float | None:
    return otherwise if value is None else value


def _seconds(name: str, value: float | None, otherwise: float | None, least: float) -> float | None:
    seconds = _first(value, otherwise)
    if seconds is not None and not least <= seconds <= _MOST_SECONDS:
        raise UserError(f"{name} is {seconds:g}; write a number of seconds of at least {least:g}.")
    return seconds
