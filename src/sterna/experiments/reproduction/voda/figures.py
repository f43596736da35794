"""Figures of the Voda study, as in its paper: completion by job, utilisation, restarts, and the spread over unseen
arrivals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sterna.experiments.report.figures import COLOURS
from sterna.experiments.reproduction.outcome import Figure
from sterna.experiments.reproduction.voda.work import PUBLISHED
from sterna.workloads.published import voda

if TYPE_CHECKING:
    from sterna.experiments.reproduction.voda.study import VodaStudy

_OURS, _VODA, _MODEL, _RESTLESS = COLOURS[0], COLOURS[1], COLOURS[3], COLOURS[2]
_DEVICES = 12


def figures_of(study: VodaStudy) -> Sequence[Figure]:
    return [_times(study), _restarts(study), *_by_job(study), *_utilisation(study), _unseen(study)]


def _times(study: VodaStudy) -> Figure:
    names = list(PUBLISHED)
    published = [PUBLISHED[name].mean_seconds for name in names]
    model = [study.fit.mean_seconds(name) for name in names]
    ours = [study.ours[name].mean_seconds for name in names]
    bars = [
        _bar("published", names, published, _VODA),
        _bar("model of Voda", names, model, _MODEL),
        _bar("ours", names, ours, _OURS),
    ]
    caption = "The model of Voda was fitted to the device-seconds of ElasticFIFO only; the other bars test it."
    return Figure("Mean completion time", caption, {"data": bars, "layout": _layout("seconds")})


def _restarts(study: VodaStudy) -> Figure:
    names = list(PUBLISHED)
    bars = [
        _bar("published", names, [PUBLISHED[name].restarts for name in names], _VODA),
        _bar("model of Voda", names, [study.fit.restarts(name) for name in names], _MODEL),
        _bar("ours, no stickiness", names, [study.repacking[name].migrations for name in names], _RESTLESS),
        _bar("ours", names, [study.ours[name].migrations for name in names], _OURS),
    ]
    caption = "Jobs that had to start again because all of their workers were moved. Halts are not among them."
    return Figure("Restarts by migration", caption, {"data": bars, "layout": _layout("restarts")})


def _by_job(study: VodaStudy) -> Iterator[Figure]:
    jobs = [job.name for job in voda.jobs()]
    for name in PUBLISHED:
        runs = study.fit.runs[name]
        model = [sum(run.completion_seconds[row] for run in runs) / len(runs) for row in range(len(jobs))]
        ours = study.ours[name].completion_seconds.tolist()
        bars = [_bar("model of Voda", jobs, model, _MODEL), _bar("ours", jobs, ours, _OURS)]
        layout = _layout("seconds") | {"margin": {"l": 70, "r": 20, "t": 16, "b": 110}}
        caption = "In the order of submission; the model's bars are averages over its random ties."
        yield Figure(f"Completion time of each job, {name}", caption, {"data": bars, "layout": layout})


def _utilisation(study: VodaStudy) -> Iterator[Figure]:
    for name in ("ElasticFIFO", "AFS-L"):
        lines = [
            _line("model of Voda", study.fit.runs[name][0].used, _MODEL),
            _line("ours", study.ours[name].used, _OURS),
        ]
        layout = _layout("devices held") | {"xaxis": {"title": {"text": "seconds since the first submission"}}}
        caption = f"Of {_DEVICES}. Holding a device is not progress: pauses count as held."
        yield Figure(f"Devices in use, {name}", caption, {"data": lines, "layout": layout})


def _unseen(study: VodaStudy) -> Figure:
    boxes = [
        {
            "type": "box",
            "name": words,
            "x": [name for name, changes in study.unseen.items() for _ in changes.mean],
            "y": [value for changes in study.unseen.values() for value in getattr(changes, field)],
            "marker": {"color": colour},
            "boxpoints": "all",
        }
        for words, field, colour in (
            ("mean completion", "mean", _OURS),
            ("makespan", "makespan", _VODA),
            ("mean completion, no stickiness", "repacking_mean", _RESTLESS),
        )
    ]
    layout = _layout("change against the model of Voda in %") | {"boxmode": "group"}
    caption = "One point for each seed; below zero ours is better."
    return Figure("Unseen arrivals", caption, {"data": boxes, "layout": layout})


def _bar(name: str, x: Sequence[str], y: Sequence[float], colour: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": name,
        "x": list(x),
        "y": [round(value, 1) for value in y],
        "marker": {"color": colour},
    }


def _line(name: str, used: Sequence[tuple[float, float]], colour: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [round(at, 1) for at, _ in used],
        "y": [devices for _, devices in used],
        "line": {"color": colour, "shape": "hv", "width": 1.5},
    }


def _layout(y: str) -> dict[str, Any]:
    return {"yaxis": {"title": {"text": y}}}
