"""Report of the demo: one self-contained HTML file with results, figures and notes."""

from __future__ import annotations

import html
import math
import platform
from collections.abc import Iterator, Sequence
from typing import Any

from sterna.experiments.demo import figures
from sterna.experiments.demo.run import PhaseResult
from sterna.experiments.demo.summary import headline, sentences

_STYLE = """
  body { margin: 0 auto; max-width: 1080px; padding: 36px 20px 64px; background: #fff; color: #1f2933;
         font: 15px/1.55 system-ui, sans-serif; }
  h1 { font-size: 28px; line-height: 1.25; margin: 0 0 6px; max-width: 30ch; }
  h2 { font-size: 19px; margin: 44px 0 2px; }
  p, li { color: #52606d; margin: 4px 0; max-width: 86ch; } ul { padding-left: 20px; margin: 18px 0; }
  code { background: #f3f5f7; border-radius: 4px; padding: 2px 6px; font-size: 13px; }
  .cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(240px, 1fr)); gap: 14px; margin: 26px 0 10px; }
  .card { border: 1px solid #dde4e8; border-top: 5px solid var(--colour); border-radius: 10px; padding: 14px 18px; }
  .card b { display: block; font-size: 34px; line-height: 1.2; font-variant-numeric: tabular-nums; }
  .card h3 { margin: 0; font-size: 16px; } .card p { font-size: 13.5px; margin: 0 0 8px; }
  .card dl { display: grid; grid-template-columns: 1fr auto; margin: 10px 0 0; font-size: 13.5px; row-gap: 2px; }
  dt { color: #7b8794; } dd { margin: 0; text-align: right; font-variant-numeric: tabular-nums; }
  .scroll { overflow-x: auto; }
  table { border-collapse: collapse; margin: 14px 0; font-size: 13.5px; font-variant-numeric: tabular-nums; }
  th, td { padding: 4px 14px; text-align: right; border-bottom: 1px solid #e4e7eb; }
  th:first-child, td:first-child { text-align: left; } th { color: #52606d; font-weight: 600; }
  td.best { color: #0b7285; font-weight: 700; }
"""
_CONFIG = {"displaylogo": False, "responsive": True, "displayModeBar": False}


def demo_page(results: Sequence[PhaseResult], command: str) -> str:
    from plotly.offline import get_plotlyjs

    body = "\n".join(_body(results, command))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Sterna: the demo</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style>\n<script>{get_plotlyjs()}</script></head>\n<body>\n{body}\n</body></html>\n"
    )


def _body(results: Sequence[PhaseResult], command: str) -> Iterator[str]:
    count = len(results[0].jobs)
    yield f"<h1>{html.escape(headline(results))}</h1>"
    yield (
        f"<p>The same {count} training jobs, in the same order, on the same cores, three times. Nothing is simulated: "
        f"NumPy trained, the kernel divided the cores ({html.escape(results[-1].control)}).</p>"
    )
    yield f'<div class="cards">{"".join(_card(result) for result in results)}</div>'
    yield f"<ul>{''.join(f'<li>{html.escape(each)}</li>' for each in sentences(results))}</ul>"
    for number, (title, caption, figure) in enumerate(_sections(results)):
        drawn = figure.to_html(full_html=False, include_plotlyjs=False, div_id=f"figure-{number}", config=_CONFIG)
        yield f"<h2>{html.escape(title)}</h2><p>{html.escape(caption)}</p>{drawn}"
    yield f"<h2>Every job</h2>{_table(results)}"
    machine = f"{platform.system()} {platform.release()}, {platform.machine()}, Python {platform.python_version()}"
    yield f"<p>Made by <code>{html.escape(command)}</code> on {html.escape(machine)}.</p>"


def _sections(results: Sequence[PhaseResult]) -> Iterator[tuple[str, str, Any]]:
    yield (
        "Jobs done over time",
        "The higher a line, the more people already have their model. On a quiet machine all three end at about the "
        "same time, because the work is the same: what a scheduler changes is who waits for whom.",
        figures.completion_figure(results),
    )
    yield (
        "Who had the cores",
        "Shared alike, everybody is slow for as long as everybody is there. In a queue, short jobs wait for long ones. "
        "Sterna lets each job report, sees within seconds how much it has left, and gives the cores to those that are "
        "nearly done, while nobody ends much later than by sharing alike.",
        figures.cores_figure(results),
    )
    yield (
        "What it means for each job",
        "Jobs with little work at the top. A dot further left is better.",
        figures.jobs_figure(results),
    )
    yield (
        "They really train",
        "Losses as the jobs reported them while Sterna ran them: some stop improving early, some late.",
        figures.loss_figure(results),
    )


def _card(result: PhaseResult) -> str:
    seconds = result.seconds
    others = "unknown" if math.isnan(result.others) else f"{result.others:.0%}"
    facts = {
        "longest job": f"{result.longest_seconds:.1f} s",
        "shortest job": f"{min(seconds.values()):.1f} s",
        "moves": str(result.moves),
        "work lost": f"{result.lost_seconds:g} s",
        "CPU taken by others": others,
    }
    rows = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts.items())
    colour = figures.PHASE_COLOURS[result.phase.key]
    return (
        f'<div class="card" style="--colour: {colour}"><h3>{html.escape(result.phase.title)}</h3>'
        f"<p>{html.escape(result.phase.about)}</p><b>{result.mean_seconds:.1f} s</b><p>mean time of a job</p>"
        f"<dl>{rows}</dl></div>"
    )


def _table(results: Sequence[PhaseResult]) -> str:
    heads = "".join(f"<th>{html.escape(result.phase.title)}</th>" for result in results)
    work = {job.name: job.cpu_seconds for job in results[0].jobs}
    rows = []
    for name in sorted(work, key=work.__getitem__):
        best = min(result.seconds[name] for result in results)
        cells = []
        for result in results:
            mark = ' class="best"' if result.seconds[name] == best else ""
            cells.append(f"<td{mark}>{result.seconds[name]:.1f} s</td>")
        rows.append(f"<tr><td>{html.escape(name)}</td><td>{work[name]:.1f} s</td>{''.join(cells)}</tr>")
    head = f"<thead><tr><th>job</th><th>CPU time it needs</th>{heads}</tr></thead>"
    return f'<div class="scroll"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>'
