"""What Kubeflow's kinds share beside their replicas: clean-up, back-off, deadlines, suspension.

Newer versions have it in `runPolicy`, older ones and E-DRAGON in `spec`; what `runPolicy` says goes first.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from sterna.errors import UserError
from sterna.kinds.labels import GROUP
from sterna.kinds.parsed_job import CleanPods

OPERATOR = f"{GROUP}/operator"
_MOST_TRIES = 1_000_000
_LONGEST_SECONDS = 1e10


class RunPolicyFields(msgspec.Struct, rename="camel"):
    clean_pod_policy: str | None = None
    backoff_limit: int | None = None
    ttl_seconds_after_finished: float | None = None
    active_deadline_seconds: float | None = None
    suspend: bool | None = None
    managed_by: str | None = None


class SpecFields(RunPolicyFields, rename="camel"):
    """The fields of a specification that are not replicas."""

    run_policy: RunPolicyFields | None = None


@dataclass(frozen=True)
class RunPolicy:
    """The same, checked."""

    clean_pods: CleanPods = CleanPods.RUNNING
    backoff_limit: int | None = None
    """None: as often as it takes, as Kubeflow has it (DRAGON-43)."""
    ttl_seconds: float | None = None
    deadline_seconds: float | None = None
    is_suspended: bool = False


def run_policy_of(spec: SpecFields) -> RunPolicy:
    first = spec.run_policy or spec
    clean = first.clean_pod_policy or spec.clean_pod_policy or CleanPods.RUNNING.value
    if clean not in (each.value for each in CleanPods):
        known = ", ".join(each.value for each in CleanPods)
        raise UserError(f"cleanPodPolicy is '{clean[:40]}'; write one of {known}.")
    tries = _first(first.backoff_limit, spec.backoff_limit)
    if tries is not None and not 0 <= tries <= _MOST_TRIES:
        raise UserError(f"backoffLimit is {tries}; write a number from 0 to {_MOST_TRIES:,}.")
    return RunPolicy(
        CleanPods(clean),
        None if tries is None else int(tries),
        _seconds("ttlSecondsAfterFinished", first.ttl_seconds_after_finished, spec.ttl_seconds_after_finished, 0.0),
        _seconds("activeDeadlineSeconds", first.active_deadline_seconds, spec.active_deadline_seconds, 1.0),
        bool(first.suspend or spec.suspend),
    )


def is_managed_by_others(spec: SpecFields) -> bool:
    """Whether the object says that somebody else looks after it."""
    manager = (spec.run_policy.managed_by if spec.run_policy else None) or spec.managed_by
    return bool(manager) and manager != OPERATOR


def _first(value: float | None, otherwise: float | None) -> float | None:
    return otherwise if value is None else value


def _seconds(name: str, value: float | None, otherwise: float | None, least: float) -> float | None:
    seconds = _first(value, otherwise)
    if seconds is not None and not least <= seconds <= _LONGEST_SECONDS:
        raise UserError(f"{name} is {seconds:g}; write a number of seconds of at least {least:g}.")
    return seconds
