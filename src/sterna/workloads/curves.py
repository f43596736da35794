"""The user's own speed-up curves, `--speedups curves.yaml`:

    resnet50: [1, 1.9, 2.7, 3.4]      # at 1, 2, 3, 4 workers
    my-model: [120, 230, 330]         # any unit: divided by the first

Curves are checked and divided by their first value; the model package makes them concave.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sterna.errors import UserError
from sterna.workloads.profiles import model_key
from sterna.workloads.text import DOCUMENT_BYTES, read_text

_LARGEST = 1e12
"""Upper bound of a speed-up; its inverse is the lower bound, so that the ratio of two stays finite."""

_WANTED = "expected a line like 'resnet50: [1, 1.9, 2.7]' for each model"


def load_speedups(path: str | Path) -> dict[str, tuple[float, ...]]:
    """Read a YAML file that maps models to speed-ups at 1, 2, 3 .. workers."""
    return check_speedups(path, _parse_yaml(path))


def check_speedups(path: str | Path, found: object) -> dict[str, tuple[float, ...]]:
    """Check a mapping of models to speed-ups and divide each curve by its first value; `path` is for messages."""
    if not isinstance(found, dict) or not found:
        raise UserError(f"{path}: found {_describe(found)}, {_WANTED}.")
    curves: dict[str, tuple[float, ...]] = {}
    spellings: dict[str, str] = {}
    for name, values in found.items():
        model = str(name)
        before = spellings.setdefault(model_key(model), model)
        if before != model:
            raise UserError(f"{path}: '{model}' and '{before}' are spellings of one model; remove one.")
        curves[model] = _normalize(path, model, values)
    return curves


def _parse_yaml(path: str | Path) -> object:
    import yaml  # imported late: most commands do not need it

    text = read_text(path, "a YAML file", DOCUMENT_BYTES)
    try:
        node = yaml.compose(text, yaml.SafeLoader)
        if isinstance(node, yaml.MappingNode):
            _reject_duplicates(path, [(str(key.value), key.start_mark.line + 1) for key, _ in node.value])
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{path}{where}: this is not YAML ({error.problem}); {_WANTED}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: this is not YAML; {_WANTED}.") from error


def _reject_duplicates(path: str | Path, models: Sequence[tuple[str, int]]) -> None:
    """Reject a model that is listed twice: YAML would silently keep the last curve."""
    line_of: dict[str, int] = {}
    for model, line in models:
        if model in line_of:
            before = f"line {line_of[model]}"
            raise UserError(f"{path}, line {line}: the model '{model}' is there already, in {before}; remove one.")
        line_of[model] = line


def _normalize(path: str | Path, model: str, values: object) -> tuple[float, ...]:
    if not isinstance(values, list) or not values:
        raise UserError(f"{path}, model '{model}': found {_describe(values)}, expected speed-ups like [1, 1.9, 2.7].")
    for workers, value in enumerate(values, 1):
        if not _is_speedup(value):
            raise UserError(
                f"{path}, model '{model}': found {_describe(value)} at {workers} "
                f"{'worker' if workers == 1 else 'workers'}, expected a number above 0."
            )
    return tuple(value / values[0] for value in values)


def _is_speedup(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 1 / _LARGEST < value < _LARGEST


def _describe(value: object) -> str:
    if value is None or value == [] or value == {}:
        return "nothing"
    return f"{str(value)[:40]!r}"
