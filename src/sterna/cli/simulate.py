"""`sterna simulate`: one trace, one cluster, one policy."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from sterna.cli.options import AsJson, PolicyOption, ReportFile, ScenarioOptions, expanded, scenario_of

if TYPE_CHECKING:
    from sterna.control.journal import JournalWriter
    from sterna.experiments.scenario import Scenario

JobsFile = Annotated[str | None, typer.Option("--jobs-csv", metavar="FILE", help="Write one row per job.")]
JournalFile = Annotated[
    str | None, typer.Option("--journal", metavar="FILE", help="Keep every round, for `sterna replay`; slow and large.")
]


@expanded
def command(
    options: ScenarioOptions,
    policy: PolicyOption,
    report: ReportFile = None,
    jobs_csv: JobsFile = None,
    journal: JournalFile = None,
    as_json: AsJson = False,
) -> None:
    """Replay a trace under one policy.

    \b
    Examples:
      sterna simulate --trace jobs.csv --nodes 80x8 --policy srjf
      sterna simulate --trace jobs.csv --nodes 80x8 --policy tiresias:threshold=7200 --restart-cost 30 --json
      sterna simulate --trace jobs.csv --nodes 10x8,5x4 --policy afs-l --elastic 1x:4x --report run.html
      sterna simulate --trace jobs.csv --nodes 4x8 --policy fifo --fail node2@3600+600 --jobs-csv jobs-out.csv
    """
    from sterna.cli.commandline import typed
    from sterna.cli.files import output_file
    from sterna.cli.output import progress_bar, show_json, show_notices
    from sterna.cli.tables import show_result
    from sterna.experiments.figures import plotly_objects
    from sterna.experiments.simulation import simulate
    from sterna.wiring import make_policy

    make_policy(policy)
    if report is not None:
        plotly_objects()
    scenario = scenario_of(options)
    with ExitStack() as files:
        write_report = files.enter_context(output_file(report, "--report"))
        write_jobs = files.enter_context(output_file(jobs_csv, "--jobs-csv"))
        recorder = _journal(files, journal, scenario, policy)
        detailed = report is not None or jobs_csv is not None
        with progress_bar("jobs finished") as progress:
            result = simulate(scenario, policy, journal=recorder, progress=progress, detailed=detailed)
        if report is not None:
            from sterna.experiments.report import simulation_page

            write_report(simulation_page(result, scenario, typed()))
        if jobs_csv is not None:
            from sterna.experiments.jobs_table import jobs_table

            write_jobs(jobs_table(result, scenario.trace))
    show_notices(result.notices)
    if as_json:
        show_json(result.summary)
    else:
        show_result(result, scenario.cluster)


def _journal(files: ExitStack, path: str | None, scenario: Scenario, policy: str) -> JournalWriter | None:
    if path is None:
        return None
    from sterna.control.journal import JournalWriter

    return files.enter_context(JournalWriter(path, policy=policy, placement=scenario.placement_of(policy)))
