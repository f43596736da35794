"""New bounds for an existing job, as a patch of its object. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from sterna.errors import UserError
from sterna.kinds.objects import JobObject
from sterna.kinds.parsed_job import ParsedJob
from sterna.kinds.registry import kind_of


def bounds_asked(parsed_job: ParsedJob, minimum: int | None, maximum: int | None) -> tuple[int, int]:
    """Both bounds; one that is not given makes way for the other."""
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
    patch = kind_of(parsed_job.ref.resource).scale_patch(parsed_job, _fields(job), fewest, most)
    metadata = {**patch.get("metadata", {}), "resourceVersion": job.metadata.resource_version}
    return {**patch, "metadata": metadata}


def _fields(job: JobObject) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(job.spec)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
