"""Numbers of the demo, as sentences and as a document; screen, report and JSON all take them from here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sterna.experiments.demo.run import DISTURBED, PhaseResult

UNEVEN = 1.15
"""Ratio of CPU time for the same work above which the cores were not equally fast."""


@dataclass(frozen=True)
class PhaseComparison:
    """Comparison of Sterna with another phase."""

    other: PhaseResult
    saved: float
    """Fraction by which the mean is below that of the other phase."""
    best: str
    """Job with the largest relative gain."""
    worst: str
    """Job with the smallest relative gain, or the largest loss."""


def compare_phase(sterna: PhaseResult, other: PhaseResult) -> PhaseComparison:
    ours, theirs = sterna.seconds, other.seconds
    saved = {name: 1 - ours[name] / theirs[name] for name in theirs}
    best, worst = max(saved, key=saved.__getitem__), min(saved, key=saved.__getitem__)
    return PhaseComparison(other, 1 - sterna.mean_seconds / other.mean_seconds, best, worst)


def compare_phases(results: Sequence[PhaseResult]) -> list[PhaseComparison]:
    """Compare the last phase with each of the others."""
    return [compare_phase(results[-1], other) for other in results[:-1]]


def headline(results: Sequence[PhaseResult]) -> str:
    parts = [f"{_change(each.saved)} than with {_phase_name(each.other)}" for each in compare_phases(results)]
    result = f"With Sterna the mean job was done {' and '.join(parts)}"
    return f"{result}, but other programs disturbed it." if is_disturbed(results) else f"{result}."


def is_disturbed(results: Sequence[PhaseResult]) -> bool:
    return any(result.is_disturbed for result in results)


def _change(saved: float) -> str:
    return f"{saved:.0%} sooner" if saved >= 0 else f"{-saved:.0%} later"


def _phase_name(result: PhaseResult) -> str:
    return result.phase.title if result.phase.title.isupper() else result.phase.title.lower()


def sentences(results: Sequence[PhaseResult]) -> list[str]:
    """Return the sentences below the table."""
    sterna = results[-1]
    lines = []
    for each in compare_phases(results):
        lines.append(
            f"Against {_phase_name(each.other)}: best off is {each.best} ({_times(sterna, each.other, each.best)}), "
            f"worst off {each.worst} ({_times(sterna, each.other, each.worst)})."
        )
    moves = f"{sterna.moves} move{'' if sterna.moves == 1 else 's'} between cores"
    lines.append(f"Sterna made {moves} while jobs trained; work lost: {sterna.lost_seconds:g} s.")
    return lines + cautions(results)


def _times(sterna: PhaseResult, other: PhaseResult, job: str) -> str:
    return f"{sterna.seconds[job]:.1f} s instead of {other.seconds[job]:.1f} s"


def cautions(results: Sequence[PhaseResult]) -> list[str]:
    """Return warnings about conditions that distort the numbers."""
    lines = []
    for result in results:
        title = result.phase.title
        if result.discarded:
            taken = ", ".join(f"{each:.0%}" for each in result.discarded)
            lines.append(f"{title} was run again, because others took {taken} of the CPUs; the quieter run counts.")
        if math.isnan(result.others):
            lines.append(f"What others took during {title} could not be measured here.")
    taken_by_others = [f"{each.others:.0%} during {each.phase.title}" for each in results if each.is_disturbed]
    if taken_by_others:
        lines.append(
            f"Others took more than {DISTURBED:.0%} of the CPUs ({', '.join(taken_by_others)}), so these numbers are "
            "not worth much; run it again on a quiet machine."
        )
    most, least = (pick(result.cpu_seconds for result in results) for pick in (max, min))
    if most > UNEVEN * least:
        lines.append(
            f"The same work took from {least:.0f} to {most:.0f} s of CPU time, so the machine itself was not equally "
            "fast all the time."
        )
    if not results[-1].control.startswith("cgroup"):
        lines.append(f"No control groups here ({results[-1].control}), so that shares are followed only roughly.")
    return lines


def document(results: Sequence[PhaseResult]) -> dict[str, Any]:
    """Return the JSON document of `sterna demo`."""
    return {
        "phases": [_phase(result) for result in results],
        "comparisons": [
            {
                "against": each.other.phase.key,
                "saved": round(each.saved, 4),
                "best_job": each.best,
                "worst_job": each.worst,
            }
            for each in compare_phases(results)
        ],
        "cautions": cautions(results),
    }


def _phase(result: PhaseResult) -> dict[str, Any]:
    return {
        "phase": result.phase.key,
        "mean_s": round(result.mean_seconds, 3),
        "longest_s": round(result.longest_seconds, 3),
        "moves": result.moves,
        "lost_s": round(result.lost_seconds, 3),
        "cpu_s": round(result.cpu_seconds, 3),
        "others": None if math.isnan(result.others) else round(result.others, 4),
        "discarded": [round(each, 4) for each in result.discarded],
        "control": result.control,
        "jobs": {name: round(seconds, 3) for name, seconds in result.seconds.items()},
    }
