"""Flags of commands that are settings: their name, words and environment come from the tree of settings.

For commands that run in a cluster, where a chart sets the same by the environment. What a command asks for beside its
settings it declares itself.
"""

from __future__ import annotations

from typing import Any

import typer

from sterna.settings import entry


def flag(path: str, **more: Any) -> Any:
    """The flag of the setting at a path, such as `operator.lease.name`; `more` as typer takes it."""
    setting = entry(path)
    return typer.Option(
        setting.flag,
        metavar=setting.metavar or None,
        help=setting.words,
        envvar=[setting.environment, *setting.aliases],
        show_envvar=False,
        **more,
    )
