"""`sterna wait`: until a job has come so far."""

from __future__ import annotations

import math
import sys
import time
from typing import Annotated, Any

import typer

from sterna.cli.connect.client import Client, ServerUrl, State, client
from sterna.cli.render.columns import identity
from sterna.errors import UserError, did_you_mean

Names = Annotated[list[str], typer.Argument(metavar="JOB...", help="The jobs.")]
For = Annotated[str, typer.Option("--for", metavar="STATE", help="running, completed, failed, ended or deleted.")]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Give up after this; 0: never.")]

_REACHED = {
    "running": frozenset({"running"}),
    "completed": frozenset({"completed"}),
    "failed": frozenset({"failed"}),
    "ended": frozenset({"completed", "failed"}),
    "deleted": frozenset[str](),
}
_OVER = frozenset({"completed", "failed"})


def command(
    names: Names, wanted: For = "completed", timeout: Timeout = 0.0, state: State = None, server: ServerUrl = None
) -> int:
    """Wait until jobs have reached a state; exit code 1 if one cannot any more, or if the time is up.

    \b
    Examples:
      sterna wait train-1 --for=completed
      sterna wait train-1 train-2 --for=running --timeout 60
    """
    if wanted not in _REACHED:
        raise UserError(f"--for {wanted}: {did_you_mean(wanted, _REACHED)}")
    cluster = client(state, server)
    waiting = {identity(job): job for job in (cluster.get("jobs", name) for name in dict.fromkeys(names))}
    ends_at = time.monotonic() + timeout if timeout else math.inf
    failed = _settle(waiting, list(waiting.values()), wanted) or _watched(cluster, waiting, wanted, ends_at)
    if failed:
        print(f"sterna: {failed}", file=sys.stderr)
    return 1 if failed else 0


def _watched(cluster: Client, waiting: dict[str, Any], wanted: str, ends_at: float) -> str:
    """Wait for the rest; a sentence if it was in vain."""
    if not waiting:
        return ""
    for _, value in cluster.watch(until=ends_at, kind="jobs"):
        gone = [key for key in waiting if key in value["gone"]]
        failed = _settle(waiting, value["changed"], wanted) or _vanished(waiting, gone, wanted)
        if failed or not waiting:
            return failed
    if time.monotonic() >= ends_at:
        return f"{', '.join(job['name'] for job in waiting.values())} did not come so far in time."
    return "The cluster ended; start it again with: sterna up."


def _settle(waiting: dict[str, Any], changed: list[dict[str, Any]], wanted: str) -> str:
    """Strike off those that have arrived; a sentence if one never will."""
    for job in changed:
        if identity(job) not in waiting:
            continue
        if job["state"] in _REACHED[wanted]:
            del waiting[identity(job)]
        elif job["state"] in _OVER and wanted != "deleted":
            return f"{job['name']} has {job['state']}: {job['reason']}"
    return ""


def _vanished(waiting: dict[str, Any], gone: list[str], wanted: str) -> str:
    for key in gone:
        if wanted != "deleted":
            return f"{waiting[key]['name']} was deleted."
        del waiting[key]
    return ""
