"""Where the programs begin: `sterna`, and `kubectl-sterna` for kubectl.

Whoever interrupts a command may do so while it is still being loaded, which takes longer than some of them need. So
nothing is imported before somebody is there to catch it; all that can go wrong later is told in `main.py`.
"""

from __future__ import annotations

_INTERRUPTED = 130


def sterna() -> int:
    """Run one command; its exit code."""
    try:
        from sterna.cli.main import main

        return main()
    except KeyboardInterrupt:
        return _INTERRUPTED


def kubectl_sterna() -> int:
    """Run one command as a plugin of kubectl; its exit code."""
    try:
        from sterna.cli.plugin import run

        return run()
    except KeyboardInterrupt:
        return _INTERRUPTED
