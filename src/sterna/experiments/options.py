"""Options of a simulation, checked and turned into a `Scenario`; the command line and the Python interface share them.

Errors name options as the command line does; `argument_names` renames them for callers from Python.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TypedDict

from sterna.backends.simulated.costs import Costs, Fault
from sterna.backends.simulated.knowledge import parse_knowledge
from sterna.errors import UserError, did_you_mean
from sterna.experiments.faults import draw_faults, merge_faults, parse_fault
from sterna.experiments.metrics.user_metric import find_metrics
from sterna.experiments.scenario import Scenario
from sterna.model.cluster import Nodes
from sterna.settings import is_count_only
from sterna.wiring import make_placement
from sterna.workloads.curves import check_speedups, load_speedups
from sterna.workloads.domain import LARGEST
from sterna.workloads.load import load_trace
from sterna.workloads.speedup_assumption import is_speedup, parse_speedup
from sterna.workloads.trace import Trace, parse_elastic

_DEFAULT_REPAIR_SECONDS = 600.0
_MOST_POOLS_LISTED = 40
_LARGEST_FACTOR = 1e6
"""Upper bound of a requested time as a multiple of the duration."""


class SimulationOptions(TypedDict, total=False):
    """Options of a simulation beside trace, nodes and policy."""

    placement: str | None
    """Rule that chooses nodes; None: the one that the policy was made for."""
    format: str | None
    """Format of the trace file; None: detected from its contents."""
    vc: str | None
    """Only jobs of this virtual cluster."""
    limit: int | None
    """Only the first N jobs."""
    elastic: str | tuple[float, float] | None
    """Least and most workers of a job as multiples of its request: `"1x:4x"` or `(1, 4)`."""
    speedups: str | PathLike[str] | Mapping[str, Sequence[float]] | None
    """Speed-ups at 1, 2, 3 .. workers by model, or a YAML file of them."""
    speedup: str
    """Speed-up of jobs whose model has no curve: `profiles` (drawn), `linear` or `power:EXPONENT`."""
    restart_cost: float
    """Seconds without progress at every start, move and resize."""
    rescale_cost: float | None
    """Seconds without progress at a resize; None: `restart_cost`."""
    checkpoint_every: float
    """Seconds of run time between two checkpoints of a job; 0: jobs save whenever they are stopped."""
    can_save: float
    """Share of jobs that can save, from 0 to 1; the others lose all their work when they are stopped."""
    cross_node_penalty: float
    """Fraction of speed lost while a job spans nodes, and again while it spans racks."""
    requested_time: float | None
    """Requested run time of jobs without one, as a multiple of their duration; None: unknown."""
    fail: Sequence[str]
    """Nodes that are lost, as `NODE@SECONDS+SECONDS`."""
    mtbf: float | None
    """Mean seconds between random faults of a node."""
    mttr: float | None
    """Seconds that a random fault lasts; None: 600."""
    seed: int
    """Seed of random faults, of noisy knowledge and of drawn profiles."""
    knowledge: str
    """What policies know of jobs: `true`, `learned` or `noisy:SIGMA`."""
    metrics: Sequence[str]
    """Metrics of your own: names registered with `sterna.metric`, or Python files that register some."""
    known_ends: bool
    """Policies know when failed and killed jobs will end; else they expect a planned end, drawn from `seed`."""


def make_scenario(
    trace: Trace | str | PathLike[str],
    nodes: Nodes,
    *,
    placement: str | None = None,
    format: str | None = None,
    vc: str | None = None,
    limit: int | None = None,
    elastic: str | tuple[float, float] | None = None,
    speedups: str | PathLike[str] | Mapping[str, Sequence[float]] | None = None,
    speedup: str = "profiles",
    restart_cost: float = 0.0,
    rescale_cost: float | None = None,
    checkpoint_every: float = 0.0,
    can_save: float = 1.0,
    cross_node_penalty: float = 0.0,
    requested_time: float | None = None,
    fail: Sequence[str] = (),
    mtbf: float | None = None,
    mttr: float | None = None,
    seed: int = 0,
    knowledge: str = "true",
    known_ends: bool = False,
    metrics: Sequence[str] = (),
) -> Scenario:
    """Check the options, then load the trace: cheap checks come before the file is read."""
    known, own_metrics, assumption = parse_knowledge(knowledge), find_metrics(metrics), parse_speedup(speedup)
    if placement is not None:
        make_placement(placement)
        if is_count_only(placement) and (fail or mtbf is not None):
            raise UserError(
                "--placement none only counts devices, so no job sits on a node that fails: choose another."
            )
    costs = _check_costs(restart_cost, rescale_cost, checkpoint_every, can_save, cross_node_penalty)
    if requested_time is not None and not 0 < requested_time <= _LARGEST_FACTOR:
        raise UserError(f"--requested-time {requested_time:g}: give a multiple of the duration above 0, e.g. 2.")
    if seed < 0:
        raise UserError(f"--seed {seed}: a seed is a whole number of at least 0.")
    multiples = parse_elastic(elastic) if isinstance(elastic, str) else elastic
    jobs = _select_jobs(trace, format, vc, limit)
    if multiples is not None:
        jobs = jobs.elastic(*multiples)
    if requested_time is not None:
        jobs = jobs.with_requested_times(requested_time)
    return Scenario(
        trace=jobs,
        nodes=nodes,
        placement=placement,
        costs=costs,
        faults=_make_faults(jobs, nodes, fail, mtbf, mttr, seed),
        speedups=_load_speedups(speedups),
        speedup=assumption,
        seed=seed,
        knowledge=known,
        known_ends=known_ends,
        metrics=own_metrics,
    )


def _check_costs(
    restart: float, rescale: float | None, checkpoint_every: float, can_save: float, penalty: float
) -> Costs:
    if not 0 <= penalty < 1:
        raise UserError(f"--cross-node-penalty {penalty:g}: give a share of at least 0 and below 1, e.g. 0.1.")
    if not 0 <= can_save <= 1:
        raise UserError(f"--can-save {can_save:g}: give the share of jobs that can save, from 0 to 1, e.g. 0.8.")
    return Costs(
        restart_seconds=_check_seconds("--restart-cost", restart),
        rescale_seconds=None if rescale is None else _check_seconds("--rescale-cost", rescale),
        checkpoint_seconds=_check_seconds("--checkpoint-every", checkpoint_every),
        can_save=can_save,
        cross_node_penalty=penalty,
    )


def _make_faults(
    trace: Trace, nodes: Nodes, fail: Sequence[str], mtbf: float | None, mttr: float | None, seed: int
) -> tuple[Fault, ...]:
    faults = [parse_fault(text, nodes) for text in fail]
    if mtbf is not None:
        between = _check_seconds("--mtbf", mtbf, above=True)
        repair = _DEFAULT_REPAIR_SECONDS if mttr is None else _check_seconds("--mttr", mttr, above=True)
        faults += draw_faults(trace, nodes, between, repair, seed)
    elif mttr is not None:
        raise UserError("--mttr says how long random faults last, but there are none: add --mtbf SECONDS.")
    return merge_faults(faults, float(trace.submit_seconds[0]))


def _check_seconds(option: str, value: float, *, above: bool = False) -> float:
    if math.isnan(value) or not 0 <= value <= LARGEST or (above and not value):
        raise UserError(
            f"{option} {value:g}: give seconds, a number {'above' if above else 'of at least'} 0 and at most 1e15."
        )
    return value


def _select_jobs(source: Trace | str | PathLike[str], format: str | None, vc: str | None, limit: int | None) -> Trace:
    if limit is not None and limit < 1:
        raise UserError(f"--limit {limit}: take at least one job.")
    trace = source if isinstance(source, Trace) else load_trace(fspath(source), format)
    if vc is not None:
        trace = _select_pool(trace, vc)
    return trace if limit is None or limit >= len(trace) else trace.take(range(limit))


def _select_pool(trace: Trace, vc: str) -> Trace:
    rows = [row for row, pool in enumerate(trace.pool) if pool == vc]
    if rows:
        return trace.take(rows)
    known = sorted({pool for pool in trace.pool if pool})
    if not known:
        raise UserError(f"--vc {vc}: {trace.source} does not name virtual clusters; leave --vc out.")
    listed = ", ".join(known[:_MOST_POOLS_LISTED]) + (" and more" if len(known) > _MOST_POOLS_LISTED else "")
    hint = did_you_mean(vc, known)
    near = f"{hint} It has" if hint.startswith("did") else "it has"
    raise UserError(f"--vc {vc}: {trace.source} has no such virtual cluster; {near} {listed}.")


def _load_speedups(source: str | PathLike[str] | Mapping[str, Sequence[float]] | None) -> dict[str, tuple[float, ...]]:
    if source is None:
        return {}
    if isinstance(source, Mapping):
        return check_speedups("speedups", {model: list(values) for model, values in source.items()})
    if is_speedup(fspath(source)):
        raise UserError(f"--speedups {source}: it takes a YAML file of curves by model; write --speedup {source}.")
    return load_speedups(fspath(source))
