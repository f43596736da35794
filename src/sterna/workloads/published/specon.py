"""The 50 jobs of SpeCon's published figure, and eight measured trainings for their losses.

The figure has completion times under the default scheduler and under SpeCon; the study infers work and arrivals. The
trainings are our measurements, because SpeCon's own were not published.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import numpy as np

from sterna.workloads.domain import FloatColumn

NODES, CORES = 4, 16.0
"""Nodes of the experiment and cores of each, from the group's own tooling, which counts 1600 % a node."""
CORES_A_JOB = 4.0
"""With this cap the work that the published column implies falls into few sizes most clearly: the spread within four of
them is 0.19 to 0.20 of the whole, against 0.21 to 0.25 with caps of 1, 2, 8 or 16 cores."""
WINDOW_SECONDS = (700.0, 1000.0)
"""Range of the submission window; the published column does not narrow it further."""
SKEW: Mapping[int, int] = {0: 12, 1: 6, 2: 3, 3: 5}
"""Jobs by node of origin in the shipped list of decisions, 26 of the 50."""


@cache
def default_seconds() -> FloatColumn:
    """Return completion times under the default scheduler, in the order of submission."""
    return np.array([float(row["default_seconds"]) for row in _rows("specon_jobs.csv")])


@cache
def specon_seconds() -> FloatColumn:
    """Return completion times of the same jobs under SpeCon."""
    return np.array([float(row["specon_seconds"]) for row in _rows("specon_jobs.csv")])


@cache
def losses() -> Mapping[str, FloatColumn]:
    """Return the evaluation loss after 0, 1, .. 100 % of the CPU time of one training, by family of models."""
    rows = _rows("specon_growth.csv")
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0] if name != "done"}


def submit_seconds(seed: int) -> FloatColumn:
    """Draw submit times, uniform over a window of random length; the first at 0."""
    random = np.random.default_rng([seed, 50])
    window = random.uniform(*WINDOW_SECONDS)
    at: FloatColumn = np.sort(random.uniform(0.0, window, len(default_seconds())))
    at -= at[0]
    return at


def families(seed: int) -> list[int]:
    """Draw a family for each job."""
    drawn: list[int] = np.random.default_rng([seed, 51]).integers(0, len(losses()), len(default_seconds())).tolist()
    return drawn


def skewed_nodes(seed: int) -> list[int]:
    """Draw the first node of each job with the skew of the shipped list of decisions."""
    parts = np.array(list(SKEW.values()), dtype=np.float64)
    nodes = np.random.default_rng([seed, 52]).choice(list(SKEW), len(default_seconds()), p=parts / parts.sum())
    return [int(node) for node in nodes]


def _rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((files(__package__) / name).read_text(encoding="utf-8").splitlines()))
