"""Entry points of the programs `sterna` and `kubectl-sterna`.

Everything is imported inside the `try`: a user may interrupt a command while it is still being loaded.
"""

from __future__ import annotations

_INTERRUPTED = 130


def sterna() -> int:
    """Run one command; return its exit code."""
    try:
        from sterna.cli.main import main

        return main()
    except KeyboardInterrupt:
        return _INTERRUPTED


def kubectl_sterna() -> int:
    """Run one command as a plugin of kubectl; return its exit code."""
    try:
        from sterna.cli.plugin import run

        return run()
    except KeyboardInterrupt:
        return _INTERRUPTED
