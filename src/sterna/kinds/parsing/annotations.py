"""Annotations `sterna.dev/..` of any job: bounds, priority, progress sources, checkpoint.

For kinds whose own fields have no place for them: Kubeflow's CRDs drop E-DRAGON's `min-instances`, a plain pod has no
bounds at all. A field of the kind goes before an annotation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from sterna.errors import UserError
from sterna.kinds.labels import CHECKPOINT, GROUP, MAX_WORKERS, MIN_WORKERS
from sterna.model.job import LEAST_PRIORITY, MOST_PRIORITY, ProgressSpec
from sterna.progress.spec import MOST_STEPS, ProgressError, parse_progress, progress_fields

WORKERS = f"{GROUP}/workers"
PRIORITY = f"{GROUP}/priority"
CATEGORY = f"{GROUP}/category"
SUSPEND = f"{GROUP}/suspend"
NODE_PREFERENCE = f"{GROUP}/node-preference"
PREEMPTIBLE = f"{GROUP}/preemptible"

NO_PROGRESS = ProgressSpec()
MOST_WORKERS = 100_000
WorkerCount = Annotated[int, msgspec.Meta(ge=1, le=MOST_WORKERS)]


@dataclass(frozen=True)
class JobAnnotations:
    """Parsed annotations of one object."""

    minimum: int | None = None
    maximum: int | None = None
    workers: int | None = None
    priority: int | None = None
    category: str = ""
    node_preference: str = ""
    is_suspended: bool = False
    is_preemptible: bool = False
    progress: ProgressSpec = NO_PROGRESS
    checkpoint: str = ""


_NONE = JobAnnotations()


def parse_annotations(annotations: Mapping[str, str]) -> JobAnnotations:
    if not any(key.startswith(f"{GROUP}/") for key in annotations):
        return _NONE
    return JobAnnotations(
        minimum=_number(annotations, MIN_WORKERS, 1, MOST_WORKERS),
        maximum=_number(annotations, MAX_WORKERS, 1, MOST_WORKERS),
        workers=_number(annotations, WORKERS, 1, MOST_WORKERS),
        priority=_number(annotations, PRIORITY, LEAST_PRIORITY, MOST_PRIORITY),
        category=annotations.get(CATEGORY, ""),
        node_preference=annotations.get(NODE_PREFERENCE, ""),
        is_suspended=is_true(annotations, SUSPEND),
        is_preemptible=is_true(annotations, PREEMPTIBLE),
        progress=_progress(annotations),
        checkpoint=annotations.get(CHECKPOINT, ""),
    )


def is_true(annotations: Mapping[str, str], key: str) -> bool:
    return annotations.get(key, "").strip().lower() == "true"


def _progress(annotations: Mapping[str, str]) -> ProgressSpec:
    fields: dict[str, Any] = {}
    for name in progress_fields():
        if f"{GROUP}/{name}" in annotations:
            fields[name] = annotations[f"{GROUP}/{name}"]
    fields["total"] = _number(annotations, f"{GROUP}/total", 0, MOST_STEPS) or 0
    try:
        return parse_progress(fields)
    except ProgressError as error:
        text = str(error.value)[:40]
        raise UserError(f"The annotation {GROUP}/{error.field} is '{text}'; write {error.wanted}.") from None


def _number(annotations: Mapping[str, str], key: str, least: int, most: int) -> int | None:
    text = annotations.get(key)
    if text is None:
        return None
    digits = text.removeprefix("-") if least < 0 else text
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(most))
    number = int(text) if is_number else least - 1
    if not least <= number <= most:
        raise UserError(
            f"The annotation {key} is '{text[:40]}'; write a whole number of at least {least:,} and at most {most:,}."
        )
    return number
