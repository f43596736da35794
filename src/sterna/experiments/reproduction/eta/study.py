"""`sterna reproduce eta`: coverage of the 80 % bands around remaining time.

There are no published figures; the targets are our own. Recorded trainings are forecast from the other recordings, jobs
of replayed traces from earlier jobs. Coverage is reported with the width of the bands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sterna.experiments.progress_callback import ProgressCallback
from sterna.experiments.reproduction.eta.coverage import HIGHEST, LOWEST, BandForecast, Coverage, coverage_of
from sterna.experiments.reproduction.eta.curves import (
    SEEN,
    ByModel,
    finish_forecasts,
    value_forecasts,
    value_time_forecasts,
)
from sterna.experiments.reproduction.eta.replays import JOBS, POLICIES, Replay, replay
from sterna.experiments.reproduction.eta.replays import SEEN as SEEN_IN_REPLAYS
from sterna.experiments.reproduction.interval import interval_of
from sterna.experiments.reproduction.outcome import Figure, Reproduction, Row, TargetBand, judged_row
from sterna.workloads.published.curves import MODELS, RecordingClock

_HONEST = TargetBand(100 * LOWEST, 100 * HIGHEST)
_HELD = "outcomes inside the 80 % band, %"
_WIDTH = "mean width, % of the remaining time"
_ERROR = "median error of the middle, %"
_HELD_OUT = "held out by model"

_CLOCKS = {RecordingClock.WALL: "wall clock", RecordingClock.CPU: "CPU clock"}

_REMARKS = (
    f"A band counts as honest when it holds {LOWEST:.0%} to {HIGHEST:.0%} of the outcomes.",
    "Recordings: eight models, one run each on a core that they shared with others, cut short at 16 places. Held out "
    "by model: what sets the width of a band comes from the seven others. A model's jobs stand or fall together, so "
    "the share is a mean of eight, not of a hundred.",
    "Replays: each forecast knows the forecasts before it and what had become of them, jobs that still run included; "
    "the pace is misjudged by 10 % on purpose, because the simulator has no noise of its own.",
    "Time until a value: shown, not promised. Most of these bands have no end, because half a curve does not show "
    "whether a value a little better than the best so far will ever come; give the total steps where you can.",
)


def reproduce(seeds: int, progress: ProgressCallback | None = None) -> Reproduction:
    runs = len(POLICIES) * seeds
    replays: dict[str, list[Replay]] = {policy: [] for policy in POLICIES}
    for policy in POLICIES:
        for seed in range(seeds):
            replays[policy].append(replay(policy, seed))
            if progress:
                progress(sum(map(len, replays.values())), runs)
    rows = [row for clock in RecordingClock for seen in SEEN for row in _recording_rows(clock, seen)]
    rows += [row for seen in SEEN for row in _values(seen)]
    rows += [row for clock in RecordingClock for seen in SEEN for row in _times_to_values(clock, seen)]
    rows += [
        row for policy in POLICIES for seen in SEEN_IN_REPLAYS for row in _replay_rows(policy, seen, replays[policy])
    ]
    return Reproduction(
        "eta",
        "Does the 80 % band around a job's remaining time hold 70 to 90 % of what comes, without being useless?",
        rows,
        _REMARKS,
        lambda: (_coverage_figure(rows), _recording_figure()),
    )


def _recording_rows(clock: RecordingClock, seen: float) -> list[Row]:
    case = f"recordings, {_CLOCKS[clock]}, {seen:.0%} seen"
    coverage = coverage_of(finish_forecasts(clock, seen))
    return _rows(case, coverage, f"{coverage.outcomes} outcomes; {_HELD_OUT}")


def _values(seen: float) -> list[Row]:
    case = f"recordings, best value, {seen:.0%} seen"
    coverage = coverage_of(value_forecasts(seen))
    note = f"{coverage.outcomes} outcomes; {_HELD_OUT}"
    return [
        judged_row(case, _HELD, None, _HONEST, coverage.held, note),
        Row(case, "mean width, % of the improvement so far", None, None, coverage.span, None),
    ]


def _times_to_values(clock: RecordingClock, seen: float) -> list[Row]:
    case = f"recordings, time until a value, {_CLOCKS[clock]}, {seen:.0%} seen"
    coverage = coverage_of(value_time_forecasts(clock, seen))
    note = f"{coverage.outcomes} outcomes; {_HELD_OUT}"
    return [
        Row(case, _HELD, None, None, coverage.held, None, note),
        Row(case, "bands without an end, %", None, None, coverage.endless, None),
    ]


def _replay_rows(policy: str, seen: float, replays: Sequence[Replay]) -> list[Row]:
    case = f"replays, {policy}, {seen:.0%} done"
    groups = [run.forecasts[seen] for run in replays]
    changes = sum(run.changes for run in replays) / len(replays)
    silent = sum(run.silent[seen] for run in replays) / len(replays)
    shares = interval_of([coverage_of([group]).held for group in groups]).describe(" %")
    note = (
        f"{shares}; {JOBS} jobs a seed, {changes:.1f} resizes or stops each, {silent:.0f} before anything was learned"
    )
    return _rows(case, coverage_of(groups), note)


def _rows(case: str, coverage: Coverage, note: str) -> list[Row]:
    endless = f"without {coverage.endless:.1f} % that have no end" if coverage.endless else ""
    return [
        judged_row(case, _HELD, None, _HONEST, coverage.held, note),
        Row(case, _WIDTH, None, None, coverage.width, None, endless),
        Row(case, _ERROR, None, None, coverage.error, None),
    ]


def _coverage_figure(rows: Sequence[Row]) -> Figure:
    held = [row for row in rows if row.metric == _HELD]
    stripe = {"type": "rect", "yref": "paper", "x0": 100 * LOWEST, "x1": 100 * HIGHEST, "y0": 0, "y1": 1}
    bars = {"type": "bar", "orientation": "h", "y": [row.case for row in held], "x": [row.ours for row in held]}
    layout = {
        "xaxis": {"title": {"text": _HELD}, "range": [0, 100]},
        "yaxis": {"autorange": "reversed", "automargin": True},
        "shapes": [{**stripe, "fillcolor": "rgba(0, 128, 0, 0.15)", "line": {"width": 0}}],
    }
    caption = "Bars that end in the green stripe belong to honest bands."
    return Figure("Coverage", caption, {"data": [bars], "layout": layout})


def _recording_figure() -> Figure:
    """Draw every forecast of the recordings at half: the band relative to the outcome."""
    by_model: ByModel = finish_forecasts(RecordingClock.WALL, 0.5)
    traces = [_trace(model, made) for model, made in zip(MODELS, by_model, strict=True)]
    plot = {"data": traces, "layout": {"yaxis": {"title": {"text": "middle of the band / what came"}, "type": "log"}}}
    caption = "Wall clock, half seen. A bar that crosses 1 held the outcome; bars of one colour are one recording."
    return Figure("Recorded trainings, forecast at half", caption, plot)


def _trace(model: str, made: Sequence[BandForecast]) -> dict[str, Any]:
    middle = [forecast.band.middle / forecast.outcome for forecast in made]
    above = [(forecast.band.high - forecast.band.middle) / forecast.outcome for forecast in made]
    below = [(forecast.band.middle - forecast.band.low) / forecast.outcome for forecast in made]
    error = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
    return {"type": "scatter", "mode": "markers", "name": model, "y": middle, "error_y": error}
