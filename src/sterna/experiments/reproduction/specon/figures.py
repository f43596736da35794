"""Figures of the SpeCon study, like the paper's: completion by job, utilisation, moves; and the sweep of its two
parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sterna.experiments.reproduction.outcome import Figure
from sterna.experiments.reproduction.specon.cases import ALPHAS, BOTH, INTERVALS, RAW, Outcomes, SpeconStudy
from sterna.workloads.published import specon

_COLOURS = {"default": "#9aa5b1", RAW.label: "#d98e48", BOTH.label: "#1f6f8b"}
_UTILISATION_POINTS = 400


def figures_of(study: SpeconStudy) -> Sequence[Figure]:
    drawn = [figure for name, outcome in study.outcomes.items() for figure in _of_baseline(name, outcome)]
    return [*drawn, _effects(study), _sweep(study)]


def _of_baseline(name: str, outcome: Outcomes) -> Iterator[Figure]:
    yield Figure(
        f"Completion by job, {name}",
        "One seed: seconds from submission to the end, job by job in the order of submission.",
        _completion(outcome),
    )
    yield Figure(
        f"Utilisation, {name}",
        f"One seed: cores in use, of {specon.NODES * specon.CORES:g}.",
        _utilisation(outcome),
    )
    yield Figure(
        f"Moves, {name}",
        "One seed: when a job was moved, and which.",
        _moves(outcome),
    )


def _completion(outcome: Outcomes) -> dict[str, Any]:
    bars = [
        {
            "type": "bar",
            "name": label,
            "x": list(range(1, len(outcome.first[label].completion) + 1)),
            "y": outcome.first[label].completion.round(1).tolist(),
            "marker": {"color": colour},
        }
        for label, colour in _COLOURS.items()
    ]
    return {"data": bars, "layout": _layout("job", "completion, s") | {"barmode": "group"}}


def _utilisation(outcome: Outcomes) -> dict[str, Any]:
    lines = []
    for label, colour in _COLOURS.items():
        ran = outcome.first[label]
        step = max(1, len(ran.times) // _UTILISATION_POINTS)
        lines.append(
            {
                "type": "scatter",
                "name": label,
                "x": [round(at, 1) for at in ran.times[::step]],
                "y": [round(cores, 2) for cores in ran.cores_used[::step]],
                "line": {"shape": "hv", "color": colour},
            }
        )
    return {"data": lines, "layout": _layout("time, s", "cores in use")}


def _moves(outcome: Outcomes) -> dict[str, Any]:
    dots = []
    for label in (RAW.label, BOTH.label):
        moves = outcome.first[label].moves
        dots.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label,
                "x": [round(at, 1) for at, *_ in moves],
                "y": [job + 1 for _, job, _, _ in moves],
                "text": [f"node-{source + 1} to node-{target + 1}" for _, _, source, target in moves],
                "marker": {"color": _COLOURS[label]},
            }
        )
    return {"data": dots, "layout": _layout("time, s", "job")}


def _effects(study: SpeconStudy) -> Figure:
    """Draw the mean over seeds of every case."""
    bars = [
        {
            "type": "bar",
            "name": name,
            "x": list(outcome.changes),
            "y": [round(outcome.mean(label, "mean"), 2) for label in outcome.changes],
        }
        for name, outcome in study.outcomes.items()
    ]
    layout = _layout("", "mean completion, change in %") | {"barmode": "group", "xaxis": {"tickangle": 35}}
    caption = f"Mean over {study.seeds} seeds, against the default scheduler; what each idea brings, and what without."
    return Figure("What each idea brings", caption, {"data": bars, "layout": layout})


def _sweep(study: SpeconStudy) -> Figure:
    heat = {
        "type": "heatmap",
        "x": [f"{interval:g} s" for interval in INTERVALS],
        "y": [f"{alpha:g}" for alpha in ALPHAS],
        "z": [[round(value, 2) for value in row] for row in study.sweep],
        "colorscale": "RdBu",
        "colorbar": {"title": {"text": "%"}},
    }
    caption = (
        "Change of mean completion under the published rule on skew. No pair suits all jobs, because seconds mean "
        "something else to each; Sterna's own categories count a job's steps and need neither."
    )
    layout = _layout("interval between samples", "alpha")
    return Figure("SpeCon's alpha and interval", caption, {"data": [heat], "layout": layout})


def _layout(across: str, up: str) -> dict[str, Any]:
    return {"xaxis": {"title": {"text": across}}, "yaxis": {"title": {"text": up}}}
