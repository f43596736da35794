"""`sterna down`: end the cluster of this machine; what trains goes on."""

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

Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait for its end.")]
_POLL_SECONDS = 0.05


def command(timeout: Timeout = 30.0, state: StateOption = None) -> None:
    """End the cluster. Its jobs go on, and the next sterna up finds them again; delete those that should end.

    \b
    Example:
      sterna down
    """
    folder = state_folder(state)
    pid, ticks = _daemon(folder)
    if pid is None or _ticks(pid) != ticks:
        raise UserError(f"No cluster runs in {folder}; start one with: sterna up.")
    try:
        os.kill(pid, signal.SIGTERM)
    except PermissionError:
        raise UserError(f"The cluster of {folder} belongs to somebody else; only they may end it.") from None
    ends_at = time.monotonic() + timeout
    while _ticks(pid) == ticks:
        if time.monotonic() > ends_at:
            raise Retry(
                f"The cluster (process {pid}) has not ended after {timeout:g} s; look at its log, or try again."
            )
        time.sleep(_POLL_SECONDS)
    _retire(folder)
    print("Sterna has ended; training goes on, and sterna up finds it again.")


def _retire(folder: Path) -> None:
    """Let what starts replicas leave too, when the last of them has ended."""
    from sterna.backends.local.supervisor.launcher import Launcher

    Launcher(folder).retire()


def _daemon(folder: Path) -> tuple[int | None, int]:
    """The process that said that it runs here, and when it began."""
    try:
        about = json.loads((folder / "daemon.json").read_bytes())
        is_this_boot = about["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return (int(about["pid"]) if is_this_boot else None), int(about["start_ticks"])
    except PermissionError:
        raise UserError(f"You may not look into {folder}; the cluster there is somebody else's.") from None
    except (OSError, ValueError, KeyError, TypeError):
        return None, 0


def _ticks(pid: int) -> int:
    """When a process began, in the kernel's ticks; 0 if it is not there any more."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    return 0 if fields[0] in "ZX" else int(fields[19])
