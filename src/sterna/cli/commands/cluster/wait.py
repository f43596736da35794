"""`sterna wait`: wait until jobs reach a state."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.connect.cluster import ClusterOptions
from sterna.cli.parsing.expand import expand_options
from sterna.cli.parsing.parameters import JobNames
from sterna.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from sterna.service.cluster_service import ClusterService
    from sterna.service.views import JobView

For = Annotated[str, typer.Option("--for", metavar="STATE", help="running, completed, failed, ended or deleted.")]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Give up after this; 0: never.")]

_REACHED = {
    "running": frozenset({"running"}),
    "completed": frozenset({"completed"}),
    "failed": frozenset({"failed"}),
    "ended": frozenset({"completed", "failed"}),
    "deleted": frozenset[str](),
}
_ENDED = frozenset({"completed", "failed"})


@expand_options
def command(names: JobNames, cluster: ClusterOptions, wanted: For = "completed", timeout: Timeout = 0.0) -> int:
    """Wait until jobs have reached a state; exit code 1 if one no longer can, or after the timeout.

    \b
    Examples:
      sterna wait train-1 --for=completed
      sterna wait train-1 train-2 --for=running --timeout 60
    """
    if wanted not in _REACHED:
        raise UserError(f"--for {wanted}: {did_you_mean(wanted, _REACHED)}")
    service = cluster.connect()
    pending = {job.identity: job for job in (service.job(name) for name in dict.fromkeys(names))}
    ends_at = time.monotonic() + timeout if timeout else math.inf
    failure = _remove_reached(pending, list(pending.values()), wanted) or _watch(service, pending, wanted, ends_at)
    if failure:
        print(f"sterna: {failure}", file=sys.stderr)
    return 1 if failure else 0


def _watch(service: ClusterService, pending: dict[str, JobView], wanted: str, ends_at: float) -> str:
    """Wait for the pending jobs; return a sentence if one did not reach the state."""
    from sterna.service.updates import JobsUpdate

    if not pending:
        return ""
    for update in service.watch(("jobs",), ends_at):
        if not isinstance(update, JobsUpdate):
            continue
        gone = [identity for identity in pending if identity in update.gone]
        failure = _remove_reached(pending, update.changed, wanted) or _remove_gone(pending, gone, wanted)
        if failure or not pending:
            return failure
    if time.monotonic() >= ends_at:
        return f"{', '.join(job.name for job in pending.values())} did not come so far in time."
    return "The cluster ended; start it again with: sterna up."


def _remove_reached(pending: dict[str, JobView], changed: Sequence[JobView], wanted: str) -> str:
    """Remove jobs that have reached the state; return a sentence if one never will."""
    for job in changed:
        if job.identity not in pending:
            continue
        if job.state in _REACHED[wanted]:
            del pending[job.identity]
        elif job.state in _ENDED and wanted != "deleted":
            return f"{job.name} has {job.state}: {job.reason}"
    return ""


def _remove_gone(pending: dict[str, JobView], gone: Sequence[str], wanted: str) -> str:
    for identity in gone:
        if wanted != "deleted":
            return f"{pending[identity].name} was deleted."
        del pending[identity]
    return ""
