"""Options of simulations, and the scenario that they describe."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.parsing.rule_options import PlacementOption

if TYPE_CHECKING:
    from sterna.experiments.scenario import Scenario

ReportFile = Annotated[str | None, typer.Option("--report", metavar="FILE", help="Write a self-contained HTML page.")]
Elastic = Annotated[
    str | None,
    typer.Option("--elastic", metavar="MIN:MAX", help="Bounds of a job's workers, as multiples of its request: 1x:4x."),
]


@dataclass(frozen=True)
class ScenarioOptions:
    """The options of a simulation beside its policy."""

    trace: Annotated[str, typer.Option("--trace", metavar="FILE", help="Trace of jobs, CSV or JSON, may be gzipped.")]
    nodes: Annotated[
        str, typer.Option("--nodes", metavar="COUNTxDEVICES", help="Nodes of the cluster: 80x8, or 10x8,5x4.")
    ]
    placement: PlacementOption = None
    format: Annotated[str | None, typer.Option("--format", help="Format of the trace.  [default: detected]")] = None
    vc: Annotated[str | None, typer.Option("--vc", metavar="NAME", help="Only jobs of this virtual cluster.")] = None
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", help="Only the first N jobs.")] = None
    elastic: Elastic = None
    speedups: Annotated[str | None, typer.Option("--speedups", metavar="FILE", help="Speed-ups by model, YAML.")] = None
    speedup: Annotated[
        str,
        typer.Option(
            "--speedup",
            metavar="profiles|linear|power:EXPONENT",
            help="Speed-up of jobs whose model has no curve: measured profiles drawn at random, n, or n^EXPONENT.",
        ),
    ] = "profiles"
    restart_cost: Annotated[
        float, typer.Option("--restart-cost", metavar="SECONDS", help="Time lost at every start, move and resize.")
    ] = 0.0
    rescale_cost: Annotated[
        float | None,
        typer.Option("--rescale-cost", metavar="SECONDS", help="Time lost at a resize.  [default: --restart-cost]"),
    ] = None
    checkpoint_every: Annotated[
        float,
        typer.Option(
            "--checkpoint-every",
            metavar="SECONDS",
            help="Run time between two checkpoints; a stop loses the work since the last.  [default: saved at a stop]",
            show_default=False,
        ),
    ] = 0.0
    can_save: Annotated[
        float, typer.Option("--can-save", metavar="SHARE", help="Share of jobs that can save, from 0 to 1.")
    ] = 1.0
    cross_node_penalty: Annotated[
        float,
        typer.Option(
            "--cross-node-penalty", metavar="FRACTION", help="Speed lost across nodes, and again across racks."
        ),
    ] = 0.0
    requested_time: Annotated[
        float | None,
        typer.Option(
            "--requested-time",
            metavar="FACTOR",
            help="Requested run time of jobs without one, for easy and conservative: FACTOR times the duration.",
        ),
    ] = None
    racks: Annotated[int, typer.Option("--racks", metavar="N", help="Number of racks.")] = 1
    fail: Annotated[
        list[str] | None,
        typer.Option(
            "--fail", metavar="NODE@SECONDS+SECONDS", help="Failure of a node and its length; without +, for ever."
        ),
    ] = None
    mtbf: Annotated[
        float | None, typer.Option("--mtbf", metavar="SECONDS", help="Mean time between random failures of each node.")
    ] = None
    mttr: Annotated[
        float | None, typer.Option("--mttr", metavar="SECONDS", help="Length of random failures.  [default: 600]")
    ] = None
    seed: Annotated[
        int,
        typer.Option("--seed", metavar="N", help="Seed of random failures, of noisy estimates and of drawn profiles."),
    ] = 0
    knowledge: Annotated[
        str,
        typer.Option(
            "--knowledge",
            metavar="true|learned|noisy:SIGMA",
            help="Estimates that policies get: exact, learned from ended jobs, or with noise SIGMA (0.3: 30 %).",
        ),
    ] = "true"
    known_ends: Annotated[
        bool,
        typer.Option("--known-ends", help="Tell policies when failed and killed jobs will end, not the planned end."),
    ] = False
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="FILE", help="Python file with a metric of your own; may be repeated."),
    ] = None


def scenario_of(options: ScenarioOptions) -> Scenario:
    """Build the scenario that the options describe."""
    from sterna.experiments.cluster import make_nodes
    from sterna.experiments.options import make_scenario

    values = {field.name: getattr(options, field.name) for field in fields(options)}
    metrics = values.pop("metric") or ()
    nodes = make_nodes(values.pop("nodes"), values.pop("racks"))
    return make_scenario(nodes=nodes, **values | {"fail": options.fail or (), "metrics": metrics})
