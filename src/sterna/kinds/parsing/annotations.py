"""What a user may say about any job by annotations `sterna.dev/..`: bounds, priority, how progress is told.

For kinds whose own fields have no place for it: Kubeflow's CRDs drop E-DRAGON's `min-instances`, a plain pod has no
bounds at all. Where a kind has a field of its own, the field goes first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sterna.errors import UserError
from sterna.kinds.labels import GROUP, MAX_WORKERS, MIN_WORKERS
from sterna.model.job import LEAST_PRIORITY, MOST_PRIORITY, ProgressSpec

WORKERS = f"{GROUP}/workers"
PRIORITY = f"{GROUP}/priority"
CATEGORY = f"{GROUP}/category"
SUSPEND = f"{GROUP}/suspend"
NODE_PREFERENCE = f"{GROUP}/node-preference"
PREEMPTIBLE = f"{GROUP}/preemptible"
TOTAL, CSV, TENSORBOARD = f"{GROUP}/total", f"{GROUP}/csv", f"{GROUP}/tensorboard"
STDOUT, METRIC, GOAL = f"{GROUP}/stdout", f"{GROUP}/metric", f"{GROUP}/goal"

NO_PROGRESS = ProgressSpec()
MOST_WORKERS = 100_000
_MOST_STEPS = 10**15


@dataclass(frozen=True)
class Wishes:
    """What the annotations of one object say."""

    minimum: int | None = None
    maximum: int | None = None
    workers: int | None = None
    priority: int | None = None
    category: str = ""
    node_preference: str = ""
    is_suspended: bool = False
    is_preemptible: bool = False
    progress: ProgressSpec = NO_PROGRESS


_NONE = Wishes()


def wishes_of(annotations: Mapping[str, str]) -> Wishes:
    if not any(key.startswith(f"{GROUP}/") for key in annotations):
        return _NONE
    return Wishes(
        minimum=_number(annotations, MIN_WORKERS, 1, MOST_WORKERS),
        maximum=_number(annotations, MAX_WORKERS, 1, MOST_WORKERS),
        workers=_number(annotations, WORKERS, 1, MOST_WORKERS),
        priority=_number(annotations, PRIORITY, LEAST_PRIORITY, MOST_PRIORITY),
        category=annotations.get(CATEGORY, ""),
        node_preference=annotations.get(NODE_PREFERENCE, ""),
        is_suspended=is_true(annotations, SUSPEND),
        is_preemptible=is_true(annotations, PREEMPTIBLE),
        progress=_progress(annotations),
    )


def is_true(annotations: Mapping[str, str], key: str) -> bool:
    return annotations.get(key, "").strip().lower() == "true"


def _progress(annotations: Mapping[str, str]) -> ProgressSpec:
    pattern, goal = annotations.get(STDOUT, ""), annotations.get(GOAL, "")
    if pattern and not _has_groups(pattern):
        raise UserError(
            f"The annotation {STDOUT} is no regular expression with named groups; write one such as "
            r"step=(?P<step>\d+)."
        )
    if goal not in ("", "min", "max"):
        raise UserError(f"The annotation {GOAL} is '{goal[:40]}'; write min or max.")
    return ProgressSpec(
        stdout=(pattern,) if pattern else (),
        csv=annotations.get(CSV, ""),
        tensorboard=annotations.get(TENSORBOARD, ""),
        metric=annotations.get(METRIC, ""),
        goal=goal,
        total=_number(annotations, TOTAL, 0, _MOST_STEPS) or 0,
    )


def _has_groups(pattern: str) -> bool:
    try:
        return bool(re.compile(pattern).groupindex)
    except (re.error, RecursionError, OverflowError):
        return False


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
