"""Voda's placement: re-pack everything at every change, then assign nodes to bins so that most workers stay.

Equal jobs are packed in the order of a map, which is random, so its published runs restarted jobs without a gain.
Double allocation of spanning jobs (a defect seen in its logs) is not modelled: it would only make Voda slower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from random import Random

WorkerNodes = tuple[int, ...]
"""Node of each worker, in worker order."""


def pack_workers(
    sizes: Mapping[int, int], before: Mapping[int, WorkerNodes], capacity: Sequence[int], random: Random
) -> dict[int, WorkerNodes]:
    """Return the nodes of each job. `before` has those of all running jobs."""
    bins = _best_fit_decreasing(sizes, capacity, random)
    names = _most_in_place(sizes, bins, before, len(capacity))
    return {job: tuple(names[each] for each in runs) for job, runs in bins.items()}


def _best_fit_decreasing(sizes: Mapping[int, int], capacity: Sequence[int], random: Random) -> dict[int, list[int]]:
    """Choose a bin for each worker: the tightest that holds the whole job, else the emptiest first."""
    free = list(capacity)
    order = list(sizes)
    random.shuffle(order)
    bins = {}
    for job in sorted(order, key=lambda job: -sizes[job]):
        runs: list[list[int]] = []
        left = sizes[job]
        while left:
            holding = [at for at, slots in enumerate(free) if slots >= left]
            at = min(holding, key=free.__getitem__) if holding else max(range(len(free)), key=free.__getitem__)
            here = min(left, free[at])
            runs.append([at] * here)
            free[at] -= here
            left -= here
        random.shuffle(runs)
        bins[job] = [at for run in runs for at in run]
    return bins


def _most_in_place(
    sizes: Mapping[int, int], bins: Mapping[int, Sequence[int]], before: Mapping[int, WorkerNodes], count: int
) -> Sequence[int]:
    """Assign a node to each bin so that most workers stay."""
    overlap = [[0] * count for _ in range(count)]
    for job, new in bins.items():
        old = before.get(job, ())[: sizes[job]]  # a shrunk job gives up its last workers first
        for at in set(new):
            for node in set(old):
                overlap[at][node] += min(new.count(at), old.count(node))
    return max(permutations(range(count)), key=lambda names: sum(overlap[at][node] for at, node in enumerate(names)))
