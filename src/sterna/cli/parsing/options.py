"""Options that commands share, and the scenario that they describe.

`expanded` lets a command take a whole dataclass of options as one argument, so that two commands cannot drift apart.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.errors import UserError

if TYPE_CHECKING:
    from sterna.experiments.scenario import Scenario

Placement = Annotated[
    str | None, typer.Option("--placement", help="Which node for each worker.  [default: stay; with dragon: pack]")
]


def one_policy(text: str | None) -> str | None:
    """Where one policy is asked for, a list is a mistake that has a command of its own."""
    if text is not None and ("," in text or text.strip() == "all") and not text.endswith(".py"):
        raise UserError(
            f"--policy {text}: one policy is run at a time; to see several side by side use sterna compare --policies "
            f"{text}."
        )
    return text


PolicyOption = Annotated[
    str,
    typer.Option("--policy", callback=one_policy, help="name or name:key=value:key=value; see `sterna policies`."),
]
ReportFile = Annotated[str | None, typer.Option("--report", metavar="FILE", help="Write a self-contained HTML page.")]
Elastic = Annotated[
    str | None,
    typer.Option("--elastic", metavar="MIN:MAX", help="Jobs may have MIN to MAX times what they ask for: 1x:4x."),
]


@dataclass(frozen=True)
class ScenarioOptions:
    """Everything about a simulation but the policy."""

    trace: Annotated[str, typer.Option("--trace", metavar="FILE", help="The jobs: CSV or JSON, may be gzipped.")]
    nodes: Annotated[str, typer.Option("--nodes", metavar="COUNTxDEVICES", help="The cluster: 80x8, or 10x8,5x4.")]
    placement: Placement = None
    format: Annotated[str | None, typer.Option("--format", help="The trace's format.  [default: detected]")] = None
    vc: Annotated[str | None, typer.Option("--vc", metavar="NAME", help="Only jobs of this virtual cluster.")] = None
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", help="Only the first N jobs.")] = None
    elastic: Elastic = None
    speedups: Annotated[str | None, typer.Option("--speedups", metavar="FILE", help="Speed-ups by model, YAML.")] = None
    restart_cost: Annotated[
        float, typer.Option("--restart-cost", metavar="SECONDS", help="Lost at every start, move and resize.")
    ] = 0.0
    rescale_cost: Annotated[
        float | None, typer.Option("--rescale-cost", metavar="SECONDS", help="Lost at a resize.  [default: a restart]")
    ] = None
    lost_work: Annotated[
        float, typer.Option("--lost-work", metavar="SECONDS", help="Work thrown away at every stop, at most.")
    ] = 0.0
    cross_node_penalty: Annotated[
        float, typer.Option("--cross-node-penalty", metavar="SHARE", help="Speed lost across nodes, and across racks.")
    ] = 0.0
    racks: Annotated[int, typer.Option("--racks", metavar="N", help="Racks that the nodes are spread over.")] = 1
    fail: Annotated[
        list[str] | None,
        typer.Option(
            "--fail", metavar="NODE@SECONDS+SECONDS", help="Lose a node, and for how long; without + for ever."
        ),
    ] = None
    mtbf: Annotated[
        float | None, typer.Option("--mtbf", metavar="SECONDS", help="Mean time between random faults of each node.")
    ] = None
    mttr: Annotated[float | None, typer.Option("--mttr", metavar="SECONDS", help="Their length.  [default: 600]")] = (
        None
    )
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of random faults and of noisy knowledge.")] = 0
    knowledge: Annotated[
        str,
        typer.Option(
            "--knowledge",
            metavar="true|learned|noisy:SIGMA",
            help="What policies know of jobs: all, what was learned so far, or wrong by about SIGMA (0.3: 30 %).",
        ),
    ] = "true"


def scenario_of(options: ScenarioOptions) -> Scenario:
    """Build the scenario that the options describe."""
    from sterna.experiments.cluster import make_nodes
    from sterna.experiments.options import make_scenario

    values = {field.name: getattr(options, field.name) for field in fields(options)}
    nodes = make_nodes(values.pop("nodes"), values.pop("racks"))
    return make_scenario(nodes=nodes, **values | {"fail": options.fail or ()})
