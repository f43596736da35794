"""`expand_settings`: a tree of settings as options of a command.

For programs that run in a cluster, where the chart sets the same values through the environment: flag, help text,
environment variables and default come from `settings.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, TypeVar

import typer

from sterna.settings import SettingEntry, entries, make_settings

_T = TypeVar("_T")


def expand_settings(
    tree: type[_T], prefix: str, minimums: Mapping[str, float], lists: Collection[str] = ()
) -> Callable[[Callable[[_T], int]], Callable[..., int]]:
    """Return a decorator: `command(settings)` gets one option for each setting of the tree that has a flag.

    `prefix` is the tree's place among all settings, `minimums` are lower bounds, and `lists` are settings whose option
    may be given several times; paths are relative to the tree (`lease.name`).
    """
    settings = {".".join(entry.path[1:]): entry for entry in entries(tree, (prefix,)) if entry.has_flag}

    def decorate(command: Callable[[_T], int]) -> Callable[..., int]:
        def flat(**values: Any) -> int:
            chosen = {path: values[_parameter_name(path)] for path in settings}
            chosen |= {path: " ".join(chosen[path] or ()) for path in lists}
            return command(make_settings(tree, chosen))

        flat.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [_parameter(path, entry, minimums.get(path), path in lists) for path, entry in settings.items()]
        )
        flat.__doc__, flat.__name__ = command.__doc__, command.__name__
        flat.__annotations__ = {}
        return flat

    return decorate


def _parameter(path: str, entry: SettingEntry, minimum: float | None, is_list: bool) -> inspect.Parameter:
    option = typer.Option(
        entry.flag,
        metavar=entry.metavar or None,
        help=entry.words,
        envvar=[entry.environment, *entry.aliases],
        show_envvar=False,
        min=minimum,
    )
    type_: Any = list[str] | None if is_list else type(entry.default)
    return inspect.Parameter(
        _parameter_name(path),
        inspect.Parameter.KEYWORD_ONLY,
        default=None if is_list else entry.default,
        annotation=Annotated[type_, option],
    )


def _parameter_name(path: str) -> str:
    return path.replace(".", "_")
