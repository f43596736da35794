"""`sterna compare`: replay a trace under several policies, beside plain FIFO."""

from __future__ import annotations

from typing import Annotated

import typer

from sterna.cli.parsing.expand import expand_options
from sterna.cli.parsing.options import ReportFile, ScenarioOptions, scenario_of
from sterna.cli.parsing.parameters import AsJson

Policies = Annotated[
    str, typer.Option("--policies", metavar="LIST", help="all, or a comma-separated list: fifo,srjf:by=time.")
]
Cores = Annotated[int | None, typer.Option("--cores", metavar="N", help="Processes in parallel.  [default: all cores]")]


@expand_options
def command(
    options: ScenarioOptions,
    policies: Policies = "all",
    report: ReportFile = None,
    cores: Cores = None,
    as_json: AsJson = False,
) -> None:
    """Replay a trace under several policies, side by side.

    Policies run in parallel on the machine's cores. Every comparison includes fifo:preempt=false, the default of most
    clusters; ratios are relative to it.

    \b
    Examples:
      sterna compare --trace jobs.csv --nodes 80x8 --policies all
      sterna compare --trace jobs.csv --nodes 80x8 --policies srjf,tiresias:promote=4 --restart-cost 30
      sterna compare --trace jobs.csv --nodes 16x8 --elastic 1x:4x --report policies.html --json
    """
    from sterna.cli.parsing.argv import command_line
    from sterna.cli.render.files import output_file, reject_clashes
    from sterna.cli.render.output import progress_bar, show_json, show_notices
    from sterna.cli.render.tables import show_comparison
    from sterna.errors import UserError
    from sterna.experiments.comparison import parse_policies, run_comparison
    from sterna.experiments.faults import late_faults
    from sterna.experiments.report.figures import plotly_objects

    specs = parse_policies(policies)
    reject_clashes({"--trace": options.trace, "--speedups": options.speedups}, {"--report": report})
    if cores is not None and cores < 1:
        raise UserError(f"--cores {cores}: use at least one.")
    if report is not None:
        plotly_objects()
    scenario = scenario_of(options)
    with output_file(report, "--report") as write_report:
        with progress_bar("policies done") as progress:
            comparison = run_comparison(scenario, specs, cores=cores, progress=progress, detailed=report is not None)
        if report is not None:
            from sterna.experiments.report.page import comparison_page

            write_report(comparison_page(comparison, command_line()))
    ends = [float(result.times.finish.max(initial=0.0)) for result in comparison.results]
    late = late_faults(options.fail or (), scenario.nodes, max(ends))
    show_notices([*comparison.baseline.notices, *late])
    if as_json:
        show_json(comparison.summary)
    else:
        show_comparison(comparison, scenario.cluster, scenario.trace.source)
