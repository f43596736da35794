"""Assumed speed-up of jobs whose model has no curve: `--speedup profiles`, `linear` or `power:EXPONENT`.

`profiles` draws one of the measured profiles for each job. The draw depends on the seed and the name of the job only:
every policy, and every selection of jobs from the trace, gets the same curves. A job of fixed size needs no curve: its
speed at other sizes is never seen, and its work counts in device-seconds, as in other simulators.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import NamedTuple

from sterna.errors import UserError, did_you_mean
from sterna.workloads.profiles import DRAWN, curve_of
from sterna.workloads.trace import Trace

_POWER = re.compile(r"power:(\d*\.?\d+)", re.ASCII)
_MOST_LISTED = 1 << 16
"""Length of a power curve; no job gains beyond it."""


@dataclass(frozen=True, slots=True)
class SpeedupAssumption:
    """Speed-up of jobs whose model has no curve."""

    is_drawn: bool
    """Each job gets one of the measured profiles."""
    exponent: float = 1.0
    """Otherwise: n workers are n to this power as fast as one."""

    def __str__(self) -> str:
        if self.is_drawn:
            return "profiles"
        return "linear" if self.exponent == 1 else f"power:{self.exponent:g}"


DRAWN_PROFILES = SpeedupAssumption(is_drawn=True)
LINEAR_SPEEDUP = SpeedupAssumption(is_drawn=False)


def parse_speedup(text: str) -> SpeedupAssumption:
    """Parse `profiles`, `linear` or `power:0.8`."""
    known = {str(each): each for each in (DRAWN_PROFILES, LINEAR_SPEEDUP)}
    if text in known:
        return known[text]
    if re.search(r"\.ya?ml$", text):
        raise UserError(f"--speedup {text}: curves by model are given with --speedups {text}.")
    power = _POWER.fullmatch(text)
    if power and 0 < float(power[1]) <= 1:
        return SpeedupAssumption(is_drawn=False, exponent=float(power[1]))
    if text.startswith("power"):
        raise UserError(f"--speedup {text}: give an exponent above 0 and of at most 1, e.g. power:0.8.")
    raise UserError(f"--speedup {text} is unknown; {did_you_mean(text, (*known, 'power:0.8'))}")


def is_speedup(text: str) -> bool:
    """Return True if the text is a value of `--speedup`, not the name of a file."""
    return text in (str(DRAWN_PROFILES), str(LINEAR_SPEEDUP)) or _POWER.fullmatch(text) is not None


class AssumedCurves(NamedTuple):
    """Curves of all jobs, known and assumed."""

    model: tuple[str, ...]
    """Model whose curve each job has; a job without a curve is linear."""
    speedups: Mapping[str, tuple[float, ...]]
    """Curves beside the built-in profiles, by model."""
    category: tuple[str, ...]
    """Categories of the trace; a job without one has that of the model drawn for it."""
    notices: tuple[str, ...]


def assume_curves(
    trace: Trace, speedups: Mapping[str, tuple[float, ...]], assumption: SpeedupAssumption, seed: int
) -> AssumedCurves:
    """Choose the model of each elastic job whose own has neither a built-in profile nor one in `speedups`."""
    is_known = {model: curve_of(model, speedups) is not None for model in set(trace.model)}
    is_elastic = trace.minimum < trace.maximum
    unknown = [row for row, model in enumerate(trace.model) if not is_known[model] and is_elastic[row]]
    if not unknown:
        return AssumedCurves(trace.model, speedups, trace.category, ())
    notices = (_describe(len(unknown), len(trace), assumption, seed),)
    models, categories = list(trace.model), list(trace.category)
    if assumption.is_drawn:
        for row in unknown:
            models[row] = draw_model(trace.name[row], int(trace.workers[row]), seed)
            categories[row] = categories[row] or models[row]
        return AssumedCurves(tuple(models), speedups, tuple(categories), notices)
    if assumption.exponent < 1:
        most = min(int(trace.maximum.max()), _MOST_LISTED)
        speedups = {**speedups, str(assumption): tuple(count**assumption.exponent for count in range(1, most + 1))}
        for row in unknown:
            models[row] = str(assumption)
    return AssumedCurves(tuple(models), speedups, trace.category, notices)


def draw_model(job: str, workers: int, seed: int) -> str:
    """Draw a profile for a job that requests `workers` workers, uniformly from those that may stand for it."""
    models = _models_for(workers)
    number = int.from_bytes(blake2b(f"{seed} {job}".encode(), digest_size=8).digest(), "big")
    return models[number % len(models)]


@cache
def _models_for(workers: int) -> tuple[str, ...]:
    """Return the profiles for a request; above every measured count, those that were measured farthest."""
    workers = min(workers, max(each.most for each in DRAWN.values()))
    return tuple(model for model, each in DRAWN.items() if each.fewest <= workers <= each.most)


def _describe(count: int, jobs: int, assumption: SpeedupAssumption, seed: int) -> str:
    if assumption.is_drawn:
        what = f"each gets a measured profile drawn at random (--speedup profiles, seed {seed})"
    elif assumption.exponent < 1:
        what = f"n workers are taken to be n^{assumption.exponent:g} times as fast as one (--speedup {assumption})"
    else:
        what = "their speed-up is taken to be linear (--speedup linear)"
    return f"{count:,} of {jobs:,} jobs may change their size and have no model with a known speed-up; {what}."
