"""What positional arguments mean, put back into `--help`: newer versions of click lose it on its way from typer."""

from __future__ import annotations

import inspect
from typing import get_args

import click
from typer.models import ArgumentInfo


def explain_arguments(command: click.Command) -> None:
    """Give every argument of a command, and of all commands below it, the help that its function declares."""
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        explain_arguments(each)
    if command.callback is None:
        return
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
