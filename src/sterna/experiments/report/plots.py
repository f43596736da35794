"""Figures by name, for `Result.plot` and `Comparison.plot`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sterna.errors import UserError, did_you_mean
from sterna.experiments.comparison import Comparison
from sterna.experiments.report import figures
from sterna.experiments.result import Result

if TYPE_CHECKING:
    import plotly.graph_objects as go

Plots = dict[str, Callable[[], "go.Figure"]]


def plot_result(result: Result, what: str) -> go.Figure:
    """Return a figure of one result."""
    return _draw(
        what,
        {
            "completion": lambda: figures.completion_figure([result]),
            "utilization": lambda: figures.utilization_figure([result]),
            "queue": lambda: figures.queue_figure([result]),
            "allocation": lambda: figures.allocation_figure(result),
        },
    )


def plot_comparison(comparison: Comparison, what: str) -> go.Figure:
    """Return a figure of all results of a comparison."""
    results = comparison.results
    return _draw(
        what,
        {
            "mean": lambda: figures.mean_figure(comparison),
            "completion": lambda: figures.completion_figure(results),
            "utilization": lambda: figures.utilization_figure(results),
            "queue": lambda: figures.queue_figure(results),
            "allocation": lambda: figures.allocations_figure(results),
        },
    )


def _draw(what: str, plots: Plots) -> go.Figure:
    if what not in plots:
        raise UserError(f"There is no plot '{what}': {did_you_mean(what, plots)}")
    figures.plotly_objects("plot")
    return plots[what]()
