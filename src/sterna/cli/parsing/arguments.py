"""Help texts of positional arguments.

Newer versions of click lose them on the way from typer or, where they do not, list the arguments twice.
"""

from __future__ import annotations

import inspect
from typing import get_args

import click
from typer.models import ArgumentInfo

_LIST_OF_CLICK = "format_arguments"
"""Method with which click 8.5 and later list arguments; earlier versions have none."""


def restore_argument_help(command: click.Command) -> None:
    """Give every argument of a command and its subcommands the help text that its function declares."""
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        restore_argument_help(each)
    if command.callback is None:
        return
    setattr(command, _LIST_OF_CLICK, _print_nothing)  # typer prints a list of its own
    declared = inspect.signature(command.callback, eval_str=True).parameters
    for parameter in command.params:
        if (
            isinstance(parameter, click.Argument)
            and not getattr(parameter, "help", None)
            and parameter.name in declared
        ):
            texts = [
                each.help for each in get_args(declared[parameter.name].annotation) if isinstance(each, ArgumentInfo)
            ]
            parameter.help = next(iter(texts), None)  # type: ignore[attr-defined,unused-ignore]


def _print_nothing(ctx: click.Context, formatter: click.HelpFormatter) -> None: ...
