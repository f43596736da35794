"""Plotly figures of results; `page` arranges them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sterna.errors import UserError
from sterna.experiments.comparison import Comparison
from sterna.experiments.report.allocation import Span
from sterna.experiments.report.timeline import Timeline
from sterna.experiments.result import Result
from sterna.model.speedup import Floats

if TYPE_CHECKING:
    import plotly.graph_objects as go

COLOURS = ("#2f4b7c", "#d45087", "#2a9d8f", "#f4a261", "#7a5195", "#5c8001", "#b5651d", "#3a86c8", "#c1121f", "#6c757d")
_MOST_QUANTILES = 500
_MOST_BARS = 60
_MOST_SPANS = 4_000
_MOST_ROWS = 20
_PANELS_ABREAST = 2
_CELLS = 400
"""Columns of a panel: a bar per span is too much for a browser if ten policies resize all the time."""
_FEW_TO_MANY = [[0, "#b8d4e8"], [1, COLOURS[0]]]


def plotly_objects(wanted_by: str = "--report") -> Any:
    """Import plotly.graph_objects, which is an optional dependency."""
    try:
        import plotly.graph_objects as objects
    except ImportError:
        raise UserError(
            f"{wanted_by} needs plotly, which is not installed: run pip install 'sterna[report]'."
        ) from None
    return objects


def completion_figure(results: Sequence[Result]) -> go.Figure:
    """Draw the fraction of jobs that completed within a time, by policy."""
    objects = plotly_objects()
    figure = objects.Figure()
    for colour, result in zip(_colours(results), results, strict=True):
        times = np.sort(result.times.completion)
        picks = np.unique(np.linspace(0, len(times) - 1, min(len(times), _MOST_QUANTILES)).astype(int))
        first = picks[:1]  # the line starts at 0, so that a single job is visible
        figure.add_scatter(
            x=times[np.append(first, picks)].astype(np.float32),
            y=(np.append(first, picks + 1) / max(1, len(times))).astype(np.float32),
            name=result.policy,
            mode="lines",
            line={"color": colour, "shape": "hv", "width": 2},
            hovertemplate="%{y:.1%} of jobs done within %{x:,.0f} s<extra>%{fullData.name}</extra>",
        )
    figure.update_xaxes(type="log", title="completion time in seconds (logarithmic)")
    figure.update_yaxes(title="share of jobs", tickformat=".0%", rangemode="tozero")
    return _apply_style(figure)


def mean_figure(comparison: Comparison) -> go.Figure:
    """Draw mean and 95th percentile of completion times, with their ratio to the baseline."""
    objects = plotly_objects()
    figure = objects.Figure()
    policies = [result.policy for result in comparison.results]
    for colour, key, name in ((COLOURS[0], "avg_jct_s", "mean"), (COLOURS[3], "p95_jct_s", "95th percentile")):
        ratios = [comparison.ratio(result, key) for result in comparison.results]
        figure.add_bar(
            x=policies,
            y=[result.number(key) for result in comparison.results],
            text=["" if ratio is None else f"{ratio:.2f}x" for ratio in ratios],
            textposition="outside",
            cliponaxis=False,
            name=name,
            marker={"color": colour},
            hovertemplate="%{y:,.0f} s (%{text} of " + comparison.baseline.policy + ")<extra>%{fullData.name}</extra>",
        )
    figure.update_yaxes(title="completion time in seconds")
    return _apply_style(figure)


def utilization_figure(results: Sequence[Result]) -> go.Figure:
    """Draw the fraction of devices in use over time."""
    figure = _over_time(results, lambda result, line: line.devices_used / result.devices, "%{y:.1%} of devices held")
    figure.update_yaxes(title="devices in use", tickformat=".0%", range=[0, 1.03])
    return figure


def queue_figure(results: Sequence[Result]) -> go.Figure:
    """Draw the number of waiting jobs over time."""
    figure = _over_time(results, lambda _, line: line.jobs_waiting, "%{y:,.0f} jobs waiting")
    figure.update_yaxes(title="jobs waiting", rangemode="tozero")
    return figure


def allocation_figure(result: Result) -> go.Figure:
    """Draw the workers over time of the jobs with most device time."""
    objects = plotly_objects()
    names = result.job_names
    spans = largest_spans(result.spans)
    first = float(result.times.submit[0]) if len(result.times.submit) else 0.0
    factor, unit = _unit([result])
    jobs = sorted({span.job for span in spans}, reverse=True)
    figure = objects.Figure()
    figure.add_bar(
        base=[round((span.start_seconds - first) / factor, 5) for span in spans],
        x=[round((span.end_seconds - span.start_seconds) / factor, 5) for span in spans],
        y=[names[span.job] for span in spans],
        customdata=[span.workers for span in spans],
        orientation="h",
        name="workers",
        marker={
            "color": [span.workers for span in spans],
            "colorscale": _FEW_TO_MANY,
            "colorbar": _bar_of("workers"),
            "line": {"width": 0},
        },
        hovertemplate="%{y}: %{customdata} workers, %{base} to %{x} " + unit + "<extra></extra>",
    )
    figure.update_xaxes(title=f"time since the first submission in {unit}")
    order = {"categoryorder": "array", "categoryarray": [names[job] for job in jobs]}
    figure.update_yaxes(type="category", tickfont={"size": 10}, **order)
    return _apply_style(figure, height=max(320, 120 + 15 * len(jobs)))


def largest_spans(spans: Sequence[Span]) -> list[Span]:
    """Return the spans of the jobs with most worker-seconds, as many as a figure can show."""
    count = Counter(span.job for span in spans)
    shown: set[int] = set()
    total = 0
    for job in _largest_first(spans)[:_MOST_BARS]:
        if total + count[job] <= _MOST_SPANS:
            shown.add(job)
            total += count[job]
    return [span for span in spans if span.job in shown]


def _largest_first(spans: Iterable[Span]) -> list[int]:
    """Sort jobs by worker-seconds, largest first."""
    service: dict[int, float] = {}
    for span in spans:
        service[span.job] = service.get(span.job, 0.0) + span.workers * (span.end_seconds - span.start_seconds)
    return sorted(service, key=lambda job: (-service[job], job))


def allocations_figure(results: Sequence[Result]) -> go.Figure:
    """Draw the workers over time of the largest jobs, one panel per policy."""
    plotly_objects()
    from plotly.subplots import make_subplots

    names = results[0].job_names
    jobs = sorted(_largest_first(span for result in results for span in result.spans)[:_MOST_ROWS], reverse=True)
    factor, unit = _unit(results)
    edges = np.linspace(0.0, max(result.times.makespan_seconds for result in results), _CELLS + 1)
    across = min(_PANELS_ABREAST, len(results))
    down = -(-len(results) // across)
    height = 100 + down * (70 + 11 * len(jobs))
    figure = make_subplots(
        down,
        across,
        specs=[
            [{} if row * across + column < len(results) else None for column in range(across)] for row in range(down)
        ],
        shared_xaxes="all",
        shared_yaxes="all",
        horizontal_spacing=0.02,
        vertical_spacing=50 / height,
        subplot_titles=[result.policy for result in results],
    )
    for number, result in enumerate(results):
        panel = {"row": number // across + 1, "col": number % across + 1}
        figure.add_heatmap(
            x=((edges[:-1] + edges[1:]) / 2 / factor).astype(np.float32),
            y=[names[job] for job in jobs],
            z=_workers_held(result, jobs, edges).astype(np.float32),
            ygap=1,
            name=result.policy,
            coloraxis="coloraxis",
            hovertemplate="%{y}: %{z:.3g} workers at %{x:.4g} " + unit + "<extra>%{fullData.name}</extra>",
            **panel,
        )
        if number >= len(results) - across:
            figure.update_xaxes(title=f"time since the first submission in {unit}", **panel)
    bar = _bar_of("workers") | {"len": 200, "lenmode": "pixels", "y": 1, "yanchor": "top"}
    _apply_style(figure, height)
    figure.update_layout(coloraxis={"colorscale": _FEW_TO_MANY, "colorbar": bar}, margin={"t": 44})
    figure.update_annotations(font={"size": 13})
    figure.update_xaxes(showticklabels=True)
    figure.update_yaxes(type="category", tickfont={"size": 9}, dtick=1)
    return figure


def _workers_held(result: Result, jobs: Sequence[int], edges: Floats) -> Floats:
    """Return the mean workers of each job between the edges; NaN where it held none."""
    spans: dict[int, list[Span]] = {job: [] for job in jobs}
    for span in result.spans:
        if span.job in spans:
            spans[span.job].append(span)
    held = np.full((len(jobs), len(edges) - 1), np.nan)
    for row, mine in enumerate(spans.values()):
        if mine:
            clock = np.array([(span.start_seconds, span.end_seconds) for span in mine]).ravel() - result.times.submit[0]
            work = np.array([(0.0, span.workers * (span.end_seconds - span.start_seconds)) for span in mine]).ravel()
            means = np.diff(np.interp(edges, clock, work.cumsum())) / np.diff(edges)
            held[row, means > 0] = means[means > 0]
    return held


def _bar_of(what: str) -> dict[str, Any]:
    return {"title": {"text": what}, "thickness": 12, "outlinewidth": 0}


def _over_time(results: Sequence[Result], value: Callable[[Result, Timeline], Floats], hover: str) -> go.Figure:
    objects = plotly_objects()
    factor, unit = _unit(results)
    figure = objects.Figure()
    for colour, result in zip(_colours(results), results, strict=True):
        line = result.timeline
        if line is None:
            continue
        figure.add_scatter(
            x=(line.times / factor).astype(np.float32),
            y=value(result, line).astype(np.float32),
            name=result.policy,
            mode="lines",
            line={"color": colour, "shape": "hv", "width": 1.3},
            hovertemplate=hover + "<extra>%{fullData.name}</extra>",
        )
    figure.update_xaxes(title=f"time since the first submission in {unit}")
    return _apply_style(figure)


def _unit(results: Sequence[Result]) -> tuple[float, str]:
    longest = max(result.times.makespan_seconds for result in results)
    for seconds, unit in ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes")):
        if longest > 3 * seconds:
            return seconds, unit
    return 1.0, "seconds"


def _colours(results: Sequence[Result]) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(len(results))]


def _apply_style(figure: go.Figure, height: int = 380) -> go.Figure:
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 70, "r": 20, "t": 16, "b": 56},
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#1f2933"},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hoverlabel={"font": {"family": "system-ui, sans-serif"}},
    )
    figure.update_xaxes(gridcolor="#eef1f4", zeroline=False)
    figure.update_yaxes(gridcolor="#eef1f4", zeroline=False)
    return figure
