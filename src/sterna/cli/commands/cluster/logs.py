"""`sterna logs`: print the output of a job."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.connect.cluster import ClusterOptions
from sterna.cli.parsing.expand import expand_options
from sterna.cli.parsing.parameters import JobName

if TYPE_CHECKING:
    from sterna.service.cluster_service import ClusterService

Replica = Annotated[str, typer.Option("--replica", "-r", metavar="TYPE-N", help="One replica.  [default: the first]")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Print new output until the job ends.")]
Tail = Annotated[int, typer.Option("--tail", metavar="LINES", min=-1, help="Only the last lines; -1: all.")]

_POLL_SECONDS = 0.3
_BYTES_PER_LINE = 400
"""Longer than most lines; if the part read is too short, a longer one is fetched."""


@expand_options
def command(
    name: JobName, cluster: ClusterOptions, replica: Replica = "", follow: Follow = False, tail: Tail = -1
) -> None:
    """Print what a replica of a job wrote to stdout and stderr.

    \b
    Examples:
      sterna logs train-1
      sterna logs -f train-1 --replica worker-1 --tail 20
      sterna logs train-1 --context lab
    """
    service = cluster.connect()
    if tail >= 0:
        text, end = _last_lines(service, name, replica, tail)
        _write(text)
    else:
        end = _print_from(service, name, replica, 0)
    while follow:
        has_ended = service.job(name).state in ("completed", "failed")
        end = _print_from(service, name, replica, end)
        if has_ended:
            return
        time.sleep(_POLL_SECONDS)


def _print_from(service: ClusterService, name: str, replica: str, start: int) -> int:
    """Print the output from an offset on; return the offset of its end."""
    while True:
        text, end = service.log(name, replica, start)
        _write(text)
        if not text:
            # The log of a new attempt may be shorter than what was read of the last one.
            return min(end, start) if end else start
        start = end


def _last_lines(service: ClusterService, name: str, replica: str, count: int) -> tuple[bytes, int]:
    size = max(1, count) * _BYTES_PER_LINE
    while True:
        text, end = service.log(name, replica, -size)
        lines = text.splitlines(keepends=True)
        if len(lines) > count or len(text) < size or size >= 1 << 20:
            return b"".join(lines[-count:] if count else []), end
        size *= 4


def _write(text: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()
