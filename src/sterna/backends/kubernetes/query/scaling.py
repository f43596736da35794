"""Other bounds for a job that is there already: the patch that says so in the words of its kind. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from sterna.errors import UserError
from sterna.kinds.labels import MAX_WORKERS, MIN_WORKERS
from sterna.kinds.objects import JobObject, Meta
from sterna.kinds.parsed_job import ParsedJob
from sterna.kinds.resource import MPI_JOBS, PODS, PYTORCH_JOBS, TF_JOBS, TRAINING_JOBS

_ELASTIC = "elasticPolicy"
_FEWEST, _MOST = "min-instances", "max-instances"


def bounds_asked(parsed_job: ParsedJob, minimum: int | None, maximum: int | None) -> tuple[int, int]:
    """What is meant where only one bound is given: the other one makes way."""
    spec = parsed_job.spec
    low = spec.minimum if minimum is None else minimum
    high = max(spec.maximum, low) if maximum is None else maximum
    if maximum is not None and minimum is None:
        low = min(low, high)
    if not 1 <= low <= high:
        raise UserError(f"{low} to {high} workers are not possible; give numbers from 1, the smaller one first.")
    return low, high


def bounds_patch(job: JobObject, parsed_job: ParsedJob, low: int, high: int) -> dict[str, Any]:
    """A merge patch that holds only for the object as it was seen. A master that needs devices is counted as a worker,
    and is not one that the object's fields count."""
    leading = len(parsed_job.leading)
    if low <= leading:
        raise UserError(f"'{job.metadata.name}' has {leading} that always run; give at least {leading + 1} workers.")
    fewest, most = low - leading, high - leading
    plural = parsed_job.ref.resource.plural
    spec = _fields(job)
    if plural == TRAINING_JOBS.plural:
        asked = min(max(parsed_job.spec.request - leading, fewest), most)
        return _patch(job.metadata, spec={"workers": {"min": fewest, "max": most, "request": asked}})
    if plural == TF_JOBS.plural and {_FEWEST, _MOST} & spec.keys():
        return _patch(job.metadata, spec={_FEWEST: fewest, _MOST: most})
    if plural == PYTORCH_JOBS.plural and isinstance(spec.get(_ELASTIC), dict):
        return _patch(job.metadata, spec={_ELASTIC: {"minReplicas": fewest, "maxReplicas": most}})
    if plural in (TF_JOBS.plural, PYTORCH_JOBS.plural, MPI_JOBS.plural):
        return _patch(job.metadata, annotations={MIN_WORKERS: str(fewest), MAX_WORKERS: str(most)})
    raise UserError(f"'{job.metadata.name}' is a {PODS.kind}, which is one worker and stays one.")


def _fields(job: JobObject) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(job.spec)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _patch(meta: Meta, spec: dict[str, Any] | None = None, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": meta.resource_version}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"metadata": metadata, **({"spec": spec} if spec is not None else {})}
