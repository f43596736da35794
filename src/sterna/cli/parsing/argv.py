"""The command as the user typed it, for captions."""

from __future__ import annotations

import shlex

import click


def typed() -> str:
    """`sterna` and all arguments of the command that is running; `main` leaves them in the context."""
    context = click.get_current_context(silent=True)
    arguments = context.find_root().obj if context else None
    return shlex.join(["sterna", *(arguments or ())])
