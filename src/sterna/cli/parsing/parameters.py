"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

JobName = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.")]
JobNames = Annotated[list[str], typer.Argument(metavar="JOB...", help="Names of the jobs.")]
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")]
NodeNames = Annotated[list[str], typer.Argument(metavar="NODE...", help="Names of the nodes.")]
JournalFile = Annotated[str, typer.Argument(metavar="JOURNAL", help="File written with --journal.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print names only.")]
