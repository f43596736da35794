"""Registry of studies. To add one, write a module with `reproduce(seeds, progress)` and a line here.

A study is imported when it is run, because the command line lists the names at every start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from sterna.errors import UserError, did_you_mean
from sterna.experiments.progress_callback import ProgressCallback
from sterna.experiments.reproduction.outcome import Reproduction

Reproduce = Callable[[int, ProgressCallback | None], Reproduction]

ALL = "all"

STUDIES: dict[str, str] = {
    "specon": "sterna.experiments.reproduction.specon.study",
    "voda": "sterna.experiments.reproduction.voda.study",
    "serving": "sterna.experiments.reproduction.serving",
    "knowledge": "sterna.experiments.reproduction.knowledge",
    "dragon": "sterna.experiments.reproduction.dragon.study",
    "eta": "sterna.experiments.reproduction.eta.study",
}
"""Module by name, in the order in which `all` runs them."""


def parse_study(study: str) -> Sequence[str]:
    """Return the names of the studies that the argument of `sterna reproduce` selects."""
    if study == ALL:
        return tuple(STUDIES)
    if study not in STUDIES:
        raise UserError(f"There is no study '{study}' to reproduce: {did_you_mean(study, (*STUDIES, ALL))}")
    return (study,)


def load_study(name: str) -> Reproduce:
    made: Reproduce = import_module(STUDIES[name]).reproduce
    return made
