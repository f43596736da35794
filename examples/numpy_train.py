"""A small training in NumPy: softmax regression or a two-layer network on made-up data, with a checkpoint.

    python examples/numpy_train.py --steps 2000                              # alone
    sterna submit --name digits -- python examples/numpy_train.py --steps 2000

The lines marked with (1) and (2) are all that Sterna needs. They do nothing when it is absent; the first `try` is only
there for machines where it is not even installed. After a restart the training goes on where the checkpoint ends, and
to the bit as if it had never been stopped: what a step draws depends on its number alone.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

try:
    from sterna import agent
except ImportError:
    agent = None  # type: ignore[assignment]

CLASSES, FEATURES = 10, 64
CHECKPOINT = "numpy_train.npz"

Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small model on made-up data.")
    parser.add_argument("--steps", type=int, default=2000, help="steps in all, those before a restart included")
    parser.add_argument("--pad-seconds", type=float, default=0.0, help="sleep in each step: time on an accelerator")
    parser.add_argument("--model", choices=("softmax", "mlp"), default="mlp")
    parser.add_argument("--hidden", type=int, default=32, help="width of the mlp")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate: a lower one learns for longer")
    parser.add_argument("--noise", type=float, default=4.0, help="spread of the data: more is harder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=0, help="steps between checkpoints; 0: only when stopped")
    parser.add_argument("--print-every", type=int, default=100)
    parser.add_argument("--checkpoint-dir", type=Path, default=None)
    return parser.parse_args()


def dataset(seed: int, noise: float, count: int = 4000) -> tuple[Any, Any]:
    """Ten clouds of points, and which cloud each point is of."""
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(CLASSES, FEATURES))
    labels = draw.integers(CLASSES, size=count)
    return centres[labels] + noise * draw.normal(size=(count, FEATURES)), labels


def new_weights(model: str, hidden: int, seed: int) -> Arrays:
    draw = np.random.default_rng(seed + 1)
    width = hidden if model == "mlp" else FEATURES
    weights: Arrays = {"out": draw.normal(scale=0.1, size=(width, CLASSES)), "out_bias": np.zeros(CLASSES)}
    if model == "mlp":
        weights |= {"in": draw.normal(scale=0.1, size=(FEATURES, hidden)), "in_bias": np.zeros(hidden)}
    return weights


def gradients(weights: Arrays, x: Any, y: Any) -> tuple[Arrays, float, float]:
    """Gradients of the mean loss over the batch, the loss, and the share that is right."""
    is_deep = "in" in weights
    hidden = np.maximum(x @ weights["in"] + weights["in_bias"], 0) if is_deep else x
    scores = hidden @ weights["out"] + weights["out_bias"]
    scores -= scores.max(axis=1, keepdims=True)
    odds = np.exp(scores)
    odds /= odds.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = float(-np.log(odds[rows, y] + 1e-12).mean())
    right = float((odds.argmax(axis=1) == y).mean())
    odds[rows, y] -= 1
    odds /= len(y)
    found: Arrays = {"out": hidden.T @ odds, "out_bias": odds.sum(axis=0)}
    if is_deep:
        back = (odds @ weights["out"].T) * (hidden > 0)
        found |= {"in": x.T @ back, "in_bias": back.sum(axis=0)}
    return found, loss, right


def save(path: Path, weights: Arrays, step: int) -> None:
    """Write atomically: a reader finds a whole checkpoint, the old one or the new one."""
    partial = path.with_suffix(f".{os.getpid()}.partial")
    contents: dict[str, Any] = {"step": step, **weights}
    with partial.open("wb") as file:
        np.savez(file, **contents)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def load(path: Path, weights: Arrays) -> int:
    """Fill the weights from a checkpoint, if there is one; the step to go on from."""
    if not path.exists():
        return 0
    with np.load(path) as found:
        for name, array in weights.items():
            array[...] = found[name]
        return int(found["step"])


def main() -> None:
    asked = options()
    folder = asked.checkpoint_dir or (agent.checkpoint_dir() if agent else Path("checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / CHECKPOINT
    points, labels = dataset(asked.seed, asked.noise)
    weights = new_weights(asked.model, asked.hidden, asked.seed)
    step = load(path, weights)
    if step:
        print(f"resumed at step {step}")

    if agent:
        agent.on_stop(lambda: save(path, weights, step))  # (1)

    while step < asked.steps:
        rows = np.random.default_rng([asked.seed, step]).integers(len(labels), size=asked.batch)
        change, loss, accuracy = gradients(weights, points[rows], labels[rows])
        for name, gradient in change.items():
            weights[name] -= asked.rate * gradient
        time.sleep(asked.pad_seconds)
        step += 1
        if agent:
            agent.report(step, asked.steps, loss=loss, accuracy=accuracy)  # (2)
        if step % asked.print_every == 0 or step == asked.steps:
            print(f"step={step}/{asked.steps} loss={loss:.4f} accuracy={accuracy:.3f}")
        if asked.save_every and step % asked.save_every == 0:
            save(path, weights, step)
            if agent:
                agent.saved(step)
    save(path, weights, step)


if __name__ == "__main__":
    main()
