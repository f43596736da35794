"""Usage errors: one sentence about a command line that cannot be parsed.

Replaces the messages of click, which name its types ('x' is not a valid integer range) and print suggestions twice.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from sterna.errors import did_you_mean
from sterna.parse_number import is_plain

_VALUE = re.compile(r"^'?(.*?)'? is not ")

if TYPE_CHECKING:
    _Kind = click.ParamType[Any]
else:  # not subscriptable at run time in older releases of click
    _Kind = click.ParamType

_Number = click.types.IntParamType | click.types.FloatParamType


class _Plain(_Kind):
    """A number in plain digits; rejects other forms that Python parses, such as `1_0`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and not is_plain(value):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return super().convert(value, param, ctx)


class _PlainInt(_Plain, click.types.IntParamType):
    pass


class _PlainFloat(_Plain, click.types.FloatParamType):
    pass


class _PlainIntRange(_Plain, click.IntRange):
    pass


class _PlainFloatRange(_Plain, click.FloatRange):
    pass


def require_plain_numbers(command: click.Command) -> None:
    """Make every numeric option of a command and its subcommands accept plain digits only."""
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        require_plain_numbers(each)
    for parameter in command.params:
        if isinstance(parameter.type, _Number):
            parameter.type = _plain(parameter.type)


def _plain(kind: _Number) -> _Number:
    if isinstance(kind, click.IntRange):
        return _PlainIntRange(kind.min, kind.max, kind.min_open, kind.max_open, kind.clamp)
    if isinstance(kind, click.FloatRange):
        return _PlainFloatRange(kind.min, kind.max, kind.min_open, kind.max_open, kind.clamp)
    return _PlainInt() if isinstance(kind, click.types.IntParamType) else _PlainFloat()


def usage_sentence(error: click.UsageError) -> str:
    """Return a sentence about the error, and where to look."""
    command = error.ctx.command_path if error.ctx else "sterna"
    see = f"See '{command} --help'."
    wrong = _command(error) or _option(error) or _number(error)
    text = wrong or " ".join(error.format_message().split())
    return f"{text if text.endswith(('.', '?', '!')) else f'{text}.'} {see}"


def _command(error: click.UsageError) -> str:
    match = re.match(r"No such command '(.*?)'", error.message)
    group = error.ctx.command if error.ctx else None
    if not match or not isinstance(group, click.Group):
        return ""
    return f"No such command '{match[1]}'; {did_you_mean(match[1], group.commands)}"


def _option(error: click.UsageError) -> str:
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return ""
    known = [name for parameter in error.ctx.command.params for name in parameter.opts if name.startswith("--")]
    hint = did_you_mean(error.option_name, [*known, "--help"])
    return f"No such option '{error.option_name}'; {hint}" if hint.startswith("did") else ""


def _number(error: click.UsageError) -> str:
    """Return the sentence for a numeric option with another value."""
    if not isinstance(error, click.BadParameter) or error.param is None:
        return ""
    kind, found = error.param.type, _VALUE.match(error.message or "")
    if found is None or not isinstance(kind, _Number):
        return ""
    noun = "a whole number" if isinstance(kind, click.types.IntParamType) else "a number"
    least = getattr(kind, "min", None)
    shown = f"{least:,}" if isinstance(least, int) else f"{least or 0:g}"
    bound = "" if least is None else f" of at least {shown}"
    return f"{error.param.opts[0]} {found[1]}: give {noun}{bound}."
