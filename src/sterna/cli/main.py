"""The `sterna` command: puts the commands together, and turns whatever goes wrong into one sentence and an exit code.

    0    done
    1    a bug of ours
    2    the input is wrong: what, where, and what to do next
    130  interrupted

To add a command, write a file with a function and list it in `_COMMANDS`. What a command needs to compute is imported
when it runs, never when this file is: `sterna --help` has to be instant.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
import typer

from sterna.cli import compare, explain, plan, policies, replay, reproduce, simulate, trace, version, whatif
from sterna.cli.usage import usage_sentence
from sterna.errors import Bug, Retry, UserError

_COMMANDS: dict[str, Callable[..., None]] = {
    "simulate": simulate.command,
    "compare": compare.command,
    "plan": plan.command,
    "policies": policies.command,
    "replay": replay.command,
    "explain": explain.command,
    "whatif": whatif.command,
    "reproduce": reproduce.command,
    "version": version.command,
}
_GROUPS = {"trace": trace.app}

app = typer.Typer(
    name="sterna",
    help="A scheduler for deep-learning training: compare policies on a trace, plan a cluster, and read why.",
    epilog="Start with: sterna compare --trace T --nodes 80x8 --policies all",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
for _name, _command in _COMMANDS.items():
    app.command(_name)(_command)
for _name, _group in _GROUPS.items():
    app.add_typer(_group, name=_name)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        version.command(as_json=False)
        raise typer.Exit


@app.callback()
def _top(
    _: bool = typer.Option(False, "--version", is_eager=True, callback=_show_version, help="Print the version."),
) -> None: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    try:
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _forget_stdout()
        return 1
    except Exception as error:
        if os.environ.get("STERNA_DEBUG"):
            raise
        return _explained(error)
    return code


def _run(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    command.context_settings["obj"] = tuple(arguments)
    code: Any = command.main(arguments, prog_name="sterna", standalone_mode=False)
    return code if isinstance(code, int) else 0


def _explained(error: Exception) -> int:
    """Say what went wrong in one sentence; the exit code for it."""
    if isinstance(error, _NEEDS_HELP):
        return _said(error.format_message(), 2, prefix="")
    if isinstance(error, click.UsageError):
        return _said(usage_sentence(error), 2)
    if isinstance(error, click.ClickException):
        return _said(" ".join(error.format_message().split()), 2)
    if isinstance(error, click.Abort):
        return 130
    if isinstance(error, UserError | Retry):
        return _said(str(error), 2)
    if isinstance(error, MemoryError):
        return _said("There is not enough memory for this; take fewer jobs (--limit) or fewer nodes.", 2)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG):
        what = error.filename or "A file"
        return _said(f"{what} could not be written: {error.strerror}; make room or choose another.", 2)
    what = str(error) if isinstance(error, Bug) else f"{type(error).__name__}: {error}"
    what = " ".join(what.split()).rstrip(".")
    return _said(f"This is a bug of Sterna, not your fault ({what}); please report it with the command you ran.", 1)


_NEEDS_HELP: tuple[type[click.UsageError], ...] = tuple(
    kind for kind in (getattr(click.exceptions, "NoArgsIsHelpError", None),) if kind is not None
)
"""Raised by newer versions of click when somebody names a group and no command of it; its message is the help."""


def _said(sentence: str, code: int, prefix: str = "sterna: ") -> int:
    print(f"{prefix}{sentence}", file=sys.stderr)
    return code


def _forget_stdout() -> None:
    """Nobody reads any more: keep the interpreter from complaining about it when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
