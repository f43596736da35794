"""`expand_options`: dataclasses of options as parameters of commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints


def expand_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with one option for each field of its parameters that are dataclasses."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type, list[str]]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if is_dataclass(parameter.annotation) and isinstance(parameter.annotation, type):
            options = _options_of(parameter.annotation)
            groups[parameter.name] = parameter.annotation, [option.name for option in options]
            parameters += options
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def flat(**values: Any) -> Any:
        for name, (type_, names) in groups.items():
            values[name] = type_(**{each: values.pop(each) for each in names})
        return command(**values)

    required = [each for each in parameters if each.default is inspect.Parameter.empty]
    optional = [each for each in parameters if each.default is not inspect.Parameter.empty]
    flat.__signature__ = inspect.Signature([*required, *optional])  # type: ignore[attr-defined]
    flat.__doc__, flat.__name__ = command.__doc__, command.__name__
    flat.__annotations__ = {}
    return flat


def _options_of(type_: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(type_, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(type_)
    ]
