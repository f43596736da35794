"""Metrics of a user's own: a function of a `Result` that returns a number, in a file of its own or in a notebook.

    from sterna import Result, metric

    @metric("late_share")
    def late_share(result: Result) -> float:
        return float((result.times.wait > 3600).mean())

`sterna compare --metric ./mine.py` adds it to the tables and to the JSON. The function is called once per result, after
the run, in the process of the caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.errors import UserError, did_you_mean
from sterna.wiring import import_file

if TYPE_CHECKING:
    from sterna.experiments.result import Result

MetricFunction = Callable[["Result"], float | None]


@dataclass(frozen=True)
class UserMetric:
    name: str
    """Key in the JSON document, and title of its column."""
    compute: MetricFunction
    module: str


_metrics: dict[str, UserMetric] = {}


def metric(name: str) -> Callable[[MetricFunction], MetricFunction]:
    """Register a function of a result as a metric: `@metric("name")`."""

    def register(compute: MetricFunction) -> MetricFunction:
        _metrics[name] = UserMetric(name, compute, compute.__module__)
        return compute

    return register


def find_metrics(specs: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the metrics that files and names stand for; a file stands for all that it registers."""
    names: list[str] = []
    for spec in specs:
        names += _names_in(Path(spec)) if spec.endswith(".py") else [_find(spec).name]
    return tuple(dict.fromkeys(names))


def compute_metrics(result: Result, taken: Container[str]) -> dict[str, float | None]:
    """Compute the user's metrics of a result; `taken` are names that its other numbers have."""
    for name in result.scenario.metrics:
        if name in taken:
            raise UserError(f"The metric '{name}' has the name of a number that every result has; rename it.")
    return {name: _compute(name, result) for name in result.scenario.metrics}


def _compute(name: str, result: Result) -> float | None:
    """Call the function of a metric; a mistake in it is the user's error."""
    try:
        value = _metrics[name].compute(result)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"The metric '{name}' fails with {type(error).__name__}: {error}; correct it.") from None
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"The metric '{name}' returns {value!r}; it must return a finite number or None.")
    return number


def _names_in(file: Path) -> list[str]:
    if not file.is_file():
        raise UserError(f"--metric {file}: there is no such file; give a Python file that defines a metric.")
    module = import_file(file, "metric").__name__
    names = [each.name for each in _metrics.values() if each.module == module]
    if not names:
        raise UserError(f'--metric {file}: it defines no metric; decorate a function in it with @metric("name").')
    return names


def _find(name: str) -> UserMetric:
    found = _metrics.get(name)
    if found is None:
        known = did_you_mean(name, _metrics) if _metrics else "give the path of a Python file that defines it."
        raise UserError(f"--metric {name}: there is no such metric; {known}")
    return found
