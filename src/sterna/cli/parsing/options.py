"""Options that commands share, and the scenario that they describe.

`expanded` lets a command take a whole dataclass of options as one argument, so that two commands cannot drift apart.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from sterna.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from sterna.backends.simulated.costs import Costs, Fault
    from sterna.experiments.scenario import Scenario
    from sterna.model.cluster import Nodes
    from sterna.workloads.trace import Trace

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
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


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is a dataclass of options, with an option for each of its fields."""
    first, *rest = inspect.signature(command, eval_str=True).parameters.values()
    hints = get_type_hints(first.annotation, include_extras=True)
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(first.annotation)
    ]

    def flat(**values: Any) -> None:
        own = {option.name: values.pop(option.name) for option in options}
        command(first.annotation(**own), **values)

    others = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in rest]
    required = [each for each in (*options, *others) if each.default is inspect.Parameter.empty]
    optional = [each for each in (*options, *others) if each.default is not inspect.Parameter.empty]
    flat.__signature__ = inspect.Signature([*required, *optional])  # type: ignore[attr-defined]
    flat.__doc__, flat.__name__ = command.__doc__, command.__name__
    flat.__annotations__ = {}
    return flat


def scenario_of(options: ScenarioOptions) -> Scenario:
    """What the options describe; cheap checks come before the trace is read."""
    from sterna.backends.simulated.knowledge import knowledge_of
    from sterna.backends.simulated.nodes import simulated_nodes
    from sterna.experiments.scenario import Scenario
    from sterna.settings import is_count_only
    from sterna.wiring import make_placement

    knowledge = knowledge_of(options.knowledge)
    if options.racks < 1:
        raise UserError(f"--racks {options.racks}: give at least one rack.")
    nodes = simulated_nodes(options.nodes, options.racks)
    if options.racks > len(nodes):
        raise UserError(
            f"--racks {options.racks}: --nodes {options.nodes} has too few nodes for so many racks; give at most "
            f"{len(nodes)}."
        )
    if options.placement is not None:
        make_placement(options.placement)
        if is_count_only(options.placement) and (options.fail or options.mtbf is not None):
            raise UserError(
                "--placement none only counts devices, so no job sits on a node that fails: choose another."
            )
    costs = _costs(options)
    if options.seed < 0:
        raise UserError(f"--seed {options.seed}: a seed is a whole number of at least 0.")
    trace = _trace(options)
    return Scenario(
        trace,
        nodes,
        options.placement,
        costs,
        _faults(options, trace, nodes),
        _speedups(options.speedups),
        options.seed,
        knowledge,
    )


def elastic_of(text: str) -> tuple[float, float]:
    """The two multiples of `1x:4x`."""
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)x?\s*:\s*(\d+\.?\d*|\.\d+)x?\s*", text, re.ASCII)
    if not match:
        raise UserError(f"--elastic {text}: write the fewest and the most as multiples of the request, e.g. 1x:4x.")
    return float(match[1]), float(match[2])


def _costs(options: ScenarioOptions) -> Costs:
    from sterna.backends.simulated.costs import Costs

    rescale = options.rescale_cost
    penalty = options.cross_node_penalty
    if not 0 <= penalty < 1:
        raise UserError(f"--cross-node-penalty {penalty:g}: give a share of at least 0 and below 1, e.g. 0.1.")
    return Costs(
        _seconds("--restart-cost", options.restart_cost),
        None if rescale is None else _seconds("--rescale-cost", rescale),
        _seconds("--lost-work", options.lost_work),
        penalty,
    )


def _faults(options: ScenarioOptions, trace: Trace, nodes: Nodes) -> tuple[Fault, ...]:
    from sterna.experiments.faults import drawn_faults, named_fault, settled

    faults = [named_fault(text, nodes) for text in options.fail or ()]
    if options.mtbf is not None:
        between = _seconds("--mtbf", options.mtbf, above=True)
        repair = 600.0 if options.mttr is None else _seconds("--mttr", options.mttr, above=True)
        faults += drawn_faults(trace, nodes, between, repair, options.seed)
    elif options.mttr is not None:
        raise UserError("--mttr says how long random faults last, but there are none: add --mtbf SECONDS.")
    return settled(faults, float(trace.submit_seconds[0]))


def _seconds(option: str, value: float, *, above: bool = False) -> float:
    from sterna.workloads.domain import LARGEST

    if math.isnan(value) or not 0 <= value <= LARGEST or (above and not value):
        raise UserError(
            f"{option} {value:g}: give seconds, a number {'above' if above else 'of at least'} 0 and at most 1e15."
        )
    return value


def _trace(options: ScenarioOptions) -> Trace:
    from sterna.workloads.formats import load_trace

    multiples = elastic_of(options.elastic) if options.elastic is not None else None
    if options.limit is not None and options.limit < 1:
        raise UserError(f"--limit {options.limit}: take at least one job.")
    trace = load_trace(options.trace, options.format)
    if options.vc is not None:
        trace = _of_pool(trace, options.vc)
    if options.limit is not None and options.limit < len(trace):
        trace = trace.take(range(options.limit))
    return trace.elastic(*multiples) if multiples else trace


def _of_pool(trace: Trace, vc: str) -> Trace:
    rows = [row for row, pool in enumerate(trace.pool) if pool == vc]
    if rows:
        return trace.take(rows)
    known = sorted({pool for pool in trace.pool if pool})
    if not known:
        raise UserError(f"--vc {vc}: {trace.source} does not name virtual clusters; leave --vc out.")
    listed = ", ".join(known[:40]) + (" and more" if len(known) > 40 else "")
    hint = did_you_mean(vc, known)
    near = f"{hint} It has" if hint.startswith("did") else "it has"
    raise UserError(f"--vc {vc}: {trace.source} has no such virtual cluster; {near} {listed}.")


def _speedups(path: str | None) -> dict[str, tuple[float, ...]]:
    if path is None:
        return {}
    from sterna.workloads.curves import load_speedups

    return load_speedups(path)
