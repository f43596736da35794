"""`sterna.simulate` and `sterna.compare`: the options of the commands as arguments, the results as values."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Unpack

from sterna.errors import UserError
from sterna.experiments.argument_names import naming_arguments
from sterna.experiments.cluster import Cluster
from sterna.experiments.comparison import Comparison, parse_policies, run_comparison
from sterna.experiments.options import SimulationOptions, make_scenario
from sterna.experiments.result import Result
from sterna.experiments.simulation import run_simulation
from sterna.workloads.trace import Trace


def simulate(
    trace: Trace | str | PathLike[str],
    nodes: Cluster | str,
    policy: str = "fifo",
    **options: Unpack[SimulationOptions],
) -> Result:
    """Replay a trace under one policy and return what happened to every job.

    `trace` is a `Trace` or the path of a file; `nodes` is a `Cluster` or its text, such as `"80x8"`; `policy` is
    written as on the command line: `"srjf"`, `"tiresias:threshold=7200"`, the path of a file (`"./mine.py"`), or the
    name of a rule that was registered with `sterna.rules.policy` in this process.

    Options, with the defaults of `sterna simulate`:

        placement           rule that chooses nodes; None: the one that the policy was made for
        format              format of the trace file; None: detected
        vc, limit           only jobs of this virtual cluster, only the first N jobs
        elastic             least and most workers as multiples of the request: "1x:4x" or (1, 4)
        speedups            speed-ups at 1, 2, 3 .. workers by model, or a YAML file of them
        speedup             of jobs whose model has no curve: "profiles" (drawn at random), "linear", "power:0.8"
        restart_cost        seconds without progress at every start, move and resize
        rescale_cost        seconds without progress at a resize; None: restart_cost
        checkpoint_every    seconds of run time between two checkpoints; a stop loses the work since the last
        can_save            share of jobs that can save; the others lose all their work when they are stopped
        cross_node_penalty  fraction of speed lost across nodes, and again across racks
        requested_time      requested run time as a multiple of the duration; None: as in the trace, else unknown
        fail                nodes that are lost: ["node2@3600+600"]
        mtbf, mttr          mean seconds between random faults of a node, and how long each lasts
        seed                seed of random faults, of noisy knowledge and of drawn profiles
        knowledge           what policies know of jobs: "true", "learned" or "noisy:0.3"
        metrics             metrics of your own: names registered with sterna.metric, or files: ["./mine.py"]
        known_ends          policies know when failed and killed jobs will end; else they see a planned end

    Raises `UserError` with one sentence if an argument is wrong.
    """
    with naming_arguments():
        return run_simulation(make_scenario(trace, _as_cluster(nodes).nodes, **options), policy, detailed=True)


def compare(
    trace: Trace | str | PathLike[str],
    nodes: Cluster | str,
    policies: Sequence[str] | str = "all",
    *,
    cores: int | None = None,
    **options: Unpack[SimulationOptions],
) -> Comparison:
    """Replay a trace under several policies and the baseline, on at most `cores` cores (None: all).

    `policies` is a list, a text such as `"fifo,srjf"`, or `"all"` that are built in. The other arguments and the
    errors are those of `simulate`.
    """
    with naming_arguments():
        if cores is not None and cores < 1:
            raise UserError(f"--cores {cores}: use at least one.")
        specs = parse_policies(policies if isinstance(policies, str) else ",".join(policies))
        scenario = make_scenario(trace, _as_cluster(nodes).nodes, **options)
        return run_comparison(scenario, specs, cores=cores, detailed=True)


def _as_cluster(nodes: Cluster | str) -> Cluster:
    return nodes if isinstance(nodes, Cluster) else Cluster(nodes)
