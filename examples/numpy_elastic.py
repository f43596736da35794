"""A training that changes its size while it runs: softmax regression in NumPy, workers join and leave between steps.

    python examples/numpy_elastic.py --steps 500                             # alone: one worker
    sterna submit --name elastic --workers 1:4 --resizing in-place -- python examples/numpy_elastic.py --steps 500

Each step has one batch whatever the number of workers; each takes its part of it, and the gradients are added up. So
the model learns the same, only faster, and `--pad-seconds` (time on an accelerator, for the whole batch) shows it even
where the machine has few cores.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from sterna import agent
from sterna.agent import elastic

CLASSES, FEATURES = 10, 64
CHECKPOINT = "numpy_elastic.npz"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small model with workers that come and go.")
    parser.add_argument("--steps", type=int, default=500, help="steps in all, those before a restart included")
    parser.add_argument("--pad-seconds", type=float, default=0.0, help="time on an accelerator that a batch takes")
    parser.add_argument("--batch", type=int, default=240)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=0, help="steps between checkpoints; 0: only when stopped")
    return parser.parse_args()


def dataset(seed: int, count: int = 4000) -> tuple[Any, Any]:
    """Ten clouds of points, and which cloud each point is of."""
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(CLASSES, FEATURES))
    labels = draw.integers(CLASSES, size=count)
    return centres[labels] + 1.5 * draw.normal(size=(count, FEATURES)), labels


def add_gradient(weights: Any, x: Any, y: Any, gradient: Any, loss: Any) -> None:
    """Sums, not means: the parts of a batch are of different size."""
    odds = np.exp(x @ weights)
    odds /= odds.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss[0] = -np.log(odds[rows, y] + 1e-12).sum()
    odds[rows, y] -= 1
    gradient[...] = x.T @ odds


def save(path: Path, weights: Any, step: int) -> None:
    partial = path.with_suffix(f".{os.getpid()}.partial")
    with partial.open("wb") as file:
        np.savez(file, step=step, weights=weights)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def main() -> None:
    asked = options()
    path = agent.checkpoint_dir() / CHECKPOINT
    points, labels = dataset(asked.seed)
    weights, gradient, loss = np.zeros((FEATURES, CLASSES)), np.zeros((FEATURES, CLASSES)), np.zeros(1)
    start = 0
    if path.exists():
        with np.load(path) as found:
            weights[...], start = found["weights"], int(found["step"])

    group = elastic.Group([weights], step=start)

    @agent.on_stop
    def save_if_first() -> None:
        if group.rank == 0:
            save(path, weights, group.step)

    print(f"joined at step {group.step} as {group.rank + 1} of {group.size}")
    while group.step < asked.steps:
        batch = np.random.default_rng([asked.seed, group.step]).integers(len(labels), size=asked.batch)
        rows = batch[group.rank :: group.size]
        add_gradient(weights, points[rows], labels[rows], gradient, loss)
        time.sleep(asked.pad_seconds * len(rows) / asked.batch)
        if not group.sum(gradient, loss):
            print(f"step {group.step}: now {group.rank + 1} of {group.size}")
            continue
        weights -= asked.rate * gradient / asked.batch
        agent.report(group.step, asked.steps, loss=loss[0] / asked.batch, workers=group.size)
        if asked.save_every and group.step % asked.save_every == 0 and group.rank == 0:
            save(path, weights, group.step)
            agent.saved(group.step)
    if group.rank == 0:
        save(path, weights, group.step)
    print(f"step={group.step}/{asked.steps} loss={loss[0] / asked.batch:.4f}")


if __name__ == "__main__":
    main()
