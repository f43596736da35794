"""`sterna down`: end the cluster of this machine; training continues."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from sterna.cli.connect.cluster import StateOption, state_folder
from sterna.errors import Retry, UserError

Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Timeout of the wait for its end.")]
_POLL_SECONDS = 0.05


def command(timeout: Timeout = 30.0, state: StateOption = None) -> None:
    """End the cluster. Its jobs continue, and the next sterna up adopts them; delete those that should end.

    \b
    Example:
      sterna down
    """
    folder = state_folder(state)
    pid, ticks = _find_daemon(folder)
    if pid is None or _start_ticks(pid) != ticks:
        raise UserError(f"No cluster runs in {folder}; start one with: sterna up.")
    try:
        os.kill(pid, signal.SIGTERM)
    except PermissionError:
        raise UserError(f"The cluster of {folder} belongs to somebody else; only they may end it.") from None
    ends_at = time.monotonic() + timeout
    while _start_ticks(pid) == ticks:
        if time.monotonic() > ends_at:
            raise Retry(
                f"The cluster (process {pid}) has not ended after {timeout:g} s; look at its log, or try again."
            )
        time.sleep(_POLL_SECONDS)
    _retire_launcher(folder)
    print("Sterna has ended; training goes on, and sterna up finds it again.")


def _retire_launcher(folder: Path) -> None:
    """Let the process that starts replicas exit when the last of them has ended."""
    from sterna.backends.local.supervisor.launcher import Launcher

    Launcher(folder).retire()


def _find_daemon(folder: Path) -> tuple[int | None, int]:
    """Return the process id of the daemon, and its start time in the kernel's ticks."""
    try:
        about = json.loads((folder / "daemon.json").read_bytes())
        is_this_boot = about["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return (int(about["pid"]) if is_this_boot else None), int(about["start_ticks"])
    except PermissionError:
        raise UserError(f"You may not look into {folder}; the cluster there is somebody else's.") from None
    except (OSError, ValueError, KeyError, TypeError):
        return None, 0


def _start_ticks(pid: int) -> int:
    """Return the start time of a process in the kernel's ticks; 0 if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    return 0 if fields[0] in "ZX" else int(fields[19])
