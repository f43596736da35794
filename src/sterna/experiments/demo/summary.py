"""The demo's numbers: what each phase came to, how Sterna compares, in sentences and as a document.

One place for every number that screen, page and JSON show, so that they cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sterna.experiments.demo.run import DISTURBED, PhaseResult

UNEVEN = 1.15
"""The same work in so many times the CPU time: something else slowed the cores down."""


@dataclass(frozen=True)
class Against:
    """Sterna beside one other phase."""

    other: PhaseResult
    saved: float
    """Part of the other's mean that is saved."""
    best: str
    """The job that gains most, as a part of its time under the other."""
    worst: str
    """The one that gains least, or loses most."""


def against(sterna: PhaseResult, other: PhaseResult) -> Against:
    ours, theirs = sterna.seconds, other.seconds
    saved = {name: 1 - ours[name] / theirs[name] for name in theirs}
    best, worst = max(saved, key=saved.__getitem__), min(saved, key=saved.__getitem__)
    return Against(other, 1 - sterna.mean_seconds / other.mean_seconds, best, worst)


def compared(results: Sequence[PhaseResult]) -> list[Against]:
    """The last against each of the others."""
    return [against(results[-1], other) for other in results[:-1]]


def headline(results: Sequence[PhaseResult]) -> str:
    parts = [f"{_change(each.saved)} than with {_called(each.other)}" for each in compared(results)]
    said = f"With Sterna the mean job was done {' and '.join(parts)}"
    return f"{said}, but other programs disturbed it." if is_disturbed(results) else f"{said}."


def is_disturbed(results: Sequence[PhaseResult]) -> bool:
    return any(result.is_disturbed for result in results)


def _change(saved: float) -> str:
    return f"{saved:.0%} sooner" if saved >= 0 else f"{-saved:.0%} later"


def _called(result: PhaseResult) -> str:
    return result.phase.title if result.phase.title.isupper() else result.phase.title.lower()


def sentences(results: Sequence[PhaseResult]) -> list[str]:
    """What has to be said beside the table."""
    sterna = results[-1]
    said = []
    for each in compared(results):
        said.append(
            f"Against {_called(each.other)}: best off is {each.best} ({_times(sterna, each.other, each.best)}), worst "
            f"off {each.worst} ({_times(sterna, each.other, each.worst)})."
        )
    moves = f"{sterna.moves} move{'' if sterna.moves == 1 else 's'} between cores"
    said.append(f"Sterna made {moves} while jobs trained; work lost: {sterna.lost_seconds:g} s.")
    return said + cautions(results)


def _times(sterna: PhaseResult, other: PhaseResult, job: str) -> str:
    return f"{sterna.seconds[job]:.1f} s instead of {other.seconds[job]:.1f} s"


def cautions(results: Sequence[PhaseResult]) -> list[str]:
    """Why these numbers may be worth less than they seem."""
    said = []
    for result in results:
        title = result.phase.title
        if result.discarded:
            taken = ", ".join(f"{each:.0%}" for each in result.discarded)
            said.append(f"{title} was run again, because others took {taken} of the CPUs; the quieter run counts.")
        if math.isnan(result.others):
            said.append(f"What others took during {title} could not be measured here.")
    taken_by_others = [f"{each.others:.0%} during {each.phase.title}" for each in results if each.is_disturbed]
    if taken_by_others:
        said.append(
            f"Others took more than {DISTURBED:.0%} of the CPUs ({', '.join(taken_by_others)}), so these numbers are "
            "not worth much; run it again on a quiet machine."
        )
    most, least = (pick(result.cpu_seconds for result in results) for pick in (max, min))
    if most > UNEVEN * least:
        said.append(
            f"The same work took from {least:.0f} to {most:.0f} s of CPU time, so the machine itself was not equally "
            "fast all the time."
        )
    if not results[-1].control.startswith("cgroup"):
        said.append(f"No control groups here ({results[-1].control}), so that shares are followed only roughly.")
    return said


def document(results: Sequence[PhaseResult]) -> dict[str, Any]:
    """Everything, for machines."""
    return {
        "phases": [_phase(result) for result in results],
        "comparisons": [
            {
                "against": each.other.phase.key,
                "saved": round(each.saved, 4),
                "best_job": each.best,
                "worst_job": each.worst,
            }
            for each in compared(results)
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
