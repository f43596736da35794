"""Reports of `sterna simulate` and `sterna compare`: one self-contained HTML file."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sterna.experiments.comparison import Comparison
from sterna.experiments.report import figures
from sterna.experiments.result import COLUMNS, Result
from sterna.model.formatting import format_count

if TYPE_CHECKING:
    import plotly.graph_objects as go

_STYLE = """
  body { margin: 0 auto; max-width: 1320px; padding: 32px 20px 64px; background: #fff; color: #1f2933;
         font: 15px/1.5 system-ui, sans-serif; }
  h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 36px 0 2px; }
  p { margin: 4px 0; color: #52606d; }
  code { background: #f3f5f7; border-radius: 4px; padding: 2px 6px; font-size: 13px; }
  .scroll { overflow-x: auto; }
  table { border-collapse: collapse; margin-top: 16px; font-size: 13.5px; font-variant-numeric: tabular-nums; }
  th, td { padding: 5px 10px; text-align: right; white-space: nowrap; border-bottom: 1px solid #e4e7eb; }
  :is(th, td):nth-child(-n + 2) { text-align: left; } th { color: #52606d; font-weight: 600; }
  td.best { font-weight: 700; color: #1d6f5c; }
"""


def simulation_page(result: Result, command: str) -> str:
    """Render one result, which must be a detailed one."""
    sections = [
        ("Completion times", "How many jobs were done within a time.", figures.completion_figure([result])),
        ("Utilisation", "Devices that jobs held.", figures.utilization_figure([result])),
        ("Queue", "Jobs that had no devices.", figures.queue_figure([result])),
        (
            "Allocation",
            "The jobs that held most device time, in submit order; darker: more workers.",
            figures.allocation_figure(result),
        ),
    ]
    return _page(
        f"{result.policy} on {result.scenario.trace.source}",
        _facts(command, result, result.left_out),
        [result],
        sections,
    )


def comparison_page(comparison: Comparison, command: str) -> str:
    """Render all results of a comparison, which must be detailed ones."""
    results, baseline = comparison.results, comparison.baseline.policy
    sections = [
        (
            "Mean and 95th percentile",
            f"Numbers above the bars are ratios to {baseline}, what people run today; below 1 is better.",
            figures.mean_figure(comparison),
        ),
        (
            "Completion times",
            "How many jobs were done within a time; further left is better.",
            figures.completion_figure(results),
        ),
        ("Utilisation", "Devices that jobs held.", figures.utilization_figure(results)),
        ("Queue", "Jobs that had no devices.", figures.queue_figure(results)),
        (
            "Allocation",
            "The jobs that held most device time, the same under every policy, in submit order; darker: more workers.",
            figures.allocations_figure(results),
        ),
    ]
    facts = _facts(command, comparison.baseline, comparison.left_out)
    return _page(f"Policies on {comparison.baseline.scenario.trace.source}", facts, results, sections, comparison)


def _facts(command: str, result: Result, left_out: Sequence[str]) -> list[str]:
    scenario, trace = result.scenario, result.scenario.trace
    facts = [f"{format_count(len(trace), 'job')} of {trace.source} ({trace.kind}) on {scenario.cluster}.", *left_out]
    made = [f"Made by <code>{_escape(command)}</code>"] if command else []
    return [*map(_escape, facts), *made, *map(_escape, result.notices)]


def _page(
    title: str,
    facts: Iterable[str],
    results: Sequence[Result],
    sections: Iterable[tuple[str, str, go.Figure]],
    comparison: Comparison | None = None,
) -> str:
    from plotly.offline import get_plotlyjs

    body = [f"<h1>{_escape(title)}</h1>", *(f"<p>{fact}</p>" for fact in facts), _tables(results, comparison)]
    has_finished = any(len(result.times.completion) for result in results)
    for number, (heading, caption, figure) in enumerate(sections if has_finished else ()):
        drawn = figure.to_html(full_html=False, include_plotlyjs=False, div_id=f"figure-{number}", config=_CONFIG)
        body.append(f"<h2>{_escape(heading)}</h2><p>{_escape(caption)}</p>{drawn}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Sterna: {_escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n<script>{get_plotlyjs()}</script></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


_CONFIG = {"displaylogo": False, "responsive": True}


def _tables(results: Sequence[Result], comparison: Comparison | None) -> str:
    units = "mean to p99: completion time; times in seconds; used: share of the device time that jobs held."
    notes = [units, *([comparison.about_ratios] if comparison else [])]
    first = _table(results, COLUMNS, comparison) + "".join(f"<p>{_escape(note)}</p>" for note in notes)
    about = (comparison or Comparison(tuple(results))).about_metrics
    return f"{first}{_table(results, results[0].metric_columns, comparison)}<p>{_escape(about)}</p>"


def _table(results: Sequence[Result], columns: Sequence[tuple[str, str]], comparison: Comparison | None) -> str:
    has_ratio = comparison is not None and columns is COLUMNS
    heads = ["policy", "placement", *(title for _, title in columns)]
    if has_ratio:
        heads.insert(3, "ratio")
    rows = []
    for result in results:
        cells = [f"<td>{_escape(result.policy)}</td>", f"<td>{_escape(result.placement)}</td>"]
        for key, _ in columns:
            mark = ' class="best"' if comparison and comparison.is_best(result, key) else ""
            cells.append(f"<td{mark}>{result.format_number(key)}</td>")
        if comparison and has_ratio:
            ratio = comparison.ratio(result, "avg_jct_s")
            cells.insert(3, f"<td>{'-' if ratio is None else f'{ratio:.3f}'}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(f"<th>{_escape(name)}</th>" for name in heads)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _escape(text: str) -> str:
    return html.escape(text)
