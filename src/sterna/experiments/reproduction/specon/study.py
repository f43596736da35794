"""`sterna reproduce specon`: 50 jobs that share four nodes, under SpeCon's rule, its repair, and Sterna's rules.

There are two baselines, because the published column and the published list of decisions disagree: `count` spreads jobs
evenly and reproduces the column, `skew` loads nodes as the list does. Every figure is a mean over seeds; a seed draws
arrivals, models and, on `skew`, first nodes. Constants were chosen on seeds 1000 to 1019; reported seeds start at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from sterna.experiments.progress_callback import ProgressCallback
from sterna.experiments.reproduction.interval import interval_of
from sterna.experiments.reproduction.outcome import Figure, Reproduction, Row, TargetBand, judged_row
from sterna.experiments.reproduction.specon.cases import (
    ABLATIONS,
    ALPHAS,
    BASELINES,
    BOTH,
    CASES,
    INFORMING_SEEDS,
    INTERVALS,
    RAW,
    SWEEP_SEEDS,
    Outcomes,
    RuleCase,
    SpeconStudy,
    bounds_of,
    change_of,
    is_run,
    run_case,
)
from sterna.experiments.reproduction.specon.simulation import draw_experiment, run
from sterna.workloads.published import specon

_PART_OF_MEAN, _PART_OF_MAKESPAN = 0.75, 0.85
"""Targets, as fractions of the gain of an oracle."""
_ABSTRACT = {"mean": -14.8, "makespan": -24.7}
"""Changes in percent that the abstract claims; the published figure is of another run."""
_BEST, _WORST, _WORST_OF_ALL, _MAKESPAN, _MOVES = -41.5, 15.0, 20.0, 3.0, 0.5
_MISLED_POINTS = 3.0
"""Upper bound on the loss in points with an error of 30 % in the work of each job."""

_METRICS = {
    "mean": "mean completion, change in %",
    "best": "best job, change in %",
    "worst": "worst job, change in %",
    "makespan": "makespan, change in %",
    "quality": "time to 95 % of final quality, change in %",
    "moves": "moves a job",
}


def reproduce(seeds: int, progress: ProgressCallback | None = None) -> Reproduction:
    study = _run(seeds, progress)
    rows = [row for baseline in BASELINES for row in _rows_of(baseline, study.outcomes[baseline])]

    def figures() -> Sequence[Figure]:
        from sterna.experiments.reproduction.specon.figures import figures_of

        return figures_of(study)

    return Reproduction(
        "specon",
        "Do 50 jobs that share four nodes finish sooner when growth, work left and prices are looked at?",
        [*rows, *_rows_of_sweep(study)],
        _remarks(study, rows),
        figures,
    )


def _run(seeds: int, progress: ProgressCallback | None) -> SpeconStudy:
    cases = [(baseline, case) for baseline in BASELINES for case in (*CASES, *ABLATIONS) if is_run(case, baseline)]
    swept = min(seeds, SWEEP_SEEDS)
    informing = min(seeds, INFORMING_SEEDS)
    runs = sum(informing if case.only_informs else seeds for _, case in cases)
    total = runs + seeds * len(BASELINES) + swept * len(ALPHAS) * len(INTERVALS)
    advance = _count_progress(total, progress)
    outcomes = {baseline: Outcomes() for baseline in BASELINES}
    for seed in range(seeds):
        drawn = draw_experiment(seed)
        default = {baseline: run(drawn, baseline) for baseline in BASELINES}
        for baseline, outcome in outcomes.items():
            shortest, longest = bounds_of(drawn, default[baseline])
            outcome.shortest.append(shortest)
            outcome.longest.append(longest)
            outcome.completion.append(default[baseline].completion)
            outcome.first.setdefault("default", default[baseline])
            advance()
        for baseline, case in cases:
            if case.only_informs and seed >= informing:
                continue
            ran = run_case(case, drawn, baseline, seed)
            outcome = outcomes[baseline]
            outcome.changes.setdefault(case.label, []).append(change_of(ran, default[baseline]))
            outcome.first.setdefault(case.label, ran)
            advance()
    return SpeconStudy(outcomes, _sweep(swept, advance), seeds)


def _count_progress(total: int, progress: ProgressCallback | None) -> Callable[[], None]:
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    return advance


def _sweep(seeds: int, advance: Callable[[], None]) -> list[list[float]]:
    default = [run(draw_experiment(seed), "skew") for seed in range(seeds)]

    def mean_change(alpha: float, interval: float) -> float:
        changes = []
        for seed in range(seeds):
            ran = run(draw_experiment(seed), "skew", f"specon:strict=true:alpha={alpha}:interval={interval}")
            changes.append(change_of(ran, default[seed]).mean)
            advance()
        return float(np.mean(changes))

    return [[mean_change(alpha, interval) for interval in INTERVALS] for alpha in ALPHAS]


# Rows.


def _rows_of(baseline: str, outcome: Outcomes) -> Iterator[Row]:
    mean = float(np.mean([each.mean() for each in outcome.completion]))
    published = float(specon.default_seconds().mean()) if baseline == "count" else None
    yield Row(f"{baseline}, default scheduler", "mean completion, s", published, None, mean, None)
    for bound, metric, values in (
        ("shortest first, one pool", "mean", outcome.shortest),
        ("longest first, one pool", "makespan", outcome.longest),
    ):
        note = f"bound; {interval_of(values).describe()}"
        yield Row(f"{baseline}, {bound}", _METRICS[metric], None, None, float(np.mean(values)), None, note)
    for case in CASES:
        if is_run(case, baseline):
            yield from _rows_of_case(baseline, case, outcome)
    for case in ABLATIONS:
        for metric in ("mean", "worst", "makespan", "moves"):
            yield _row(baseline, case.label, metric, outcome, note="ablation; ")


def _rows_of_case(baseline: str, case: RuleCase, outcome: Outcomes) -> Iterator[Row]:
    targets = _targets(baseline, outcome) if case is BOTH else {}
    if case.is_misled:
        targets = {"mean": outcome.mean(BOTH.label, "mean") + _MISLED_POINTS}
    for metric in _METRICS:
        published = _published_changes().get(metric) if case in (RAW, BOTH) else None
        yield _row(baseline, case.label, metric, outcome, published, targets.get(metric))
    if case is BOTH:
        for metric, claimed in _ABSTRACT.items():
            label, ours = f"{baseline}, {case.label}", outcome.mean(case.label, metric)
            note = "the abstract's claim, of another run than its figure"
            yield judged_row(
                label, f"{_METRICS[metric]}, as in the abstract", claimed, TargetBand(high=claimed), ours, note
            )
    if case is BOTH and baseline == "count":
        worst = outcome.of(case.label, "worst")
        above = sum(value > _WORST_OF_ALL for value in worst)
        label, metric = f"{baseline}, {case.label}", "worst job of any seed, change in %"
        note = f"above in {above} of {len(worst)} seeds"
        yield judged_row(label, metric, None, TargetBand(high=_WORST_OF_ALL), max(worst), note)


def _row(
    baseline: str,
    label: str,
    metric: str,
    outcome: Outcomes,
    published: float | None = None,
    target: float | None = None,
    note: str = "",
) -> Row:
    values = outcome.of(label, metric)
    ours = float(np.mean(values))
    note += interval_of(values).describe() + outcome.fewer_seeds(label)
    case = f"{baseline}, {label}"
    if target is None:
        return Row(case, _METRICS[metric], published, None, ours, None, note)
    return judged_row(case, _METRICS[metric], published, TargetBand(high=target), ours, note)


def _published_changes() -> dict[str, float]:
    """Return the figures of the published run, computed job by job."""
    default, ours = specon.default_seconds(), specon.specon_seconds()
    return {
        "mean": 100 * (float(ours.mean() / default.mean()) - 1),
        "best": 100 * (float((ours / default).min()) - 1),
        "worst": 100 * (float((ours / default).max()) - 1),
        "moves": 18 / 50,
    }


def _targets(baseline: str, outcome: Outcomes) -> dict[str, float]:
    """Return upper bounds: a change in percent, or moves per job."""
    longest = float(np.mean(outcome.longest))
    return {
        "mean": _PART_OF_MEAN * float(np.mean(outcome.shortest)),
        "best": _BEST,
        "worst": _WORST,
        "makespan": _MAKESPAN if baseline == "count" else _PART_OF_MAKESPAN * longest,
        "moves": _MOVES,
    }


def _rows_of_sweep(study: SpeconStudy) -> Iterator[Row]:
    values = [value for row in study.sweep for value in row]
    note = f"{len(ALPHAS)} x {len(INTERVALS)} pairs on skew"
    metric = "mean completion, change in %"
    yield Row("alpha and interval swept, best pair", metric, None, None, min(values), None, note)
    yield Row("alpha and interval swept, worst pair", metric, None, None, max(values), None, note)


def _remarks(study: SpeconStudy, rows: Sequence[Row]) -> list[str]:
    count = study.outcomes["count"]
    longest = float(np.mean(count.longest))
    remarks = [
        "The abstract's -14.8 % of mean completion and -24.7 % of makespan come from another run than the published "
        "figure, which shows -7.3 %. On count, a balanced start, we do not reach them; no scheduler can shorten the "
        f"makespan there by more than {-longest:.1f} %.",
        "count gives back the published column of the default scheduler exactly; skew, with 12, 6, 3 and 5 jobs a node "
        "of every 26 as in the shipped list of decisions, does not fit that column.",
        f"A move costs 10 s and the work since a checkpoint every 30 s; the cap of {specon.CORES_A_JOB:g} of "
        f"{specon.CORES:g} cores a job and the window of submissions are inferred.",
        "On count, new jobs go to the node with fewest jobs at that time in every run; with 'map kept' they start "
        "where they did under the default scheduler, as the authors did it.",
        "Growth first serves quality: it shortens the time to 95 % of the final quality and lengthens completion, "
        "because converged jobs are nearer their end.",
        "SpeCon's program was not published: the raw rule is a reconstruction from its files. It moves twice as many "
        "jobs as the authors' list, and its changes lie on either side of the published figure: worse on count, better "
        "on skew, where it meets the abstract's figures too.",
        f"Seeds: {study.seeds}, from 0 on; cases without a target take at most {INFORMING_SEEDS}, and their notes say "
        "so. The constants of the rules were chosen on others (1000 to 1019).",
    ]
    if any(row.metric.startswith("worst job of any seed") and row.holds is False for row in rows):
        remarks.append(
            "The guard keeps a job from being put off for those that are there; jobs that come later, to the same node "
            "and with less time to spare, can still make it late. With the map kept, where each node gets the jobs it "
            "had under the default scheduler, that hardly happens."
        )
    missed = [f"{row.case}: {row.metric} is {row.ours:.1f}, not {row.target:.1f}" for row in rows if row.holds is False]
    return remarks + ([f"Missed: {'; '.join(missed)}."] if missed else [])
