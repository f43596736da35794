"""Which studies there are. To add one, write a module with `reproduce(seeds, progress)` and a line here.

Names only: a study is imported when it is run, because the command line lists them all at every start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from sterna.errors import UserError, did_you_mean
from sterna.experiments.reproduction.outcome import Progress, Reproduction

Reproduce = Callable[[int, Progress | None], Reproduction]

ALL = "all"

STUDIES: dict[str, str] = {
    "specon": "sterna.experiments.reproduction.specon.study",
    "voda": "sterna.experiments.reproduction.voda.study",
    "serving": "sterna.experiments.reproduction.serving",
    "knowledge": "sterna.experiments.reproduction.knowledge",
    "dragon": "sterna.experiments.reproduction.dragon.study",
    "eta": "sterna.experiments.reproduction.eta.study",
}
"""Name: module, in the order in which `all` runs them."""


def names_of(study: str) -> Sequence[str]:
    """The studies that a user means by a word."""
    if study == ALL:
        return tuple(STUDIES)
    if study not in STUDIES:
        raise UserError(f"There is no study '{study}' to reproduce: {did_you_mean(study, (*STUDIES, ALL))}")
    return (study,)


def study_of(name: str) -> Reproduce:
    made: Reproduce = import_module(STUDIES[name]).reproduce
    return made
