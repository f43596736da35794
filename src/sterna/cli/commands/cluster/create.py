"""`sterna create`: create jobs from manifests."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from sterna.cli.connect.cluster import ClusterOptions
from sterna.cli.parsing.expand import expand_options
from sterna.cli.parsing.parameters import Quiet

File = Annotated[str, typer.Option("--filename", "-f", metavar="FILE", help="Manifests, YAML or JSON; - reads stdin.")]


@expand_options
def command(file: File, cluster: ClusterOptions, quiet: Quiet = False) -> None:
    """Create every job in a file of manifests, or none.

    TrainingJob, TFJob, MPIJob, PyTorchJob and Pod are understood. A local cluster runs the container's command in this
    folder and does not use its image; in a Kubernetes cluster the objects are created.

    \b
    Examples:
      sterna create -f job.yaml
      sterna create -f job.yaml --context lab -n team-a
      cat *.yaml | sterna create -f -
    """
    from sterna.cli.commands.cluster.submit import new_key, show_submitted
    from sterna.cli.parsing.documents import read_source
    from sterna.errors import UserError
    from sterna.service.requests import Submission

    text = read_source(file)
    source = "stdin" if file == "-" else file
    cwd = os.getcwd() if cluster.server is None else ""
    try:
        submitted = cluster.connect().submit(Submission(text.encode(), False, cwd, new_key()))
    except UserError as error:
        raise UserError(_with_source(str(error), source)) from None
    submitted.notices = [_with_source(notice, source) for notice in submitted.notices]
    show_submitted(submitted, quiet, cluster.kubernetes)


def _with_source(sentence: str, source: str) -> str:
    """Put the file's name in: the cluster knows the text, not where it came from."""
    return sentence.replace("the request", source, 1)
