"""`sterna plan`: make one decision for a cluster file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from sterna.cli.parsing.parameters import AsJson
from sterna.cli.parsing.rule_options import PlacementOption, PolicyOption

File = Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="Cluster file, YAML or JSON; - reads stdin.")]
PolicyFor = Annotated[
    list[str] | None,
    typer.Option("--policy-for", metavar="TYPE=RULE", help="Policy of one GPU type; may be given several times."),
]


def command(
    file: File,
    policy: PolicyOption,
    placement: PlacementOption = None,
    policy_for: PolicyFor = None,
    as_json: AsJson = False,
) -> None:
    """Make one decision for the cluster of a file, and print the reasons.

    The file holds `now`, `nodes` and `jobs`; times are seconds, `remaining` is seconds at one worker.

    \b
    Example of a cluster file:
      nodes:
        - {name: n1, gpus: 4, cpus: 32, memory: 128Gi, labels: {rack: r1}}
      jobs:
        - {name: a, submit: 0, min: 1, max: 4, remaining: 600, speedup: [1, 1.9, 2.7], running: {n1: 2}}
        - {name: b, submit: 5, workers: 2, remaining: 60}

    \b
    Examples:
      sterna plan -f cluster.yaml --policy elastic-fifo
      sterna plan -f cluster.yaml --policy afs-l --placement topology --json
      sterna plan -f cluster.yaml --policy elastic-fifo --policy-for nvidia-a100=srjf --policy-for t4=tiresias
    """
    from sterna.cli.parsing.documents import read_document
    from sterna.cli.render.output import show_json, show_notices
    from sterna.cli.render.tables import show_plan
    from sterna.planning import plan

    document = read_document(file)
    answer = plan(document, policy, placement, policy_for or (), source=file)
    show_notices(answer.get("notices", ()))
    if as_json:
        show_json(answer)
    else:
        show_plan(answer, _running(document))


def _running(document: Mapping[str, Any]) -> dict[str, int]:
    return {str(job["name"]).strip(): sum((job.get("running") or {}).values()) for job in document.get("jobs") or ()}
