"""`sterna create`: jobs from manifests."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from sterna.cli.connect.client import ServerUrl, State, client

File = Annotated[str, typer.Option("--filename", "-f", metavar="FILE", help="Manifests, YAML or JSON; - reads stdin.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print names only.")]


def command(file: File, quiet: Quiet = False, state: State = None, server: ServerUrl = None) -> None:
    """Create every job in a file of manifests, or none.

    TrainingJob, TFJob, MPIJob, PyTorchJob and Pod are understood. On this machine the container's command is run in
    this folder, and its image is not used; in a Kubernetes cluster the objects are created.

    \b
    Examples:
      sterna create -f job.yaml
      sterna create -f job.yaml --context lab -n team-a
      cat *.yaml | sterna create -f -
    """
    from sterna.cli.commands.cluster.submit import new_key, show_created
    from sterna.cli.connect.target import chosen
    from sterna.cli.parsing.documents import read_source
    from sterna.errors import UserError

    text = read_source(file)
    cwd = os.getcwd() if server is None else ""
    source = "stdin" if file == "-" else file
    try:
        answer = client(state, server).create(text.encode(), False, cwd, new_key())
    except UserError as error:
        raise UserError(_named(str(error), source)) from None
    answer["notices"] = [_named(notice, source) for notice in answer["notices"]]
    show_created(answer, quiet, chosen(state, server))


def _named(sentence: str, source: str) -> str:
    """The cluster knows the text, not where it came from."""
    return sentence.replace("the request", source, 1)
