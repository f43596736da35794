"""Knowledge of rules about simulated jobs: true, learned so far, or noisy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from sterna.backends.simulated.backend import SimulatedBackend
from sterna.backends.simulated.config import SimulationConfig
from sterna.backends.simulated.learned_knowledge import LearningBackend
from sterna.backends.simulated.noisy_knowledge import NoisyBackend
from sterna.backends.simulated.workload import Workload
from sterna.errors import UserError
from sterna.model.cluster import Nodes
from sterna.model.learned import Learned
from sterna.parse_number import real

_LARGEST_SIGMA = 3.0
"""Estimates are then typically off by a factor of twenty; more has no meaning."""


class KnowledgeSource(Enum):
    """Origin of curves, remaining work and restart costs."""

    TRUE = "true"
    LEARNED = "learned"
    NOISY = "noisy"


@dataclass(frozen=True)
class Knowledge:
    """Value of `--knowledge`: `true`, `learned` or `noisy:0.3`."""

    source: KnowledgeSource = KnowledgeSource.TRUE
    sigma: float = 0.0
    """Standard deviation of the logarithm of the error factor of noisy knowledge."""

    def __str__(self) -> str:
        return f"{self.source.value}:{self.sigma:g}" if self.source is KnowledgeSource.NOISY else self.source.value


TRUE = Knowledge()
LEARNED = Knowledge(KnowledgeSource.LEARNED)


def parse_knowledge(text: str) -> Knowledge:
    """Parse the value of `--knowledge`."""
    name, colon, number = text.strip().partition(":")
    if name in (KnowledgeSource.TRUE.value, KnowledgeSource.LEARNED.value) and not colon:
        return Knowledge(KnowledgeSource(name))
    if name != KnowledgeSource.NOISY.value or not number:
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
    return Knowledge(KnowledgeSource.NOISY, sigma)


def make_backend(
    knowledge: Knowledge,
    workload: Workload,
    nodes: Nodes,
    config: SimulationConfig | None = None,
    *,
    seed: int = 0,
    known: Learned | None = None,
) -> SimulatedBackend:
    """Make the backend whose snapshots carry this knowledge; `known` seeds learning, `seed` the noise."""
    if knowledge.source is KnowledgeSource.LEARNED:
        return LearningBackend(workload, nodes, config, known=known)
    if knowledge.source is KnowledgeSource.NOISY:
        return NoisyBackend(workload, nodes, config, sigma=knowledge.sigma, seed=seed)
    return SimulatedBackend(workload, nodes, config)
