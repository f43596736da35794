"""Training program of the demo: five small models in NumPy, real gradient descent on generated pictures.

Each job runs it as a process; it reports progress by `sterna.agent` and saves when asked to stop. Pictures are drawn
from a seed, so that no data has to be shipped or fetched. `--measure` prints the CPU time of a step of each model.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from sterna import agent

Float32s = np.ndarray[Any, np.dtype[np.float32]]
Weights = dict[str, Float32s]
Gradient = Callable[[Weights, Float32s, Any], tuple[float, Weights]]

SIDE, CLASSES, PICTURES = 12, 10, 1500
MOMENTUM, SMOOTH = 0.9, 0.95
MEASURE_SECONDS = 0.2


def pictures(seed: int) -> tuple[Float32s, Any]:
    """Draw pictures of ten blurred shapes, shifted and noisy, and their labels."""
    draw = np.random.default_rng(seed)
    shapes = sliding_window_view(draw.normal(size=(CLASSES, SIDE + 2, SIDE + 2)), (3, 3), axis=(1, 2)).mean(axis=(3, 4))
    labels = draw.integers(CLASSES, size=PICTURES)
    shifted = np.stack([np.roll(shapes, shift, axis=2) for shift in (-1, 0, 1)])
    shown = shifted[draw.integers(3, size=PICTURES), labels]
    noisy = 1.5 * shown + draw.normal(size=shown.shape)
    return noisy.reshape(PICTURES, -1).astype(np.float32), labels


def cross_entropy(scores: Float32s, labels: Any) -> tuple[float, Float32s]:
    """Return the cross-entropy and its gradient with respect to the scores."""
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float(-np.log(odds[rows, labels] + 1e-9).mean())
    odds[rows, labels] -= 1
    return loss, odds / np.float32(len(labels))


def softmax(weights: Weights, x: Float32s, y: Any) -> tuple[float, Weights]:
    loss, back = cross_entropy(x @ weights["out"], y)
    return loss, {"out": x.T @ back}


def perceptron(weights: Weights, x: Float32s, y: Any) -> tuple[float, Weights]:
    hidden = np.maximum(x @ weights["in"], 0)
    loss, back = cross_entropy(hidden @ weights["out"], y)
    inner = (back @ weights["out"].T) * (hidden > 0)
    return loss, {"out": hidden.T @ back, "in": x.T @ inner}


def autoencoder(weights: Weights, x: Float32s, y: Any) -> tuple[float, Weights]:
    """Reconstruct a picture from a short code."""
    hidden = np.tanh(x @ weights["in"])
    error = hidden @ weights["out"] - x
    back = error / np.float32(len(x))
    inner = (back @ weights["out"].T) * (1 - hidden**2)
    return float((error**2).mean()), {"out": hidden.T @ back, "in": x.T @ inner}


def convolution(weights: Weights, x: Float32s, y: Any) -> tuple[float, Weights]:
    """Apply three by three filters, then one dense layer."""
    windows = sliding_window_view(x.reshape(-1, SIDE, SIDE), (3, 3), axis=(1, 2)).reshape(len(x), -1, 9)
    found = np.maximum(windows @ weights["filters"], 0)
    flat = found.reshape(len(x), -1)
    loss, back = cross_entropy(flat @ weights["out"], y)
    inner = (back @ weights["out"].T).reshape(found.shape) * (found > 0)
    filters = windows.reshape(-1, 9).T @ inner.reshape(-1, inner.shape[2])
    return loss, {"out": flat.T @ back, "filters": filters}


def recurrent(weights: Weights, x: Float32s, y: Any) -> tuple[float, Weights]:
    """Read a picture row by row and classify it after the last."""
    rows = x.reshape(len(x), SIDE, SIDE)
    states = [np.zeros((len(x), len(weights["state"])), dtype=np.float32)]
    for at in range(SIDE):
        states.append(np.tanh(rows[:, at] @ weights["in"] + states[-1] @ weights["state"]))
    loss, back = cross_entropy(states[-1] @ weights["out"], y)
    found = {name: np.zeros_like(array) for name, array in weights.items()} | {"out": states[-1].T @ back}
    inner = back @ weights["out"].T
    for at in reversed(range(SIDE)):
        inner = inner * (1 - states[at + 1] ** 2)
        found["in"] += rows[:, at].T @ inner
        found["state"] += states[at].T @ inner
        inner = inner @ weights["state"].T
    return loss, found


MODELS: dict[str, tuple[Gradient, dict[str, tuple[int, int]]]] = {
    "softmax": (softmax, {"out": (SIDE * SIDE, CLASSES)}),
    "mlp": (perceptron, {"in": (SIDE * SIDE, 96), "out": (96, CLASSES)}),
    "coder": (autoencoder, {"in": (SIDE * SIDE, 64), "out": (64, SIDE * SIDE)}),
    "conv": (convolution, {"filters": (9, 8), "out": ((SIDE - 2) ** 2 * 8, CLASSES)}),
    "rnn": (recurrent, {"in": (SIDE, 48), "state": (48, 48), "out": (48, CLASSES)}),
}
"""Gradient function and sizes of the weights, by model."""


class ModelTraining:
    """A model in training; the batch of a step depends on its number alone, so that training can resume."""

    def __init__(self, model: str, rate: float, batch: int, seed: int) -> None:
        self._gradient, sizes = MODELS[model]
        draw = np.random.default_rng(seed + 1)
        scaled = {name: draw.normal(scale=size[0] ** -0.5, size=size) for name, size in sizes.items()}
        self.weights: Weights = {name: array.astype(np.float32) for name, array in scaled.items()}
        self.speed: Weights = {name: np.zeros_like(array) for name, array in self.weights.items()}
        self._pictures, self._labels = pictures(seed)
        self._rate, self._batch, self._seed = np.float32(rate), batch, seed
        self.step, self.loss = 0, float("nan")

    def advance(self) -> None:
        rows = np.random.default_rng([self._seed, self.step]).integers(PICTURES, size=self._batch)
        loss, gradient = self._gradient(self.weights, self._pictures[rows], self._labels[rows])
        for name, change in gradient.items():
            self.speed[name] = MOMENTUM * self.speed[name] - self._rate * change
            self.weights[name] += self.speed[name]
        self.step += 1
        self.loss = loss if self.step == 1 else SMOOTH * self.loss + (1 - SMOOTH) * loss

    def save(self, path: Path) -> None:
        """Write the checkpoint atomically."""
        partial = path.with_suffix(".partial")
        contents: dict[str, Any] = {"step": self.step, "loss": self.loss, **self.weights}
        contents |= {f"speed-{name}": array for name, array in self.speed.items()}
        with partial.open("wb") as file:
            np.savez(file, **contents)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)

    def load(self, path: Path) -> None:
        if not path.exists():
            return
        with np.load(path) as found:
            for name in self.weights:
                self.weights[name], self.speed[name] = found[name], found[f"speed-{name}"]
            self.step, self.loss = int(found["step"]), float(found["loss"])


def train(model: str, steps: int, rate: float, batch: int, seed: int) -> None:
    training = ModelTraining(model, rate, batch, seed)
    path = agent.checkpoint_dir() / "demo.npz"
    training.load(path)
    agent.on_stop(lambda: training.save(path))
    while training.step < steps:
        training.advance()
        agent.report(training.step, steps, loss=training.loss)
    print(f"{model}: {steps} steps, loss {training.loss:.3f}")


def step_seconds(batch: int) -> dict[str, float]:
    """Measure the CPU time of one step by model."""
    found = {}
    for model in MODELS:
        training = ModelTraining(model, 0.01, batch, seed=0)
        training.advance()
        began, used = time.monotonic(), time.process_time()
        while time.monotonic() - began < MEASURE_SECONDS:
            training.advance()
        found[model] = (time.process_time() - used) / (training.step - 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Train one of the demo's models.")
    parser.add_argument("--model", choices=tuple(MODELS), default="mlp")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--batch", type=int, default=192)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--measure", action="store_true", help="print what a step of each model costs, in CPU seconds")
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(step_seconds(asked.batch)))
    else:
        train(asked.model, asked.steps, asked.rate, asked.batch, asked.seed)


if __name__ == "__main__":
    main()
