"""Plotly figures of the demo: completion of jobs, cores by job over time, losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sterna.experiments.demo.run import PhaseResult, progress_of
from sterna.experiments.report.figures import plotly_objects

PHASE_COLOURS = {"equal": "#9aa5b1", "fifo": "#e9a23b", "sterna": "#0b7285"}
_JOBS = (
    "#2f4b7c", "#d45087", "#2a9d8f", "#f4a261", "#7a5195", "#5c8001",
    "#b5651d", "#3a86c8", "#c1121f", "#6c757d", "#8ac926", "#ff595e",
)  # fmt: skip
_FONT = {"family": "system-ui, sans-serif", "size": 13, "color": "#1f2933"}


def completion_figure(results: Sequence[PhaseResult]) -> Any:
    """Draw the number of completed jobs over time."""
    figure = plotly_objects().Figure()
    latest = max(result.longest_seconds for result in results)
    for result in results:
        ends = sorted(result.seconds.values())
        figure.add_scatter(
            x=[0.0, *ends, latest],
            y=[*range(len(ends) + 1), len(ends)],
            name=result.phase.title,
            mode="lines",
            line={"shape": "hv", "width": 3, "color": PHASE_COLOURS[result.phase.key]},
            hovertemplate="%{y} jobs done after %{x:.1f} s<extra>%{fullData.name}</extra>",
        )
    figure.update_xaxes(title="seconds since all were submitted")
    figure.update_yaxes(title="jobs done", dtick=2, rangemode="tozero")
    return apply_style(figure, 360)


def jobs_figure(results: Sequence[PhaseResult]) -> Any:
    """Draw the time of each job in each phase, shortest work first."""
    figure = plotly_objects().Figure()
    work = {job.name: job.cpu_seconds for job in results[0].jobs}
    names = sorted(work, key=work.__getitem__, reverse=True)
    for name in names:
        ends = [result.seconds[name] for result in results]
        figure.add_scatter(
            x=[min(ends), max(ends)],
            y=[name, name],
            mode="lines",
            line={"color": "#dde4e8", "width": 5},
            showlegend=False,
            hoverinfo="skip",
        )
    for result in results:
        figure.add_scatter(
            x=[result.seconds[name] for name in names],
            y=names,
            name=result.phase.title,
            mode="markers",
            marker={"size": 12, "color": PHASE_COLOURS[result.phase.key]},
            hovertemplate="%{y}: %{x:.1f} s<extra>%{fullData.name}</extra>",
        )
    figure.update_xaxes(title="seconds until done", rangemode="tozero")
    return apply_style(figure, 430)


def cores_figure(results: Sequence[PhaseResult]) -> Any:
    """Draw the cores of each job over time, one panel per phase."""
    from plotly.subplots import make_subplots

    plotly_objects()
    titles = [result.phase.title for result in results]
    figure = make_subplots(rows=len(results), cols=1, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.07)
    colours = dict(zip((job.name for job in results[0].jobs), _JOBS, strict=False))
    for row, result in enumerate(results, 1):
        times, cores = core_use(result)
        for name, used in cores.items():
            figure.add_scatter(
                x=times,
                y=used,
                name=name,
                legendgroup=name,
                showlegend=row == 1,
                stackgroup=f"phase-{row}",
                line={"width": 0, "shape": "hv"},
                fillcolor=colours.get(name, _JOBS[0]),
                hovertemplate="%{y:.2f} cores<extra>" + name + "</extra>",
                row=row,
                col=1,
            )
    figure.update_yaxes(title="cores", rangemode="tozero")
    figure.update_xaxes(title="seconds since all were submitted", row=len(results), col=1)
    figure.update_annotations(font={**_FONT, "size": 14}, x=0, xanchor="left")
    apply_style(figure, 230 * len(results) + 60)
    figure.update_layout(legend={"orientation": "v", "y": 1, "yanchor": "top", "x": 1.01}, margin={"t": 30, "r": 120})
    return figure


def core_use(result: PhaseResult) -> tuple[list[float], dict[str, list[float]]]:
    """Return the cores of each job between consecutive samples, and the start of each of these spans."""
    times = [sample.at for sample in result.samples]
    cores: dict[str, list[float]] = {job.name: [] for job in result.jobs}
    for before, after in zip(result.samples, result.samples[1:], strict=False):
        used = {job.name: job.cpu_seconds for job in before.jobs}
        span = max(after.at - before.at, 1e-6)
        for job in after.jobs:
            cores[job.name].append(round(max(job.cpu_seconds - used.get(job.name, 0.0), 0.0) / span, 3))
    return [round(at, 2) for at in times], {name: [*values, 0.0] for name, values in cores.items()}


def loss_figure(results: Sequence[PhaseResult]) -> Any:
    """Draw the losses of the last phase by progress, relative to the first loss of the job."""
    figure = plotly_objects().Figure()
    colours = dict(zip((job.name for job in results[-1].jobs), _JOBS, strict=False))
    for name, colour in colours.items():
        points = sorted(_losses(results[-1], name))
        if not points:
            continue
        first = max(abs(points[0][1]), 1e-9)
        figure.add_scatter(
            x=[part for part, _ in points],
            y=[value / first for _, value in points],
            name=name,
            mode="lines",
            line={"color": colour, "width": 2},
            hovertemplate="%{y:.0%} of its first loss after %{x:.0%} of its steps<extra>" + name + "</extra>",
        )
    figure.update_xaxes(title="part of its training", tickformat=".0%", range=[0, 1])
    figure.update_yaxes(title="loss, against the first", tickformat=".0%", rangemode="tozero")
    apply_style(figure, 380)
    figure.update_layout(legend={"orientation": "v", "y": 1, "yanchor": "top", "x": 1.01}, margin={"r": 120})
    return figure


def _losses(result: PhaseResult, name: str) -> set[tuple[float, float]]:
    found = set()
    for sample in result.samples:
        for job in sample.jobs:
            if job.name == name and job.value is not None and math.isfinite(job.value):
                found.add((round(progress_of(job), 4), job.value))
    return found


def apply_style(figure: Any, height: int) -> Any:
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 80, "r": 20, "t": 16, "b": 50},
        font=_FONT,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    )
    figure.update_xaxes(gridcolor="#eef1f4", zeroline=False)
    figure.update_yaxes(gridcolor="#eef1f4", zeroline=False)
    return figure
