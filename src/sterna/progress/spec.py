"""The `progress` of a manifest: parameters by source name, and `metric`, `goal` and `total`. Checked by the sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sterna.model.job import ProgressSpec
from sterna.progress.registry import find_source, sources_to_declare

MOST_STEPS = 10**15
_GOALS = ("", "min", "max")
OWN_FIELDS = ("goal", "metric", "total")


class ProgressError(ValueError):
    """A field that cannot be used."""

    def __init__(self, field: str, wanted: str, value: object) -> None:
        super().__init__(f"{field}: expected {wanted}")
        self.field, self.wanted, self.value = field, wanted, value


def progress_fields() -> list[str]:
    """Every field that `progress` may have."""
    return sorted([*OWN_FIELDS, *(source.name for source in sources_to_declare())])


def parse_progress(fields: Mapping[str, Any]) -> ProgressSpec:
    """Fields that are no source and none of `OWN_FIELDS` must have been refused before; they are ignored here."""
    sources: dict[str, Any] = {}
    for name, value in fields.items():
        kind = find_source(name)
        if kind is not None and value not in ("", None):
            try:
                sources[name] = kind.parse(value)
            except ValueError as error:
                raise ProgressError(name, str(error), value) from None
    metric, goal, total = fields.get("metric", ""), fields.get("goal", ""), fields.get("total", 0)
    if not isinstance(metric, str):
        raise ProgressError("metric", "text", metric)
    if goal not in _GOALS:
        raise ProgressError("goal", "min or max", goal)
    if not isinstance(total, int) or isinstance(total, bool) or not 0 <= total <= MOST_STEPS:
        raise ProgressError("total", "a whole number of at least 0", total)
    return ProgressSpec(sources, metric, goal, total)


def progress_as_fields(spec: ProgressSpec) -> dict[str, Any]:
    """The fields that `parse_progress` makes an equal specification of."""
    own = {name: value for name in OWN_FIELDS if (value := getattr(spec, name))}
    return {**spec.sources, **own}
