"""`sterna logs`: what a job printed."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from sterna.cli.connect.client import Client, ServerUrl, State, client

Name = Annotated[str, typer.Argument(metavar="JOB", help="The job.")]
Replica = Annotated[str, typer.Option("--replica", "-r", metavar="TYPE-N", help="One replica.  [default: the first]")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")]
Tail = Annotated[int, typer.Option("--tail", metavar="LINES", min=-1, help="Only the last lines; -1: all.")]

_POLL_SECONDS = 0.3
_BYTES_PER_LINE = 400
"""More than a line usually has; if it was too little, more is fetched."""


def command(
    name: Name,
    replica: Replica = "",
    follow: Follow = False,
    tail: Tail = -1,
    state: State = None,
    server: ServerUrl = None,
) -> None:
    """Print what a replica of a job wrote to stdout and stderr.

    \b
    Examples:
      sterna logs train-1
      sterna logs -f train-1 --replica worker-1 --tail 20
      sterna logs train-1 --context lab
    """
    cluster = client(state, server)
    if tail >= 0:
        text, end = _last_lines(cluster, name, replica, tail)
        _write(text)
    else:
        end = _rest(cluster, name, replica, 0)
    while follow:
        is_over = cluster.get("jobs", name)["state"] in ("completed", "failed")
        end = _rest(cluster, name, replica, end)
        if is_over:
            return
        time.sleep(_POLL_SECONDS)


def _rest(cluster: Client, name: str, replica: str, start: int) -> int:
    """Print everything from a byte on; where it ended."""
    while True:
        text, end = cluster.log(name, replica, start)
        _write(text)
        if not text:
            # A log that was begun anew is shorter than what was read of the last one.
            return min(end, start) if end else start
        start = end


def _last_lines(cluster: Client, name: str, replica: str, count: int) -> tuple[bytes, int]:
    size = max(1, count) * _BYTES_PER_LINE
    while True:
        text, end = cluster.log(name, replica, -size)
        lines = text.splitlines(keepends=True)
        if len(lines) > count or len(text) < size or size >= 1 << 20:
            return b"".join(lines[-count:] if count else []), end
        size *= 4


def _write(text: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()
