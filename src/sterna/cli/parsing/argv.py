"""The command line of the running command, for captions."""

from __future__ import annotations

import shlex

import click


def command_line() -> str:
    """Return `sterna` with its arguments, which `main` stores in the context."""
    context = click.get_current_context(silent=True)
    arguments = context.find_root().obj if context else None
    return shlex.join(["sterna", *(arguments or ())])
