"""`sterna simulate`: replay a trace on a cluster under one policy."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sterna.cli.parsing.expand import expand_options
from sterna.cli.parsing.options import ReportFile, ScenarioOptions, scenario_of
from sterna.cli.parsing.parameters import AsJson
from sterna.cli.parsing.rule_options import PolicyOption, check_single_policy
from sterna.errors import UserError

if TYPE_CHECKING:
    from sterna.control.journal import JournalWriter

JobsFile = Annotated[str | None, typer.Option("--jobs-csv", metavar="FILE", help="Write one row per job.")]
JournalFile = Annotated[
    str | None,
    typer.Option("--journal", metavar="FILE", help="Record every round, for `sterna replay`; slow and large."),
]

ShadowPolicy = Annotated[
    str | None,
    typer.Option(
        "--shadow",
        metavar="P",
        callback=check_single_policy,
        help="Policy that decides every round, too, without effect.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing journal.")]


@expand_options
def command(
    options: ScenarioOptions,
    policy: PolicyOption,
    report: ReportFile = None,
    jobs_csv: JobsFile = None,
    journal: JournalFile = None,
    shadow: ShadowPolicy = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Replay a trace under one policy.

    \b
    Examples:
      sterna simulate --trace jobs.csv --nodes 80x8 --policy srjf
      sterna simulate --trace jobs.csv --nodes 80x8 --policy tiresias:threshold=7200 --restart-cost 30 --json
      sterna simulate --trace jobs.csv --nodes 10x8,5x4 --policy afs-l --elastic 1x:4x --report run.html
      sterna simulate --trace jobs.csv --nodes 8x8 --policy fifo --shadow srjf --journal run.jsonl
      sterna simulate --trace jobs.csv --nodes 4x8 --policy fifo --fail node2@3600+600 --jobs-csv jobs-out.csv
    """
    from sterna.cli.parsing.argv import command_line
    from sterna.cli.render.files import output_file, reject_clashes
    from sterna.cli.render.output import progress_bar, show_json, show_notices
    from sterna.cli.render.tables import show_result, show_shadow
    from sterna.control.shadow_rules import Shadow
    from sterna.experiments.faults import late_faults
    from sterna.experiments.report.figures import plotly_objects
    from sterna.experiments.simulation import run_simulation
    from sterna.wiring import make_policy, make_rules

    make_policy(policy)
    outputs = {"--report": report, "--jobs-csv": jobs_csv, "--journal": journal}
    reject_clashes({"--trace": options.trace, "--speedups": options.speedups}, outputs)
    if report is not None:
        plotly_objects()
    scenario = scenario_of(options)
    with ExitStack() as files:
        write_report = files.enter_context(output_file(report, "--report"))
        write_jobs = files.enter_context(output_file(jobs_csv, "--jobs-csv"))
        placement = scenario.placement_of(policy)
        opening = {
            "policy": policy,
            "placement": placement,
            "shadow": shadow or "",
            "knowledge": str(scenario.knowledge),
        }
        writer = _open_journal(files, journal, overwrite, opening)
        beside = None if shadow is None else Shadow(make_rules(shadow, placement), writer)
        detailed = report is not None or jobs_csv is not None
        with progress_bar("jobs finished") as progress:
            result = run_simulation(scenario, policy, journal=beside or writer, progress=progress, detailed=detailed)
        if report is not None:
            from sterna.experiments.report.page import simulation_page

            write_report(simulation_page(result, command_line()))
        if jobs_csv is not None:
            from sterna.experiments.report.jobs_table import jobs_table

            write_jobs(jobs_table(result))
        late = late_faults(options.fail or (), scenario.nodes, float(result.times.finish.max(initial=0.0)))
        result = replace(result, notices=(*result.notices, *late))
    show_notices(result.notices)
    extra = {} if beside is None else {"shadow": {"policy": shadow, **beside.summary}}
    if as_json:
        show_json(result.summary | extra)
    else:
        show_result(result, scenario.cluster, bool(scenario.faults))
        if beside is not None:
            show_shadow(str(shadow), beside)


def _open_journal(files: ExitStack, path: str | None, overwrite: bool, opening: dict[str, Any]) -> JournalWriter | None:
    if path is None:
        if overwrite:
            raise UserError("--overwrite replaces a journal, but none is written: add --journal FILE.")
        return None
    from sterna.control.journal import JournalWriter

    return files.enter_context(JournalWriter(path, overwrite=overwrite, **opening))
