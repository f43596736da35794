"""`sterna whatif`: decide a recorded history under another policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sterna.cli.parsing.parameters import AsJson, JournalFile
from sterna.cli.parsing.rule_options import PolicyOption, RecordedPlacement
from sterna.model.formatting import format_count

if TYPE_CHECKING:
    from rich.console import Console


def command(
    journal: JournalFile, policy: PolicyOption, placement: RecordedPlacement = None, as_json: AsJson = False
) -> None:
    """Compare a recorded history with what another policy would have done.

    Each recorded round is decided again from its snapshot; then the recorded jobs are simulated from the first on, once
    with the recorded rules and once with the others.

    \b
    Examples:
      sterna simulate --trace T --nodes 8x8 --policy fifo --journal run.jsonl
      sterna whatif run.jsonl --policy srjf
      sterna whatif run.jsonl --policy afs-l --placement topology --json
    """
    from sterna.cli.render.output import console, progress_bar, show_json, show_notices
    from sterna.explain.whatif import whatif

    with progress_bar("lines read") as progress:
        answer = whatif(journal, policy, placement, progress)
    show_notices(answer["notices"])
    if as_json:
        show_json(answer)
        return
    out = console()
    _show_rounds(out, answer)
    if answer["rerun"]:
        _show_rerun(out, answer)


def _show_rounds(out: Console, answer: Mapping[str, Any]) -> None:
    ours = f"{answer['policy']} / {answer['placement']}"
    theirs = f"{answer['recorded_policy']} / {answer['recorded_placement']}"
    out.print(
        f"{ours} would have decided {answer['rounds_that_differ']:,} of {answer['rounds']:,} rounds otherwise "
        f"than {theirs} did",
        soft_wrap=True,
    )
    table = _table("round by round", "starts", "stops", "moves", "resizes")
    for name, counts in (("recorded", answer["recorded_actions"]), (answer["policy"], answer["actions"])):
        keys = ("starts", "preemptions", "migrations", "resizes")
        table.add_row(name, *(f"{counts[key]:,}" for key in keys))
    out.print(table)
    for difference in answer["differences"]:
        where = f"Round {difference['round']} at {difference['at_s']:,.0f} s"
        out.print(f"{where}: {difference['sentence']}", soft_wrap=True)
    out.print()


def _show_rerun(out: Console, answer: Mapping[str, Any]) -> None:
    runs = answer["rerun"]
    table = _table("as a whole", "mean", "ratio", "wait", "makespan", "stops", "moves", "resizes")
    names = {"recorded": "recorded", "rebuilt": "rebuilt", "policy": answer["policy"]}
    for key, name in names.items():
        run = runs[key]
        table.add_row(
            name,
            f"{run['avg_jct_s']:,.0f}",
            f"{run['avg_jct_s'] / runs['rebuilt']['avg_jct_s']:.3f}" if runs["rebuilt"]["avg_jct_s"] else "-",
            *(f"{run[each]:,.0f}" for each in ("avg_wait_s", "makespan_s", "preemptions", "migrations", "resizes")),
        )
    out.print(table)
    out.print(
        f"{format_count(runs['jobs'], 'job')}, times in seconds. rebuilt: the recorded rules, simulated from what the "
        "journal holds. ratio: mean completion time over that of rebuilt; below 1 is better."
    )


def _table(*titles: str) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for number, title in enumerate(titles):
        table.add_column(title, justify="right" if number else "left", no_wrap=bool(number), overflow="fold")
    return table
