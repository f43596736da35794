"""The user's own speed-up curves, `--speedups curves.yaml`:

    resnet50: [1, 1.9, 2.7, 3.4]      # at 1, 2, 3, 4 workers
    my-model: [120, 230, 330]         # any unit: divided by the first

Curves are checked and brought to 1 at one worker, no more: making them concave is the model package's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sterna.errors import UserError
from sterna.workloads.profiles import model_key
from sterna.workloads.text import DOCUMENT_BYTES, read_text

_LARGEST = 1e12
"""And its inverse the smallest, so that the ratio of two of them is a number, too."""

_WANTED = "expected a line like 'resnet50: [1, 1.9, 2.7]' for each model"


def load_speedups(path: str | Path) -> dict[str, tuple[float, ...]]:
    """Model to its speed-ups at 1, 2, 3 .. workers."""
    found = _parsed(path)
    if not isinstance(found, dict) or not found:
        raise UserError(f"{path}: found {_described(found)}, {_WANTED}.")
    curves: dict[str, tuple[float, ...]] = {}
    spelt: dict[str, str] = {}
    for name, values in found.items():
        model = str(name)
        before = spelt.setdefault(model_key(model), model)
        if before != model:
            raise UserError(f"{path}: '{model}' and '{before}' are spellings of one model; remove one.")
        curves[model] = _normalised(path, model, values)
    return curves


def _parsed(path: str | Path) -> object:
    import yaml  # costs more to import than the commands that do without it have in all

    text = read_text(path, "a YAML file", DOCUMENT_BYTES)
    try:
        node = yaml.compose(text, yaml.SafeLoader)
        if isinstance(node, yaml.MappingNode):
            _refuse_twice(path, [(str(key.value), key.start_mark.line + 1) for key, _ in node.value])
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{path}{where}: this is not YAML ({error.problem}); {_WANTED}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: this is not YAML; {_WANTED}.") from error


def _refuse_twice(path: str | Path, models: Sequence[tuple[str, int]]) -> None:
    """Models and their lines: of one that is there twice, a curve would be lost without a word."""
    line_of: dict[str, int] = {}
    for model, line in models:
        if model in line_of:
            before = f"line {line_of[model]}"
            raise UserError(f"{path}, line {line}: the model '{model}' is there already, in {before}; remove one.")
        line_of[model] = line


def _normalised(path: str | Path, model: str, values: object) -> tuple[float, ...]:
    if not isinstance(values, list) or not values:
        raise UserError(f"{path}, model '{model}': found {_described(values)}, expected speed-ups like [1, 1.9, 2.7].")
    for workers, value in enumerate(values, 1):
        if not _is_speedup(value):
            raise UserError(
                f"{path}, model '{model}': found {_described(value)} at {workers} "
                f"{'worker' if workers == 1 else 'workers'}, expected a number above 0."
            )
    return tuple(value / values[0] for value in values)


def _is_speedup(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 1 / _LARGEST < value < _LARGEST


def _described(value: object) -> str:
    if value is None or value == [] or value == {}:
        return "nothing"
    return f"{str(value)[:40]!r}"
