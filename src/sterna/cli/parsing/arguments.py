"""What positional arguments mean, put back into `--help` and said once.

Newer versions of click lose it on its way from typer, and list the arguments themselves where it is not lost, though
typer has done so already.
"""

from __future__ import annotations

import inspect
from typing import get_args

import click
from typer.models import ArgumentInfo

_LIST_OF_CLICK = "format_arguments"
"""The method by which click 8.5 and later list arguments; earlier ones have none of that name, and none is missed."""


def explain_arguments(command: click.Command) -> None:
    """Give every argument of a command, and of all commands below it, the help that its function declares."""
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        explain_arguments(each)
    if command.callback is None:
        return
    setattr(command, _LIST_OF_CLICK, _say_nothing)  # typer has a list of its own
    declared = inspect.signature(command.callback, eval_str=True).parameters
    for parameter in command.params:
        if (
            isinstance(parameter, click.Argument)
            and not getattr(parameter, "help", None)
            and parameter.name in declared
        ):
            said = [
                each.help for each in get_args(declared[parameter.name].annotation) if isinstance(each, ArgumentInfo)
            ]
            parameter.help = next(iter(said), None)  # type: ignore[attr-defined,unused-ignore]


def _say_nothing(ctx: click.Context, formatter: click.HelpFormatter) -> None: ...
