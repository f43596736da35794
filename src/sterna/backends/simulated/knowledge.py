"""What the rules of a simulated world may know of its jobs: the truth, what was learned so far, or something wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.costs import Costs, Fault
from sterna.backends.simulated.learned_knowledge import LearningBackend
from sterna.backends.simulated.noisy_knowledge import NoisyBackend
from sterna.backends.simulated.workload import Workload
from sterna.errors import UserError
from sterna.model.cluster import Nodes
from sterna.model.learned import Learned
from sterna.parse_number import real

_LARGEST_SIGMA = 3.0
"""Wrong by a factor of twenty either way as a rule: more tells nobody anything."""


class Source(Enum):
    """Where curves, remaining work and restart costs come from."""

    TRUE = "true"
    LEARNED = "learned"
    NOISY = "noisy"


@dataclass(frozen=True)
class Knowledge:
    """As a user writes it: `true`, `learned` or `noisy:0.3`."""

    source: Source = Source.TRUE
    sigma: float = 0.0
    """Of the logarithm of the factors by which noisy knowledge is wrong."""

    def __str__(self) -> str:
        return f"{self.source.value}:{self.sigma:g}" if self.source is Source.NOISY else self.source.value


TRUE = Knowledge()
LEARNED = Knowledge(Source.LEARNED)


def knowledge_of(text: str) -> Knowledge:
    """What `--knowledge` says."""
    name, colon, number = text.strip().partition(":")
    if name in (Source.TRUE.value, Source.LEARNED.value) and not colon:
        return Knowledge(Source(name))
    if name != Source.NOISY.value or not number:
        raise UserError(f"--knowledge {text}: write true, learned, or noisy and how wrong, e.g. noisy:0.3.")
    try:
        sigma = real(number)
    except ValueError:
        sigma = math.nan
    if not 0 <= sigma <= _LARGEST_SIGMA:
        raise UserError(
            f"--knowledge {text}: '{number}' is not a number from 0 to {_LARGEST_SIGMA:g}; write noisy:0.3 for errors "
            "of about 30 %."
        )
    return Knowledge(Source.NOISY, sigma)


def world_of(
    knowledge: Knowledge,
    workload: Workload,
    nodes: Nodes,
    costs: Costs | None = None,
    faults: Sequence[Fault] = (),
    *,
    seed: int = 0,
    timeline: bool = False,
    known: Learned | None = None,
) -> SimulatedBackend:
    """A world for rules that know so much. Learning may begin with what is `known`; `seed` is for noise."""
    if knowledge.source is Source.LEARNED:
        return LearningBackend(workload, nodes, costs, faults, timeline=timeline, known=known)
    if knowledge.source is Source.NOISY:
        return NoisyBackend(workload, nodes, costs, faults, timeline=timeline, sigma=knowledge.sigma, seed=seed)
    return SimulatedBackend(workload, nodes, costs, faults, timeline=timeline)
