"""Generated loss curves of kinds that the recorded trainings do not have, seeded and with noise.

Lower is better; a reward is negated. Tests use them to measure how often a growth category is wrong, and what that
costs the job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sterna.model.speedup import Floats


@dataclass(frozen=True)
class LossCurve:
    """Loss at evenly spaced steps of one training."""

    reported: Floats
    """With noise."""
    expected: Floats
    """Without noise."""

    @property
    def improved(self) -> Floats:
        """Fraction of its final improvement that the training has made by each step, without noise."""
        best = np.minimum.accumulate(self.expected)
        fraction: Floats = (best[0] - best) / (best[0] - best[-1])
        return fraction


def generate(shape: str, seed: int, steps: int = 2000) -> LossCurve:
    """Generate one training of a shape."""
    random = np.random.default_rng([seed, list(SHAPES).index(shape)])
    done = np.linspace(0.0, 1.0, steps + 1)
    expected = SHAPES[shape](done, random)
    noise = (0.15 if shape == "noisy reward" else 0.01) * random.uniform(0.5, 1.5)
    return LossCurve(expected + noise * random.normal(size=len(done)), expected)


def _late_drop(done: Floats, random: np.random.Generator) -> Floats:
    """Return a loss that stops falling early and falls again long after, as in grokking."""
    early, at, late = random.uniform(0.2, 0.6), random.uniform(0.55, 0.9), random.uniform(0.01, 0.03)
    return 1 - early * _decay(done, random.uniform(0.01, 0.05)) - (1 - early) * _step(done, at, late)


def _plateau(done: Floats, random: np.random.Generator) -> Floats:
    """Return a loss that hardly changes at first."""
    at = random.uniform(0.2, 0.6)
    return 1 - _decay(np.maximum(done - at, 0.0), random.uniform(0.05, 0.2))


def _learning_rate_drops(done: Floats, random: np.random.Generator) -> Floats:
    """Return a loss with a fast fall at each of three reductions of the learning rate."""
    parts = np.array([1.0, *random.uniform([0.2, 0.1, 0.05], [0.4, 0.2, 0.1])])
    starts = [0.0, *random.uniform([0.25, 0.5, 0.75], [0.35, 0.6, 0.9])]
    falls = [_decay(np.maximum(done - start, 0.0), random.uniform(0.01, 0.04)) for start in starts]
    loss: Floats = 1 - (parts / parts.sum()) @ np.array(falls)
    return loss


def _reward(done: Floats, random: np.random.Generator) -> Floats:
    """Return the negative of a reward that rises along an S."""
    return -_step(done, random.uniform(0.3, 0.7), random.uniform(0.08, 0.15))


def _power_law(done: Floats, random: np.random.Generator) -> Floats:
    return (1 + done * 10 ** random.uniform(1.5, 3.5)) ** -random.uniform(0.15, 0.6)


def _warm_restarts(done: Floats, random: np.random.Generator) -> Floats:
    """Return a loss under a cosine schedule whose cycles double; it rises at each restart."""
    cycle = np.floor(np.log2(1 + 15 * done)).clip(0, 3)
    within = (15 * done - (2**cycle - 1)) / 2**cycle
    trend = random.uniform(0.45, 0.75) ** (cycle + within.clip(0, 1))
    loss: Floats = trend * (1 + random.uniform(0.3, 0.8) * 0.5 * (1 + np.cos(np.pi * within.clip(0, 1))))
    return loss


def _double_descent(done: Floats, random: np.random.Generator) -> Floats:
    """Return a test loss that falls, rises and falls again below its first minimum."""
    early, at = random.uniform(0.4, 0.7), random.uniform(0.3, 0.5)
    bump = random.uniform(0.3, 0.8) * early * np.exp(-(((done - at) / random.uniform(0.08, 0.15)) ** 2))
    later = (1 - early) * _step(done, at + random.uniform(0.15, 0.3), random.uniform(0.04, 0.08))
    return 1 - early * _decay(done, random.uniform(0.02, 0.06)) + bump - later


def _decay(done: Floats, scale: float) -> Floats:
    return 1 - np.exp(-done / scale)


def _step(done: Floats, at: float, width: float) -> Floats:
    return 1 / (1 + np.exp(-(done - at) / width))


SHAPES: dict[str, Callable[[Floats, np.random.Generator], Floats]] = {
    "late drop": _late_drop,
    "plateau then improvement": _plateau,
    "three learning-rate drops": _learning_rate_drops,
    "noisy reward": _reward,
    "power law": _power_law,
    "warm restarts": _warm_restarts,
    "double descent": _double_descent,
}
