"""The `sterna` command: finds the command to run, and turns errors into one sentence and an exit code.

    0    success
    1    a bug of Sterna
    2    wrong input: what, where, and what to do next
    130  interrupted

To add a command, write a module with a function and list it in `_COMMANDS`. Only the requested command is imported, and
heavy imports stay inside its function, so that help and short commands are quick.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from typing import Any

import click
import typer

from sterna.cli.connect.target import add_options
from sterna.cli.parsing.usage_errors import require_plain_numbers, usage_sentence
from sterna.errors import Bug, Retry, UserError

_COMMANDS = {
    "demo": "run.demo",
    "up": "run.up",
    "down": "run.down",
    "submit": "cluster.submit",
    "create": "cluster.create",
    "get": "cluster.get",
    "describe": "cluster.describe",
    "logs": "cluster.logs",
    "top": "cluster.top",
    "wait": "cluster.wait",
    "explain": "cluster.explain",
    "history": "cluster.history",
    "scale": "cluster.scale",
    "migrate": "cluster.migrate",
    "delete": "cluster.delete",
    "cordon": "cluster.nodes:cordon",
    "drain": "cluster.nodes:drain",
    "uncordon": "cluster.nodes:uncordon",
    "simulate": "simulation.simulate",
    "compare": "simulation.compare",
    "plan": "simulation.plan",
    "policies": "simulation.policies",
    "replay": "simulation.replay",
    "whatif": "simulation.whatif",
    "reproduce": "simulation.reproduce",
    "try-pattern": "run.try_pattern",
    "operator": "run.operator",
    "monitor": "run.monitor",
    "version": "run.version",
}
"""The module of each command and, if it is not called `command`, its function."""
GROUPS = {"policy": "cluster.policy", "trace": "simulation.trace"}
"""Modules whose `app` has subcommands."""
ALL_COMMANDS = (*_COMMANDS, *GROUPS)


def create_app(arguments: Sequence[str], offered: Collection[str] = ALL_COMMANDS) -> typer.Typer:
    """Return the application with the requested command; with all that are offered if none is requested."""
    requested = arguments[0] if arguments else ""
    app = typer.Typer(
        name="sterna",
        help="A scheduler for deep-learning training: run jobs, compare policies, explain decisions.",
        epilog="Start with: sterna up --detach, then sterna submit -- python train.py",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback()(_top)
    wanted = [requested] if requested in offered else offered
    for name, location in _COMMANDS.items():
        if name in wanted:
            module, _, function = location.partition(":")
            found = import_module(f"sterna.cli.commands.{module}")
            settings = getattr(found, "SETTINGS", None)
            app.command(name, context_settings=settings)(getattr(found, function or "command"))
    for name, module in GROUPS.items():
        if name in wanted:
            app.add_typer(import_module(f"sterna.cli.commands.{module}").app, name=name)
    return app


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from sterna.cli.commands.run import version

        version.command(as_json=False)
        raise typer.Exit


def _top(
    _: bool = typer.Option(False, "--version", is_eager=True, callback=_show_version, help="Print the version."),
) -> None: ...


def main(arguments: Sequence[str] | None = None, run: Callable[[list[str]], int] | None = None) -> int:
    """Run one command; return its exit code. `run` replaces the program (the kubectl plugin)."""
    _reopen_streams()
    try:
        code = (run or _run)(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _detach_stdout()
        return 1
    except Exception as error:
        if os.environ.get("STERNA_DEBUG"):
            raise
        return _report_error(error)
    return code


def _run(arguments: list[str]) -> int:
    return run_as("sterna", ALL_COMMANDS, arguments)


def run_as(program: str, offered: Collection[str], arguments: list[str]) -> int:
    """Run one of the commands that a program offers."""
    command = typer.main.get_command(create_app(arguments, offered))
    add_options(command)
    require_plain_numbers(command)
    if {"-h", "--help"} & set(arguments):
        from sterna.cli.parsing.arguments import restore_argument_help

        restore_argument_help(command)
    command.context_settings["obj"] = tuple(arguments)
    code: Any = command.main(arguments, prog_name=program, standalone_mode=False)
    return code if isinstance(code, int) else 0


def _report_error(error: Exception) -> int:
    """Print what went wrong in one sentence; return the exit code."""
    if isinstance(error, _HELP_ERRORS):
        return _print_error(error.format_message(), 2, prefix="")
    if isinstance(error, click.UsageError):
        return _print_error(usage_sentence(error), 2)
    if isinstance(error, click.ClickException):
        return _print_error(" ".join(error.format_message().split()), 2)
    if isinstance(error, click.Abort):
        return 130
    if isinstance(error, UserError | Retry):
        return _print_error(str(error), 2)
    if isinstance(error, MemoryError):
        return _print_error("There is not enough memory for this; take fewer jobs (--limit) or fewer nodes.", 2)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG):
        return _print_error(
            f"{_unwritable_name(error)} could not be written: {error.strerror}; make room or choose another.", 2
        )
    what = str(error) if isinstance(error, Bug) else f"{type(error).__name__}: {error}"
    what = " ".join(what.split()).rstrip(".")
    return _print_error(
        f"This is a bug of Sterna, not your fault ({what}); please report it with the command you ran.", 1
    )


_HELP_ERRORS: tuple[type[click.UsageError], ...] = tuple(
    kind for kind in (getattr(click.exceptions, "NoArgsIsHelpError", None),) if kind is not None
)
"""Raised by newer versions of click for a group without a subcommand; the message is the help."""


def _print_error(sentence: str, code: int, prefix: str = "sterna: ") -> int:
    print(f"{prefix}{sentence}", file=sys.stderr)
    return code


def _reopen_streams() -> None:
    """Replace standard streams that the shell has closed (`>&-`) by the null device."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (open until the program ends)


def _unwritable_name(error: OSError) -> str:
    """Return the name of the file that could not be written; an error does not name the standard output."""
    if error.filename:
        return str(error.filename)
    try:
        print(flush=True)
    except OSError:
        return "The standard output"
    return "A file"


def _detach_stdout() -> None:
    """Keep the interpreter from flushing a closed pipe when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
