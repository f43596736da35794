"""Report of reproductions: one self-contained HTML file with tables, remarks and figures."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from itertools import count

from sterna.experiments.report.figures import plotly_objects
from sterna.experiments.reproduction.outcome import Figure, Reproduction, Row, format_value

_STYLE = """
  body { margin: 0 auto; max-width: 1180px; padding: 32px 20px 64px; background: #fff; color: #1f2933;
         font: 15px/1.5 system-ui, sans-serif; }
  h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 21px; margin: 48px 0 4px; }
  h3 { font-size: 17px; margin: 32px 0 2px; } p, li { color: #52606d; margin: 4px 0; max-width: 90ch; }
  code { background: #f3f5f7; border-radius: 4px; padding: 2px 6px; font-size: 13px; }
  .scroll { overflow-x: auto; }
  table { border-collapse: collapse; margin: 16px 0; font-size: 13.5px; font-variant-numeric: tabular-nums; }
  th, td { padding: 4px 10px; text-align: right; border-bottom: 1px solid #e4e7eb; }
  th:nth-child(-n+2), td:nth-child(-n+2), th:last-child, td:last-child { text-align: left; }
  th { color: #52606d; font-weight: 600; } .yes { color: #1d6f5c; font-weight: 700; }
  .no { color: #b42318; font-weight: 700; } td.note { color: #7b8794; }
"""
_LAYOUT = {
    "template": "plotly_white",
    "height": 380,
    "margin": {"l": 70, "r": 20, "t": 16, "b": 56},
    "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#1f2933"},
    "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
}
_CONFIG = {"displaylogo": False, "responsive": True}
_HEADS = ("case", "metric", "published", "target", "ours", "holds", "note")


def reproduction_page(reproductions: Sequence[Reproduction], command: str) -> str:
    from plotly.offline import get_plotlyjs

    plotly_objects()
    numbers = count()
    body = ["<h1>Published results beside ours</h1>", f"<p>Made by <code>{html.escape(command)}</code></p>"]
    for each in reproductions:
        body += _section(each, numbers)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Sterna: reproductions</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style>\n<script>{get_plotlyjs()}</script></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _section(reproduction: Reproduction, numbers: Iterator[int]) -> Iterator[str]:
    yield f"<h2>{html.escape(reproduction.name)}</h2><p>{html.escape(reproduction.question)}</p>"
    yield f"<p>{html.escape(reproduction.verdict)}</p>"
    for figure in reproduction.figures():
        yield f"<h3>{html.escape(figure.title)}</h3><p>{html.escape(figure.caption)}</p>"
        yield _draw(figure, f"figure-{next(numbers)}")
    heads = "".join(f"<th>{head}</th>" for head in _HEADS)
    rows = "".join(_row(row) for row in reproduction.rows)
    yield f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    remarks = "".join(f"<li>{html.escape(remark)}</li>" for remark in reproduction.remarks)
    yield f"<ul>{remarks}</ul>"


def _draw(figure: Figure, identity: str) -> str:
    layout = {**_LAYOUT, **figure.plot.get("layout", {})}
    drawing = plotly_objects().Figure({"data": figure.plot["data"], "layout": layout})
    text: str = drawing.to_html(full_html=False, include_plotlyjs=False, div_id=identity, config=_CONFIG)
    return text


def _row(row: Row) -> str:
    texts = (format_value(row.published), row.target_text, format_value(row.ours))
    numbers = "".join(f"<td>{html.escape(text)}</td>" for text in texts)
    mark = {True: "yes", False: "no", None: ""}[row.holds]
    return (
        f"<tr><td>{html.escape(row.case)}</td><td>{html.escape(row.metric)}</td>{numbers}"
        f'<td class="{mark}">{mark}</td><td class="note">{html.escape(row.note)}</td></tr>'
    )
